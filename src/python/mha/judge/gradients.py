"""Assertions on gradients in a test, whose message says what is wrong."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.backward import TYPED, MeantBackward
from ..core.backward_call import GRADIENTS, INPUTS, STAGES, Backward, stages_of
from ..core.errors import typed
from ..core.files import path_of
from ..core.layer import MultiHeadAttention
from ..core.library import call, lib
from ..core.reference import Meant, half_unit
from .failures import opening, save
from .part import Cut
from .sample import Part, Sample, rows_wanted, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..core.typed import MeantSettings

POINTS = tuple(name for name, _ in abi.BackwardPrecision._fields_ if name != "reserved")
_ROUNDINGS = (abi.F32, abi.F16, abi.BF16)
_MOST_PAIRS = abi.CONSTANTS["MHA_EXPLAINED_PAIRS"]
_MOST_NAMED = 5


class Bug(NamedTuple):
    """A named way to get gradients wrong."""

    name: str
    help: str


def _bugs() -> tuple[Bug, ...]:
    rows: list[Bug] = []
    while row := lib.mha_gradient_bug_at(len(rows)):
        rows.append(Bug(row.contents.name.decode(), row.contents.help.decode()))
    return tuple(rows)


BUGS = _bugs()


class ComputedGradients:
    """In which type a backward computes, and where it rounds: a fused kernel of that type, unless `precision` says
    otherwise."""

    def __init__(self, dtype: Optional[a.Type], precision: Optional[Mapping[str, object]], first: a.Tensor) -> None:
        code = self.code = first.dtype if dtype is None else a.float_type("dtype", dtype)
        self.unit = 2.0**-53 if code == abi.F64 else 2.0**-24
        self.precision, self.words = lib.mha_backward_precision_of(code), a.NAMES[code]
        if precision is None:
            return
        if not isinstance(precision, Mapping):
            raise TypeError("precision: expected a dict from points to types, such as {'output': 'float32'}, found "
                            f"{type(precision).__name__}")
        for point, given in precision.items():
            a.choice("precision", point, POINTS)
            if point == "block_rows":
                self.precision.block_rows = a.whole_number(f"precision[{point!r}]", given, 0, 32)
                self.words += f", dQ, dK and dV in blocks of {given} rows"
                continue
            setattr(self.precision, point, a.float_type(f"precision[{point!r}]", given, _ROUNDINGS))
            self.words += f", {point} in {a.NAMES[getattr(self.precision, point)]}"


def _word(name: str) -> str:
    """dq, dk and dv; d_mask, d_sinks and so on; of stages their names."""
    return name if name in STAGES else f"d{name[0]}" if name in INPUTS else f"d_{name}"


class GradientVerdict(NamedTuple):
    """How one gradient, or one stage of a backward, differs from the exact one."""

    name: str
    wrong: int
    elements: int
    worst: tuple[int, ...]
    yours: float
    exact: float
    allowed: float

    @property
    def ratio(self) -> float:
        """The error of the worst element over what is allowed; 0: of no elements, or none is off."""
        off = abs(self.yours - self.exact)
        if off == 0 or np.isnan(self.yours) and np.isnan(self.exact):
            return 0.0
        if np.isinf(self.allowed):
            return 0.0
        return float("inf") if np.isnan(off) or self.allowed == 0 else off / self.allowed

    def words(self, why: str) -> list[str]:
        """How many elements differ, and the worst of them."""
        off = abs(self.yours - self.exact)
        return [f"{_word(self.name)} differs: {self.wrong:,} of {self.elements:,} elements",
                f"  worst at {self.worst}: yours {self.yours:.9g}, exact {self.exact:.9g}, off by {off:.3g}, allowed "
                f"{self.allowed:.3g} ({why})"]


def verdict_of(name: str, yours: a.Floats, exact: a.Floats, allowed: a.Floats) -> GradientVerdict:
    """How far somebody's gradient is off, by the element that is farthest beyond what is allowed; where that is NaN, as
    in stages, any number is."""
    if name in STAGES:
        open_ = np.isnan(allowed)
        yours, allowed = np.where(open_, exact, yours), np.where(open_, np.inf, allowed)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(yours - exact)
        wrong = ~((off <= allowed) | (np.isnan(yours) & np.isnan(exact)))
        part = off / np.maximum(allowed, 1e-300)
        part = np.where(wrong, np.where(np.isnan(part), np.inf, part), np.where(np.isnan(part), -1.0, part))
    at = np.unravel_index(int(part.argmax()), part.shape) if part.size else ()
    worst = tuple(int(i) for i in at)
    numbers = (float(x[worst]) for x in (yours, exact, allowed)) if part.size else (0.0, 0.0, 0.0)
    return GradientVerdict(name, int(wrong.sum()), wrong.size, worst, *numbers)


def explained(backward: Backward, yours: Mapping[str, a.Floats], computed: ComputedGradients
              ) -> tuple[tuple[Bug, ...], str]:
    """Which bugs give these gradients, and a sentence."""
    plan = backward.request.plan()
    if plan.B * plan.h * plan.T_q * plan.S > _MOST_PAIRS:
        return (), (f"no bug looked for: the call has more than {_MOST_PAIRS:,} pairs of queries and keys: give a "
                    "shorter one that fails likewise")
    struct = abi.Gradients.from_buffer_copy(backward.struct)
    struct.precision = computed.precision
    for i in range(len(GRADIENTS)):
        struct.of[i] = abi.View()
    held = {name: np.ascontiguousarray(array) for name, array in yours.items()}
    backward.lend(struct, held)
    found = (abi.GradientMatch * _MOST_NAMED)()
    count, right = ctypes.c_size_t(), ctypes.c_bool()
    with backward.request.typed():
        call(lib.mha_gradient_explain, backward.request.layer_address, ctypes.byref(backward.request.struct),
             ctypes.byref(struct), computed.unit, found, len(found), ctypes.byref(count), ctypes.byref(right))
    if right.value:
        return (), "within the error bound of rounding: your tolerance is narrower"
    rows = tuple(Bug(row.name.decode(), row.help.decode()) for row in found[:count.value])
    return rows, _sentence(rows)


def _sentence(rows: Sequence[Bug]) -> str:
    return "explained by " + "; or by ".join(f"{row.name} ({row.help})" for row in rows) if rows else (
        "no known bug explains it")


# ---------------------------------------------------------------- a sample


class _Limit(NamedTuple):
    """The tolerance of a caller, as in a case file: `atol` None is the bound of each element."""

    rtol: float
    atol: Optional[float]

    def __call__(self, exact: a.Doubles, bound: a.Doubles) -> a.Doubles:
        size: a.Doubles = np.where(np.isfinite(exact), np.abs(exact), 0.0)
        allowed: a.Doubles = self.rtol * size + (bound if self.atol is None else self.atol)
        return allowed


def _is_far(part: Part, unit: float) -> bool:
    """Whether an element is farther off than a bug that does not touch it may leave it (mha_gradient_explain)."""
    return any(not np.abs(yours - part.exact[name]).max() <= 2048 * unit * np.abs(part.exact[name]).max()
               for name, yours in part.yours.items())


def _checked_in_part(backward: MeantBackward, yours: Mapping[str, a.Floats], computed: ComputedGradients, wanted: int,
                    limit: _Limit) -> tuple[list[GradientVerdict], str]:
    """The verdicts of a sample of rows and keys, of those gradients that are wrong, and which bugs explain the
    worst parts."""
    cut, shape = Cut(backward.request), backward.meant.shape
    sample = Sample(cut, backward.do, backward.dlse.array if backward.struct.d_lse.data else None, yours, computed.unit,
                    computed.precision, wanted)

    def allowed(of: Backward, exact: dict[str, a.Doubles]) -> dict[str, a.Doubles]:
        bound = of.bound(list(exact), computed.unit, computed.precision) if limit.atol is None else exact
        return {name: limit(x, bound[name]) for name, x in exact.items()}

    found: dict[str, list[tuple[GradientVerdict, Part]]] = {name: [] for name in yours}
    for part in sample.check(allowed):
        for name in part.yours:
            found[name].append((verdict_of(name, part.yours[name], part.exact[name], part.allowed[name]), part))
    verdicts, worst = [], {}
    for name, each in found.items():
        wrong = sum(verdict.wrong for verdict, _ in each)
        if not wrong:
            continue
        verdict, part = max(each, key=lambda one: (one[0].wrong > 0, one[0].ratio))
        worst[name == "query"] = part
        _, row, head, feature = verdict.worst
        place = shape.place((part.batch, int(part.rows[row]), part.head + head, feature))
        verdicts.append(verdict._replace(wrong=wrong, elements=sum(v.elements for v, _ in each), worst=place))
    sayings = [explained(part.backward, part.yours, computed) if _is_far(part, computed.unit) else
               ((), "too near to the right ones to name a bug") for part in worst.values()]
    common = [bug for bug in (sayings[0][0] if sayings else ()) if all(bug in bugs for bugs, _ in sayings)]
    return verdicts, _sentence(common) if len(sayings) > 1 else sayings[0][1] if sayings else ""


def _write(path: str, backward: MeantBackward, yours: Mapping[str, a.Floats], given: Mapping[str, a.Tensor],
           computed: ComputedGradients) -> None:
    """Writes a case of the call and of somebody's gradients and stages."""
    struct, notes = abi.Gradients.from_buffer_copy(backward.struct), abi.CaseNotes()
    held = {name: np.ascontiguousarray(x, "f8" if given[name].dtype == abi.F64 else "f4") for name, x in yours.items()}
    backward.lend(struct, held)
    call_ = abi.Call.from_buffer_copy(backward.meant.request.struct)
    call_.precision = lib.mha_precision_of(computed.code)
    backward.meant.past.note(notes)
    notes.gradients, notes.has_computed = ctypes.pointer(struct), True
    notes.computed = abi.F64 if computed.code == abi.F64 else abi.F32
    with backward.meant.request.typed():
        call(lib.mha_case_save, path_of("path", path), backward.request.layer_address, ctypes.byref(call_),
             ctypes.byref(notes))


def assert_gradients_close(dq: Optional[a.ArrayLike], dk: Optional[a.ArrayLike], dv: Optional[a.ArrayLike],
                           q: a.ArrayLike, k: Optional[a.ArrayLike], v: Optional[a.ArrayLike], do: a.ArrayLike, *,
                           layer: Optional[MultiHeadAttention] = None, dlse: Optional[a.ArrayLike] = None,
                           also: Optional[Mapping[str, a.ArrayLike]] = None,
                           stages: Optional[Mapping[str, a.ArrayLike]] = None, layout: Optional[str] = None,
                           dtype: Optional[a.Type] = None, precision: Optional[Mapping[str, a.Type]] = None,
                           rtol: Optional[float] = None, atol: Optional[float] = None, sample: Optional[int] = None,
                           msg: Optional[str] = None, **settings: Unpack[MeantSettings]) -> None:
    """Assert that gradients are those of attention. The message names the bug that gives them.

    A gradient passes if |yours - exact| <= atol + rtol |exact|. Without atol each element has its own error bound of a
    backward in `dtype` instead.

    Parameters
    ----------
    dq, dk, dv : array_like or None
        Gradients under test, in the axes of q, k and v; None: not checked.
    q, k, v : array_like
        As in mha.diagnose. With `layer` its inputs, k and v None as in a call.
    do : array_like, in the axes of the output
        Gradient of the output.
    layer : mha.MultiHeadAttention, default None
        The layer; mha checks it in float32 and float64.
    dlse : array_like, shape (B, h, T_q), default None
        Gradient of lse; None: 0.
    also : dict from str to array_like, default None
        Further gradients, as in mha.attention_backward; of a layer also of its weights, {"W_Q": dW_Q}.
    stages : dict from str to array_like, default None
        Intermediate results of your backward, as in mha.attention_backward(return_stages=): {"d_weights": dP,
        "row_sums": delta, "d_scores": dS}. The message names the first wrong one in the order of the equations. mha
        ignores d_weights of hidden keys and row_sums of fully masked rows.
    layout : str, default None
        Order of the axes, as in mha.diagnose.
    dtype : str or dtype, default None
        Type of the arithmetic; None: that of the first gradient. Below 32 bits a fused kernel rounds P, dS, the
        gradients, and O in D = rowsum(dO O).
    precision : dict from str to dtype, default None
        Points at which yours rounds otherwise: scores, weights, probabilities, output, d_weights, d_scores, sums,
        gradients. {"block_rows": 32}: it also rounds sums after each block of 32 keys (dq) or queries (dk, dv).
    rtol, atol : float, default None
        Tolerance. atol None: the error bound of each element; rtol None: 0.
    sample : int, default None
        Query rows (dq) and keys (dk, dv) of each head to check. None: all, or of a large case 256, or fewer for more
        than 8 heads in all batch rows, but at least 32. mha checks a layer, `also`, `stages`, cu_seqlens, lists,
        blocks, a grid, clip_qkv and tables of a rotation whole.
    msg : str, default None
        First line of the AssertionError.
    **settings
        The intended call, as in mha.diagnose.

    Raises
    ------
    AssertionError
        A gradient is wrong: the worst element, the allowed error, the known bugs, and how to save a case.
    TypeError, ValueError
        An argument has the wrong type, shape or value.

    Examples
    --------
    >>> q, k, v, do = np.random.default_rng(0).standard_normal((4, 2, 4, 9, 16), dtype=np.float32)
    >>> dq, dk, dv = mha.attention_backward(q, k, v, do)
    >>> mha.testing.assert_gradients_close(dq, dk, dv, q, k, v, do)
    """
    __tracebackhide__ = True
    said = opening(msg)
    with typed(TYPED):
        meant = Meant(q, k, v, layer, layout, {**settings})
    if also is not None and not isinstance(also, Mapping):
        raise TypeError(f"also: expected gradients by name, found {type(also).__name__}")
    backward = MeantBackward(meant, do, dlse)
    given = {name: a.floats(_word(name), x) for name, x in zip(INPUTS, (dq, dk, dv)) if x is not None}
    yours: dict[str, a.Doubles] = {}
    for name, tensor in given.items():
        of = meant.shape.inputs[INPUTS.index(name)]
        if of is None:
            raise ValueError(f"{_word(name)}: expected None, because {name} is left out, found an array; its gradient "
                             "is part of that of the input it is")
        expected = backward.turned(name, np.empty(of.array.shape)).shape
        if tensor.array.shape != expected:
            raise ValueError(f"{_word(name)}: expected shape {expected}, found {tensor.array.shape}")
        yours[name] = backward.inside(name, a.doubles(tensor))
    for name, x in (also or {}).items():
        tensor = given[name] = a.floats(f"also[{name!r}]", x)
        yours[name] = backward.inside(name, a.doubles(tensor))
    made = _stages(stages)
    given.update(made)
    yours.update((name, a.doubles(tensor)) for name, tensor in made.items())
    if not given:
        raise TypeError("dq: expected a gradient, or dk, dv, also or stages, found None")
    for word, number in (("rtol", rtol), ("atol", atol)):
        if number is not None and not a.number(word, number) >= 0:
            raise ValueError(f"{word}: expected a number of at least 0, found {number}")
    computed = ComputedGradients(dtype, precision, next(iter(given.values())))
    limit = _Limit(rtol or 0.0, atol)
    wanted = _sample_of(backward, also, bool(made), a.count("sample", sample))
    if wanted:
        verdicts, clue = _checked_in_part(backward, yours, computed, wanted, limit)
    else:
        exact = backward.run(list(given))
        for name in also or {}:
            expected, shape = backward.turned(name, exact[name]).shape, given[name].array.shape
            if shape != expected:
                raise ValueError(f"also[{name!r}]: expected shape {expected}, found {shape}")
        for name, tensor in made.items():
            if tensor.array.shape != exact[name].shape:
                raise ValueError(f"stages[{name!r}]: expected shape {exact[name].shape}, found {tensor.array.shape}")
        allowed = backward.bound(list(given), computed.unit, computed.precision) if made or atol is None else {**exact}
        for name, x in exact.items():
            bound = allowed[name]
            if name in made and atol is None:
                bound = bound + _stored(made[name].dtype, np.abs(x) + bound)
            allowed[name] = np.where(np.isnan(bound) & (name in made), np.nan, limit(x, bound))
        verdicts = [verdict_of(name, *(backward.turned(name, x[name]) for x in (yours, exact, allowed)))
                    for name in [*made, *(name for name in given if name not in made)]]
        verdicts = [verdict for verdict in verdicts if verdict.wrong]
        gradients = {name: x for name, x in yours.items() if name not in made}
        stages_alone = not any(verdict.name in gradients for verdict in verdicts)
        subject = {name: yours[name] for name in made} if stages_alone else gradients
        clue = explained(backward, subject, computed)[1] if verdicts else ""
    message: list[str] = []
    for verdict in verdicts:
        message += verdict.words(f"what rounding in {computed.words} may cost" if limit == (0.0, None) else
                                 "as you asked")
    if message:
        message += ["  " + words(Cut(backward.request), wanted)] if wanted else []
        message += ["  " + clue, "  " + save(lambda path: _write(path, backward, yours, given, computed))]
        raise AssertionError("\n".join(said + message))


def _stored(dtype: int, size: a.Doubles) -> a.Doubles:
    """What storing numbers of at most this size in a type of 16 bits costs; wider types are part of the bound."""
    return half_unit(dtype) * size + {abi.F16: 2.0**-25, abi.BF16: 2.0**-134}.get(dtype, 0.0)


def _stages(stages: Optional[Mapping[str, a.ArrayLike]]) -> dict[str, a.Tensor]:
    """Stages that somebody's backward made, in the order of its equations."""
    if stages is not None and not isinstance(stages, Mapping):
        raise TypeError(f"stages: expected a dict from names to arrays, found {type(stages).__name__}")
    found = stages or {}
    return {name: a.floats(f"stages[{name!r}]", found[name]) for name in stages_of("stages", list(found))}


def _sample_of(backward: MeantBackward, also: Optional[Mapping[str, a.ArrayLike]], staged: bool, sample: int) -> int:
    """How many rows and keys are checked; 0: all. ValueError where a sample is asked for and cannot be taken."""
    if backward.meant.layer is not None:
        why = "layer: its gradients are sums over all heads"
    elif also:
        why = f"also: {next(iter(also))} is a sum over rows: check it in a shorter call, dq, dk and dv without it"
    elif staged:
        why = "stages: they are those of the whole call"
    else:
        cut = Cut(backward.request)
        why = f"{cut.whole}: speaks of the call as a whole: check a shorter one" if cut.whole else ""
    if why:
        if sample:
            raise ValueError(f"sample: expected None, found {sample}; {why}")
        return 0
    return rows_wanted(cut, sample)
