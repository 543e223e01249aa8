"""Comparison in a test: an assertion whose message says what is wrong, and cases for hypothesis."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from ._renamed import TESTING, missing
from .conformance.autodiff import run_pair
from .conformance.invariances import INVARIANCES, Difference, Invariance, Invariances, invariant
from .core import abi
from .core import arrays as a
from .core.errors import Error
from .core.layer import MultiHeadAttention
from .core.library import call, lib
from .core.reference import Computed, Meant, half_unit
from .judge.check import Verdict, check_case, diagnose, rows_checked
from .judge.failures import opening, save, save_failures
from .judge.gradients import BUGS, assert_gradients_close
from .judge.power import GradientPower, Power, gradient_power, power

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hypothesis.strategies import SearchStrategy

    from .conformance.strategies import CaseOptions, RandomCall
    from .core.typed import MeantSettings

__all__ = ["INVARIANCES", "Difference", "GradientPower", "Invariance", "Invariances", "BUGS", "Power",
           "assert_attention_close", "assert_function_close", "assert_gradients_close", "cases", "gradient_power",
           "invariant", "power", "save_failures"]

if not TYPE_CHECKING:
    def __getattr__(name: str) -> object:
        """Raises AttributeError, with the new name of a renamed one."""
        raise missing(f"module {__name__!r}", name, TESTING)


# ---------------------------------------------------------------- deciding


class Limits(NamedTuple):
    """|yours - exact| <= atol + rtol |exact|. `allowance`: the same, with the stage and the type of the result."""

    rtol: float
    atol: float
    allowance: abi.Allowance


def limits_of(meant: Meant, computed: Computed, recorded: Mapping[str, a.Tensor], rtol: Optional[float],
              atol: Optional[float]) -> dict[str, Limits]:
    """The tolerance of each stage, as in a case file: mha derives each number that is None."""
    found = meant.allowed(computed, recorded) if atol is None else {
        name: abi.Allowance(stage=abi.STAGES.index(name), stored=x.dtype, atol=atol, rtol=half_unit(
            x.dtype, computed.wide(x.dtype))) for name, x in recorded.items()}
    return {name: Limits(x.rtol if rtol is None else rtol, x.atol, x) for name, x in found.items()}


class Apart:
    """The difference of the user's array and the exact one of its shape."""

    def __init__(self, yours: a.Tensor, exact: a.Tensor, limits: Limits) -> None:
        d = abi.Difference()
        yours = a.Tensor(np.array(a.doubles(yours)), abi.F64, a.wrap_numpy)
        lib.mha_replace_equivalent(ctypes.byref(a.view_of(exact)), ctypes.byref(limits.allowance),
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
        yours, exact = a.doubles(self.yours), a.doubles(self.exact)
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
    """The meaning of the axes of a stage, without the last."""
    if name == "output":
        return tuple(meant.shape.names)
    by_head = name in ("scores", "capped", "masked", "weights", "lse", "present_key", "present_value")
    return (("batch row", "head", "query") if by_head else ("batch row", "query"))[:rank]


def _checked_in_part(meant: Meant, recorded: Mapping[str, a.Tensor], computed: Computed,
                    sample: int) -> Optional[Verdict]:
    """The verdict of a sample of the rows; None where all rows are compared, or the sample could not be."""
    try:
        case = meant.case(recorded, computed)
    except Error:  # no case can express this call: it is checked whole
        return None
    lib.mha_case_sample(case.address, sample)
    checked, rows = rows_checked(case)
    verdict = check_case(case, 0) if checked < rows else None
    return None if verdict is None or verdict.skipped else verdict


# ---------------------------------------------------------------- the assertion


def assert_attention_close(actual: a.ArrayLike, query: a.ArrayLike, key: Optional[a.ArrayLike] = None,
                           value: Optional[a.ArrayLike] = None, *, layer: Optional[MultiHeadAttention] = None,
                           layout: Optional[str] = None, dtype: Optional[a.Type] = None,
                           precision: Optional[Mapping[str, a.Type]] = None, rtol: Optional[float] = None,
                           atol: Optional[float] = None, stages: Optional[Mapping[str, a.ArrayLike]] = None,
                           sample: Optional[int] = None, msg: Optional[str] = None,
                           **settings: Unpack[MeantSettings]) -> None:
    """Assert that an output is that of attention. The message names the bug that gives it.

    A result passes if |actual - exact| <= atol + rtol |exact| everywhere. mha derives each of both that is None from
    the call, as mha.check does, also in a case file. If numbers may leave the range of float32, no atol follows, and
    the assertion fails.

    Parameters
    ----------
    actual : array_like or None
        Output under test, in the axes of query; None with `stages` only.
    query, key, value, layer, layout, precision
        As in mha.diagnose.
    dtype : str or dtype, default None
        Type of the kernel's arithmetic; None: that of `actual`.
    rtol, atol : float, default None
        Tolerance; None: the derived number (of rtol half a unit in the last place of a 16-bit type). So in a case.
    stages : dict from str to array_like, default None
        Other stages under test, by name, in the library's shapes.
    sample : int, default None
        Query rows of each batch row to check; None: all, or 256 of a large case. With rtol or atol: all.
    msg : str, default None
        First line of the AssertionError.
    **settings
        The intended call, as in mha.diagnose.

    Raises
    ------
    AssertionError
        The output is wrong: the worst element, the allowed error, the known bug, and how to save a case.
    TypeError, ValueError
        An argument has the wrong type, shape or value.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> mha.testing.assert_attention_close(mha.scaled_dot_product_attention(q, k, v), q, k, v)
    """
    __tracebackhide__ = True
    said = opening(msg)
    meant = Meant(query, key, value, layer, layout, {**settings})
    recorded = meant.recorded(actual, stages)
    computed = Computed(dtype, precision, recorded)
    sample = a.count("sample", sample)

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
    else:
        why = "as you asked"
    limits = limits_of(meant, computed, recorded, rtol, atol)
    wanted = [name for name in recorded if name != "output"]
    result = meant.exact(wanted)
    output, kept = result if wanted else (result, {})
    message: list[str] = []
    unchecked = [name for name, limit in limits.items() if atol is None and not np.isfinite(limit.atol)]
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
                                        "float32 on the way, so that no tolerance follows from the call: expected "
                                        "atol, or smaller inputs"]))


def assert_function_close(function: Callable[..., object], q: a.ArrayLike, k: a.ArrayLike, v: a.ArrayLike, *,
                          backward: Optional[Callable[..., object]] = None, do: Optional[a.ArrayLike] = None,
                          seed: int = 0, layout: Optional[str] = None, dtype: Optional[a.Type] = None,
                          precision: Optional[Mapping[str, a.Type]] = None,
                          backward_precision: Optional[Mapping[str, a.Type]] = None, rtol: Optional[float] = None,
                          atol: Optional[float] = None, sample: Optional[int] = None, msg: Optional[str] = None,
                          **settings: Unpack[MeantSettings]) -> None:
    """Run a function of q, k and v and its backward, and assert that both are those of attention.

        mha.testing.assert_function_close(Flash, q, k, v, is_causal=True)                a torch.autograd.Function
        mha.testing.assert_function_close(lambda *x: flash(*x, causal=True), q, k, v, is_causal=True)

    Parameters
    ----------
    function : callable
        A torch.autograd.Function, a function of torch tensors that autograd follows, a function of JAX arrays that
        jax.vjp takes, or with `backward` any. It gets q, k and v and returns the output.
    q, k, v : array_like
        As in mha.diagnose.
    backward : callable, default None
        backward(q, k, v, output, do) returns dq, dk and dv, None for one that it lacks.
    do : array_like, default None
        Gradient of the output; None: random.
    seed : int, default 0
        Seed of `do`.
    layout : str, default None
        Order of the axes, as in mha.diagnose.
    dtype : str or dtype, default None
        Type of the arithmetic; None: that of the results.
    precision, backward_precision : dict from str to dtype, default None
        Points at which forward and backward round.
    rtol, atol, sample, msg
        As in mha.testing.assert_attention_close, and of gradients as in mha.testing.assert_gradients_close.
    **settings
        The intended call, as in mha.diagnose.

    Raises
    ------
    AssertionError
        The output or a gradient is wrong, as in these two.
    TypeError, ValueError
        An argument has the wrong type, shape or value.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> def backward(q, k, v, output, do):
    ...     return mha.attention_backward(q, k, v, do)
    >>> mha.testing.assert_function_close(mha.scaled_dot_product_attention, q, k, v, backward=backward)
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


def cases(**options: Unpack[CaseOptions]) -> SearchStrategy[RandomCall]:
    """Make a strategy of hypothesis: random calls with the settings of the library.

    Parameters
    ----------
    **options
        dtype ("float32"), longest (40, of T_q and S), and booleans, all True: gqa, d_v (another width of values),
        causal, masks, settings (window, softcap, sinks, alibi, position_bias, relative, lengths, offset).

    Returns
    -------
    hypothesis.strategies.SearchStrategy
        Of calls with `inputs` (query, key, value) and `settings`.

    Raises
    ------
    ImportError
        hypothesis is not installed.

    Examples
    --------
    >>> import hypothesis
    >>> kernel = mha.scaled_dot_product_attention
    >>> @hypothesis.settings(max_examples=5, database=None, deadline=None)
    ... @hypothesis.given(mha.testing.cases(gqa=False))
    ... def test_kernel(case):
    ...     mha.testing.assert_attention_close(kernel(*case.inputs, **case.settings), *case.inputs, **case.settings)
    >>> test_kernel()
    """
    from .conformance import strategies

    return strategies.cases(**options)
