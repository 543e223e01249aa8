"""A failure made small: the smallest shape and the plainest numbers with which a kernel still fails."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Optional

import numpy as np

from . import _abi
from . import arrays as a
from .errors import Error
from .judge import diagnosis_of, judge
from .meant import Computed, Meant
from .shapes import heads_first

# Arrays among the settings: the axis of the call that each of theirs is, the last one last.
_AXES = {"attn_mask": "BhTS", "mask": "BhTS", "key_padding": "BS", "lengths": "B", "sinks": "h", "alibi": "h",
         "alibi_slopes": "h"}
_FIXED = ("past_key", "past_value", "page_table", "page_lengths", "cu_seqlens_q", "q_segments", "query_padding",
          "key_lists", "blocks", "position_bias", "relative", "q_norm", "k_norm", "bias_k", "rope", "return_lse")


@dataclass(frozen=True)
class Reduced:
    """A call with which a kernel fails, and which cannot be made smaller by leaving out rows, heads or features.

    q, k, v: (B, h, T, d) each, or (B, T, h, d) by the layout. settings: keywords of the kernel. judged: those of the
    judge, where the kernel's dialect reads them differently. names: variants of attention that give the answer.
    """

    q: Any
    k: Any
    v: Any
    settings: dict[str, Any]
    judged: dict[str, Any]
    layout: str
    dtype: str
    actual: Any
    names: tuple[str, ...]

    @property
    def script(self) -> str:
        """Python that shows the failure: `kernel` stands for the kernel."""
        def literal(name: str, x: Any) -> str:
            numbers = ", ".join(f"{value:.9g}" for value in np.asarray(x, np.float64).ravel())
            return f"{name} = np.array([{numbers}], np.float32).reshape{tuple(np.shape(x))}"

        head = ["import mha", "import numpy as np"]
        arrays = [literal(name, x) for name, x in (("q", self.q), ("k", self.k), ("v", self.v))]
        said = ", ".join(f"{name}={_said(value)}" for name, value in self.settings.items())
        meant = ", ".join(f"{name}={_said(value)}" for name, value in self.judged.items())
        layout = "" if self.layout == "BHTD" else f"layout={self.layout!r}, "
        return "\n".join([*head, *arrays, f"y = kernel(q, k, v{', ' if said else ''}{said})",
                          f"mha.testing.assert_attention_close(y, q, k, v, {layout}dtype={self.dtype!r}, {meant})"
                          .replace(", )", ")")])

    def save(self, path: Any) -> None:
        """Writes the call and the kernel's answer as a case file."""
        meant = Meant(self.q, self.k, self.v, None, self.layout, dict(self.judged))
        recorded = meant.recorded(self.actual, None)
        meant.save(path, recorded, Computed(self.dtype, None, recorded))

    def __str__(self) -> str:
        named = f"; the kernel gives {self.names[0]}" if self.names else ""
        return f"fails with q {np.shape(self.q)}, k {np.shape(self.k)}, v {np.shape(self.v)}{named}\n\n{self.script}"


def _said(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    numbers = value.tolist()
    return f"np.array({numbers}, np.{'bool_' if value.dtype == bool else value.dtype.name})".replace("inf", "np.inf")


class _Call:
    """A call as (B, h, T, d) arrays of float32, and its sizes."""

    def __init__(self, q: Any, k: Any, v: Any, settings: Mapping[str, Any]) -> None:
        self.q, self.k, self.v, self.settings = q, k, v, dict(settings)

    @property
    def sizes(self) -> dict[str, int]:
        """By the letters of the axes: h counts groups of heads that share keys."""
        return {"B": len(self.q), "h": self.k.shape[1], "g": self.q.shape[1] // self.k.shape[1],
                "T": self.q.shape[2], "S": self.k.shape[2], "d": self.q.shape[3], "e": self.v.shape[3]}

    def cut(self, **to: int) -> _Call:
        """The first so many of some axes."""
        n = {**self.sizes, **to}
        B, heads = n["B"], n["h"] * n["g"]
        grouped = self.q.reshape(len(self.q), self.sizes["h"], self.sizes["g"], *self.q.shape[2:])
        q = grouped[:B, :n["h"], :n["g"], :n["T"], :n["d"]].reshape(B, heads, n["T"], n["d"])
        kept = {"B": B, "h": heads, "T": n["T"], "S": n["S"]}
        settings = {name: _part(value, _AXES[name], kept, self.q.shape[1]) if name in _AXES else value
                    for name, value in self.settings.items()}
        if "lengths" in settings:
            settings["lengths"] = np.minimum(settings["lengths"], n["S"])
        if n["g"] == 1:
            settings.pop("enable_gqa", None)
        return _Call(q, self.k[:B, :n["h"], :n["S"], :n["d"]], self.v[:B, :n["h"], :n["S"], :n["e"]], settings)

    def plainer(self, digits: int) -> _Call:
        """Numbers with so many digits behind the point."""
        q, k, v = (np.round(x, digits) + np.float32(0) for x in (self.q, self.k, self.v))  # no zero is negative
        return _Call(q, k, v, self.settings)


def _part(value: Any, axes: str, kept: dict[str, int], heads: int) -> Any:
    """The part of an array that belongs to the first rows, heads, queries and keys; axes that repeat stay."""
    array = np.asarray(value)
    for axis, letter in zip(range(-1, -array.ndim - 1, -1), reversed(axes)):
        if array.shape[axis] > 1 or (axes == "h" and heads > 1):
            array = np.take(array, range(min(kept[letter], array.shape[axis])), axis)
    return array.copy()


class Reducer:
    """Makes calls smaller as long as a kernel fails them."""

    def __init__(self, kernel: Callable[..., Any], layout: str, dtype: int, wrap: Callable[[Any, int], Any],
                 dialects: Mapping[str, str]) -> None:
        self.kernel, self.layout, self.dtype, self.wrap, self.dialects = kernel, layout, dtype, wrap, dialects

    def _array(self, x: Any) -> Any:
        turned = np.array(x if heads_first(self.layout) else x.swapaxes(1, 2), np.float32, order="C")
        return self.wrap(a.narrowed(turned, _abi.F32, self.dtype) if self.dtype != _abi.F32 else turned, self.dtype)

    def judged(self, c: _Call) -> dict[str, Any]:
        """The settings as the judge takes them, in the kernel's dialect."""
        said = dict(c.settings)
        said.pop("return_lse", None)
        if self.dialects.get("empty") == "nan":
            said["empty_rows"] = "nan"
        window = "window" if heads_first(self.layout) else "window_size"
        if window in said and said[window][0] > 0 and self.dialects.get("window") == "w":
            said[window] = (said[window][0] - 1, said[window][1])
        if said.get("attn_mask", np.zeros(0)).dtype == bool and self.dialects.get("mask") == "hides":
            said["attn_mask"] = ~said["attn_mask"]
        aligned = said.get("is_causal") or said.get("causal") or window in said
        if aligned and "offset" not in said and c.sizes["T"] != c.sizes["S"]:
            said["offset"] = self.dialects.get("alignment", "top-left")
        return said

    def wrong(self, c: _Call) -> Optional[tuple[list[Any], Any, Any]]:
        """The arrays, the answer and the case of a call that the kernel fails; None where it is right or silent."""
        arrays, name = [self._array(x) for x in (c.q, c.k, c.v)], a.NAMES[self.dtype]
        try:
            actual = self.kernel(*arrays, **c.settings)
            meant = Meant(arrays[0], arrays[1], arrays[2], None, self.layout, self.judged(c))
            recorded = meant.recorded(actual, None)
            case = meant.case(recorded, Computed(name, None, recorded))
            return (arrays, actual, case) if judge(case, 0).failed else None
        except (Exception, SystemExit):  # no failure of this kind
            return None

    def described(self, c: _Call) -> Optional[Reduced]:
        """The call as a failure, with its diagnosis."""
        found = self.wrong(c)
        if found is None:
            return None
        (q, k, v), actual, case = found
        try:
            names = tuple(diagnosis_of(case).names)
        except Error:
            names = ()
        return Reduced(q, k, v, c.settings, self.judged(c), self.layout, a.NAMES[self.dtype], actual, names)

    def _smaller(self, c: _Call) -> Iterator[_Call]:
        """Calls that are smaller in one axis, the smallest first; queries and keys together where they are as many."""
        sizes = c.sizes
        for axis in ("B", "h", "g", "T", "S", "e", "d"):
            together = axis == "T" and sizes["T"] == sizes["S"]
            for n in range(1, sizes[axis]):
                if axis not in ("T", "S") or n < 9 or n * 2 > sizes[axis]:
                    yield c.cut(T=n, S=n) if together else c.cut(**{axis: n})

    def reduce(self, q: Any, k: Any, v: Any, settings: Mapping[str, Any]) -> Optional[Reduced]:
        """The smallest failure that is found from a call of (B, h, T, d) arrays; None where it has parts that cannot
        be cut, or does not fail."""
        if any(name in settings for name in _FIXED):
            return None
        c = _Call(q, k, v, settings)
        if self.wrong(c) is None:
            return None
        while True:
            smaller = next((s for s in self._smaller(c) if self.wrong(s)), None)
            if smaller is None:
                break
            c = smaller
        for digits in (3, 2, 1, 0):
            plain = c.plainer(digits)
            if self.wrong(plain):
                c = plain
        return self.described(c)
