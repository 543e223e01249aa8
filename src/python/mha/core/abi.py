"""The C interface as the module uses it: the generated declarations, and the words of enums in Python.

declared.py is written from include/mha by declare.py; this file adds nothing that a header says.
"""
from __future__ import annotations

import ctypes

try:
    from . import declared
    from .declared import *  # noqa: F403
except ImportError:
    raise ImportError("mha: expected a built module, found its sources; run `make python` for build/python") from None

CONSTANTS, ENUMS = declared.CONSTANTS, declared.ENUMS

# Versions 0.x promise no binary interface across minor versions: these declarations are of one of them.
SERIES = declared.SERIES


def _words(enum: str, prefix: str) -> tuple[str, ...]:
    """The words of an enum: MHA_MASK_KEEPS is "keeps"; its count is left out."""
    return tuple(name.removeprefix(prefix).lower() for name in ENUMS[enum] if not name.endswith("_COUNT"))


def _weight(name: str) -> str:
    """MHA_W_Q is "W_Q", MHA_B_Q "b_Q", MHA_Q_NORM "q_norm"."""
    word = name.removeprefix("MHA_")
    return word if word.startswith("W_") else "b_" + word[2:] if word.startswith("B_") else word.lower()


STATUS = tuple({"io": "i/o"}.get(word, word.replace("_", " ")) for word in _words("mha_status", "MHA_"))
_types = [name.removeprefix("MHA_") for name in ENUMS["mha_dtype"]]
DTYPES = tuple(_types[:_types.index("Q4_0")])  # the plain types that arrays have; C64 comes later
F32, F64, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3, F8_E5M2 = range(len(DTYPES))
# Types in which a layer can store its matrices.
BLOCKS = {name: CONSTANTS["MHA_" + name.upper()] for name in (
    "q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 f8_e4m3_scaled f8_e5m2_scaled".split())}
TF32 = CONSTANTS["MHA_TF32"]  # which no array has
PATHS = _words("mha_path", "MHA_PATH_")
STAGES = _words("mha_stage", "MHA_STAGE_")
BACKWARD_STAGES = _words("mha_backward_stage", "MHA_BACKWARD_")
OUTPUT, LSE = STAGES.index("output"), STAGES.index("lse")
WEIGHTS = tuple(_weight(name) for name in ENUMS["mha_weight"][:-1])
ROPE_SCALINGS = ("none", *_words("mha_rope_scaling_kind", "MHA_ROPE_")[1:])  # the first is called MHA_ROPE_UNSCALED
TENSOR_KINDS = _words("mha_tensor_kind", "MHA_TENSOR_")
ORIENTATIONS = _words("mha_orientation", "MHA_ORIENTATION_")
CRITERIA = _words("mha_criterion_kind", "MHA_CRITERION_")
POWER_RESULTS = _words("mha_power_result", "MHA_POWER_")
OUTCOMES = _words("mha_outcome", "MHA_OUTCOME_")
FINDINGS = tuple({"tied": "stored twice"}.get(word, word) for word in _words("mha_finding_kind", "MHA_FINDING_"))
MAX_RANK, ALIBI_MAX_HEADS = CONSTANTS["MHA_MAX_RANK"], CONSTANTS["MHA_ALIBI_MAX_HEADS"]
ROPE_MAX_PAIRS, ROPE_MAX_AXES = CONSTANTS["MHA_ROPE_MAX_PAIRS"], CONSTANTS["MHA_ROPE_MAX_AXES"]


def declare(library: ctypes.CDLL) -> None:
    """Gives every function of the library its types; AttributeError for one that the library lacks."""
    for name, (result, arguments) in declared.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
