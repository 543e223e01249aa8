"""One attention call of a model, checked on the inputs that it got: the error of each head over what is allowed."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Optional

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.errors import Error
from ..core.library import lib
from ..core.pictures import pooled
from ..core.reference import Computed, Meant
from ..judge.check import diagnose
from .calls import Asked

LARGE, SAMPLE = 2**20, 32  # scores of a call from which on rows are sampled; query rows of each batch row


@dataclass(frozen=True)
class Checked:
    """heads: for each head its largest error, divided by what is allowed; of a whole layer one for all. At most 1 is
    right. worst: (batch row, head, query, feature), or (batch row, query, feature). rows_checked of rows: query rows of
    all batch rows; those that see no key are none of them. maps: where they are asked for, of each head of batch row 0
    the right weights of the rows checked, pooled."""

    heads: tuple[float, ...]
    worst: tuple[int, ...]
    yours: float
    exact: float
    allowed: float
    rows_checked: int
    rows: int
    words: str
    maps: tuple[a.Floats, ...] = ()

    @property
    def ratio(self) -> float:
        """The largest of all heads."""
        return max(self.heads)

    @property
    def passed(self) -> bool:
        """Whether the output is right."""
        return self.ratio <= 1

    def __bool__(self) -> bool:
        return self.passed

    @property
    def sentence(self) -> str:
        """The element that decides it."""
        axes = ("batch row", "head", "query", "feature") if len(self.worst) == 4 else ("batch row", "query", "feature")
        where = ", ".join(f"{axis} {i}" for axis, i in zip(axes, self.worst))
        return (f"off by {abs(self.yours - self.exact):.3g} ({where}: {self.yours:.6g}, exact {self.exact:.6g}), "
                f"allowed {self.allowed:.3g} ({self.words})")


def rows_of(asked: Asked, sample: int, seed: int) -> a.Wholes:
    """The query rows that are checked: all, or of a large call the ends and others by chance."""
    T_q = asked.T_q
    if not sample and asked.B * asked.heads[0] * T_q * asked.S <= LARGE:
        return np.arange(T_q)
    wanted = sample or SAMPLE
    if wanted >= T_q:
        return np.arange(T_q)
    ends = sorted({0, T_q - 1, 1 if wanted > 2 else 0})
    others = np.setdiff1d(np.arange(T_q), ends)
    chosen = np.random.default_rng(seed).choice(others, max(wanted - len(ends), 0), replace=False)
    return np.sort(np.concatenate([np.array(ends[:wanted]), chosen]))


def _computed(asked: Asked, dtype: Optional[a.Type], recorded: dict[str, a.Tensor]) -> Computed:
    """How the output was computed: in its own type unless one is named, rounding where the implementation does."""
    plain = Computed(dtype, None, recorded)
    rounds = rounding(asked, plain)
    return plain if rounds is None else Computed(dtype, rounds, recorded)


def rounding(asked: Asked, computed: Computed) -> Optional[dict[str, str]]:
    """The points at which an implementation of 16 bits rounds, but a fused kernel does not; None: there are none."""
    if computed.dtype not in a.HALVES or not asked.rounds:
        return None
    return dict.fromkeys(asked.rounds, a.NAMES[computed.dtype])


def check(asked: Asked, output: a.Torch, rows: a.Wholes, dtype: Optional[a.Type] = None, maps: bool = False
          ) -> Optional[Checked]:
    """Checks some rows of a call, and where maps are wanted keeps the weights; None where none of these sees a key."""
    meant = Meant(*asked.inputs(rows), asked.layer, None, asked.settings(rows))
    recorded = meant.recorded(output[..., rows, :], None)
    computed = _computed(asked, dtype, recorded)
    found, trace = meant.exact(["weights"]) if maps else (meant.exact(), None)
    exact = a.floats("exact", found)
    limits = meant.allowed(computed, recorded)["output"]
    yours = a.Tensor(np.array(a.doubles(a.floats("output", output[..., rows, :]))), abi.F64,
                     a.wrap_numpy)
    lib.mha_replace_equivalent(ctypes.byref(a.view_of(exact)), ctypes.byref(limits), ctypes.byref(a.view_of(yours)))
    mine, right = yours.array, exact.array
    allowed = limits.atol + limits.rtol * np.abs(right)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = np.abs(mine - right) / allowed
        ratio = np.where((mine == right) | (np.isnan(mine) & np.isnan(right)), 0.0, np.where(np.isnan(ratio), np.inf,
                                                                                          ratio))
    seen = asked.visible(rows).any(3)  # (B or 1, h or 1, rows)
    seen = seen.all(1) if asked.layer is not None else seen
    ratio = np.where(seen[..., None], ratio, 0.0)
    counted = int(np.broadcast_to(seen if seen.ndim == 2 else seen.any(1), (asked.B, len(rows))).sum())
    if not counted:
        return None
    worst = np.unravel_index(int(ratio.argmax()), ratio.shape)
    place = tuple(int(i) for i in worst)
    by_head = ratio.max((0, 2, 3)) if ratio.ndim == 4 else ratio.max()[None]
    where = (*place[:-2], int(rows[place[-2]]), place[-1])
    return Checked(tuple(float(x) for x in by_head), where, float(mine[worst]), float(right[worst]),
                  float(np.broadcast_to(allowed, mine.shape)[worst]), counted, asked.B * asked.T_q, computed.words,
                  () if trace is None else tuple(pooled(head) for head in np.asarray(trace["weights"])[0]))


def of_seeing(asked: Asked, output: a.Torch) -> a.Torch:
    """The output, with zeros, as in the exact path, for fully masked queries, where the value is undefined."""
    if asked.layer is not None:
        return output
    blind = ~asked.visible(np.arange(asked.T_q)).any(3)
    return output if not blind.any() else output.masked_fill(output.new_tensor(blind).bool()[..., None], 0.0)


def why(
        asked: Asked, output: a.Torch, rows: a.Wholes, dtype: Optional[a.Type] = None
        ) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """What the output of a wrong call is instead: a sentence, clues, and the names of the bugs that give it.

    The rows that were checked are explained where these are not all, else the call with its own rules."""
    whole = len(rows) == asked.T_q
    chosen, output = None if whole else rows, of_seeing(asked, output)
    try:
        rounds = rounding(asked, Computed(dtype, None, {"output": a.floats("output", output)}))
        found = diagnose(output if whole else output[..., rows, :], *asked.inputs(chosen), layer=asked.layer,
                         dtype=dtype, precision=rounds, **asked.settings(chosen))
    except (Error, TypeError, ValueError) as reason:
        return f"no diagnosis: {reason}", (), ()
    return found.sentence, tuple(found.clues), tuple(found.names)


def save(path: a.Path, asked: Asked, output: a.Torch, dtype: Optional[a.Type] = None) -> None:
    """Writes a call as a case that mha check and mha diagnose read."""
    meant = Meant(*asked.inputs(), asked.layer, None, asked.settings())
    recorded = meant.recorded(of_seeing(asked, output), None)
    meant.save(path, recorded, _computed(asked, dtype, recorded))
