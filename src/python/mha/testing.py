"""The judge in a test: an assertion whose message says what is wrong, and cases for hypothesis."""
from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from . import _abi
from . import arrays as a
from ._library import call, lib, program
from .errors import Error
from .judge import diagnose
from .layer import MultiHeadAttention
from .meant import Computed, Meant
from .power import Power, power

__all__ = ["Power", "assert_attention_close", "cases", "power", "save_failures"]

_MOST_SAVED = 10  # cases that one process saves
_saved: dict[str, Any] = {"folder": None, "count": 0, "own": None}


def save_failures(folder: Optional[str]) -> None:
    """Where failed assertions save their cases; None: a temporary folder, made at the first of them."""
    _saved["folder"], _saved["count"] = folder, 0


def _folder() -> str:
    folder = _saved["folder"] or os.environ.get("MHA_SAVE_FAILURES") or _saved["own"]
    if folder is None:
        folder = _saved["own"] = tempfile.mkdtemp(prefix="mha-failures-")
    os.makedirs(folder, exist_ok=True)
    return str(folder)


def _save(meant: Meant, recorded: Mapping[str, a.Tensor], computed: Computed) -> str:
    """Saves a case, and says in one line where it is and what looks at it: the program, where there is one."""
    if _saved["count"] >= _MOST_SAVED:
        return f"case not saved: {_MOST_SAVED} are, the last in {_folder()}"
    _saved["count"] += 1
    path = os.path.join(_folder(), f"failed-{os.getpid()}-{_saved['count']}.safetensors")
    try:
        meant.save(path, recorded, computed)
    except (Error, OSError) as reason:
        return f"case not saved: {reason}"
    command = "mha" if shutil.which("mha") else program()
    if command is None:
        return f"case saved: mha.check({path!r}); mha.diagnose({path!r})"
    return f"case saved: {command} check {path}; {command} diagnose {path}"


# ---------------------------------------------------------------- deciding


def compare(actual: a.Tensor, expected: a.Tensor, rtol: float, atol: float) -> _abi.Difference:
    """The difference of two arrays of one shape: equal where |actual - expected| <= atol + rtol |expected|."""
    found = _abi.Difference()
    call(lib.mha_compare, ctypes.byref(a.view_of(actual)), ctypes.byref(a.view_of(expected)), rtol, atol,
         ctypes.byref(found))
    return found


def _tolerances(name: str, computed: Computed, stored: int, bound: Mapping[str, float], rtol: Optional[float],
                atol: Optional[float]) -> tuple[float, float, str]:
    """What is allowed for a stage, and why."""
    if rtol is not None or atol is not None:
        return rtol or 0.0, atol or 0.0, "as you asked"
    # What is stored is rounded once more: by its unit roundoff u |stored|, which is at most u / (1 - u) |exact| beside
    # the bound, or by half of the smallest subnormal.
    unit = a.UNITS[stored]
    relative = unit / (1 - unit)
    absolute = bound[name] * (1 + relative) + a.HALF_TINY[stored]
    return relative, absolute, f"what rounding in {computed.words} may cost"


# ---------------------------------------------------------------- wording


def _word(name: str, d: _abi.Difference, rtol: float, atol: float, why: str) -> list[str]:
    index = tuple(d.worst_index[:d.rank])
    allowed = atol + (rtol * abs(d.worst_expected) if np.isfinite(d.worst_expected) else 0.0)
    lines = [f"{name} differs: {d.mismatches:,} of {d.elements:,} elements",
             f"  worst at {index}: yours {d.worst_actual:.9g}, exact {d.worst_expected:.9g}, off by "
             f"{abs(d.worst_actual - d.worst_expected):.3g}, allowed {allowed:.3g} ({why})"]
    if d.nan_actual != d.nan_expected or d.inf_actual != d.inf_expected:
        lines.append(f"  NaN: yours {d.nan_actual:,}, exact {d.nan_expected:,}; "
                     f"infinite: yours {d.inf_actual:,}, exact {d.inf_expected:,}")
    return lines


def _first(yours: Any, exact: Any, rtol: float, atol: float, axes: Sequence[str]) -> str:
    """Where the difference begins, by the names of the axes."""
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = ~((np.abs(yours - exact) <= atol + rtol * np.abs(exact)) | (yours == exact)
                  | (np.isnan(yours) & np.isnan(exact)))
    first = np.argwhere(wrong)
    if not len(first):
        return ""
    parts = []
    for axis, word in enumerate(axes):
        parts.append(f"{word} {sorted({int(i) for i in first[:, axis]})[0]}")
        first = first[first[:, axis] == first[:, axis].min()]
    return "  first that differs: " + ", ".join(parts)


def _axes(meant: Meant, name: str, rank: int) -> tuple[str, ...]:
    """What the axes of a stage stand for, but the last."""
    if name == "output":
        return tuple(meant.shape.names)
    by_head = name in ("scores", "capped", "masked", "weights", "lse", "present_key", "present_value")
    return (("batch row", "head", "query") if by_head else ("batch row", "query"))[:rank]


# ---------------------------------------------------------------- the assertion


def assert_attention_close(actual: a.Array, query: a.Array, key: Optional[a.Array] = None,
                           value: Optional[a.Array] = None, *, layer: Optional[MultiHeadAttention] = None,
                           layout: Optional[str] = None, dtype: Any = None,
                           precision: Optional[Mapping[str, Any]] = None, rtol: Optional[float] = None,
                           atol: Optional[float] = None, stages: Optional[Mapping[str, a.Array]] = None,
                           **settings: Any) -> None:
    """Fails unless somebody's output is attention's, and says what it is instead.

        mha.testing.assert_attention_close(kernel(q, k, v), q, k, v, is_causal=True)

    actual: the output under test, in the axes of query; None with stages alone.
    query, key, value, layer, layout, settings: as in mha.diagnose.
    rtol, atol: |actual - exact| <= atol + rtol |exact|, everywhere. Without them the tolerance follows from the call:
        what rounding to `dtype` may cost, and the rounding of the result to its own type. float32 and float64: at
        every step, whatever the order of summation (mha_error_bound). float16, bfloat16 and float8: at the points where
        a fused kernel rounds (mha_precision_tolerance). dtype: what the kernel computes in; that of `actual` when None.
    precision: the points at which the kernel rounds, where they are others, as in mha.diagnose.
    stages: other stages under test, by name, in the library's shapes.

    The AssertionError says how many elements differ, the worst of them, what it should be and what was allowed, the
    named variant of attention that gives these numbers, and where a case is saved that mha check and mha diagnose read.
    """
    __tracebackhide__ = True
    meant = Meant(query, key, value, layer, layout, settings)
    recorded = meant.recorded(actual, stages)
    computed = Computed(dtype, precision, recorded)
    for name, given in (("rtol", rtol), ("atol", atol)):
        if given is not None and not a.number(name, given) >= 0:
            raise ValueError(f"{name}: expected a number of at least 0, found {given}")
    bound: dict[str, float] = {}
    if rtol is None and atol is None:
        bound = meant.allowed(computed)
    wanted = [name for name in recorded if name != "output"]
    result = meant.exact(wanted)
    output, kept = result if wanted else (result, {})
    message: list[str] = []
    for name, tensor in recorded.items():
        exact = a.floats(name, output if name == "output" else kept[name])
        tensor = a.floats(name, actual, a.RESULTS) if name == "output" else tensor  # in the caller's axes
        allowed, absolute, why = _tolerances(name, computed, tensor.dtype, bound, rtol, atol)
        d = compare(tensor, exact, allowed, absolute)
        if d.mismatches:
            yours = a.widened(tensor, _abi.F64).array
            message += _word(name, d, allowed, absolute, why)
            message.append(_first(yours, exact.array, allowed, absolute, _axes(meant, name, yours.ndim)))
            stage = name
            break
    if not message:
        return
    try:
        found = diagnose(actual, query, key, value, layer=layer, layout=layout, stages=stages, tensor=stage,
                         dtype=dtype, precision=precision, **settings)
        message.append("  " + found.sentence)
        message += [f"  held against the exact values, {clue}" for clue in found.clues]
    except Error as reason:
        message.append(f"  no diagnosis: {reason}")
    message.append("  " + _save(meant, recorded, computed))
    raise AssertionError("\n".join(message))


# ---------------------------------------------------------------- cases for hypothesis


def cases(**options: Any) -> Any:
    """A strategy of hypothesis: random calls over the settings of the library, as mha.strategies.Case.

        @hypothesis.given(mha.testing.cases(gqa=False))
        def test_kernel(case):
            mha.testing.assert_attention_close(kernel(*case.inputs, **case.settings), *case.inputs, **case.settings)

    options: see mha.strategies.cases. ImportError without hypothesis.
    """
    from . import strategies

    return strategies.cases(**options)
