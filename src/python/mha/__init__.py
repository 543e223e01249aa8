"""Multi-head attention as a reference computes it, for arrays of numpy, PyTorch and JAX.

    mha.scaled_dot_product_attention(query, key, value, is_causal=True)      PyTorch's signature
    mha.attention(q, k, v, causal=True)                                      flash-attn's conventions
    mha.MultiHeadAttention(512, 8)(x)                                        a layer, or .from_torch, .from_file
    mha.diagnose(mine, query, key, value, is_causal=True)                    which known bug is it?
    mha.testing.assert_attention_close(mine, query, key, value)              the checker in a test
    mha.conform(kernel, has={"causal", "gqa"})                               is this kernel right?
    mha.Model.from_preset("gpt2"), .from_torch(model), mha.load(path)        parameters, layers, files

src/python/README.md shows each of them at work.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._library import __version__
from ._renamed import MODULE, missing

if TYPE_CHECKING:
    from . import testing, transformers
    from .backward import attention_backward
    from .cache import Cache
    from ._conform import Result, Report, conform
    from .errors import (Error, FormatError, InvalidError, MachineError, NoMemoryError, NotFoundError, UnsupportedError)
    from .files import File, load, save
    from .functional import attention, scaled_dot_product_attention
    from ._check import Diagnosis, Verdict, bugs, check, diagnose
    from .layer import MultiHeadAttention
    from .live import LiveModel
    from ._merge import merge
    from .model import Model, count, presets
    from .pages import paged_attention, paged_attention_backward
    from .parameters import Parameter, Parameters, Totals
    from .suite import NEEDS
    from .semantics import Bias, Relative, Rope, window_segments
    from .settings import SETTINGS
    from .tables import Table
    from .trace import Trace
    from ._watch import Watch, watch

__all__ = ["Result", "Bias", "Cache", "Diagnosis", "Error", "File", "FormatError", "InvalidError",
           "LiveModel", "MachineError", "Model", "MultiHeadAttention", "NEEDS", "NoMemoryError", "NotFoundError",
           "Parameter", "Parameters", "Relative", "Report", "Rope", "SETTINGS", "Table", "Totals", "Trace",
           "UnsupportedError", "Verdict", "Watch", "__version__", "attention", "attention_backward", "check",
           "conform", "count", "diagnose", "load", "merge", "paged_attention", "paged_attention_backward",
           "presets", "save", "scaled_dot_product_attention", "testing", "transformers", "bugs", "watch",
           "window_segments"]

# The module of each public name. A module is imported, and its tables are read, when one of its names is first used.
_HOMES = {
    "backward": "attention_backward", "cache": "Cache", "_conform": "Result Report conform",
    "errors": "Error FormatError InvalidError MachineError NoMemoryError NotFoundError UnsupportedError",
    "files": "File load save", "functional": "attention scaled_dot_product_attention",
    "_check": "Diagnosis Verdict bugs check diagnose", "layer": "MultiHeadAttention", "live": "LiveModel",
    "_merge": "merge", "model": "Model count presets", "pages": "paged_attention paged_attention_backward",
    "parameters": "Parameter Parameters Totals", "suite": "NEEDS",
    "semantics": "Bias Relative Rope window_segments", "settings": "SETTINGS", "tables": "Table", "trace": "Trace",
    "_watch": "Watch watch"}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    def __getattr__(name: str) -> Any:
        """Imports the module of a name, or a public module."""
        if name in MODULE or (name not in _HOME and name.startswith("_")):
            raise missing(f"module {__name__!r}", name, MODULE)
        path = f"{__name__}.{_HOME.get(name, name)}"
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as reason:
            if reason.name != path:
                raise
            raise missing(f"module {__name__!r}", name, MODULE) from None
        value = globals()[name] = getattr(module, name) if name in _HOME else module
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
