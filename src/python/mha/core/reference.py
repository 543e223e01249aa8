"""A call as it was meant: computed exactly, bounded, and written as a case with what somebody computed for it."""
from __future__ import annotations

import ctypes
from typing import Any, Mapping, Optional, Sequence, Union

from . import abi
from . import arrays as a
from .cache import Cache
from .call import Request
from .errors import typed
from .files import path_of
from .functional import flash_settings, torch_settings
from .layer import MultiHeadAttention
from .library import Handle, call, create, lib
from .precision import set_points
from .semantics import Semantics
from .shapes import Heads, Rows, run

PAST = ("past_key", "past_value")
_FLASH = {"softmax_scale": "scale"}
_ALIGNED = ("causal", "window_size")  # bottom-right


class Past:
    """Keys and values of earlier calls, projected and rotated, (B, kv_heads, P, width); none where they are not given.
    They are in a cache, from which a call removes the rows that it appended."""

    def __init__(self, settings: dict[str, object]) -> None:
        given = [settings.pop(name, None) for name in PAST]
        for name, value, other in zip(PAST, given, given[::-1]):
            if value is None and other is not None:
                raise TypeError(f"{name}: expected an array with the other of {' and '.join(PAST)}, found None")
        self.tensors = [a.floats(name, value) for name, value in zip(PAST, given) if value is not None]
        self.cache: Optional[Cache] = None

    @property
    def rows(self) -> int:
        """P."""
        shape: tuple[int, ...] = self.tensors[0].array.shape if self.tensors else ()
        return int(shape[2]) if len(shape) == 4 else 0

    def turn(self, heads: Heads) -> None:
        """Takes the axes of a key, of which only the number of rows is another one."""
        for i, (name, tensor) in enumerate(zip(PAST, self.tensors)):
            shape = tensor.array.shape
            if len(shape) != heads.axes or shape[:-3] != heads.lead:
                raise ValueError(f"{name}: expected the {heads.axes} axes of key, found shape {shape}")
            self.tensors[i] = tensor.on(heads.inside(tensor.array).transpose(0, 2, 1, 3))

    def begin(self, request: Request, B: int, kv_heads: int, d_k: int, d_v: int, new: int) -> None:
        """The request goes on after these rows, with `new` ones."""
        for name, tensor, width in zip(PAST, self.tensors, (d_k, d_v)):
            if tensor.array.shape != (B, kv_heads, self.rows, width):
                raise ValueError(f"{name}: expected {B} batch rows, {kv_heads} key/value heads, as many rows as in the "
                                 f"other, width {width}, found shape {tensor.array.shape} (batch, heads, rows, width)")
        if self.rows:
            self.cache = Cache(B, kv_heads, d_k, self.rows + new, d_v=d_v, dtype="float64")
            with self.cache:
                call(lib.mha_cache_load, self.cache.handle.address, *(ctypes.byref(a.view_of(t)) for t in self.tensors))
            request.struct.cache = self.cache.handle.address

    def note(self, notes: abi.CaseNotes) -> None:
        """Says in the notes of a case what the cache had before the call."""
        if self.rows:
            notes.past_key, notes.past_value = (a.view_of(t) for t in self.tensors)

    def __enter__(self) -> None:
        """A call may append."""

    def __exit__(self, *_: object) -> None:
        if self.cache is not None:
            self.cache.truncate(self.rows)


def half_unit(dtype: int, wide: bool = False) -> float:
    """The derived rtol: the relative error of storing a float result, or with `wide` a double, in a type."""
    return {abi.F16: 2.0**-11, abi.BF16: 2.0**-8, abi.F32: 2.0**-24 if wide else 0.0}.get(dtype, 0.0)


class Computed:
    """How somebody computed: in a type, and rounding where a fused kernel of it does unless `precision` says otherwise.

    dtype: of the type; None: that of the first result. precision: types by the points at which the kernel rounds.
    """

    def __init__(self, dtype: Optional[a.Type], precision: Optional[Mapping[str, a.Type]],
                 recorded: Mapping[str, a.Tensor]) -> None:
        self.given = dtype is not None
        self.dtype = (a.float_type("dtype", dtype, a.COMPUTED) if dtype is not None else
                      next(iter(recorded.values())).dtype)
        self.precision, self.words = lib.mha_precision_of(self.dtype), a.NAMES[self.dtype]
        if precision is None:
            return
        if not isinstance(precision, Mapping):
            raise TypeError("precision: expected a dict from points to types, such as {'probabilities': 'bfloat16'}, "
                            f"found {type(precision).__name__}")
        self.words += set_points(self.precision, precision)

    def wide(self, stored: int) -> bool:
        """Whether a result of this type was computed in float64."""
        return (self.dtype if self.given else stored) == abi.F64


class Meant:
    """A call as it was meant, computed exactly: of a layer, or of given heads in one of the two conventions.

    layout "BHTD" takes PyTorch's attn_mask and is_causal (aligned top-left), each layout flash-attn's causal and
    window_size (aligned bottom-right); with a layer the layouts are those of the layer. Where past_key and past_value
    are among the settings, the keys and values of earlier calls, the queries come after them.
    """

    def __init__(self, query: object, key: object, value: object, layer: Optional[MultiHeadAttention],
                 layout: Optional[str], settings: Mapping[str, object]) -> None:
        settings = dict(settings)
        self.layer, self.past = layer, Past(settings)
        self.shape: Union[Heads, Rows]
        if layer is not None:
            if not isinstance(layer, MultiHeadAttention):
                hint = "; mha.MultiHeadAttention.from_torch makes one of it" if hasattr(layer, "in_proj_weight") else ""
                raise TypeError(f"layer: expected mha.MultiHeadAttention, found {type(layer).__name__}{hint}")
            self.shape, self.request = layer.request(query, key, value, settings, layout=layout, path="exact",
                                                     past=self.past.rows)
            c = layer.config
            self.past.begin(self.request, self.shape.B, c["kv_heads"], c["d_k"], c["d_v"], self.shape.T_k)
            return
        if key is None or value is None:
            raise TypeError(f"{'key' if key is None else 'value'}: expected an array, found None; a layer takes None")
        heads = Heads(query, key, value, "BHTD" if layout is None else layout)
        with typed({ours: theirs for theirs, ours in _FLASH.items() if theirs in settings}):
            self._begin(heads, settings)

    def _begin(self, heads: Heads, settings: dict[str, Any]) -> None:
        self.past.turn(heads)
        if self.past.rows:
            settings.setdefault("offset", self.past.rows)
            heads.S += self.past.rows  # which masks cover as well
        words: Mapping[str, object] = {_FLASH.get(name, name): value for name, value in settings.items()
                                       if name not in _ALIGNED}
        if heads.swapped:
            words = torch_settings(heads, settings.get("attn_mask"), False, True, {
                name: value for name, value in words.items() if name not in ("attn_mask", "enable_gqa")})
        words = flash_settings(heads, settings.get("causal", False), settings.get("window_size", (-1, -1)), words)
        self.shape = heads
        self.request = Request(heads.inputs, Semantics(heads.sizes(), words), path="exact")
        _, new, _, d_k = heads.inputs[1].array.shape
        self.past.begin(self.request, heads.B, heads.h_kv, d_k, heads.d_v, new)

    def exact(self, stages: Sequence[str] = ()) -> Any:
        """The exact output in float64, and with stages their Trace."""
        with self.past:
            return run(self.shape, self.request, return_stages=stages, out_dtype="float64")

    @property
    def _layer(self) -> Optional[int]:
        return self.layer.handle.address if self.layer else None

    def bound(self, unit: float) -> dict[str, float]:
        """How far rounding may take each stage from exact in a type of this unit roundoff, see mha_error_bound."""
        found = (ctypes.c_double * len(abi.STAGES))()
        with self.request.typed():
            call(lib.mha_error_bound, self._layer, ctypes.byref(self.request.struct), unit, found, len(found))
        return dict(zip(abi.STAGES, found))

    def allowed(self, computed: Computed, recorded: Mapping[str, a.Tensor]) -> dict[str, abi.Allowance]:
        """What right results may be off by that were computed like this: |exact - result| <= atol + rtol |exact|."""
        struct, found = abi.Call.from_buffer_copy(self.request.struct), (abi.Allowance * len(recorded))()
        struct.precision = computed.precision
        for each, (stage, tensor) in zip(found, recorded.items()):
            each.stage, each.stored = abi.STAGES.index(stage), tensor.dtype
            each.computed = abi.F64 if computed.wide(tensor.dtype) else abi.F32
        with self.request.typed():
            call(lib.mha_tolerance, self._layer, ctypes.byref(struct), found, len(found))
        return dict(zip(recorded, found))

    def _record(self, computed: Optional[Computed],
                gradients: Optional[abi.Gradients] = None) -> tuple[abi.Call, abi.CaseNotes]:
        """The call as a case has it, of a kernel that computes like this; the rows of its cache, and gradients, are
        notes."""
        struct, notes = abi.Call.from_buffer_copy(self.request.struct), abi.CaseNotes()
        if gradients is not None:
            notes.gradients = ctypes.pointer(gradients)
        if computed is not None:
            struct.precision = computed.precision
            notes.has_computed = computed.given
            notes.computed = abi.F64 if computed.dtype == abi.F64 else abi.F32
        notes.rope_origin = self.request.semantics.rope_origin
        self.past.note(notes)
        return struct, notes

    def case(self, recorded: Mapping[str, a.Tensor], computed: Optional[Computed] = None, name: str = "the call",
             gradients: Optional[abi.Gradients] = None) -> Handle:
        """A case of this call and of what somebody computed for it, in float32 unless `computed` says more."""
        struct, notes = self._record(computed, gradients)
        keep = (abi.Keep * len(recorded))()
        for slot, (stage, tensor) in zip(keep, recorded.items()):
            slot.stage, slot.view = abi.STAGES.index(stage), a.view_of(tensor)
        notes.name = name.encode()
        with self.request.typed():
            return create("case", lib.mha_case_close, lib.mha_case_of_call, self._layer, ctypes.byref(struct), keep,
                          len(keep), ctypes.byref(notes), needs=(self,))

    def save(self, path: a.Path, recorded: Mapping[str, a.Tensor], computed: Computed,
             gradients: Optional[abi.Gradients] = None) -> None:
        """Writes a case file of this call and of what somebody computed for it."""
        keep = (abi.Keep * len(recorded))()
        call_, notes = self._record(computed, gradients)
        wide = any(computed.wide(t.dtype) for t in recorded.values())
        held = []
        for slot, (stage, tensor) in zip(keep, (item for item in recorded.items() if item[0] != "output")):
            held.append(a.widened(tensor, abi.F64 if wide else abi.F32))
            slot.stage, slot.view = abi.STAGES.index(stage), a.view_of(held[-1])
        if "output" in recorded:
            held.append(a.widened(recorded["output"], abi.F64 if wide else abi.F32))
            call_.output = a.view_of(held[-1])
        call_.keep, call_.keep_count = keep, len(recorded) - ("output" in recorded)
        with self.request.typed():
            call(lib.mha_case_save, path_of("path", path), self._layer, ctypes.byref(call_), ctypes.byref(notes))

    def recorded(self, actual: object, stages: object) -> dict[str, a.Tensor]:
        """What somebody computed, as the library sees it: stages are in its shapes already."""
        found = {}
        if actual is not None:
            found["output"] = self.shape.seen(a.floats("actual", actual, a.RESULTS), "actual")
        if stages is not None and not isinstance(stages, Mapping):
            raise TypeError(f"stages: expected a dict from names to arrays, found {type(stages).__name__}")
        for name, value in (stages or {}).items():
            a.choice("stages", name, abi.STAGES)
            found[name] = a.floats(f"stages[{name!r}]", value, a.RESULTS)
        if not found:
            raise TypeError("actual: expected an array, or stages, found None")
        return found
