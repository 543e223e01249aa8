"""The key/value cache: projected, rotated keys and values of earlier calls."""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .library import call, create, lib


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
        spec = abi.CacheSpec()
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
            if held.dtype != abi.I8 and not self.shared:
                return a.of_memory(held, self).copy()
            shape = (*held.shape[:2], len(self), held.shape[3])
            rows = a.floats("rows", np.empty(shape, np.float64 if held.dtype == abi.F64 else np.float32))
            call(lib.mha_cache_read, self.handle.address, values, ctypes.byref(a.view_of(rows)))
            return rows.array

    @property
    def keys(self) -> Any:
        """A copy of the keys, (batch, kv_heads, length, d_k); float32 for int8, and for 16 bits that are shared."""
        return self._rows(False)

    @property
    def values(self) -> Any:
        """A copy of the values, (batch, kv_heads, length, d_v); float32 for int8, and for 16 bits that are shared."""
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

    def continued(self, batch: int, rows: int) -> Cache:
        """A cache of `batch` sequences that begin with the rows of this one and have room for `rows` more.

        Each sequence of this cache is continued by as many neighbouring ones: hypotheses of a beam search, users of
        one prompt, drafts. Its rows are shared, not copied, and are read once for all that share them; results have
        the bits of caches with copies. This cache stays alive as long as one that continues it,
        and may append; calls with those are refused once it has lost rows (clear, truncate, load, reorder, window).
        No thread may take rows from it during a call with one that continues it.

            prompt = mha.Cache(1, 8, 128, 4096)
            layer(tokens, cache=prompt)
            beams = prompt.continued(8, 256)
            layer(next_tokens, cache=beams)          # (8, 1, d_model)
            beams.reorder([0, 0, 0, 2, 2, 5, 6, 6])
        """
        made = Cache.__new__(Cache)
        made.dtype = self.dtype
        with self:
            made.handle = create("cache", lib.mha_cache_destroy, lib.mha_cache_continue, self.handle.address,
                                 a.whole_number("batch", batch, 0), a.whole_number("rows", rows, 0), None,
                                 needs=(self.handle,))
        made._lock = threading.Lock()
        return made

    @property
    def shared(self) -> int:
        """How many rows of a sequence lie in the memory of the cache that this one continues; else 0."""
        return int(lib.mha_cache_shared(self.handle.address))

    def reorder(self, order: Sequence[int]) -> None:
        """Makes sequence i what sequence order[i] was, for all i at once. Where the cache continues another one, both
        continue the same sequence of that."""
        batch = int(lib.mha_cache_keys(self.handle.address).shape[0])
        places = a.whole_numbers("order", order, batch).tolist()
        numbers = (ctypes.c_size_t * batch)(*(a.whole_number("order", n, 0) for n in places))
        with self:
            call(lib.mha_cache_reorder, self.handle.address, numbers)

    def __repr__(self) -> str:
        return f"<mha.Cache of {len(self)} rows from position {self.first}, {self.dtype}, {self.nbytes} bytes>"
