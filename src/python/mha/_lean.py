"""Calls that were made before: the struct of such a call is kept, and only the addresses in it change.

Only what is plain: arrays of numpy, or tensors of PyTorch that numpy sees as they are, of float32 or float64; settings
that are numbers and words; an output of the query's type, no stages. Everything else goes the general way, which checks
and names it; so does every call the first time. The library checks a kept call like any other.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Sequence

import numpy as np

from . import _abi
from ._call import Request
from ._library import lib
from .cache import Cache
from .errors import check
from .semantics import Bias, Relative, Rope

_TYPES = tuple(np.dtype(name) for name in ("float32", "float64", "bool"))
_MOST = 256  # signatures that are kept
_SPARE = 8  # calls of one signature that are kept, for as many threads

# An array of CPython's numpy begins with the object's head and the address of its memory: reading it there costs a
# tenth of what asking for it does. Where that is not so, arrays are asked.
_AT = object.__basicsize__
_read = ctypes.c_ssize_t.from_address


def _quick(array: Any) -> int:
    return _read(id(array) + _AT).value


def _asked(array: Any) -> int:
    return int(array.ctypes.data)


_probe = np.arange(6, dtype="float32").reshape(2, 3)
_sees = sys.implementation.name == "cpython" and all(
    _quick(x) == _asked(x) for x in (_probe, _probe[1:], _probe.T, _probe.copy()))
address_of = _quick if _sees else _asked

_run = lib["mha_run"]  # without declared types, which would be looked at in every call; what it is given is prepared


def _is_plain(value: Any) -> bool:
    """Whether values that are equal to this one mean the same, now and later."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    if type(value) is Rope:
        return value.q_positions is value.k_positions is value.cos is value.sin is value.frequencies is None
    if type(value) is Bias:
        return value.table is None
    if type(value) is Relative:
        return value.k is value.columns is value.q is None
    return value is None or type(value) in (bool, int, float, str)


# torch.Tensor and torch.from_numpy, once a call with such tensors is kept.
_Tensor: Any = None
_from_numpy: Any = None


def _numpy_signature(q: Any, k: Any, v: Any, mask: Any, how: tuple[Any, ...]) -> Any:
    """What kept calls are found by. Numbers of another type, though equal (True, 1), make another signature."""
    if k is None:
        return how, tuple(map(type, how)), q.dtype, q.shape, q.strides
    return (how, tuple(map(type, how)), q.dtype, q.shape, q.strides, k.dtype, k.shape, k.strides, v.dtype,
            v.shape, v.strides, None if mask is None else (mask.dtype, mask.shape, mask.strides))


def _torch_signature(q: Any, k: Any, v: Any, mask: Any, how: tuple[Any, ...]) -> Any:
    """The same for tensors of PyTorch. Those that are no dense memory have no strides, and raise RuntimeError."""
    if k is None:
        return how, tuple(map(type, how)), q.dtype, q.shape, q.stride(), q.is_cpu, q.is_neg()
    return (how, tuple(map(type, how)), q.dtype, q.shape, q.stride(), q.is_cpu, q.is_neg(),
            k.dtype, k.shape, k.stride(), k.is_cpu, k.is_neg(), v.dtype, v.shape, v.stride(), v.is_cpu, v.is_neg(),
            None if mask is None else (mask.dtype, mask.shape, mask.stride(), mask.is_cpu, mask.is_neg()))


class _Kept:
    """A call of one signature, for one use at a time. `unaligned`: bits that no address of its floats has;
    `unaligned_mask`: none of its mask."""

    __slots__ = ("request", "call", "query", "key", "value", "mask", "output", "unaligned", "unaligned_mask", "shape",
                 "dtype", "error", "arguments")

    def __init__(self, request: Request, sizes: Sequence[int], mask_size: int, result: Any) -> None:
        call = self.call = request.struct
        self.request, self.shape, self.dtype, self.error = request, result.shape, result.dtype, _abi.Error()
        self.unaligned, self.unaligned_mask = max(sizes) - 1, mask_size - 1
        # An input that follows another one stays without an address.
        self.query, self.mask, self.output = call.query, call.semantics.visible.mask.values, call.output
        self.key = call.key if call.key.data else _abi.View()
        self.value = call.value if call.value.data else _abi.View()
        layer = ctypes.c_void_p(request.layer.address) if request.layer else None
        self.arguments = (layer, ctypes.byref(call), ctypes.byref(self.error))


class Lean:
    """Kept calls by their signature. Of a layer, no key is the query, and `how` says whether the value is the key.

    Written without loops: of the few microseconds that a call may cost here, each would take one.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, list[_Kept]] = {}

    def run(self, query: Any, key: Any, value: Any, mask: Any, how: tuple[Any, ...],
            cache: Optional[Cache] = None) -> Optional[Any]:
        """The result of a call that is kept, or None."""
        kind = type(query)
        numpy = kind is np.ndarray
        if not numpy and kind is not _Tensor:
            return None
        if key is not None and not (kind is type(key) is type(value) and (mask is None or kind is type(mask))):
            return None
        try:
            calls = self._kept[(_numpy_signature if numpy else _torch_signature)(query, key, value, mask, how)]
            kept = calls.pop()  # nobody else has it meanwhile
            at = address_of if numpy else _Tensor.data_ptr
            bits = kept.query.data = at(query)
            if key is not None:
                k = kept.key.data = at(key)
                v = kept.value.data = at(value)
                bits |= k | v
        except (LookupError, TypeError, RuntimeError):  # there is none, or an argument is of no plain kind
            return None
        if bits & kept.unaligned:
            return None
        if mask is not None:
            kept.mask.data = bits = at(mask)
            if bits & kept.unaligned_mask:
                return None
        if cache is not None:
            kept.call.cache = cache.handle.address
        result = np.empty(kept.shape, kept.dtype)
        kept.output.data = address_of(result)
        status = _run(*kept.arguments)
        if status:
            check(status, kept.error)
        if len(calls) < _SPARE:
            calls.append(kept)
        return result if numpy else _from_numpy(result)

    def keep(self, request: Request, query: Any, key: Any, value: Any, mask: Any, how: tuple[Any, ...],
             result: Any) -> None:
        """Keeps a call that went well, if its arrays were taken as they are and its settings are plain."""
        global _Tensor, _from_numpy
        arrays: Any = [query, key, value, mask, result]
        torch = None if type(query) is np.ndarray else sys.modules.get("torch")
        if torch is not None and type(query) is torch.Tensor:
            try:
                arrays = [None if x is None else x.numpy() for x in arrays]
            except (AttributeError, RuntimeError, TypeError):  # numpy cannot see one of them
                return
        taken = [t.array.ctypes.data if t else None for t in request.inputs]
        taken += [request.struct.semantics.visible.mask.values.data, None]
        for array, address in zip(arrays, taken):
            if array is None:
                continue
            if (type(array) is not np.ndarray or array.size == 0 or not any(array.dtype is t for t in _TYPES)
                    or address is not None and address != _asked(array)):
                return
        if not arrays[-1].flags.c_contiguous or not _is_plain(how):
            return
        if torch is not None:
            _Tensor, _from_numpy = torch.Tensor, torch.from_numpy
        if len(self._kept) >= _MOST:
            self._kept.clear()
        signature = (_numpy_signature if torch is None else _torch_signature)(query, key, value, mask, how)
        kept = _Kept(request, [x.itemsize for x in arrays[:3] if x is not None], 1 if mask is None else
                     arrays[3].itemsize, arrays[-1])
        self._kept.setdefault(signature, []).append(kept)
        request.let_go()
