"""Comparison in a test: an assertion whose message says what is wrong, and cases for hypothesis."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from ._renamed import TESTING, missing
from .conformance.autodiff import run_pair
from .conformance.invariances import INVARIANCES, Invariance, Invariances, invariant
from .core import abi
from .core import arrays as a
from .core.errors import Error
from .core.layer import MultiHeadAttention
from .core.library import call, lib
from .core.reference import Computed, Meant
from .judge.check import Verdict, check_case, diagnose, rows_checked
from .judge.failures import opening, save, save_failures
from .judge.gradients import BUGS, assert_gradients_close
from .judge.power import GradientPower, Power, gradient_power, power

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .core.typed import MeantSettings

__all__ = ["INVARIANCES", "Invariance", "Invariances", "BUGS", "Power", "assert_attention_close",
           "assert_function_close", "assert_gradients_close", "cases", "gradient_power", "invariant", "power",
           "save_failures"]

if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """Raises AttributeError, with the new name of a renamed one."""
        raise missing(f"module {__name__!r}", name, TESTING)


# ---------------------------------------------------------------- deciding


class Limits(NamedTuple):
    """|yours - exact| <= atol + rtol |exact|. `derived`: what the library allows; None where the caller does."""

    rtol: float
    atol: float
    derived: Optional[abi.Allowance] = None


class Apart:
    """What lies between somebody's array and the exact one of its shape."""

    def __init__(self, yours: a.Tensor, exact: a.Tensor, limits: Limits) -> None:
        d = abi.Difference()
        if limits.derived is not None:
            yours = a.Tensor(np.array(a.widened(yours, abi.F64).array), abi.F64, a.wrap_numpy)
            lib.mha_replace_equivalent(ctypes.byref(a.view_of(exact)), ctypes.byref(limits.derived),
                                       ctypes.byref(a.view_of(yours)))
        self.yours, self.exact, self.limits = yours, exact, limits
        call(lib.mha_compare, ctypes.byref(a.view_of(yours)), ctypes.byref(a.view_of(exact)), limits.rtol, limits.atol,
             ctypes.byref(d))
        self.found, self.mismatches = d, d.mismatches

    def words(self, name: str, why: str) -> list[str]:
        """How many elements differ, and the worst of them."""
        d, limits = self.found, self.limits
        yours, exact = d.worst_actual, d.worst_expected
        nan, inf = (d.nan_actual, d.nan_expected), (d.inf_actual, d.inf_expected)
        allowed = limits.atol + (limits.rtol * abs(exact) if np.isfinite(exact) else 0.0)
        lines = [f"{name} differs: {d.mismatches:,} of {d.elements:,} elements",
                 f"  worst at {tuple(d.worst_index[:d.rank])}: yours {yours:.9g}, exact {exact:.9g}, off by "
                 f"{abs(yours - exact):.3g}, allowed {allowed:.3g} ({why})"]
        if nan[0] != nan[1] or inf[0] != inf[1]:
            lines.append(f"  NaN: yours {nan[0]:,}, exact {nan[1]:,}; infinite: yours {inf[0]:,}, exact {inf[1]:,}")
        return lines

    def first(self, axes: Sequence[str]) -> str:
        """Where the difference begins, by the names of the axes."""
        yours, exact = a.widened(self.yours, abi.F64).array, self.exact.array
        with np.errstate(invalid="ignore", over="ignore"):
            near = self.limits.atol + self.limits.rtol * np.abs(exact)
            wrong = ~((np.abs(yours - exact) <= near) | (yours == exact) | (np.isnan(yours) & np.isnan(exact)))
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


def _checked_in_part(meant: Meant, recorded: Mapping[str, a.Tensor], computed: Computed,
                    sample: int) -> Optional[Verdict]:
    """The verdict of a sample of the rows; None where all rows are compared, or the sample could not be."""
    try:
        case = meant.case(recorded, computed)
    except Error:  # a call that no case can hold is checked whole
        return None
    lib.mha_case_sample(case.address, sample)
    checked, rows = rows_checked(case)
    verdict = check_case(case, 0) if checked < rows else None
    return None if verdict is None or verdict.skipped else verdict


# ---------------------------------------------------------------- the assertion


def assert_attention_close(actual: a.Array, query: a.Array, key: Optional[a.Array] = None,
                           value: Optional[a.Array] = None, *, layer: Optional[MultiHeadAttention] = None,
                           layout: Optional[str] = None, dtype: Any = None,
                           precision: Optional[Mapping[str, Any]] = None, rtol: Optional[float] = None,
                           atol: Optional[float] = None, stages: Optional[Mapping[str, a.Array]] = None,
                           sample: int = 0, msg: Optional[str] = None, **settings: Unpack[MeantSettings]) -> None:
    """Fails unless somebody's output is attention's, and says what it is instead.

        mha.testing.assert_attention_close(kernel(q, k, v), q, k, v, is_causal=True)

    actual: the output under test, in the axes of query; None with only stages.
    query, key, value, layer, layout, settings: as in mha.diagnose.
    rtol, atol: |actual - exact| <= atol + rtol |exact|, everywhere. Without them the tolerance is that of mha.check and
        of `mha check`, which follows from the call (mha_tolerance): what computing in `dtype` costs on these inputs,
        and the rounding of the result to its own type. dtype: what the kernel computes in; that of `actual` when None.
    precision: the points at which the kernel rounds, where they are others, as in mha.diagnose.
    stages: other stages under test, by name, in the library's shapes.
    sample: how many query rows of each batch row are checked; 0: all, or 256 of a large case. With rtol or atol: all.
    msg: the first line of the AssertionError.

    What no tolerance follows for, because numbers may leave the range of float32, is not checked and fails, too.
    The AssertionError says how many elements differ, the worst of them, what it should be and what was allowed, the
    known bug that gives these numbers, and how to save a case that mha check and mha diagnose read.
    """
    __tracebackhide__ = True
    said = opening(msg)
    meant = Meant(query, key, value, layer, layout, {**settings})
    recorded = meant.recorded(actual, stages)
    computed = Computed(dtype, precision, recorded)
    sample = a.whole_number("sample", sample, 0)

    def fail(message: list[str], stage: str) -> None:
        __tracebackhide__ = True
        try:
            found = diagnose(actual, query, key, value, layer=layer, layout=layout, stages=stages, tensor=stage,
                             dtype=dtype, precision=precision, sample=sample, **settings)
            message.append("  " + found.sentence)
            message += [f"  held against the exact values, {clue}" for clue in found.clues]
        except Error as reason:
            message.append(f"  no diagnosis: {reason}")
        message.append("  " + save(lambda path: meant.save(path, recorded, computed)))
        raise AssertionError("\n".join(said + message))

    for name, given in (("rtol", rtol), ("atol", atol)):
        if given is not None and not a.number(name, given) >= 0:
            raise ValueError(f"{name}: expected a number of at least 0, found {given}")
    if rtol is None and atol is None:
        part = _checked_in_part(meant, recorded, computed, sample)
        if part is not None and part.passed:
            return
        if part is not None:
            fail([part.reason, "  " + part.sample], str(part.first))
        why = f"what rounding in {computed.words} may cost"
        limits = {name: Limits(x.rtol, x.atol, x) for name, x in meant.allowed(computed, recorded).items()}
    else:
        why = "as you asked"
        limits = dict.fromkeys(recorded, Limits(rtol or 0.0, atol or 0.0))
    wanted = [name for name in recorded if name != "output"]
    result = meant.exact(wanted)
    output, kept = result if wanted else (result, {})
    message: list[str] = []
    unchecked = [name for name, limit in limits.items() if limit.derived is not None and not np.isfinite(limit.atol)]
    for name, tensor in recorded.items():
        if name in unchecked:
            continue
        exact = a.floats(name, output if name == "output" else kept[name])
        tensor = a.floats(name, actual, a.RESULTS) if name == "output" else tensor  # in the caller's axes
        apart = Apart(tensor, exact, limits[name])
        if apart.mismatches:
            message += apart.words(name, why)
            message.append(apart.first(_axes(meant, name, exact.array.ndim)))
            stage = name
            break
    if message:
        fail(message, stage)
    if unchecked:
        raise AssertionError("\n".join([*said, f"{', '.join(unchecked)}: not checked: numbers may leave the range of "
                                        "float32 on the way, so that no tolerance follows from the call: expected rtol "
                                        "or atol, or smaller inputs"]))


def assert_function_close(function: Callable[..., Any], q: a.Array, k: a.Array, v: a.Array, *,
                          backward: Optional[Callable[..., Any]] = None, do: Optional[a.Array] = None, seed: int = 0,
                          layout: Optional[str] = None, dtype: Any = None,
                          precision: Optional[Mapping[str, Any]] = None,
                          backward_precision: Optional[Mapping[str, Any]] = None, rtol: Optional[float] = None,
                          atol: Optional[float] = None, sample: int = 0, msg: Optional[str] = None,
                          **settings: Unpack[MeantSettings]) -> None:
    """Runs a function of q, k and v and its backward, and fails unless both are those of attention.

        mha.testing.assert_function_close(Flash, q, k, v, is_causal=True)                a torch.autograd.Function
        mha.testing.assert_function_close(lambda *x: flash(*x, causal=True), q, k, v, is_causal=True)
        mha.testing.assert_function_close(forward, q, k, v, backward=backward)           any pair

    function: a torch.autograd.Function, of tensors of torch any function that autograd follows, of arrays of JAX any
        that jax.vjp takes (a jax.custom_vjp), or with `backward` any. It gets q, k and v, and returns the output.
    backward: backward(q, k, v, output, do) returns dq, dk and dv, None where it has none.
    do: the gradient of the output; None: random, from the seed.
    layout, settings: what the function is meant to be, as in assert_attention_close. dtype, rtol, atol: of the output
        and of the gradients. precision, backward_precision: the points at which either of them rounds.
    sample: how many query rows, and of the gradients keys, are checked, as in these two. msg: as in these.

    The AssertionError is that of assert_attention_close, of assert_gradients_close, or both.
    """
    __tracebackhide__ = True
    said = opening(msg)
    output, do, (dq, dk, dv) = run_pair(function, backward, (q, k, v), do, seed)
    found = {"dq": dq, "dk": dk, "dv": dv}
    message = [f"{name}: the backward gives none" for name, x in found.items() if x is None and backward is None]
    try:
        assert_attention_close(output, q, k, v, layout=layout, dtype=dtype, precision=precision, rtol=rtol, atol=atol,
                               sample=sample, **settings)
    except AssertionError as reason:
        message.append(f"forward: {reason}")
    try:
        if len(message) < len(found):
            assert_gradients_close(dq, dk, dv, q, k, v, do, layout=layout, dtype=dtype, precision=backward_precision,
                                   rtol=rtol, atol=atol, sample=sample, **settings)
    except AssertionError as reason:
        message.append(f"backward: {reason}")
    if message:
        raise AssertionError("\n".join(said + message))


# ---------------------------------------------------------------- cases for hypothesis


def cases(**options: Any) -> Any:
    """A strategy of hypothesis: random calls over the settings of the library, as RandomCall of conformance.strategies.

        @hypothesis.given(mha.testing.cases(gqa=False))
        def test_kernel(case):
            mha.testing.assert_attention_close(kernel(*case.inputs, **case.settings), *case.inputs, **case.settings)

    options: see mha.conformance.strategies.cases. ImportError without hypothesis.
    """
    from .conformance import strategies

    return strategies.cases(**options)
