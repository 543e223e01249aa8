"""A failure made small: the smallest shape and the plainest numbers with which a kernel still fails."""
from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional

import numpy as np

from . import _abi
from . import arrays as a
from ._library import Handle
from .errors import Error
from .judge import diagnosis_of, judge
from .meant import Computed, Meant
from .shapes import heads_first

# Arrays among the settings: the axis of the call that each of theirs is, the last one last. H: key/value heads, P: keys
# of earlier calls, n: no axis of the call.
_AXES = {"attn_mask": "BhTS", "mask": "BhTS", "key_padding": "BS", "query_padding": "BT", "lengths": "B", "sinks": "h",
         "alibi": "h", "alibi_slopes": "h", "past_key": "BHPd", "past_value": "BHPe"}
_TABLES = {"position_bias": {"table": "nh"}, "relative": {"k": "nd", "columns": "nd", "q": "nd"}}
_FIXED = ("page_table", "page_lengths", "cu_seqlens_q", "q_segments", "key_lists", "blocks", "bias_k", "q_norm",
          "k_norm")
_PAST = ("past_key", "past_value")
_WHOLE_KEYS = ("attn_mask", "mask", "key_padding")  # arrays whose last axis is all keys, those of earlier calls as well


@dataclass(frozen=True)
class Reduced:
    """A call with which a kernel fails, and which cannot be made smaller by leaving out rows, heads or features.

    q, k, v: (B, h, T, d) each, or (B, T, h, d) by the layout. settings: keywords of the kernel. judged: those of the
    judge, where the kernel's dialect reads them differently. recorded: the answer, as the library sees it: the output,
    and lse where that is asked for. names: variants of attention that give the answer.
    """

    q: Any
    k: Any
    v: Any
    settings: dict[str, Any]
    judged: dict[str, Any]
    layout: str
    dtype: str
    recorded: Mapping[str, a.Tensor]
    names: tuple[str, ...]

    @property
    def script(self) -> str:
        """Python that shows the failure: `kernel` stands for the kernel."""
        def literal(name: str, x: Any) -> str:
            numbers = ", ".join(f"{value:.9g}" for value in np.asarray(x, np.float64).ravel())
            return f"{name} = np.array([{numbers}], np.float32).reshape{tuple(np.shape(x))}"

        head = ["import mha", "import numpy as np"]
        past = {name: self.settings[name] for name in _PAST if name in self.settings}
        arrays = [literal(name, x) for name, x in {"q": self.q, "k": self.k, "v": self.v, **past}.items()]

        def words(settings: Mapping[str, Any]) -> str:
            return "".join(f", {name}={name if name in past else _said(value)}" for name, value in settings.items())

        layout = "" if self.layout == "BHTD" else f", layout={self.layout!r}"
        answer, stages = ("y, lse", ", stages={'lse': lse}") if "lse" in self.recorded else ("y", "")
        answer = "y, _" if "return_lse" in self.settings and not stages else answer
        return "\n".join([*head, *arrays, f"{answer} = kernel(q, k, v{words(self.settings)})",
                          f"mha.testing.assert_attention_close(y, q, k, v{layout}, dtype={self.dtype!r}{stages}"
                          f"{words(self.judged)})"])

    def save(self, path: Any) -> None:
        """Writes the call and the kernel's answer as a case file."""
        meant = Meant(self.q, self.k, self.v, None, self.layout, dict(self.judged))
        meant.save(path, self.recorded, Computed(self.dtype, None, self.recorded))

    def __str__(self) -> str:
        named = f"; the kernel gives {self.names[0]}" if self.names else ""
        return f"fails with q {np.shape(self.q)}, k {np.shape(self.k)}, v {np.shape(self.v)}{named}\n\n{self.script}"


def _said(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):  # Rope, Bias, Relative
        parts = [(field, getattr(value, field.name)) for field in fields(value)]
        said = [f"{f.name}={_said(x)}" for f, x in parts if isinstance(x, np.ndarray) or x != f.default]
        return f"mha.{type(value).__name__}({', '.join(said)})"
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
        """By the letters of the axes: h counts groups of heads that share keys. P: 1 without keys of earlier calls, and
        where masks have a column for each of them."""
        whole = any(name in self.settings for name in _WHOLE_KEYS)
        P = 1 if whole or _PAST[0] not in self.settings else self.settings[_PAST[0]].shape[2]
        return {"B": len(self.q), "h": self.k.shape[1], "g": self.q.shape[1] // self.k.shape[1],
                "T": self.q.shape[2], "S": self.k.shape[2], "d": self.q.shape[3], "e": self.v.shape[3], "P": P}

    def cut(self, **to: int) -> _Call:
        """The first so many of some axes."""
        n = {**self.sizes, **to}
        B, heads = n["B"], n["h"] * n["g"]
        grouped = self.q.reshape(len(self.q), self.sizes["h"], self.sizes["g"], *self.q.shape[2:])
        q = grouped[:B, :n["h"], :n["g"], :n["T"], :n["d"]].reshape(B, heads, n["T"], n["d"])
        past = to.get("P", self.settings[_PAST[0]].shape[2]) if _PAST[0] in self.settings else 0
        kept = {**n, "h": heads, "H": n["h"], "P": past, "S": n["S"] + past}
        settings = dict(self.settings)
        for name, value in self.settings.items():
            if name in _AXES:
                settings[name] = _part(value, _AXES[name], kept, self.q.shape[1])
            elif name in _TABLES:
                parts = {field: _part(getattr(value, field), axes, kept, self.q.shape[1])
                         for field, axes in _TABLES[name].items() if getattr(value, field) is not None}
                settings[name] = replace(value, **parts)
        if "lengths" in settings:
            settings["lengths"] = np.minimum(settings["lengths"], n["S"] + past)
        if n["g"] == 1:
            settings.pop("enable_gqa", None)
        return _Call(q, self.k[:B, :n["h"], :n["S"], :n["d"]], self.v[:B, :n["h"], :n["S"], :n["e"]], settings)

    def plainer(self, digits: int) -> _Call:
        """Numbers with so many digits behind the point."""
        def plain(x: Any) -> Any:
            return np.round(x, digits) + np.float32(0)  # no zero is negative

        past = {name: plain(self.settings[name]) for name in _PAST if name in self.settings}
        return _Call(plain(self.q), plain(self.k), plain(self.v), {**self.settings, **past})


def _part(value: Any, axes: str, kept: dict[str, int], heads: int) -> Any:
    """The part of an array that belongs to the first rows, heads, queries and keys; axes that repeat stay."""
    array = np.asarray(value)
    for axis, letter in zip(range(-1, -array.ndim - 1, -1), reversed(axes)):
        if letter in kept and (array.shape[axis] > 1 or (axes == "h" and heads > 1)):
            array = np.take(array, range(min(kept[letter], array.shape[axis])), axis)
    return array.copy()


class _Failure(NamedTuple):
    """A call that a kernel fails: q, k, v as it takes them, its answer, both as a case, and the stage that differs."""

    arrays: list[Any]
    recorded: dict[str, a.Tensor]
    case: Handle
    stage: Optional[str]


class Reducer:
    """Makes calls smaller as long as a kernel fails them."""

    def __init__(self, kernel: Callable[..., Any], layout: str, dtype: int, wrap: Callable[[Any, int], Any],
                 dialects: Mapping[str, str]) -> None:
        self.kernel, self.layout, self.dtype, self.wrap, self.dialects = kernel, layout, dtype, wrap, dialects

    def _array(self, x: Any) -> Any:
        turned = np.array(x if heads_first(self.layout) else x.swapaxes(1, 2), np.float32, order="C")
        return self.wrap(a.narrowed(turned, _abi.F32, self.dtype) if self.dtype != _abi.F32 else turned, self.dtype)

    def said(self, c: _Call) -> dict[str, Any]:
        """The settings as the kernel takes them: keys and values of earlier calls in its layout and type."""
        return {name: self._array(value) if name in _PAST else value for name, value in c.settings.items()}

    def judged(self, c: _Call) -> dict[str, Any]:
        """The settings as the judge takes them, in the kernel's dialect."""
        said = self.said(c)
        said.pop("return_lse", None)
        if self.dialects.get("empty") == "nan":
            said["empty_rows"] = "nan"
        window = "window" if heads_first(self.layout) else "window_size"
        if window in said and said[window][0] > 0 and self.dialects.get("window") == "w":
            said[window] = (said[window][0] - 1, said[window][1])
        if said.get("attn_mask", np.zeros(0)).dtype == bool and self.dialects.get("mask") == "hides":
            said["attn_mask"] = ~said["attn_mask"]
        aligned = said.get("is_causal") or said.get("causal") or window in said
        if aligned and not {"offset", *_PAST} & set(said) and c.sizes["T"] != c.sizes["S"]:
            said["offset"] = self.dialects.get("alignment", "top-left")
        return said

    def _recorded(self, meant: Meant, answer: Any, c: _Call) -> dict[str, a.Tensor]:
        """An answer as the library sees it; lse where that is asked for, and means what the library's does."""
        if "return_lse" not in c.settings:
            return meant.recorded(answer, None)
        output, lse = answer
        natural = self.dialects.get("lse", "natural") == "natural"
        return meant.recorded(output, {"lse": lse} if natural else None)

    def wrong(self, c: _Call) -> Optional[_Failure]:
        """A call that the kernel fails; None where it is right or silent."""
        arrays, name = [self._array(x) for x in (c.q, c.k, c.v)], a.NAMES[self.dtype]
        try:
            answer = self.kernel(*arrays, **self.said(c))
            meant = Meant(arrays[0], arrays[1], arrays[2], None, self.layout, self.judged(c))
            recorded = self._recorded(meant, answer, c)
            case = meant.case(recorded, Computed(name, None, recorded))
            verdict = judge(case, 0)
            return _Failure(arrays, recorded, case, verdict.first) if verdict.failed else None
        except (Exception, SystemExit):  # no failure of this kind
            return None

    def described(self, c: _Call) -> Optional[Reduced]:
        """The call as a failure, with its diagnosis."""
        found = self.wrong(c)
        if found is None:
            return None
        try:
            names = tuple(diagnosis_of(found.case, found.stage).names)
        except Error:
            names = ()
        q, k, v = found.arrays
        return Reduced(q, k, v, self.said(c), self.judged(c), self.layout, a.NAMES[self.dtype], found.recorded, names)

    def _smaller(self, c: _Call) -> Iterator[_Call]:
        """Calls that are smaller in one axis, the smallest first; queries and keys together where they are as many."""
        sizes = c.sizes
        for axis in ("B", "h", "g", "T", "S", "P", "e", "d"):
            together = axis == "T" and sizes["T"] == sizes["S"]
            for n in range(1, sizes[axis]):
                if axis not in ("T", "S", "P") or n < 9 or n * 2 > sizes[axis]:
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
