"""One backward of a call: views in, memory for gradients, and what the library makes of them."""
from __future__ import annotations

import ctypes
from typing import Mapping, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .call import Request, stage_numbers
from .library import call, lib

GRADIENTS = tuple(lib.mha_gradient_name(g).decode() for g in range(abi.CONSTANTS["MHA_GRADIENT_COUNT"]))
INPUTS = GRADIENTS[:3]  # query, key, value
STAGES = abi.BACKWARD_STAGES  # d_heads, d_weights, row_sums, ...


def further(also: object) -> list[str]:
    """Names of gradients other than those that mha always computes."""
    if isinstance(also, str) or not isinstance(also, (list, tuple)):
        raise TypeError(f"also: expected a list of names of gradients, found {type(also).__name__}")
    return list(also)


def stages_of(name: str, keep: object) -> list[str]:
    """Names of stages of a backward, in the order of its equations."""
    return [STAGES[number] for number in sorted(stage_numbers(name, keep, STAGES))]


class Backward:
    """The gradients of a call: what comes in, and memory for what goes out, in the library's axes."""

    def __init__(self, request: Request, do: a.Tensor, dlse: object) -> None:
        self.request, self.do, self.struct = request, do, abi.Gradients()
        self.struct.d_output = a.view_of(do)
        if dlse is not None:
            plan, shape = request.plan(), (ctypes.c_size_t * 4)()
            rank = lib.mha_plan_stage(ctypes.byref(plan), abi.LSE, shape)
            self.dlse = a.floats("dlse", dlse)
            if rank and self.dlse.array.size == np.prod(shape[:rank]):
                self.dlse = self.dlse.on(self.dlse.array.reshape(shape[:rank]))
            self.struct.d_lse = a.view_of(self.dlse)

    def memory(self, names: Sequence[str]) -> dict[str, a.Doubles]:
        """An array of float64 for each gradient or stage, in the library's axes; ValueError for one that the call
        lacks."""
        plan, shape, found = self.request.plan(), (ctypes.c_size_t * 4)(), {}
        for name in names:
            if name in STAGES:
                rank = lib.mha_backward_stage_shape(ctypes.byref(plan), STAGES.index(name), shape)
            else:
                rank = lib.mha_gradient_shape(ctypes.byref(plan), a.choice("also", name, GRADIENTS), shape)
            if rank == 0:
                raise ValueError(f"return_stages: expected stages of this call's backward, found {name!r}" if name in
                                 STAGES else f"also: expected gradients that this call has, found {name!r}")
            found[name] = np.zeros(shape[:rank])
        return found

    def lend(self, struct: abi.Gradients, arrays: Mapping[str, a.Stored]) -> None:
        """Writes arrays into what a backward is given, each at the place of its gradient or among the stages to keep,
        which are only these."""
        views = {name: a.view_of(a.given(name, array)) for name, array in arrays.items()}
        stages = [name for name in arrays if name in STAGES]
        keep = (abi.BackwardKeep * len(stages))(*(abi.BackwardKeep(STAGES.index(n), views[n]) for n in stages))
        struct.keep, struct.keep_count = keep, len(stages)
        for name, view in views.items():
            if name not in STAGES:
                struct.of[GRADIENTS.index(name)] = view

    def run(self, names: Sequence[str]) -> dict[str, a.Doubles]:
        """The gradients and stages of these names, and those that memory was lent for."""
        found = self.memory(names)
        self.lend(self.struct, found)
        with self.request.typed():
            call(lib.mha_backward, self.request.layer_address, ctypes.byref(self.request.struct),
                 ctypes.byref(self.struct))
        self.struct.keep_count = 0
        return found

    def bound(self, names: Sequence[str], unit: float, precision: abi.BackwardPrecision) -> dict[str, a.Doubles]:
        """How far a right backward of this arithmetic may be from each element, see mha_gradient_bound; NaN in a
        stage: it may have any number there."""
        found = self.memory(names)
        self.lend(self.struct, found)
        self.struct.precision = precision
        with self.request.typed():
            call(lib.mha_gradient_bound, self.request.layer_address, ctypes.byref(self.request.struct),
                 ctypes.byref(self.struct), unit)
        self.struct.precision, self.struct.keep_count = abi.BackwardPrecision(), 0
        return found
