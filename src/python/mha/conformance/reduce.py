"""A failure made small: the smallest shape and the plainest numbers with which a kernel still fails."""
from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, Callable, Collection, Iterator, Mapping, NamedTuple, Optional, Sequence, cast

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.backward import MeantBackward
from ..core.backward_call import INPUTS
from ..core.errors import Error
from ..core.library import Handle
from ..core.reference import Computed, Meant
from ..core.shapes import heads_first
from ..judge.check import GRADIENT_STAGES, check_case, diagnosis_of, match_of
from .autodiff import run_pair
from .suite import handed, wrapper

# Arrays among the settings: the axis of the call that each of theirs is, the last one last. H: key/value heads, P: keys
# of earlier calls, n: no axis of the call; x and y: blocks of queries and of keys.
_AXES = {"attn_mask": "BhTS", "mask": "BhTS", "key_padding": "BS", "query_padding": "BT", "lengths": "B", "sinks": "h",
         "alibi": "h", "alibi_slopes": "h", "past_key": "BHPd", "past_value": "BHPe", "q_segments": "BT",
         "k_segments": "BS", "key_lists": "BhTn", "dropout_keep": "BhTS", "blocks": "Bhxy", "page_lengths": "B",
         "q_norm": "hd", "k_norm": "Hd", "q_norm_bias": "hd", "k_norm_bias": "Hd", "bias_k": "d", "bias_v": "e"}
_TABLES = {"position_bias": {"table": "nh"}, "relative": {"k": "nd", "columns": "nd", "q": "nd"}}
_WEIGHTS = ("bias_k", "q_norm", "k_norm")  # that may have the features of all heads side by side
_STARTS = ("cu_seqlens_q", "cu_seqlens_k")
_PAST = ("past_key", "past_value")
# Of each kind of arrays one of some numbers in a type, and what is imported for it.
_MADE = {"numpy": "np.array({0}, np.{1})", "torch": "torch.tensor({0}, dtype=torch.{1})",
         "jax": "jnp.array({0}, jnp.{1})", "cupy": "cp.array({0}, cp.{1})"}
_IMPORTS: dict[str, list[str]] = {"numpy": [], "torch": ["import torch"], "jax": ["import jax.numpy as jnp"],
                                  "cupy": ["import cupy as cp"]}
# Arrays whose last axis is all keys, those of earlier calls as well.
_WHOLE_KEYS = ("attn_mask", "mask", "key_padding", "dropout_keep")


@dataclass(frozen=True)
class Reduced:
    """The smallest call with which a kernel still fails: no row, head or feature can be left out.

    Attributes
    ----------
    q, k, v : arrays, shape (B, h, T, d), or (B, T, h, d) by the layout
        Inputs.
    settings, checked : dict
        Keywords of the kernel, and those of the check, which differ where the kernel has another convention.
    layout, dtype, arrays : str
        As in mha.conform.
    recorded : dict from str to tensor
        The kernel's output, and lse if the test case asks for it.
    names : tuple of str
        Known bugs that give the result, or the gradients.
    do : array or None
        Gradient of the output, in its axes, if gradients are wrong.
    gradients : dict from str to tensor
        Wrong gradients by the names of their inputs.
    has_backward : bool
        Whether a function computes the gradients, not autograd.
    note : str
        Warning that this may be another failure than that of the whole call; else "".
    """

    q: a.ArrayLike
    k: a.ArrayLike
    v: a.ArrayLike
    settings: dict[str, Any]
    checked: dict[str, Any]
    layout: str
    dtype: str
    recorded: Mapping[str, a.Tensor]
    names: tuple[str, ...]
    do: Optional[a.ArrayLike] = None
    gradients: Mapping[str, a.Tensor] = field(default_factory=dict)
    arrays: str = "numpy"
    has_backward: bool = False
    note: str = ""

    def _literal(self, name: str, x: object) -> str:
        """An array by name, of the kind and the type that the kernel is given."""
        wide = a.doubles(a.floats(name, x))
        numbers = ", ".join(_runs(str(value).removesuffix(".0") for value in wide.astype(np.float32).ravel()))
        numbers = numbers.replace("nan", "np.nan").replace("inf", "np.inf")
        return f"{name} = {_made(self.arrays, f'[{numbers}]', self.dtype)}.reshape{tuple(wide.shape)}"

    def _words(self, settings: Mapping[str, Any], arrays: str = "numpy") -> str:
        return "".join(f", {name}={name if name in _PAST else _said(value, arrays)}"
                       for name, value in settings.items())

    @property
    def script(self) -> str:
        """Python that shows the failure: `kernel` is the kernel, `backward` its backward."""
        head = ["import mha", "import numpy as np", *_IMPORTS[self.arrays.partition(",")[0]]]
        if self.arrays == "numpy" and self.dtype == "bfloat16":
            head.append("import ml_dtypes")
        arrays = {"q": self.q, "k": self.k, "v": self.v,
                  **{name: self.settings[name] for name in _PAST if name in self.settings},
                  **({} if self.do is None else {"do": self.do})}
        return "\n".join([*head, *(self._literal(name, x) for name, x in arrays.items()), *self._asked()])

    def _asked(self) -> list[str]:
        """The call, and the check of its result."""
        said = self._words(self.settings, self.arrays)
        layout = "" if self.layout == "BHTD" else f", layout={self.layout!r}"
        checked = f"{layout}, dtype={self.dtype!r}"
        if self.do is not None and not self.has_backward:
            return [f"mha.testing.assert_function_close(lambda q, k, v: kernel(q, k, v{said}), q, k, v, do=do{checked}"
                    f"{self._words(self.checked)})"]
        if self.do is not None:
            return [f"y = kernel(q, k, v{said})", f"dq, dk, dv = backward(q, k, v, y, do{said})",
                    f"mha.testing.assert_gradients_close(dq, dk, dv, q, k, v, do{checked}{self._words(self.checked)})"]
        result, stages = ("y, lse", ", stages={'lse': lse}") if "lse" in self.recorded else ("y", "")
        result = "y, _" if "return_lse" in self.settings and not stages else result
        lines = [f"{result} = kernel(q, k, v{said})"]
        if "page_table" in self.settings:
            table = a.given("page_table", self.settings["page_table"]).array.tolist()
            turned = ".swapaxes(1, 2)" if heads_first(self.layout) else ""
            lines.append(f"k, v = (x[np.array({table})].reshape({len(table)}, -1, *x.shape[2:]){turned} "
                         "for x in (k, v))")
        return [*lines,
                f"mha.testing.assert_attention_close(y, q, k, v{checked}{stages}{self._words(self.checked)})"]

    def save(self, path: a.Path) -> None:
        """Write the call with the kernel's result, or with its wrong gradients, as a case file.

        Parameters
        ----------
        path : path_like
            File to write, for mha.check and mha.diagnose.

        Raises
        ------
        mha.MachineError
            mha cannot write the file; also an OSError.

        Examples
        --------
        >>> def kernel(q, k, v):
        ...     return mha.scaled_dot_product_attention(q, k, v, scale=1.0)
        >>> report = mha.conform(kernel, has=(), level="smoke", only="plain.q17-s17")
        >>> report.reduce("plain.q17-s17").save("small.safetensors")
        >>> mha.diagnose("small.safetensors").names
        ['scale-missing']
        """
        q, k, v = _contiguous([self.q, self.k, self.v], self.settings, self.layout)
        meant = Meant(q, k, v, None, self.layout, dict(self.checked))
        backward = None if self.do is None else MeantBackward(meant, self.do, None)
        meant.save(path, self.recorded if backward is None else {}, Computed(self.dtype, None, self.recorded),
                   None if backward is None else backward.noted(self.gradients))

    def __str__(self) -> str:
        others = f" or {len(self.names) - 1} more" if self.names[1:] else ""
        kernel = "kernel" if self.do is None else "backward"
        named = f"; the {kernel} gives {self.names[0]}{others}" if self.names else ""
        q, k, v = (a.given(name, x).array.shape for name, x in zip("qkv", (self.q, self.k, self.v)))
        said = f"fails with q {q}, k {k}, v {v}{named}"
        return "\n".join([said, *([self.note] if self.note else []), "", self.script])


def _runs(numbers: Iterator[str]) -> Iterator[str]:
    """Items of a list in Python, many equal ones in a row as "*[0] * 32"."""
    for number, those in itertools.groupby(numbers):
        count = len(list(those))
        yield from (f"*[{number}] * {count}",) if count > 4 else (number,) * count


def _made(arrays: str, numbers: str, dtype: str) -> str:
    """An array of a kind, in Python."""
    arrays, _, device = arrays.partition(",")
    made = _MADE[arrays].format(numbers, dtype) + (f".to({device!r})" if device and arrays == "torch" else "")
    return made.replace("np.bfloat16", "ml_dtypes.bfloat16") if arrays == "numpy" else made


def _said(value: object, arrays: str) -> str:
    """A setting in Python, its arrays of a kind; of JAX those of 64 bits are of numpy, as they are handed over."""
    if is_dataclass(value) and not isinstance(value, type):  # Rope, Bias, Relative
        parts = [(f, getattr(value, f.name)) for f in fields(value)]
        said = [f"{f.name}={_said(x, arrays)}" for f, x in parts if hasattr(x, "shape") or x != f.default]
        return f"mha.{type(value).__name__}({', '.join(said)})"
    if not hasattr(value, "shape"):
        return repr(value)
    array = a.given("value", value).array
    kind = "numpy" if isinstance(value, np.ndarray) else arrays
    name = array.dtype.name if kind.startswith("torch") or array.dtype != bool else "bool_"
    return _made(kind, str(array.tolist()).replace("inf", "np.inf"), name)


def _contiguous(arrays: Sequence[Any], settings: Mapping[str, Any], layout: str) -> Sequence[Any]:
    """q, k and v: keys and values out of their pages."""
    if "page_table" not in settings:
        return arrays
    table = a.given("page_table", settings["page_table"]).array
    rows = [x[table].reshape(len(table), -1, *x.shape[2:]) for x in arrays[1:]]
    return [arrays[0], *(x.swapaxes(1, 2) if heads_first(layout) else x for x in rows)]


class _Call:
    """A call as (B, h, T, d) arrays of float32, and its sizes. do: the gradient of the output; None: only the
    forward."""

    def __init__(self, q: a.Floats, k: a.Floats, v: a.Floats, settings: Mapping[str, Any],
                 do: Optional[a.Floats] = None) -> None:
        self.q, self.k, self.v, self.settings, self.do = q, k, v, dict(settings), do

    @property
    def sizes(self) -> dict[str, int]:
        """By the letters of the axes: h counts groups of heads that share keys. P: 1 without keys of earlier calls, and
        where masks have a column for each of them."""
        whole = any(name in self.settings for name in _WHOLE_KEYS)
        P = 1 if whole or _PAST[0] not in self.settings else self.settings[_PAST[0]].shape[2]
        return {"B": len(self.q), "h": self.k.shape[1], "g": self.q.shape[1] // self.k.shape[1],
                "T": self.q.shape[2], "S": self.k.shape[2], "d": self.q.shape[3], "e": self.v.shape[3], "P": P,
                "rows": self.settings.get("page_rows", 1)}

    def cut(self, **to: int) -> _Call:
        """The first so many of some axes."""
        n = {**self.sizes, **to}
        heads = n["h"] * n["g"]

        def of_queries(x: a.Floats, width: int) -> a.Floats:
            grouped = x.reshape(len(x), self.sizes["h"], self.sizes["g"], *x.shape[2:])
            return grouped[:n["B"], :n["h"], :n["g"], :n["T"], :width].reshape(n["B"], heads, n["T"], width)

        past = to.get("P", self.settings[_PAST[0]].shape[2]) if _PAST[0] in self.settings else 0
        kept = {**n, "h": heads, "H": n["h"], "P": past, "S": n["S"] + past}
        settings = dict(self.settings)
        if "blocks" in settings:
            queries, keys = settings["block_size"]
            kept.update(x=-(-n["T"] // queries), y=-(-kept["S"] // keys))
        for name, value in self.settings.items():
            if name in _AXES:
                settings[name] = _part(value, _AXES[name], kept, self.q.shape[1])
            elif name in _TABLES:
                parts = {part: _part(getattr(value, part), axes, kept, self.q.shape[1])
                         for part, axes in _TABLES[name].items() if getattr(value, part) is not None}
                settings[name] = replace(value, **parts)
        for name in ("lengths", "page_lengths"):
            if name in settings:
                settings[name] = np.minimum(settings[name], n["S"] + past)
        if "key_lists" in settings:
            settings["key_lists"] = np.where(settings["key_lists"] < n["S"] + past, settings["key_lists"], -1)
        if "page_rows" in settings:
            settings["page_rows"] = n["rows"]
        if n["g"] == 1:
            settings.pop("enable_gqa", None)
        k, v = (x[:n["B"], :n["h"], :n["S"], :width] for x, width in ((self.k, n["d"]), (self.v, n["e"])))
        do = None if self.do is None else of_queries(self.do, n["e"])
        return _Call(of_queries(self.q, n["d"]), k, v, settings, do)

    def turned(self, axis: str, i: int) -> _Call:
        """Batch row ("B"), key/value head with its query heads ("h"), or query head of each group ("g") i first."""
        sizes = self.sizes
        g, order = sizes["g"], {}
        order["B"] = np.roll(np.arange(sizes["B"]), -i if axis == "B" else 0)
        order["H"] = np.roll(np.arange(sizes["h"]), -i if axis == "h" else 0)
        order["h"] = (order["H"][:, None] * g + np.roll(np.arange(g), -i if axis == "g" else 0)).ravel()

        def of(value: object, axes: str) -> a.Floats:
            array = np.asarray(value)
            for at, letter in zip(range(-1, -array.ndim - 1, -1), reversed(axes)):
                if letter in order and array.shape[at] == len(order[letter]):
                    array = np.take(array, order[letter], at)
            return array

        settings = {name: of(value, _AXES[name]) if name in _AXES else
                    replace(value, **{part: of(getattr(value, part), axes) for part, axes in _TABLES[name].items()
                                      if getattr(value, part) is not None and axes != "nd"})
                    if name in _TABLES else value for name, value in self.settings.items()}
        do = None if self.do is None else of(self.do, "BhTe")
        return _Call(of(self.q, "BhTd"), of(self.k, "BHSd"), of(self.v, "BHSe"), settings, do)

    def without(self, which: int, first: int, end: int) -> _Call:
        """Zeros in place of some rows of q, k or v (0, 1, 2), of all heads and batch rows one after the other."""
        parts = [x.copy() for x in (self.q, self.k, self.v)]
        parts[which].reshape(-1, parts[which].shape[3])[first:end] = 0
        return _Call(parts[0], parts[1], parts[2], self.settings, self.do)

    def ragged(self) -> Iterator[_Call]:
        """The same with fewer sequences of a ragged batch, or with shorter ones."""
        starts = [self.settings[name if name in self.settings else _STARTS[0]] for name in _STARTS]
        parts = [[range(i, j) for i, j in zip(x[:-1].tolist(), x[1:].tolist())] for x in starts]
        count, longest = len(parts[0]), max(len(rows) for each in parts for rows in each)
        for i in range(count if count > 1 else 0):
            yield self._rows([[each[i]] for each in parts])
        for i in range(count if count > 2 else 0):
            yield self._rows([each[:i] + each[i + 1:] for each in parts])
        for n in range(1, longest):
            yield self._rows([[rows[:n] for rows in each] for each in parts])

    def _rows(self, parts: list[list[range]]) -> _Call:
        """The sequences with these rows of queries, and of keys."""
        rows = [np.concatenate([np.asarray(x, np.int64) for x in each]) for each in parts]
        starts = [np.cumsum([0, *map(len, each)]).astype(np.int64) for each in parts]
        settings = {**self.settings, **{name: x for name, x in zip(_STARTS, starts) if name in self.settings}}
        do = None if self.do is None else self.do[:, :, rows[0]]
        return _Call(self.q[:, :, rows[0]], self.k[:, :, rows[1]], self.v[:, :, rows[1]], settings, do)

    def pools(self) -> tuple[list[a.Floats], dict[str, Any]]:
        """Keys and values in pages (pages, rows, heads, width), the last page first, and the table of pages. All other
        rows are 9."""
        settings = dict(self.settings)
        rows = settings.pop("page_rows")
        B, h, S, _ = self.k.shape
        columns = -(-S // rows)
        table = np.arange(B * columns)[::-1].reshape(B, columns).copy()
        pools = [np.full((B * columns, rows, h, x.shape[3]), 9, np.float32) for x in (self.k, self.v)]
        at = np.arange(S)
        for b, length in enumerate(settings["page_lengths"].tolist()):
            for pool, x in zip(pools, (self.k, self.v)):
                pool[table[b, at[:length] // rows], at[:length] % rows] = x[b].swapaxes(0, 1)[:length]
        return pools, {**settings, "page_table": table}

    def plainer(self, digits: int) -> _Call:
        """The call with numbers of at most `digits` decimal places."""
        def plain(x: a.Floats) -> a.Floats:
            return np.round(x, digits) + np.float32(0)  # no zero is negative

        past = {name: plain(self.settings[name]) for name in _PAST if name in self.settings}
        do = None if self.do is None else plain(self.do)
        return _Call(plain(self.q), plain(self.k), plain(self.v), {**self.settings, **past}, do)


def _part(value: object, axes: str, kept: Mapping[str, int], heads: int) -> a.Floats:
    """The part of an array that belongs to the first rows, heads, queries and keys; axes that repeat stay."""
    array = np.asarray(value)
    for axis, letter in zip(range(-1, -array.ndim - 1, -1), reversed(axes)):
        if letter in kept and (array.shape[axis] > 1 or (axes == "h" and heads > 1)):
            array = np.take(array, range(min(kept[letter], array.shape[axis])), axis)
    return array.copy()


class _Failure(NamedTuple):
    """A call that a kernel fails: q, k, v and do as it takes them, its result, both as a case, and the stage that
    differs."""

    arrays: list[a.ArrayLike]
    do: Optional[a.ArrayLike]
    recorded: dict[str, a.Tensor]
    gradients: dict[str, a.Tensor]
    case: Handle
    stage: Optional[str]


def _names(found: _Failure) -> tuple[str, ...]:
    """What explains a failure."""
    try:
        return tuple((diagnosis_of(found.case, found.stage) if found.do is None else match_of(found.case)).names)
    except Error:
        return ()


def _plain(name: str) -> str:
    """The name of a bug without its number."""
    return name.partition(" ")[0]


class Reducer:
    """Makes calls smaller as long as a kernel, or its backward, fails them. arrays: "numpy", "torch" or "jax"."""

    def __init__(self, kernel: Callable[..., object], layout: str, dtype: int, arrays: str,
                 conventions: Mapping[str, str], backward: Optional[Callable[..., object]] = None,
                 words: Collection[str] = ()) -> None:
        self.words = words  # of mha.NEEDS: a smaller call needs no other
        self.kernel, self.layout, self.dtype, self.arrays, self.conventions = kernel, layout, dtype, arrays, conventions
        self.backward, self.wrap = backward, wrapper(arrays)

    def _stored(self, x: object) -> a.ArrayLike:
        made = np.array(x, np.float32, order="C")
        return self.wrap(a.narrowed(made, abi.F32, self.dtype) if self.dtype != abi.F32 else made, self.dtype)

    def _array(self, x: a.Floats) -> a.ArrayLike:
        return self._stored(x if heads_first(self.layout) else x.swapaxes(1, 2))

    def asked(self, c: _Call) -> tuple[list[a.ArrayLike], dict[str, Any]]:
        """q, k and v, or the pools of pages, and the settings as the kernel takes them: arrays of its kind, keys and
        values of earlier calls in its layout and type."""
        pools, settings = c.pools() if "page_rows" in c.settings else (None, c.settings)
        rows = map(self._array, (c.k, c.v)) if pools is None else map(self._stored, pools)
        said = {name: self._array(value) if name in _PAST else handed(value, self.wrap)
                for name, value in settings.items()}
        return [self._array(c.q), *rows], said

    def checked(self, c: _Call) -> dict[str, Any]:
        """The settings as the checker takes them, in the kernel's convention."""
        said = {name: self._array(value) if name in _PAST else value for name, value in c.settings.items()}
        said.pop("return_lse", None)
        if said.pop("page_rows", 0):
            said["lengths"] = lengths = said.pop("page_lengths")
            said["offset"] = lengths - c.sizes["T"]
            if said["offset"].min() < 0:
                raise ValueError("page_lengths: expected at least the number of queries, found fewer")
        if self.conventions.get("empty") == "nan":
            said["empty_rows"] = "nan"
        window = "window" if heads_first(self.layout) else "window_size"
        if window in said and said[window][0] > 0 and self.conventions.get("window") == "w":
            said[window] = (said[window][0] - 1, said[window][1])
        if said.get("attn_mask", np.zeros(0)).dtype == bool and self.conventions.get("mask") == "hides":
            said["attn_mask"] = ~said["attn_mask"]
        aligned = said.get("is_causal") or said.get("causal") or window in said
        if aligned and not {"offset", *_PAST} & set(said) and c.sizes["T"] != c.sizes["S"]:
            said["offset"] = self.conventions.get("alignment", "top-left")
        return said

    def _recorded(self, meant: Meant, result: object, c: _Call) -> dict[str, a.Tensor]:
        """A result as the library sees it; lse where that is asked for, and means what the library's does."""
        if "return_lse" not in c.settings:
            return meant.recorded(result, None)
        output, lse = cast("tuple[object, object]", result)
        natural = self.conventions.get("lse", "natural") == "natural"
        return meant.recorded(output, {"lse": lse} if natural else None)

    def _nobodys(self, meant: Meant, c: _Call) -> bool:
        """Whether a query sees no key of which the output is the mean of all values: nothing that is checked here, and
        neither are gradients that begin with one of that output."""
        if self.conventions.get("empty") != "mean":
            return False
        empty = np.isneginf(np.asarray(meant.exact(["lse"])[1]["lse"]))
        return bool(empty.any() if c.do is None else c.do[empty].any())

    def _answer(self, arrays: list[a.ArrayLike], do: Optional[a.ArrayLike], said: dict[str, Any]
                ) -> tuple[object, tuple[object, ...]]:
        """The kernel's output, and its gradients if the case has them."""
        if do is None:
            return self.kernel(*arrays, **said), ()
        back = None if self.backward is None else partial(self.backward, **said)
        output, _, found = run_pair(partial(self.kernel, **said), back, arrays, do, 0)
        return output, tuple(found)

    def wrong(self, c: _Call) -> Optional[_Failure]:
        """A call that the kernel fails, or of which only the gradients are wrong, if they are asked for; None where
        it is right or silent."""
        do = None if c.do is None else self._array(c.do)
        try:
            arrays, said = self.asked(c)
            checked = self.checked(c)
            result, found = self._answer(arrays, do, said)
            q, k, v = _contiguous(arrays, said, self.layout)
            meant = Meant(q, k, v, None, self.layout, checked)
            if self._nobodys(meant, c):
                return None
            recorded, gradients = self._recorded(meant, result, c), {}
            for name, x, tensor in zip(INPUTS, found, meant.shape.inputs):
                given = a.floats(name, x)
                gradients[name] = given.on(meant.shape.inside(given.array))
                if tensor is None or gradients[name].array.shape != tensor.array.shape:
                    return None
            backward = None if do is None else MeantBackward(meant, do, None)
            case = meant.case(recorded, Computed(a.NAMES[self.dtype], None, recorded),
                              gradients=None if backward is None else backward.noted(gradients))
            verdict = check_case(case, 0)
            if not verdict.failed or (verdict.first in GRADIENT_STAGES) != (do is not None):
                return None
            return _Failure(arrays, do, recorded, gradients, case, verdict.first)
        except (Exception, SystemExit):  # no failure of this kind
            return None

    def described(self, c: _Call, known: set[str]) -> Optional[Reduced]:
        """The call as a failure, with what explains it: where bugs are known to explain the whole one, only those:
        small calls are explained by many, by chance."""
        found = self.wrong(c)
        if found is None:
            return None
        names = tuple(name for name in _names(found) if not known or _plain(name) in known)
        q, k, v = found.arrays
        return Reduced(q, k, v, self.asked(c)[1], self.checked(c), self.layout, a.NAMES[self.dtype],
                       found.recorded, names, found.do, found.gradients, self.arrays, self.backward is not None)

    def _smaller(self, c: _Call, tied: bool) -> Iterator[_Call]:
        """Calls with fewer or shorter sequences, with shorter lists, and those that are smaller in one axis, the
        smallest first. Where T = S both shrink together, and S also without T unless they are tied or the words lack
        `cross`; likewise the widths of keys and values with `value_width`."""
        sizes = c.sizes
        square, equal = sizes["T"] == sizes["S"], sizes["e"] == sizes["d"]
        tied = square and (tied or "cross" not in self.words)
        together = [("T", "S") if square else ("T",), *([] if tied else [("S",)]), ("P",)]
        apart = [] if equal and "value_width" not in self.words else [("e",), ("d",)]
        if _STARTS[0] in c.settings:
            yield from c.ragged()
        lists = c.settings.get("key_lists", np.zeros(1))
        for i in range(lists.shape[-1] if lists.shape[-1] > 1 else 0):
            yield _Call(c.q, c.k, c.v, {**c.settings, "key_lists": np.delete(lists, i, -1)}, c.do)
        for axis in ("B", "h", "g"):
            yield from (c.turned(axis, i).cut(**{axis: 1}) for i in range(1, sizes[axis]))
        for axes in [("B",), ("h",), ("g",), *together, *([("e", "d")] if equal else []), *apart, ("rows",)]:
            for n in range(1, sizes[axes[0]]):
                if axes[0] not in ("T", "S", "P", "rows") or n < 9 or n * 2 > sizes[axes[0]]:
                    yield c.cut(**dict.fromkeys(axes, n))

    def _smallest(self, c: _Call, tied: bool) -> _Call:
        """One that is smaller in one step after the other, as long as there is one."""
        while (smaller := next((s for s in self._smaller(c, tied) if self.wrong(s)), None)) is not None:
            c = smaller
        return c

    def _steps(self, c: _Call, tied: bool) -> Iterator[_Call]:
        """Smaller in its axes, then with rows of zeros, then with plainer numbers."""
        yield (c := self._smallest(c, tied))
        for which, x in enumerate((c.q, c.k, c.v)):
            c = self._emptied(c, which, 0, x.size // x.shape[3])
        yield (c := self._smallest(c, tied))
        for digits in (3, 2, 1, 0):
            plain = c.plainer(digits)
            if self.wrong(plain):
                c = plain
        yield c

    def _emptied(self, c: _Call, which: int, first: int, end: int) -> _Call:
        """With as many rows of zeros as there may be between two: all, or those of each half."""
        if end - first > 256:
            return c
        zeros = c.without(which, first, end)
        if self.wrong(zeros):
            return zeros
        middle = (first + end) // 2
        return c if end - first < 2 else self._emptied(self._emptied(c, which, first, middle), which, middle, end)

    def reduce(self, q: a.Floats, k: a.Floats, v: a.Floats, settings: Mapping[str, Any],
               do: Optional[a.Floats] = None) -> Optional[Reduced]:
        """The smallest failure that is found from a call of (B, h, T, d) arrays, with do of wrong gradients, and that
        has a match in common with it, where any has: what is cut may show another failure. None where weights have
        rows of all heads, or it does not fail. Where `page_rows` is among the settings, the kernel is given pages of so
        many rows."""
        if any(np.shape(settings.get(name, q))[-1] != q.shape[-1] for name in _WEIGHTS):
            return None
        c = _Call(q, k, v, settings, do)
        whole = self.wrong(c)
        if whole is None:
            return None
        names = _names(whole)
        known = {_plain(name) for name in names}
        last = None
        for tied in (False, True) if known else (False,):
            for step in reversed(list(self._steps(c, tied))):
                found = self.described(step, known)
                last = last or found
                if found is not None and (not known or found.names):
                    return found
        return last and replace(last, note=f"Maybe another failure: {names[0]} explains the whole call, not this one.")
