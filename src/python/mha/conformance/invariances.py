"""What must not change the result of a kernel: the same call in other company, in parts, permuted, or run again."""
from __future__ import annotations

from typing import Any, Callable, Collection, Iterator, NamedTuple, Optional, Sequence

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.shapes import heads_first
from ..core.tables import Table
from ..core.reference import Computed, Meant
from .suite import TYPES, handed, on_device, wrapper

Heads = a.Floats  # (B, h, T, d), float32
Result = a.Stored  # (B, h, T, d), in the memory of a type

LENGTHS = (1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 48, 64, 65, 97, 128, 129, 193, 257)


class Call(NamedTuple):
    """One call: inputs, (B, h, T, d) each, and settings."""

    q: Heads
    k: Heads
    v: Heads
    settings: dict[str, Any]

    def each(self, change: Callable[[Heads], Heads]) -> Call:
        """The same call of q, k and v that were changed alike."""
        return Call(change(self.q), change(self.k), change(self.v), self.settings)


class Pair(NamedTuple):
    """A call, and others that must give the same numbers, put together."""

    base: Call
    others: list[Call]
    join: Callable[[list[Result]], Result]


def _same(results: list[Result]) -> Result:
    return results[0]


def _runs(c: Call) -> Pair:
    return Pair(c, [c], _same)


def _batch(c: Call) -> Pair:
    alone = [Call(c.q[b:b + 1], c.k[b:b + 1], c.v[b:b + 1], c.settings) for b in range(len(c.q))]
    return Pair(c, alone, np.concatenate)


def _place(c: Call) -> Pair:
    return Pair(c, [c.each(lambda x: np.roll(x, 1, 0))], lambda results: np.roll(results[0], -1, 0))


def _padding(c: Call) -> Pair:
    """Hidden keys after the last one, with other numbers."""
    T_q, S, more = c.q.shape[2], c.k.shape[2], 5
    mask = np.broadcast_to(np.arange(S + more) < S, (T_q, S + more)).copy()
    k, v = (np.concatenate([x, np.roll(x, 1, 2)[:, :, np.arange(more) % S]], 2) for x in (c.k, c.v))
    return Pair(Call(c.q, c.k, c.v, {"attn_mask": mask[:, :S].copy()}), [Call(c.q, k, v, {"attn_mask": mask})], _same)


def _chunks(c: Call) -> Pair:
    """The queries in three parts, each with the keys up to its last one."""
    T = c.q.shape[2]
    mask, edges = np.tri(T, dtype=bool), sorted({0, (T + 2) // 3, (2 * T + 2) // 3, T})
    parts = [Call(c.q[:, :, i:j], c.k[:, :, :j], c.v[:, :, :j], {"attn_mask": mask[i:j, :j].copy()})
             for i, j in zip(edges, edges[1:])]
    return Pair(Call(c.q, c.k, c.v, {"attn_mask": mask}), parts, lambda results: np.concatenate(results, 2))


def _decode(c: Call) -> Pair:
    """The last queries one at a time, with the keys up to each."""
    T = c.q.shape[2]
    last = range(max(0, T - 3), T)
    steps = [Call(c.q[:, :, i:i + 1], c.k[:, :, :i + 1], c.v[:, :, :i + 1], {}) for i in last]
    return Pair(Call(c.q, c.k, c.v, {"is_causal": True}), steps, lambda results: np.concatenate(results, 2))


def _groups(c: Call) -> Pair:
    """Two query heads for each key/value head, or as many key/value heads."""
    k, v = c.k[:, ::2], c.v[:, ::2]
    return Pair(Call(c.q, k, v, {"enable_gqa": True}), [Call(c.q, k.repeat(2, 1), v.repeat(2, 1), {})], _same)


def _heads(c: Call) -> Pair:
    return Pair(c, [c.each(lambda x: x[:, ::-1])], lambda results: results[0][:, ::-1])


def _keys(c: Call) -> Pair:
    return Pair(c, [Call(c.q, c.k[:, :, ::-1], c.v[:, :, ::-1], c.settings)], _same)


def _shift(c: Call) -> Pair:
    """A number added to all keys adds one to all scores of a query, which softmax does not see."""
    k = np.round(c.k * 16) / np.float32(16)  # to which 2 can be added in 16 bits, too
    return Pair(Call(c.q, k, c.v, c.settings), [Call(c.q, k + np.float32(2), c.v, c.settings)], _same)


def _values(c: Call) -> Pair:
    """Values times a power of two."""
    return Pair(c, [Call(c.q, c.k, c.v * np.float32(4), c.settings)], lambda results: results[0] / np.float32(4))


def _strides(c: Call) -> Pair:
    """The same numbers with rows before heads in memory."""
    return Pair(c, [c.each(lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2))], _same)


def _splits(c: Call) -> Pair:
    return Pair(Call(c.q, c.k, c.v, {"num_splits": 1}), [Call(c.q, c.k, c.v, {"num_splits": n}) for n in (2, 3)], _same)


def _pages(c: Call) -> Pair:
    """Keys and values in pages of 16 rows, in any order; a page that nobody names, and the last rows of each sequence's
    last page, have other numbers."""
    (B, h, T, d), rows, r = c.k.shape, 16, np.random.default_rng(c.k.shape[2])
    table = r.permutation(B * -(-T // rows) + 1)[1:].reshape(B, -1)
    pools = [r.standard_normal((table.size + 1, rows, h, d)).astype(np.float32) for _ in range(2)]
    at = np.arange(T)
    for pool, x in zip(pools, (c.k, c.v)):
        pool[table[:, at // rows], at % rows] = x.swapaxes(1, 2)
    said = {"is_causal": True, "page_table": table, "page_lengths": np.full(B, T)}
    return Pair(Call(c.q, c.k, c.v, {"is_causal": True}), [Call(c.q, pools[0], pools[1], said)], _same)


# By name: what makes the pair, what a kernel needs for it, and what it says.
_MAKERS: dict[str, tuple[Callable[[Call], Pair], str]] = {
    "runs": (_runs, "run twice"),
    "batch": (_batch, "each batch row alone"),
    "place": (_place, "batch rows in another order"),
    "padding": (_padding, "five hidden keys behind the last one (a boolean attn_mask)"),
    "chunks": (_chunks, "causal queries in three parts (a boolean attn_mask)"),
    "decode": (_decode, "the last causal queries one at a time, with the keys up to each (is_causal)"),
    "groups": (_groups, "grouped heads, or key/value heads repeated (enable_gqa)"),
    "heads": (_heads, "heads in reverse order"),
    "keys": (_keys, "keys and values in reverse order"),
    "shift": (_shift, "2 added to every number of the keys"),
    "values": (_values, "values times 4, the result divided by 4"),
    "strides": (_strides, "rows before heads in memory"),
    "splits": (_splits, "num_splits 1, 2 and 3"),
    "pages": (_pages, "causal, keys and values in pages of 16 rows (page_table, page_lengths)"),
    "threads": (_runs, "1, 2 and 3 threads (set_threads)"),
}
INVARIANCES = {name: meaning for name, (_, meaning) in _MAKERS.items()}
_ASKED_FOR = ("splits", "pages", "threads")  # what only some kernels can be told


class Difference(NamedTuple):
    """The difference of two results of one length.

    Attributes
    ----------
    length : int
        Number of tokens.
    differ, elements : int
        Elements that differ, and all.
    ulps, max_abs : float
        Largest difference, in steps of the type and absolute.
    first : tuple of int
        Place of the first element that differs.
    within : bool
        Whether two right results may differ as much.
    """

    length: int
    differ: int
    elements: int
    ulps: float
    max_abs: float
    first: tuple[int, ...]
    within: bool


class Invariance(NamedTuple):
    """The result of one invariance.

    Attributes
    ----------
    name, meaning : str
        A key of mha.testing.INVARIANCES, and its text.
    outcome : str
        "bitwise", "within the bound", "violated" or "refused".
    worst : mha.testing.Difference or None
        The largest difference.
    begins : int or None
        Length from which results differ.
    reason : str
        The kernel's exception; else "".
    """

    name: str
    meaning: str
    outcome: str
    worst: Optional[Difference] = None
    begins: Optional[int] = None
    reason: str = ""

    @property
    def sentence(self) -> str:
        """How much, where first, and from which length on."""
        if self.worst is None:
            return self.reason
        d, place = self.worst, ", ".join(f"{word} {i}" for word, i in zip(("batch row", "head", "query", "feature"),
                                                                       self.worst.first))
        steps = "NaN or infinite on one side" if np.isinf(d.ulps) else f"at most {d.ulps:,.0f} ULP"
        return (f"{steps} in {d.differ:,} of {d.elements:,} elements of length {d.length}, first at {place}; "
                f"from length {self.begins} on")


class Invariances(Table):
    """An mha.Table with one row for each invariance. True if `passed`.

    Attributes
    ----------
    found : dict from str to mha.testing.Invariance
        Results by name.
    passed : bool
        Whether none is violated; with bitwise=True, whether all that are not refused are bitwise.
    """

    def __init__(self, found: list[Invariance], bitwise: bool) -> None:
        super().__init__(("under", "outcome", "how much", "what it is"),
                         [(x.name, x.outcome, x.sentence, x.meaning) for x in found])
        self.found = {x.name: x for x in found}
        good = ("bitwise",) if bitwise else ("bitwise", "within the bound")
        held = [x for x in found if x.outcome != "refused"]
        self.passed = bool(held) and all(x.outcome in good for x in held)

    def __bool__(self) -> bool:
        return self.passed


def _ordered(x: Result, code: int) -> a.Wholes:
    """Numbers whose differences count the steps between floats of a type."""
    bits = {abi.F32: np.uint32, abi.F16: np.uint16, abi.BF16: np.uint16}[code]
    whole = np.ascontiguousarray(x).view(bits).astype(np.int64)
    top = 1 << (8 * np.dtype(bits).itemsize - 1)
    return np.where(whole >= top, top - whole, whole)


class _Kernel:
    """A kernel that takes and gives (B, h, T, d)."""

    def __init__(self, kernel: Callable[..., object], layout: str, dtype: int, arrays: str) -> None:
        self.kernel, self.swapped, self.dtype, self.wrap = kernel, heads_first(layout), dtype, wrapper(arrays)

    def _array(self, x: Heads, pool: bool = False) -> a.ArrayLike:
        stored = a.narrowed(x, abi.F32, self.dtype) if self.dtype != abi.F32 else x
        return self.wrap(stored if self.swapped or pool else stored.swapaxes(1, 2), self.dtype)

    def run(self, c: Call, contiguous: bool = True) -> Result:
        """The result in the memory of its type: bfloat16 as unsigned integers."""
        inputs = [np.array(x, order="C") if contiguous else x for x in (c.q, c.k, c.v)]
        pool = "page_table" in c.settings
        given = [self._array(inputs[0]), *(self._array(x, pool) for x in inputs[1:])]
        said = {name: handed(value, self.wrap) for name, value in c.settings.items()}
        result = a.floats("output", self.kernel(*given, **said))
        if result.dtype != self.dtype:
            raise TypeError(f"output: expected {a.NAMES[self.dtype]}, found {a.NAMES[result.dtype]}")
        return result.array if self.swapped else result.array.swapaxes(1, 2)

    def allowed(self, c: Call) -> float:
        """How far two right results may differ."""
        q, k, v = (np.array(x, order="C") for x in (c.q, c.k, c.v))
        settings = {name: x for name, x in c.settings.items() if name != "num_splits"}
        meant = Meant(q, k, v, None, "BHTD", settings)
        recorded = {"output": a.Tensor(np.empty((len(c.q), c.q.shape[2], c.q.shape[1], c.v.shape[3]),
                                                {abi.BF16: "uint16"}.get(self.dtype, a.NAMES[self.dtype])),
                                       self.dtype, a.wrap_numpy)}
        found = meant.allowed(Computed(a.NAMES[self.dtype], None, recorded), recorded)["output"]
        return float(2 * (found.atol + found.rtol * np.abs(v).max()))


def _inputs(length: int, d: int, dtype: int) -> Call:
    r = np.random.default_rng(length)
    found = [r.standard_normal((3, 4, length, d)).astype(np.float32) for _ in range(3)]
    if dtype != abi.F32:  # exact in the type
        found = [a.widened(a.Tensor(a.narrowed(x, abi.F32, dtype), dtype, a.wrap_numpy)).array for x in found]
    return Call(found[0], found[1], found[2], {})


def _difference(one: Result, other: Result, code: int, length: int, allowed: float) -> Optional[Difference]:
    if one.shape != other.shape:
        raise ValueError(f"output: expected shape {one.shape}, found {other.shape}")
    x, y = (a.widened(a.Tensor(np.ascontiguousarray(z), code, a.wrap_numpy), abi.F64).array for z in (one, other))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if 2 * min(np.isfinite(x).sum(), np.isfinite(y).sum()) < x.size:
        same = x == y  # results that are mostly NaN agree on nothing
    if same.all():
        return None
    finite = np.isfinite(x) & np.isfinite(y)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.where(finite, np.abs(x - y), np.inf))
    steps = np.where(finite, np.abs(_ordered(one, code) - _ordered(other, code)), np.inf)
    first = tuple(int(i) for i in np.argwhere(~same)[0])
    return Difference(length, int((~same).sum()), same.size, float(np.where(same, 0, steps).max()),
                      float(apart.max()), first, bool((apart <= allowed).all()))


class _Examined:
    """One invariance of a kernel at many lengths."""

    def __init__(self, kernel: _Kernel, name: str, d: int, set_threads: Optional[Callable[[int], object]]) -> None:
        self.kernel, self.name, self.d, self.set_threads = kernel, name, d, set_threads

    def at(self, length: int) -> Optional[Difference]:
        """The difference at a length; None: bitwise the same."""
        pair = _MAKERS[self.name][0](_inputs(length, self.d, self.kernel.dtype))
        if self.name == "threads":
            return self._threads(pair.base, length)
        base = self.kernel.run(pair.base)
        results = [self.kernel.run(c, self.name != "strides") for c in pair.others]
        if self.name == "splits":
            return self._worst(pair.base, base, results, length)
        if self.name == "decode":
            base = base[:, :, -len(results):]
        if self.name == "values":
            results = [self._divided(result) for result in results]
            return self._apart(pair.base, base, results[0], length)
        return self._apart(pair.base, base, pair.join(results), length)

    def _divided(self, result: Result) -> Result:
        wide = a.widened(a.Tensor(np.ascontiguousarray(result), self.kernel.dtype, a.wrap_numpy)).array
        return a.narrowed(wide / np.float32(4), abi.F32, self.kernel.dtype)

    def _threads(self, c: Call, length: int) -> Optional[Difference]:
        assert self.set_threads is not None
        results = []
        for n in (1, 2, 3):
            self.set_threads(n)
            results.append(self.kernel.run(c))
        return self._worst(c, results[0], results[1:], length)

    def _worst(self, c: Call, one: Result, others: list[Result], length: int) -> Optional[Difference]:
        found = [self._apart(c, one, other, length) for other in others]
        apart = [d for d in found if d is not None]
        return max(apart, key=lambda d: d.max_abs) if apart else None

    def _apart(self, c: Call, one: Result, other: Result, length: int) -> Optional[Difference]:
        allowed = 0.0 if np.array_equal(one, other) else self.kernel.allowed(c)
        return _difference(one, other, self.kernel.dtype, length, allowed)

    def begins(self, lengths: Sequence[int], bad: int) -> int:
        """The smallest length with a difference, between the last good one of those tried and a bad one."""
        before = max((n for n in lengths if n < bad), default=0)
        return next((n for n in range(before + 1, bad) if self.at(n) is not None), bad)

    def check(self, lengths: Sequence[int]) -> Invariance:
        """The invariance over all lengths."""
        meaning, found = INVARIANCES[self.name], []
        try:
            for length in lengths:
                found.append(self.at(length))
        except Exception as raised:
            return Invariance(self.name, meaning, "refused", reason=f"{type(raised).__name__}: {raised}")
        apart = [d for d in found if d is not None]
        if not apart:
            return Invariance(self.name, meaning, "bitwise")
        worst = max(apart, key=lambda d: (not d.within, d.max_abs))
        outcome = "within the bound" if all(d.within for d in apart) else "violated"
        first = min(d.length for d in apart if d.within == worst.within)
        return Invariance(self.name, meaning, outcome, worst, self.begins(lengths, first) if worst.within else first)


def _names(under: Optional[Collection[str]], set_threads: object) -> Iterator[str]:
    if under is None:
        yield from (name for name in _MAKERS if name not in _ASKED_FOR or (name == "threads" and set_threads))
        return
    for name in a.words("under", under):
        a.choice("under", name, tuple(_MAKERS))
        if name == "threads" and set_threads is None:
            raise TypeError("set_threads: expected a function that sets the kernel's number of threads, for 'threads', "
                            "found None")
        yield name


def invariant(kernel: Callable[..., object], under: Optional[Collection[str]] = None, *, layout: str = "BHTD",
              dtype: a.Type = "float32", arrays: str = "numpy", bitwise: bool = False, width: int = 64,
              lengths: Sequence[int] = LENGTHS, set_threads: Optional[Callable[[int], object]] = None,
              device: Optional[str] = None) -> Invariances:
    """Test properties that must not change a kernel's result, without a reference: bit by bit, and within rounding.

    Parameters
    ----------
    kernel, layout, dtype, arrays, device
        As in mha.conform.
    under : collection of str, default None
        Names of mha.testing.INVARIANCES. None: all but "splits", which calls the kernel with num_splits; "pages", which
        gives it pools (pages, 16, heads, width) instead of key and value, page_table (batch, pages of a sequence) and
        page_lengths (batch,); and "threads" without set_threads.
    bitwise : bool, default False
        The table is True only if all results have the same bits.
    width : int, default 64
        Features of a head.
    lengths : sequence of int
        Numbers of tokens, in 3 batch rows and 4 heads. Between the last equal and the first different one mha tries
        all.
    set_threads : callable, default None
        Called with 1, 2 and 3 before the kernel, for "threads".

    Returns
    -------
    Invariances
        One row for each property; True if none is violated: two results differ by no more than two right ones may.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or value.

    Examples
    --------
    >>> bool(mha.testing.invariant(mha.scaled_dot_product_attention, under=["batch"], lengths=[5]))
    True
    """
    for word, called in (("kernel", kernel), ("set_threads", set_threads)):
        if not callable(called) and (word == "kernel" or called is not None):
            raise TypeError(f"{word}: expected a function, found {type(called).__name__}")
    if not isinstance(lengths, (list, tuple, range)):
        raise TypeError(f"lengths: expected a list of whole numbers, found {type(lengths).__name__}")
    bitwise = a.flag("bitwise", bitwise)
    code = a.float_type("dtype", dtype, TYPES)
    held = _Kernel(kernel, layout, code, on_device(arrays, device))
    tried = sorted({a.whole_number("lengths", n, 1) for n in lengths})
    names = list(_names(under, set_threads))
    return Invariances([_Examined(held, name, a.whole_number("width", width, 1), set_threads).check(tried)
                        for name in names], bitwise)
