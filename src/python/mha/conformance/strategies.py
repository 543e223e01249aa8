"""Random calls for hypothesis: sizes, numbers and settings in which kernels go wrong."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from hypothesis import strategies as st

from ..core.kinds import Floats
from ..core.semantics import Bias, Relative


class CaseOptions(TypedDict, total=False):
    """The options of `cases`."""

    dtype: str
    gqa: bool
    d_v: bool
    causal: bool
    masks: bool
    settings: bool
    longest: int


@dataclass(frozen=True)
class RandomCall:
    """A call: query, key and value as PyTorch lays them out, and settings of scaled_dot_product_attention."""

    query: Floats
    key: Floats
    value: Floats
    settings: dict[str, Any]

    @property
    def inputs(self) -> tuple[Floats, Floats, Floats]:
        """query, key, value."""
        return self.query, self.key, self.value


def bias(r: np.random.Generator, size: float, h: int, tokens: int, grid: bool) -> Bias:
    """A bias by position, by a grid that has room for so many tokens, or by buckets."""
    if grid:
        width = -(-tokens // 4)
        return Bias("grid", size * r.standard_normal((7 * (2 * width - 1), h)), height=4, width=width)
    return Bias("buckets", size * r.standard_normal((8, h)), bool(r.integers(2)), int(r.integers(5, 40)))


def relative(r: np.random.Generator, size: float, h: int, d: int) -> Relative:
    """Relative terms of queries and keys, by distances or buckets, of tables for all heads or for each."""
    width = d if r.integers(2) else h * d
    k, q = (size * r.standard_normal((8, width)) for _ in range(2))
    return Relative(["distance", "log_buckets"][r.integers(2)], k, None, q, bool(r.integers(2)), k_scale=0.5)


@st.composite
def cases(draw: st.DrawFn, *, dtype: str = "float32", gqa: bool = True, d_v: bool = True, causal: bool = True,
          masks: bool = True, settings: bool = True, longest: int = 40) -> RandomCall:
    """Calls of small sizes.

    dtype: of the inputs, by numpy's name. gqa: fewer key/value heads than query heads. d_v: another width of values.
    causal, masks: is_causal and attn_mask. settings: window, softcap, sinks, alibi, position_bias, relative, lengths,
        offset.
    longest: of T_q and S. Numbers come from a seed, so that a smaller case is one of smaller sizes.
    """
    lengths = st.sampled_from([n for n in (1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 65, 128, 129) if n <= longest] or [1])
    B, h_kv, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)) if gqa else 1
    T_q, S, d = draw(lengths), draw(lengths), draw(st.sampled_from([1, 2, 4, 7, 8, 16]))
    width = draw(st.sampled_from([d, 3, 8])) if d_v else d
    r, size = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from([1.0, 1.0, 0.01, 4.0]))
    h = h_kv * groups

    def numbers(*shape: int) -> Floats:
        made: Floats = (size * r.standard_normal(shape)).astype(dtype)
        return made

    said: dict[str, Any] = {"enable_gqa": True} if groups > 1 else {}
    if causal and draw(st.booleans()):
        said["is_causal"] = True
    if masks and draw(st.booleans()):
        shape = draw(st.sampled_from([(T_q, S), (1, S), (B, 1, T_q, S), (B, h, T_q, S), (h, T_q, S)]))
        said["attn_mask"] = r.random(shape) < 0.7 if draw(st.booleans()) else numbers(*shape)
    names = draw(st.sets(st.sampled_from(["window", "softcap", "sinks", "alibi", "lengths", "offset", "scale",
                                          "position_bias", "relative"]), max_size=3)) if settings else set()
    for name in names:
        said[name] = {"window": (int(r.integers(0, S)), int(r.integers(-1, S))), "softcap": float(r.uniform(0.5, 20)),
                      "sinks": r.standard_normal(h), "alibi": r.uniform(0, 1, h), "lengths": r.integers(0, S + 1, B),
                      "offset": int(r.integers(-2, S + 1)), "scale": float(r.uniform(0.05, 2)),
                      "relative": relative(r, size, h, d),
                      "position_bias": bias(r, size, h, max(T_q, S), "offset" not in names and bool(B % 2))}[name]
    return RandomCall(numbers(B, h, T_q, d), numbers(B, h_kv, S, d), numbers(B, h_kv, S, width), said)
