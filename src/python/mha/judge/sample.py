"""Gradients of a large call, checked on a sample: dq on some query rows of each head, dk and dv on some keys."""
from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable, Mapping, Optional, Union

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.backward_call import Backward
from ..core.library import call, lib
from .part import Cut, runs

_WHOLE_WORK = 1.4e9  # multiply-adds of the forward, whose backward and bound take the exact path some ten seconds
_ROWS, _FEWEST, _ALL_ROWS = 256, 32, 2048  # of each head, the fewest, and of all heads of all batch rows together
_Allowed = Callable[[Backward, "dict[str, a.Doubles]"], "dict[str, a.Doubles]"]
_SEED, _SMALLEST_TILE, _LARGEST_TILE = 1, 16, 128


def rows_wanted(cut: Cut, sample: int) -> int:
    """How many query rows and keys of each head are checked; 0: all."""
    work = cut.B * cut.h * cut.T_q * cut.S * (cut.d_k + cut.d_v)
    if not sample and (work <= _WHOLE_WORK or cut.whole):
        return 0
    wanted = sample or max(_FEWEST, min(_ROWS, _ALL_ROWS // (cut.B * cut.h)))
    return 0 if wanted >= max(cut.T_q, cut.S) else wanted


def words(cut: Cut, wanted: int) -> str:
    """What share was checked, and what that misses."""
    return (f"checked on {min(wanted, cut.T_q):,} of {cut.T_q:,} query rows (dq) and {min(wanted, cut.S):,} of "
            f"{cut.S:,} keys (dk, dv) of each head; what is wrong in other rows and keys alone is not seen (sample)")


# ---------------------------------------------------------------- choosing


def _oddness(rows: a.Floats) -> a.Doubles:
    """(T): how far the norm of each row is from those of its neighbours, as a ratio's logarithm; infinite where a
    number is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.square(rows.astype(np.float64)).sum(tuple(range(1, rows.ndim))))
    finite = np.isfinite(norms)
    logs = np.log(np.maximum(np.where(finite, norms, 0.0), 1e-300))
    padded = np.pad(logs, 2, mode="edge")
    near = np.median([padded[i:i + len(logs)] for i in (0, 1, 3, 4)], axis=0)
    return np.where(finite, np.abs(logs - near), np.inf)


def chosen_rows(rows: a.Floats, wanted: int, seed: int) -> a.Wholes:
    """Which of the rows (T, ...) of a gradient are checked: a quarter at the ends and on both sides of edges of tiles
    of 16 to 128 rows, a quarter with odd norms, the others at random."""
    T = len(rows)
    if wanted >= T:
        return np.arange(T)
    most, picked = max(wanted // 4, 1), [0, T - 1]
    for tile in (_LARGEST_TILE >> i for i in range((_LARGEST_TILE // _SMALLEST_TILE).bit_length())):
        edges = np.arange(1, (T - 1) // tile + 1)
        for edge in edges[::max(-(-len(edges) // max(most // 8, 1)), 1)].tolist():
            picked += [edge * tile - 1, edge * tile]
    first = dict.fromkeys(picked[:most])
    odd = [i for i in np.argsort(-_oddness(rows), kind="stable").tolist() if i not in first][:wanted // 4]
    first.update(dict.fromkeys(odd))
    others = np.setdiff1d(np.arange(T), list(first))
    drawn = np.random.default_rng(seed).choice(others, max(wanted - len(first), 0), replace=False)
    return np.sort(np.concatenate([np.array(list(first)[:wanted], np.int64), drawn]))


# ---------------------------------------------------------------- checking


class _Whole:
    """What the forward makes of all keys, for backwards of some: its output and lse, and how far these may be off."""

    def __init__(self, cut: Cut, unit: float, precision: abi.BackwardPrecision) -> None:
        value = a.widened(cut.given[2], abi.F64).array
        request = cut.with_values(np.concatenate([value, np.abs(value)], axis=3))
        both = np.empty((cut.B, cut.T_q, cut.h, 2 * cut.d_v))
        self.lse = request.run(both, [abi.LSE])[abi.LSE]
        self.output, self.sizes = both[..., :cut.d_v], both[..., cut.d_v:]
        self.largest, self.keys = float(np.abs(value).max(initial=0.0)), cut.S + 2
        struct = abi.Call.from_buffer_copy(cut.request.struct)
        struct.precision = abi.Precision(scores=precision.scores, sums=precision.sums)
        found = (ctypes.c_double * len(abi.STAGES))()
        call(lib.mha_error_bound, None, ctypes.byref(struct), unit, found, len(found))
        self.lse_error = found[abi.LSE]

    def lend(self, backward: Backward, b: int, heads: slice) -> None:
        """Tells a backward of some keys what all of them made."""
        whole = backward.struct.whole
        for name, array in (("lse", self.lse[b:b + 1, heads]), ("output", self.output[b:b + 1, :, heads]),
                            ("sizes", self.sizes[b:b + 1, :, heads])):
            setattr(whole, name, a.view_of(a.Tensor(array, abi.F64, a.wrap_numpy)))
        whole.lse_error, whole.largest, whole.keys = self.lse_error, self.largest, self.keys


@dataclass
class Part:
    """Gradients of a part of a call: of this batch row, these rows, and heads from this one on; somebody's, right ones,
    and what is allowed, each (1, rows, heads, width) by name."""

    backward: Backward
    batch: int
    rows: a.Wholes
    head: int
    yours: dict[str, a.Floats]
    exact: dict[str, a.Doubles]
    allowed: dict[str, a.Doubles]


class Sample:
    """A backward of a large call, of which some rows and keys are checked.

    given: somebody's gradients of query, key and value by name, (B, T, heads, width). allowed: what those of a backward
    may be off by, from the backward and its exact gradients.
    """

    def __init__(self, cut: Cut, do: a.Tensor, dlse: Optional[a.Stored], given: Mapping[str, a.Floats], unit: float,
                 precision: abi.BackwardPrecision, wanted: int) -> None:
        self.cut, self.do, self.dlse, self.given, self.wanted = cut, do, dlse, given, wanted
        self.of_keys = [name for name in ("key", "value") if name in given]
        sigmoid = cut.request.struct.semantics.softmax.normaliser != 0
        self._whole = _Whole(cut, unit, precision) if self.of_keys and not sigmoid else None

    def _places(self) -> list[tuple[int, slice, bool, a.Wholes]]:
        """Batch row, query heads, whether keys are checked, and which rows."""
        found: list[tuple[int, slice, bool, a.Wholes]] = []
        cut = self.cut

        def add(b: int, heads: slice, of_keys: bool, gradient: a.Floats) -> None:
            rows = chosen_rows(gradient, self.wanted, _SEED + b * cut.h + heads.start)
            together = [rows] if cut.scatters else [np.arange(run.start, run.stop) for run in runs(rows)]
            found.extend((b, heads, of_keys, some) for some in together)

        for b, head in np.ndindex(cut.B, cut.h if "query" in self.given else 0):
            add(b, slice(head, head + 1), False, self.given["query"][b][:, head])
        for b, g in np.ndindex(cut.B, cut.h_kv if self.of_keys else 0):
            add(b, cut.heads(g), True, np.concatenate([self.given[name][b][:, g] for name in self.of_keys], axis=1))
        return found

    def _part(self, place: tuple[int, slice, bool, a.Wholes],
              allowed: _Allowed) -> Part:
        b, heads, of_keys, rows = place
        names = self.of_keys if of_keys else ["query"]
        queries: Union[slice, a.Wholes] = slice(None) if of_keys else rows
        request = self.cut.part(b, heads, **{"keys" if of_keys else "queries": rows})
        backward = Backward(request, self.do.on(self.do.array[b:b + 1, queries][:, :, heads]),
                            None if self.dlse is None else self.dlse[b:b + 1, heads][:, :, queries])
        if of_keys and self._whole is not None:
            self._whole.lend(backward, b, heads)
        own = slice(heads.start // self.cut.group, heads.start // self.cut.group + 1) if of_keys else heads
        yours = {name: self.given[name][b:b + 1, rows][:, :, own] for name in names}
        exact = backward.run(names)
        return Part(backward, b, rows, own.start, yours, exact, allowed(backward, exact))

    def check(self, allowed: _Allowed) -> list[Part]:
        """Computes all parts, on as many threads as there are cores."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
            return list(pool.map(lambda place: self._part(place, allowed), self._places()))
