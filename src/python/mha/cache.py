"""The key/value cache: projected, rotated keys and values of earlier calls."""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional

import numpy as np

from . import _abi
from . import arrays as a
from ._library import call, create, lib


class Cache:
    """Keys and values of earlier calls, (batch, kv_heads, capacity, d). A call appends its new rows, then sees all.

    batch, kv_heads, d_k, d_v: sizes; d_v is d_k when None.
    capacity: rows that there is room for; a call whose rows have no room is refused.
    window: > 0: where there is no room, all but the last `window` rows are evicted first.
    dtype: float32; float16 or bfloat16, to which rows are rounded; int8, a byte for each number and a scale for
        each row; float64 for the exact path.

    One call at a time may use a cache: RuntimeError where a second one comes meanwhile.
    """

    def __init__(self, batch: int, kv_heads: int, d_k: int, capacity: int, *, d_v: Optional[int] = None,
                 window: int = 0, dtype: Any = "float32") -> None:
        spec = _abi.CacheSpec()
        for name, value in (("batch", batch), ("kv_heads", kv_heads), ("d_k", d_k),
                            ("d_v", d_k if d_v is None else d_v), ("capacity", capacity), ("window", window)):
            setattr(spec, name, a.whole_number(name, value, 0))
        spec.dtype = a.float_type("dtype", dtype, a.CACHED)
        self.dtype = a.NAMES[spec.dtype]
        self.handle = create("cache", lib.mha_cache_destroy, lib.mha_cache_create, ctypes.byref(spec), None)
        self._lock = threading.Lock()

    def __enter__(self) -> Cache:
        """Takes the cache for one call."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("the cache is in use by another thread")
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __len__(self) -> int:
        """Rows in the cache."""
        return int(lib.mha_cache_length(self.handle.address))

    @property
    def first(self) -> int:
        """Position of row 0: the number of rows that were evicted."""
        return int(lib.mha_cache_first(self.handle.address))

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys and values."""
        return int(lib.mha_cache_bytes(self.handle.address))

    def _rows(self, values: bool) -> Any:
        with self:
            held = (lib.mha_cache_values if values else lib.mha_cache_keys)(self.handle.address)
            if held.dtype != _abi.I8:
                return a.of_memory(held, self).copy()
            rows = a.floats("rows", np.empty(tuple(held.shape[:4]), np.float32))
            call(lib.mha_cache_read, self.handle.address, values, ctypes.byref(a.view_of(rows)))
            return rows.array

    @property
    def keys(self) -> Any:
        """A copy of the keys, (batch, kv_heads, length, d_k); those of int8 as float32."""
        return self._rows(False)

    @property
    def values(self) -> Any:
        """A copy of the values, (batch, kv_heads, length, d_v); those of int8 as float32."""
        return self._rows(True)

    def clear(self) -> None:
        """Forgets all rows; position 0 comes next."""
        with self:
            lib.mha_cache_clear(self.handle.address)

    def truncate(self, length: int) -> None:
        """Forgets the newest rows until `length` are left."""
        with self:
            lib.mha_cache_truncate(self.handle.address, a.whole_number("length", length, 0))

    def load(self, keys: a.Array, values: a.Array) -> None:
        """Replaces the content by copies of (batch, kv_heads, P, d_k) and (batch, kv_heads, P, d_v)."""
        k, v = a.floats("keys", keys), a.floats("values", values)
        with self:
            call(lib.mha_cache_load, self.handle.address, ctypes.byref(a.view_of(k)), ctypes.byref(a.view_of(v)))

    def __repr__(self) -> str:
        return f"<mha.Cache of {len(self)} rows from position {self.first}, {self.dtype}, {self.nbytes} bytes>"
