"""One backward of a call: views in, memory for gradients, and what the library makes of them."""
from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

import numpy as np

from . import _abi
from . import arrays as a
from ._call import Request
from ._library import call, lib

GRADIENTS = tuple(lib.mha_gradient_name(g).decode() for g in range(_abi.CONSTANTS["MHA_GRADIENT_COUNT"]))
INPUTS = GRADIENTS[:3]  # query, key, value


def further(also: Any) -> list[str]:
    """Names of gradients beside those that are always computed."""
    if isinstance(also, str) or not isinstance(also, (list, tuple)):
        raise TypeError(f"also: expected a list of names of gradients, found {type(also).__name__}")
    return list(also)


class Backward:
    """The gradients of a call: what comes in, and memory for what goes out, in the library's axes."""

    def __init__(self, request: Request, do: a.Tensor, dlse: Optional[a.Array]) -> None:
        self.request, self.do, self.struct = request, do, _abi.Gradients()
        self.struct.d_output = a.view_of(do)
        if dlse is not None:
            plan, shape = request.plan(), (ctypes.c_size_t * 4)()
            rank = lib.mha_plan_stage(ctypes.byref(plan), _abi.LSE, shape)
            self.dlse = a.floats("dlse", dlse)
            if rank and self.dlse.array.size == np.prod(shape[:rank]):
                self.dlse = self.dlse.on(self.dlse.array.reshape(shape[:rank]))
            self.struct.d_lse = a.view_of(self.dlse)

    def memory(self, names: Sequence[str]) -> dict[str, Any]:
        """An array of float64 for each gradient, in the library's axes; ValueError for one that the call lacks."""
        plan, shape, found = self.request.plan(), (ctypes.c_size_t * 4)(), {}
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
        """The gradients of these names, and those that memory was lent for."""
        found = self.memory(names)
        self.lend(self.struct.of, found)
        with self.request.typed():
            call(lib.mha_backward, self.request.layer_address, ctypes.byref(self.request.struct),
                 ctypes.byref(self.struct))
        return found

    def bound(self, names: Sequence[str], unit: float, precision: _abi.BackwardPrecision) -> dict[str, Any]:
        """How far a right backward of this arithmetic may lie from each element, see mha_gradient_bound."""
        found = self.memory(names)
        self.lend(self.struct.of, found)
        self.struct.precision = precision
        with self.request.typed():
            call(lib.mha_gradient_bound, self.request.layer_address, ctypes.byref(self.request.struct),
                 ctypes.byref(self.struct), unit)
        self.struct.precision = _abi.BackwardPrecision()
        return found
