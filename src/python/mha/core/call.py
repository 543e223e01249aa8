"""One call of attention: views in, plan, memory for results, forward."""
from __future__ import annotations

import ctypes
from typing import ContextManager, Mapping, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .cache import Cache
from .errors import typed
from .library import Handle, call, lib
from .precision import precision_of
from .semantics import Semantics

EXACT = abi.PATHS.index("exact")


class Request:
    """The struct of a call, and what it borrows."""

    def __init__(self, inputs: Sequence[Optional[a.Tensor]], semantics: Semantics, *, path: str = "auto",
                 threads: Optional[int] = None, precision: a.Precision = None, cache: Optional[Cache] = None,
                 layer: Optional[Handle] = None) -> None:
        code = a.choice("path", path, abi.PATHS)
        types = {t.dtype for t in inputs if t is not None}
        self.exact = code == EXACT or (code == 0 and types != {abi.F32})
        self.inputs = [self._fit(name, t) for name, t in zip(("query", "key", "value"), inputs)]
        self.layer, self.semantics, self._cache = layer, semantics, cache
        s = self.struct = abi.Call()
        s.query, s.key, s.value = (a.view_of(t) for t in self.inputs)
        s.semantics = semantics.struct
        s.path, s.threads = (EXACT if self.exact else code), a.thread_count(threads)
        if precision is not None:
            s.precision = precision_of(precision)
        if semantics.weights:
            self._weights = (abi.View * len(abi.WEIGHTS))()
            for name, values in semantics.weights.items():
                weight = a.Tensor(values, abi.F64, a.wrap_numpy)
                self._weights[abi.WEIGHTS.index(name)] = a.view_of(weight)
            s.weights, s.weight_count = self._weights, len(self._weights)
        if cache is not None:
            s.cache = cache.handle.address

    def _fit(self, name: str, tensor: Optional[a.Tensor]) -> Optional[a.Tensor]:
        """An input as its path takes it: float paths take float32, to which halves are widened."""
        if tensor is None or tensor.array.ndim not in (3, 4):
            return tensor
        if not self.exact and tensor.dtype == abi.F64:
            raise TypeError(f"{name}: expected float32, float16 or bfloat16 on the float paths, found float64; use "
                            "path='exact'")
        return a.stepped(tensor if self.exact else a.widened(tensor), not self.exact)

    def let_go(self) -> None:
        """Lets go of arrays and cache, whose owners decide how long they live; a call that is kept is given others."""
        self.inputs, self._cache = [], None
        self.semantics.let_go()

    @property
    def layer_address(self) -> Optional[int]:
        """The layer, for the library; None without one."""
        return self.layer.address if self.layer else None

    def plan(self) -> abi.Plan:
        """Validates the call."""
        plan = abi.Plan()
        with self.typed():
            call(lib.mha_plan_call, self.layer_address, ctypes.byref(self.struct), ctypes.byref(plan))
        return plan

    def typed(self) -> ContextManager[None]:
        """Errors inside name a setting as the caller did."""
        return typed(self.semantics.words)

    def keep(self, plan: abi.Plan, stages: Sequence[int], dtype: int) -> dict[int, a.Stored]:
        """Memory for the stages, which the call then keeps."""
        shape = (ctypes.c_size_t * 4)()
        kept = {}
        self._keep = (abi.Keep * len(stages))()
        for slot, stage in zip(self._keep, stages):
            rank = lib.mha_plan_stage(ctypes.byref(plan), stage, shape)
            if rank == 0:
                raise ValueError(f"return_stages: expected stages that this call has, found {abi.STAGES[stage]!r}")
            kept[stage] = a.empty(shape[:rank], dtype)
            slot.stage, slot.view = stage, a.view_of(a.Tensor(kept[stage], dtype, a.wrap_numpy))
        self.struct.keep, self.struct.keep_count = self._keep, len(stages)
        return kept

    def run(self, output: a.Stored, stages: Sequence[int] = ()) -> Mapping[int, a.Stored]:
        """Runs the call into `output`, an array of float32 or float64 of the output's shape; returns the stages."""
        dtype = a.given("output", output).dtype
        self.struct.output = a.view_of(a.Tensor(output, dtype, a.wrap_numpy))
        plan = self.plan()
        kept = {}
        if stages:
            kept = self.keep(plan, stages, dtype)
            plan = self.plan()
        workspace = np.empty(plan.workspace_bytes, np.uint8)
        call(lib.mha_forward, ctypes.byref(plan), workspace.ctypes.data, workspace.size)
        return kept


def stage_numbers(name: str, stages: object, known: Sequence[str] = abi.STAGES) -> list[int]:
    """Stages by their names, of a forward or of what is known; the output itself is always there."""
    if isinstance(stages, str) or not isinstance(stages, (list, tuple, set, frozenset)):
        raise TypeError(f"{name}: expected a list of names of stages, found {type(stages).__name__}")
    found = [a.choice(name, stage, known) for stage in stages]
    if len(set(found)) != len(found):
        raise ValueError(f"{name}: expected each stage once, found {list(stages)}")
    return found


def result_type(query: a.Tensor, exact: bool, out_dtype: Optional[a.Type]) -> tuple[int, int]:
    """The type in which a result is computed, F32 or F64, and the one in which it is handed back."""
    back = query.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)
    return (abi.F64 if exact and back != abi.F32 else abi.F32), back
