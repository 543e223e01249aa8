"""Gradients of attention, in float64, as the library's judge computes them."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional, Sequence

import numpy as np

from . import _abi
from . import arrays as a
from ._library import call, lib
from .errors import typed
from .meant import Meant

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._typed import MeantSettings

GRADIENTS = tuple(lib.mha_gradient_name(g).decode() for g in range(_abi.CONSTANTS["MHA_GRADIENT_COUNT"]))
INPUTS = GRADIENTS[:3]  # query, key, value
TYPED = {"query": "q", "key": "k", "value": "v"}  # what these are called here


class Backward:
    """The gradients of a call as it was meant: what comes in, and memory for what goes out, in the library's axes."""

    def __init__(self, meant: Meant, do: a.Array, dlse: Optional[a.Array]) -> None:
        self.meant, self.struct = meant, _abi.Gradients()
        self.do = meant.shape.seen(a.floats("do", do), "do")
        self.struct.d_output = a.view_of(self.do)
        if dlse is not None:
            plan, shape = meant.request.plan(), (ctypes.c_size_t * 4)()
            rank = lib.mha_plan_stage(ctypes.byref(plan), _abi.LSE, shape)
            self.dlse = a.floats("dlse", dlse)
            if rank and self.dlse.array.size == np.prod(shape[:rank]):
                self.dlse = self.dlse.on(self.dlse.array.reshape(shape[:rank]))
            self.struct.d_lse = a.view_of(self.dlse)

    def memory(self, names: Sequence[str]) -> dict[str, Any]:
        """An array of float64 for each gradient, in the library's axes; ValueError for one that the call lacks."""
        plan, shape, found = self.meant.request.plan(), (ctypes.c_size_t * 4)(), {}
        for name in names:
            rank = lib.mha_gradient_shape(ctypes.byref(plan), a.choice("also", name, GRADIENTS), shape)
            if rank == 0:
                raise ValueError(f"also: this call has no gradient of {name}")
            found[name] = np.zeros(shape[:rank])
        return found

    def lend(self, views: Any, arrays: dict[str, Any]) -> None:
        """Writes arrays into a list of views, each at the place of its gradient."""
        for name, array in arrays.items():
            views[GRADIENTS.index(name)] = a.view_of(a.Tensor(array, _abi.F64, a.wrap_numpy))

    def run(self, names: Sequence[str]) -> dict[str, Any]:
        """The gradients of these names."""
        found = self.memory(names)
        self.lend(self.struct.of, found)
        with self.meant.request.typed():
            call(lib.mha_backward, None, ctypes.byref(self.meant.request.struct), ctypes.byref(self.struct))
        return found

    def bound(self, names: Sequence[str], unit: float, precision: _abi.BackwardPrecision) -> dict[str, Any]:
        """How far a right backward of this arithmetic may lie from each element, see mha_gradient_bound."""
        found = self.memory(names)
        self.lend(self.struct.of, found)
        self.struct.precision = precision
        with self.meant.request.typed():
            call(lib.mha_gradient_bound, None, ctypes.byref(self.meant.request.struct), ctypes.byref(self.struct), unit)
        self.struct.precision = _abi.BackwardPrecision()
        return found

    def turned(self, name: str, array: Any) -> Any:
        """A gradient in the axes of what it is of, as the caller gave it; those beside query, key and value stay."""
        if name not in INPUTS:
            return array
        shape: Any = self.meant.shape
        return shape.back(array.transpose(0, 2, 1, 3) if shape.swapped else array)


def attention_backward(q: a.Array, k: a.Array, v: a.Array, do: a.Array, *, dlse: Optional[a.Array] = None,
                       also: Sequence[str] = (), layout: str = "BTHD", out_dtype: Any = None,
                       **settings: Unpack[MeantSettings]) -> Any:
    """The gradients (dq, dk, dv) of attention, computed in float64 by the exact path.

        output = mha.attention(q, k, v, causal=True)
        dq, dk, dv = mha.attention_backward(q, k, v, do, causal=True)

    q, k, v, layout, settings: as in mha.attention; with layout "BHTD" those of mha.scaled_dot_product_attention.
    do: the gradient of the output, in its axes. dlse: that of the lse, (B, h, T_q); None: 0.
    also: names of further gradients, which then follow as a dict, in the library's shapes: "mask" and "key_padding"
        (additive ones, in their own shapes), "alibi_slopes", "sinks", "bias_table", "relative_k", ...
    out_dtype: of the gradients, to which they are rounded once; None: that of q.

    A query that sees no key has gradients of 0. What has no gradient here is refused: see mha/backward.h.
    """
    if isinstance(also, str) or not isinstance(also, (list, tuple)):
        raise TypeError(f"also: expected a list of names of gradients, found {type(also).__name__}")
    with typed(TYPED):
        meant = Meant(q, k, v, None, layout, {**settings})
    backward = Backward(meant, do, dlse)
    found = backward.run([*INPUTS, *also])
    kind = meant.shape.kind
    back = kind.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)

    def given(name: str) -> Any:
        array = np.ascontiguousarray(backward.turned(name, found[name]))
        return kind.wrap(a.narrowed(array, _abi.F64, back), back)

    results = tuple(given(name) for name in INPUTS)
    return (*results, {name: given(name) for name in also}) if also else results
