"""Arrays in the order of axes that people use, as the library takes them, and results back in that order."""
from __future__ import annotations

from typing import Optional, Sequence, Union

import numpy as np

from . import abi
from . import arrays as a
from .call import Request, result_type, stage_numbers
from .semantics import Sizes
from .trace import Trace

LAYOUTS = ("BHTD", "BTHD")
ROW_LAYOUTS = ("BTE", "TBE", "TE")
_JAX = ("BTNH",)  # "BTHD" in the letters of jax.nn.dot_product_attention


def heads_first(layout: object) -> bool:
    """Whether a layout of heads is "BHTD", not "BTHD" or the same in JAX's letters, "BTNH"."""
    return a.choice("layout", layout, (*LAYOUTS, *_JAX)) == 0


def layout_of(layout: Optional[str], query: object, cu_seqlens_q: object) -> str:
    """A layout; None: "BHTD", but of a ragged batch of three axes (total, heads, width)."""
    packed = cu_seqlens_q is not None and getattr(query, "ndim", 0) == 3
    return layout if layout is not None else "BTHD" if packed else "BHTD"


class Heads:
    """Queries, keys and values as the library takes them: (B, T, heads, width) of any memory order.

    layout: "BHTD" is PyTorch's (..., heads, T, width), "BTHD" flash-attn's and JAX's (..., T, heads, width). What is
    missing in front of three axes, and for BHTD in front of two, is 1; further axes in front are more batch rows.
    """

    def __init__(self, query: object, key: object, value: object, layout: str) -> None:
        self.swapped = heads_first(layout)
        given = [a.floats(n, x) for n, x in (("query", query), ("key", key), ("value", value))]
        self.kind = given[0]
        self.lead = self.kind.array.shape[:-3]
        self.axes = self.kind.array.ndim
        words = ("head", "query") if self.swapped else ("query", "head")
        self.names = (("batch row",) * len(self.lead) + words)[-(self.axes - 1):] if self.axes > 1 else ()
        least = 2 if self.swapped else 3
        if self.axes < least:
            raise ValueError(f"query: expected at least {least} axes, found shape {self.kind.array.shape}")
        for name, tensor in zip(("key", "value"), given[1:]):
            shape = tensor.array.shape
            if len(shape) != self.axes or shape[:-3] != self.lead:
                raise ValueError(f"{name}: expected the {self.axes} axes of query, which begin with {self.lead}, "
                                 f"found shape {shape}")
        q, k, v = (tensor.array.shape for tensor in given)
        if k[-1] != q[-1]:
            raise ValueError(f"key: expected shape {(*k[:-1], q[-1])}, found {k}")
        if v[:-1] != k[:-1]:
            raise ValueError(f"value: expected shape {(*k[:-1], v[-1])}, found {v}")
        self.inputs = [t.on(self.inside(t.array)) for t in given]
        (self.B, self.T_q, self.h, _), (_, self.S, self.h_kv, _), (_, _, _, self.d_v) = (
            t.array.shape for t in self.inputs)
        if self.h_kv == 0 or self.h % self.h_kv:
            fits = self.S > 0 and self.T_q % self.S == 0
            raise ValueError(f"key: expected a number of heads that divides the {self.h} of query, found {self.h_kv}"
                             + (f"; use layout={self.other!r}" if fits else ""))

    @property
    def other(self) -> str:
        """The other layout."""
        return LAYOUTS[int(self.swapped)]

    def inside(self, array: a.Stored) -> a.Stored:
        """An array in the axes that were given as (B, T, heads, width)."""
        if array.ndim != 4:
            front = int(np.prod(array.shape[:-3]))
            array = array.reshape((front,) + ((1,) * (3 - array.ndim) + array.shape)[-3:])
        return array.transpose(0, 2, 1, 3) if self.swapped else array

    def out(self, dtype: int) -> tuple[a.Stored, a.Stored]:
        """New memory for the output, and the library's view of it."""
        shape = (self.B, self.h, self.T_q, self.d_v) if self.swapped else (self.B, self.T_q, self.h, self.d_v)
        memory = a.empty(shape, dtype)
        return memory, (memory.transpose(0, 2, 1, 3) if self.swapped else memory)

    def back(self, array: a.Stored) -> a.Stored:
        """An array that begins with the batch, in the axes that were given."""
        return array.reshape(self.lead + array.shape[1 + (self.axes < 3):])

    def input_back(self, array: a.Stored) -> a.Stored:
        """(B, T, heads, width) in the axes that were given."""
        return self.back(array.transpose(0, 2, 1, 3) if self.swapped else array)

    def place(self, index: Sequence[int]) -> tuple[int, ...]:
        """Where (batch row, query, head, feature) is in the axes that were given."""
        row, query, head, feature = index
        middle = (head, query) if self.swapped else (query, head)
        lead = tuple(int(i) for i in np.unravel_index(row, self.lead)) if self.lead else ()
        return (*lead, *middle[self.axes < 3:], feature)

    def seen(self, actual: a.Tensor, name: str) -> a.Tensor:
        """Somebody's output in the axes of the query, as the library sees it."""
        given = self.kind.array.shape[:-1] + (self.d_v,)
        if actual.array.shape != given:
            turned = len(given) > 2 and actual.array.shape == (*given[:-3], given[-2], given[-3], given[-1])
            raise ValueError(f"{name}: expected shape {given}, found {actual.array.shape}"
                             + (f"; its axes are in the order of layout={self.other!r}" if turned else ""))
        return actual.on(self.inside(actual.array))

    def sizes(self) -> Sizes:
        """The sizes that settings must fit."""
        return Sizes(self.B, self.h, self.T_q, self.S)

    def lse_back(self, lse: a.Stored) -> a.Stored:
        """(B, h, T_q) in the axes that were given."""
        return lse.reshape(self.lead + lse.shape[1 + (self.axes < 3):])


class Rows:
    """Inputs of a layer as the library takes them: (B, T, width).

    layout: "BTE", "TBE" or "TE", which has no batch.
    """

    def __init__(self, query: object, key: object, value: object, layout: str,
                 d_out: int, widths: Sequence[int] = ()) -> None:
        self.layout = ROW_LAYOUTS[a.choice("layout", layout, ROW_LAYOUTS)]
        self.kind = a.floats("query", query)
        given = [self.kind] + [a.floats(n, x) if x is not None else None for n, x in (("key", key), ("value", value))]
        if key is None and value is not None:
            raise ValueError("value: expected None without key, found an array")
        for name, tensor in zip(("query", "key", "value"), given):
            if tensor is not None and tensor.array.ndim != len(self.layout):
                raise ValueError(f"{name}: expected the axes {', '.join(self.layout)}, found {tensor.array.shape}")
        for name, tensor, width in zip(("query", "key", "value"), given, widths):
            if tensor is not None and tensor.array.shape[-1] != width:
                shape = tensor.array.shape
                raise ValueError(f"{name}: expected shape {(*shape[:-1], width)}, found {shape}")
        self.names = {"BTE": ("batch row", "query"), "TBE": ("query", "batch row"), "TE": ("query",)}[self.layout]
        self.inputs = [t.on(self.inside(t.array)) if t else None for t in given]
        shapes = [t.array.shape for t in self.inputs if t]
        self.B, self.T_q, self.d_out = shapes[0][0], shapes[0][1], d_out
        self.T_k = shapes[min(1, len(shapes) - 1)][1]

    def inside(self, array: a.Stored) -> a.Stored:
        """An array in the axes that were given as (B, T, width)."""
        return array[np.newaxis] if self.layout == "TE" else array.swapaxes(0, 1) if self.layout == "TBE" else array

    def out(self, dtype: int) -> tuple[a.Stored, a.Stored]:
        """New memory for the output, and the library's view of it."""
        shape = (self.T_q, self.B, self.d_out) if self.layout == "TBE" else (self.B, self.T_q, self.d_out)
        memory = a.empty(shape, dtype)
        return memory, (memory.swapaxes(0, 1) if self.layout == "TBE" else memory)

    def back(self, array: a.Stored) -> a.Stored:
        """An output in the axes that were given."""
        first: a.Stored = array[0] if self.layout == "TE" else array
        return first

    def input_back(self, array: a.Stored) -> a.Stored:
        """(B, T, width) in the axes that were given."""
        return array.swapaxes(0, 1) if self.layout == "TBE" else self.back(array)

    def lse_back(self, lse: a.Stored) -> a.Stored:
        """(B, h, T_q) as it is."""
        return lse

    def place(self, index: Sequence[int]) -> tuple[int, ...]:
        """Where (batch row, query, feature) is in the axes that were given."""
        row, query, feature = index
        return {"BTE": (row, query, feature), "TBE": (query, row, feature), "TE": (query, feature)}[self.layout]

    def seen(self, actual: a.Tensor, name: str) -> a.Tensor:
        """Somebody's output in the axes of the query, as the library sees it."""
        given = self.kind.array.shape[:-1] + (self.d_out,)
        if actual.array.shape != given:
            raise ValueError(f"{name}: expected shape {given}, found {actual.array.shape}")
        return actual.on(self.inside(actual.array))

    def sizes(self, h: int, cached: int) -> Sizes:
        """The sizes that settings must fit."""
        return Sizes(self.B, h, self.T_q, self.T_k + cached)


def run(shape: Union[Heads, Rows], request: Request, *, return_lse: bool = False, return_stages: Sequence[str] = (),
        out_dtype: Optional[a.Type] = None) -> object:
    """Runs a call: its output, and where they are asked for the lse and the stages."""
    stages = stage_numbers("return_stages", return_stages)
    computed, back = result_type(shape.kind, request.exact, out_dtype)
    wanted = [s for s in stages if s != abi.OUTPUT]
    if a.flag("return_lse", return_lse) and abi.LSE not in wanted:
        wanted.append(abi.LSE)
    memory, view = shape.out(computed)
    kept = request.run(view, wanted)
    wrap = shape.kind.wrap
    output = wrap(shape.back(a.narrowed(memory, computed, back)), back)
    results: list[object] = [output]
    if return_lse:
        results.append(wrap(shape.lse_back(kept[abi.LSE]), computed))
    if stages:
        results.append(Trace({abi.STAGES[s]: output if s == abi.OUTPUT else wrap(kept[s], computed)
                              for s in stages}))
    return results[0] if len(results) == 1 else tuple(results)
