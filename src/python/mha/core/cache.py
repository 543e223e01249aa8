"""The key/value cache: projected, rotated keys and values of earlier calls."""
from __future__ import annotations

import ctypes
import threading
from typing import Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .library import call, create, lib


class Cache:
    """Keys and values of earlier calls, projected and rotated, (batch, kv_heads, capacity, d).

    A call appends its rows and then attends to all. One call at a time may use a cache.

    Parameters
    ----------
    batch, kv_heads, d_k : int
        Sizes.
    capacity : int
        Number of rows with room.
    d_v : int, default None
        Width of values; None: d_k.
    window : int, default None
        Without room, mha first evicts all but the last `window` rows. None: it refuses the call.
    dtype : {"float32", "float16", "bfloat16", "int8", "float64"}, default "float32"
        Type of the rows. "int8" has a scale for each row; "float64" is for the exact path.

    Raises
    ------
    TypeError, ValueError
        A size or the type is wrong.
    RuntimeError
        Another thread uses the cache.

    Examples
    --------
    >>> layer = mha.MultiHeadAttention(32, 4)
    >>> cache = layer.cache(batch=2, capacity=8)
    >>> y = layer(np.ones((2, 3, 32), np.float32), cache=cache, is_causal=True)
    >>> len(cache), cache.keys.shape
    (3, (2, 4, 3, 8))
    """

    def __init__(self, batch: int, kv_heads: int, d_k: int, capacity: int, *, d_v: Optional[int] = None,
                 window: Optional[int] = None, dtype: a.Type = "float32") -> None:
        spec = abi.CacheSpec()
        for name, value in (("batch", batch), ("kv_heads", kv_heads), ("d_k", d_k),
                            ("d_v", d_k if d_v is None else d_v), ("capacity", capacity)):
            setattr(spec, name, a.whole_number(name, value, 0))
        spec.window = a.count("window", window)
        spec.dtype = a.float_type("dtype", dtype, a.CACHED)
        self.dtype = a.NAMES[spec.dtype]
        self.handle = create("cache", lib.mha_cache_destroy, lib.mha_cache_create, ctypes.byref(spec), None)
        self._lock = threading.Lock()

    def __enter__(self) -> Cache:
        """Takes the cache for one call."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("cache: expected one call at a time, found it in use by another thread")
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

    def _rows(self, values: bool) -> a.Floats:
        with self:
            held = (lib.mha_cache_values if values else lib.mha_cache_keys)(self.handle.address)
            if held.dtype != abi.I8 and not self.shared:
                return a.of_memory(held, self).copy()
            shape = (*held.shape[:2], len(self), held.shape[3])
            rows = a.floats("rows", np.empty(shape, np.float64 if held.dtype == abi.F64 else np.float32))
            call(lib.mha_cache_read, self.handle.address, values, ctypes.byref(a.view_of(rows)))
            return rows.array

    @property
    def keys(self) -> a.Floats:
        """A copy of the keys, (batch, kv_heads, length, d_k); float32 for int8, and for 16 bits that are shared."""
        return self._rows(False)

    @property
    def values(self) -> a.Floats:
        """A copy of the values, (batch, kv_heads, length, d_v); float32 for int8, and for 16 bits that are shared."""
        return self._rows(True)

    def clear(self) -> None:
        """Remove all rows; the next row has position 0."""
        with self:
            lib.mha_cache_clear(self.handle.address)

    def truncate(self, length: int) -> None:
        """Remove the newest rows.

        Parameters
        ----------
        length : int
            Number of rows to keep.
        """
        with self:
            lib.mha_cache_truncate(self.handle.address, a.whole_number("length", length, 0))

    def load(self, keys: a.ArrayLike, values: a.ArrayLike) -> None:
        """Replace the content by copies.

        Parameters
        ----------
        keys : array_like, shape (batch, kv_heads, P, d_k)
            Projected, rotated keys.
        values : array_like, shape (batch, kv_heads, P, d_v)
            Values.

        Raises
        ------
        TypeError, ValueError
            The shapes do not fit the cache.
        """
        k, v = a.floats("keys", keys), a.floats("values", values)
        with self:
            call(lib.mha_cache_load, self.handle.address, ctypes.byref(a.view_of(k)), ctypes.byref(a.view_of(v)))

    def continued(self, batch: int, rows: int) -> Cache:
        """Make a cache whose sequences begin with the rows of this one, without a copy of them.

        Neighbouring sequences continue each sequence of this cache: hypotheses of a beam search, users of one prompt,
        drafts. Results have the bits of caches with copies. This cache stays alive as long as one that continues it,
        and may append. mha refuses calls with those once it has lost rows (clear, truncate, load, reorder, window). No
        thread may take rows from it during a call with one that continues it.

        Parameters
        ----------
        batch : int
            Number of sequences, a multiple of this cache's.
        rows : int
            Room for further rows of each sequence.

        Returns
        -------
        mha.Cache
            The new cache.

        Raises
        ------
        TypeError, ValueError
            `batch` is not a multiple of this cache's number of sequences.

        Examples
        --------
        >>> layer = mha.MultiHeadAttention(32, 4)
        >>> prompt = layer.cache(1, 16)
        >>> y = layer(np.ones((1, 5, 32), np.float32), cache=prompt)
        >>> beams = prompt.continued(4, 8)
        >>> layer(np.ones((4, 1, 32), np.float32), cache=beams).shape
        (4, 1, 32)
        >>> beams.reorder([0, 0, 2, 3])
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
        """How many rows of a sequence are in the memory of the cache that this one continues; else 0."""
        return int(lib.mha_cache_shared(self.handle.address))

    def reorder(self, order: Sequence[int]) -> None:
        """Replace each sequence i by sequence order[i], all at once. Both must continue the same sequence, if any.

        Parameters
        ----------
        order : sequence of int, length batch
            Numbers of sequences.

        Raises
        ------
        TypeError, ValueError
            A number is not that of a sequence, or of one that continues another sequence.
        """
        batch = int(lib.mha_cache_keys(self.handle.address).shape[0])
        places = a.whole_numbers("order", order, batch).tolist()
        numbers = (ctypes.c_size_t * batch)(*(a.whole_number("order", n, 0) for n in places))
        with self:
            call(lib.mha_cache_reorder, self.handle.address, numbers)

    def __repr__(self) -> str:
        return f"<mha.Cache of {len(self)} rows from position {self.first}, {self.dtype}, {self.nbytes} bytes>"
