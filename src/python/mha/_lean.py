"""Calls that were made before: the struct of such a call is kept, and only the addresses in it change.

Only what is plain: arrays of numpy, or tensors of PyTorch that numpy sees as they are, of float32 or float64; settings
that are numbers and words; an output of the query's type, no stages. Everything else goes the general way, which checks
and names it; so does every call the first time. The library checks a kept call like any other.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Mapping, Optional, Sequence

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

_Array, _empty = np.ndarray, np.empty
# torch.Tensor and torch.from_numpy, once a call with such tensors is kept.
_Tensor: Any = None
_from_numpy: Any = None

# An array of CPython's numpy begins with the object's head and the address of its memory. Read there, out of all memory
# as one array of words of 2^3 bytes, it costs a tenth of what asking does. Where that is not so, no call is kept.
_words = (ctypes.c_int64 * (sys.maxsize >> 3)).from_address(object.__basicsize__)
_probe = np.arange(6, dtype="float32").reshape(2, 3)
_sees = sys.implementation.name == "cpython" and sys.maxsize > 2**32 and all(
    _words[id(x) >> 3] == x.ctypes.data for x in (_probe, _probe[1:], _probe.T, _probe.copy()))

_run = lib["mha_run"]  # without declared types, which would be looked at in every call; what it is given is prepared

_SCALARS = frozenset((bool, int, float, str, type(None)))
_OBJECTS = frozenset((Rope, Bias, Relative))


def _kind(value: Any) -> Any:
    """The type of a value, and the types of what is in it."""
    if type(value) is tuple:
        return tuple(map(_kind, value))
    return (type(value), *map(_kind, vars(value).values())) if type(value) in _OBJECTS else type(value)


def _is_plain(kind: Any) -> bool:
    """Whether values of a kind that are equal mean the same, now and later."""
    return kind in _SCALARS or kind in _OBJECTS or kind is type or type(kind) is tuple and all(map(_is_plain, kind))


def said(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Settings as a part of `how`: name, kind and value of each."""
    found: tuple[Any, ...] = ()
    for name, value in settings.items():
        kind = type(value)
        found += name, kind if kind in _SCALARS else _kind(value), value
    return found


def _of_arrays(query: Any, key: Any, value: Any, mask: Any, how: tuple[Any, ...]) -> Any:
    """What kept calls with arrays of numpy are found by. Strides come first: they differ from a tensor's, and numpy is
    slow to compare a type with one of PyTorch."""
    if key is None:
        return how, query.strides, query.dtype, query.shape
    if mask is None:
        return (how, query.strides, query.dtype, query.shape, key.dtype, key.shape, key.strides, value.dtype,
                value.shape, value.strides)
    return (how, query.strides, query.dtype, query.shape, key.dtype, key.shape, key.strides, value.dtype, value.shape,
            value.strides, mask.dtype, mask.shape, mask.strides)


def _of_tensors(query: Any, key: Any, value: Any, mask: Any, how: tuple[Any, ...]) -> Any:
    """The same for tensors of PyTorch, with the strides of those that are not contiguous, which cost more to ask for.
    Of what is no dense memory, strides or the address raise RuntimeError."""
    if key is None:
        return how, query.is_contiguous() or query.stride(), query.dtype, query.shape, query.is_cpu, query.is_neg()
    found = (how, query.is_contiguous() or query.stride(), query.dtype, query.shape, query.is_cpu, query.is_neg(),
             key.dtype, key.shape, key.is_contiguous() or key.stride(), key.is_cpu, key.is_neg(),
             value.dtype, value.shape, value.is_contiguous() or value.stride(), value.is_cpu, value.is_neg())
    if mask is None:
        return found
    return *found, mask.dtype, mask.shape, mask.is_contiguous() or mask.stride(), mask.is_cpu, mask.is_neg()


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

    In `how` the kind of every setting comes before its value. So numbers that are equal and of another type (True, 1)
    are told apart, and a value is compared with one of its own kind alone: never an array, whose equality is an array.

    Written without loops: of the few microseconds that a call may cost here, each would take one.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[Any, list[_Kept]]] = {}  # by its signature: that once more, and its calls
        self._recent: tuple[Any, list[_Kept]] = (None, [])  # the entry found last: to compare is less than to look up

    def run(self, query: Any, key: Any, value: Any, mask: Any, how: tuple[Any, ...],
            cache: Optional[Cache] = None) -> Optional[Any]:
        """The result of a call that is kept, or None."""
        kind = type(query)
        if key is not None and not (kind is type(key) is type(value) and (mask is None or kind is type(mask))):
            return None
        try:
            if kind is _Array:
                signature = _of_arrays(query, key, value, mask, how)
                q = k = v = m = _words[id(query) >> 3]
                if key is not None:
                    k, v = _words[id(key) >> 3], _words[id(value) >> 3]
                    if mask is not None:
                        m = _words[id(mask) >> 3]
            elif kind is _Tensor:
                signature = _of_tensors(query, key, value, mask, how)
                q = k = v = m = query.data_ptr()
                if key is not None:
                    k, v = key.data_ptr(), value.data_ptr()
                    if mask is not None:
                        m = mask.data_ptr()
                if not (q and k and v and m):  # a tensor whose memory was let go
                    return None
            else:
                return None
            known, calls = self._recent
            if signature != known:
                self._recent = known, calls = self._kept[signature]
            kept = calls.pop()  # nobody else has it meanwhile
        except (LookupError, TypeError, RuntimeError):  # there is none, or an argument is of no plain kind
            return None
        if (q | k | v) & kept.unaligned or m & kept.unaligned_mask:
            calls.append(kept)
            return None
        kept.query.data, kept.key.data, kept.value.data = q, k, v
        if mask is not None:
            kept.mask.data = m
        if cache is not None:
            kept.call.cache = cache.handle.address
        result = _empty(kept.shape, kept.dtype)
        kept.output.data = _words[id(result) >> 3]
        status = _run(*kept.arguments)
        if status:
            check(status, kept.error)  # before another thread may have it
        calls.append(kept)
        return result if kind is _Array else _from_numpy(result)

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
                    or address is not None and address != array.ctypes.data):
                return
        if not (_sees and arrays[-1].flags.c_contiguous and _is_plain(_kind(how))):
            return
        if torch is not None:
            _Tensor, _from_numpy = torch.Tensor, torch.from_numpy
        if len(self._kept) >= _MOST:
            self._kept.clear()
        signature = (_of_arrays if torch is None else _of_tensors)(query, key, value, mask, how)
        kept = _Kept(request, [x.itemsize for x in arrays[:3] if x is not None], 1 if mask is None else
                     arrays[3].itemsize, arrays[-1])
        _, calls = self._kept.setdefault(signature, (signature, []))
        if len(calls) < _SPARE:
            calls.append(kept)
        request.let_go()
