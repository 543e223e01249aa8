"""Compares queries, keys and values of a layer with those that its weights give: which differ, and by which bug.

In float32 and float64 the error bound of the library decides. In 16 bits it cannot: it allows for sums whose factors
were rounded. Here factors are given in 16 bits and matrix products are summed in float32, so of a row of n features, a
head of one token, it is known how far rounding moves it in 2-norm. With u the unit roundoff, g(k) = k u / (1 - k u):

    product   sqrt(n) E, with E the library's bound in float32; result and sum with a bias b are rounded:
              e = sqrt(n) E + g(2) (|x| + |b|)
    norm      e / (|x| - e) of itself where all weights are one, else max|w| sqrt(n) times that (L2: max|w|); the
              number, its product with w and the sum with a bias b are rounded: g(3) (|y| + |b|). |x| is the row's
              before the norm, less its mean where that is taken away; of a norm over all heads, that of all of them
    rotation  cos and sin, products and sum are rounded: g(3) (|a cos| + |b sin|) <= g(3) |pair| of each number of a
              pair (a, b), so sqrt(2) g(3) |y| of the row; an attention factor f multiplies what comes by max(f, 1)
    scale     by position, and that of the scores where queries carry it: g(3) |y|

and each rounding moves a number by the smallest subnormal of the type, if by no more.
"""
from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from ..core import arrays as a
from ..core.layer import MultiHeadAttention
from ..core.reference import Meant
from ..judge.check import check, diagnose

HALVES = ("torch.float16", "torch.bfloat16")
ROUNDINGS = 11  # of a number on its way


@dataclass(frozen=True)
class Beside:
    """What differs first: the stage, or None; how many of its `count` numbers, or rows in 16 bits; by how much."""

    first: Optional[str] = None
    off: int = 0
    count: int = 0
    most: float = 0.0
    what: str = "numbers"


class Projected:
    """A layer, the rows that entered it, and the settings of its call. dtype: what its queries are made in."""

    def __init__(self, layer: MultiHeadAttention, rows: Sequence[a.Torch], said: Mapping[str, Any],
                 dtype: a.TorchType) -> None:
        if str(dtype) not in (*HALVES, "torch.float32", "torch.float64"):
            raise ValueError(f"in {dtype}")
        self.layer, self.rows, self.said, self.dtype = layer, rows, dict(said), dtype
        self.is_half = str(dtype) in HALVES
        self._is_again = False
        self.is_rounded = False  # whether queries or keys are right only with frequencies rounded to the type
        self._weights: Mapping[str, a.Floats] = {}
        if self.is_half and layer.config["kv_rank"]:
            raise ValueError("latents in 16 bits")
        if self.is_half and layer.settings.get("norm_after_rope"):
            raise ValueError("a norm after the rotation in 16 bits")

    def beside(self, stages: Mapping[str, a.Torch]) -> Beside:
        """The stages of the model with the exact ones; ValueError if they cannot be compared."""
        if self.is_half:
            return self._in_halves(stages)
        verdict = check(None, *self.rows, layer=self.layer, stages=stages, **self.said)
        if verdict.skipped or not all(stage.checked for stage in verdict.stages):
            raise ValueError(verdict.reason or "numbers may leave the range of the type")
        if verdict.passed:
            return Beside()
        stage = next(each for each in verdict.stages if each.name == verdict.first)
        return Beside(stage.name, stage.mismatches, stage.elements, stage.max_abs)

    def bugs(self, name: str, stage: a.Torch) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the bugs that give a stage, in 16 bits of those that come within 2 percent, and clues."""
        found = diagnose(None, *self.rows, layer=self.layer, stages={name: stage}, tensor=name, **self.said)
        names = ["+".join(each.bugs) for each in found.matches] if self.is_half else found.names
        return tuple(filter(None, names)), (found.sentence, *found.clues)

    # ---------------------------------------------------------------- in 16 bits

    def _rounded(self) -> Optional[Projected]:
        """The same with frequencies of the rotation rounded to the type, as model.to(dtype) rounds this buffer of
        transformers; None if there are none, or they are."""
        rope = self.layer.settings.get("rope")
        if rope is None or rope.cos is not None or self._is_again:
            return None
        width = rope.dim or self.layer.config["d_k"]
        own = rope.base ** -(np.arange(0, width, 2) / width) if rope.frequencies is None else rope.frequencies
        torch = importlib.import_module("torch")
        turned = replace(rope, frequencies=torch.tensor(np.asarray(own)).to(self.dtype).double().numpy())
        again = Projected(self.layer, self.rows, {**self.said, "rope": turned}, self.dtype)
        again._is_again = True
        return again

    def _in_halves(self, stages: Mapping[str, a.Torch]) -> Beside:
        meant = Meant(self.rows[0], self.rows[1] if self.rows[1:] else None, None, self.layer, None, self.said)
        _, exact = meant.exact([*{*stages, *(name[0] for name in stages)}])
        bound, self._weights = meant.bound(2.0**-24), self.layer.weights
        for name, given in stages.items():
            width = self.layer.config["d_v" if name == "v" else "d_k"]
            mine, right, before = (np.asarray(x, np.float64).reshape(*x.shape[:2], -1, width)
                                   for x in (given, exact[name], exact[name[0]]))
            off = np.linalg.norm(mine - right, axis=-1)
            wrong = ~(off <= self._allowed(name, bound[name[0]], before, right))
            rounded = self._rounded() if wrong.any() and name != "v" else None
            if rounded is not None and rounded.beside({name: given}).first is None:
                self.is_rounded = True
            elif wrong.any():
                return Beside(name, int(wrong.sum()), wrong.size, float(np.abs(mine - right).max()), "rows of heads")
        return Beside()

    def _weight(self, name: str, heads: int) -> a.Doubles:
        """A vector of the layer by heads, (heads or 1, width); zero where there is none."""
        found = np.asarray(self._weights.get(name, np.zeros(heads)), np.float64)
        return found.reshape(heads if found.size % heads == 0 and name[0] == "b" else 1, -1)

    def _allowed(self, name: str, bound: float, x: a.Doubles, y: a.Doubles) -> a.Doubles:
        """How far rounding moves the rows y, (B, T, heads), which were x before norm and rotation."""
        finfo = importlib.import_module("torch").finfo(self.dtype)
        u, width = finfo.eps / 2, x.shape[-1]

        def size(rows: a.Doubles, axes: Union[int, tuple[int, ...]] = -1) -> a.Doubles:
            lengths: a.Doubles = np.sqrt((rows**2).sum(axes, keepdims=True))[..., 0]
            return lengths

        def g(k: int) -> float:
            return float(k * u / (1 - k * u))

        error = width**0.5 * bound + g(2) * (size(x) + size(self._weight(f"b_{name[0].upper()}", x.shape[2])))
        settings, norm = self.layer.settings, f"{name[0]}_norm"
        kind = self.layer.config.get(norm, "none") if name != "v" else "none"
        rope = settings.get("rope") if name != "v" else None
        times = max(getattr(rope, "attention_factor", 1.0), 1.0)
        if kind != "none":
            axes: Union[int, tuple[int, ...]] = (-2, -1) if kind == "row" else -1
            whole = np.sqrt((error**2).sum(-1, keepdims=True)) if kind == "row" else error
            least = x - x.mean(axes, keepdims=True) if settings.get("norm_kind") == "layer" else x
            length = size(least, axes) - whole
            weight = self._weights.get(norm)
            most = 1.0 if weight is None else float(np.abs(weight + float(settings.get("norm_plus_one", False))).max())
            features = width * (x.shape[2] if kind == "row" else 1)
            most *= 1.0 if settings.get("norm_kind") == "l2" else features**0.5
            added = np.abs(self._weights.get(f"{norm}_bias", np.zeros(1))).max() * width**0.5
            error = np.where(length > 0, most * whole / np.where(length > 0, length, 1), np.inf)
            error = error + g(3) * (size(y) + added)
        error = times * error + (2**0.5 * g(3) + g(3)) * size(y)
        allowed: a.Doubles = error + ROUNDINGS * width**0.5 * finfo.smallest_normal * finfo.eps
        return allowed
