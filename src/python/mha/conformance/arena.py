"""Arrays of a call in memory that two processes share, with fences around each array."""
from __future__ import annotations

import ctypes
import io
import math
import mmap
import os
import pickle
from typing import NamedTuple, Optional, Sequence

import numpy as np

from ..core import abi
from ..core import arrays as a
from .suite import CaseInputs
from .worker import RefusedFunction

REGION = 1 << 28  # bytes of one region; pages without data cost nothing
SLOTS = 3  # regions for inputs
RESULT = SLOTS * REGION  # begin of the last region, for results
_SIZE = (SLOTS + 1) * REGION
_FENCE = b"\xff" * 4096  # NaN in each floating type, -1 in each type of whole numbers


class Placed(NamedTuple):
    """One array in a region: its begin, numpy's name of its type (uint16: bfloat16), shape, and strides in bytes."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The byte after the last element."""
        if 0 in self.shape:
            return self.offset
        steps = sum((n - 1) * step for n, step in zip(self.shape, self.strides))
        return self.offset + steps + np.dtype(self.dtype).itemsize


def open_memory() -> int:
    """The file descriptor of new shared memory."""
    fd = os.memfd_create("arrays", os.MFD_CLOEXEC)
    os.ftruncate(fd, _SIZE)
    return fd


def mapped(fd: int) -> mmap.mmap:
    """The shared memory in this process."""
    return mmap.mmap(fd, _SIZE)


class Image:
    """A call as bytes of a region: its arrays with fences around each, and a pickle of everything else."""

    def __init__(self, asked: CaseInputs) -> None:
        self.bytes, self.arrays = bytearray(_FENCE), list[Placed]()
        place = self._place

        class Pickler(pickle.Pickler):
            """Replaces each array by its number."""

            def persistent_id(self, value: object) -> Optional[int]:
                return place(value) if isinstance(value, np.ndarray) else None

        file = io.BytesIO()
        Pickler(file).dump(tuple(asked))
        self.call = file.getvalue()
        if len(self.bytes) > REGION:
            raise RefusedFunction(f"arrays of a call: expected at most {REGION:,} bytes, found {len(self.bytes):,}")

    def _place(self, array: a.Stored) -> int:
        found = Placed(len(self.bytes), array.dtype.name, array.shape, array.strides)
        self.arrays.append(found)
        self.bytes += ctypes.string_at(array.ctypes.data, found.end - found.offset)
        self.bytes += _FENCE + _FENCE[:-len(self.bytes) % 64]  # each array begins at a multiple of 64
        return len(self.arrays) - 1

    def damage(self, memory: mmap.mmap, slot: int) -> str:
        """Compare a region with the image: "", "inputs-changed" or "fence-written"."""
        now = memory[slot * REGION:slot * REGION + len(self.bytes)]
        if now == self.bytes:
            return ""
        changed = any(now[x.offset:x.end] != self.bytes[x.offset:x.end] for x in self.arrays)
        return "inputs-changed" if changed else "fence-written"


def rebuilt(memory: mmap.mmap, slot: int, arrays: Sequence[Placed], call: bytes,
            wrap: a.Wrap) -> CaseInputs:
    """The call of an image, with arrays of a kind on the shared memory itself."""
    found = []
    for x in arrays:
        flat = np.frombuffer(memory, np.uint8, x.end - x.offset, slot * REGION + x.offset).view(x.dtype)
        code = abi.BF16 if x.dtype == "uint16" else a.CODES[x.dtype]
        found.append(wrap(np.lib.stride_tricks.as_strided(flat, x.shape, x.strides), code))

    class Unpickler(pickle.Unpickler):
        """Puts each array back."""

        def persistent_load(self, number: int) -> a.ArrayLike:
            return found[number]

    return CaseInputs(*Unpickler(io.BytesIO(call)).load())


def results(memory: mmap.mmap, said: a.Json) -> list[a.Tensor]:
    """Copies of the results in the last region, by their types and shapes; ValueError and others for false ones."""
    found, at = list[a.Tensor](), RESULT
    for dtype, shape in said[:2]:
        code, kind = a.CODES[dtype], np.dtype({"bfloat16": "uint16"}.get(dtype, dtype))
        size = math.prod(shape) * kind.itemsize
        if min([0, *shape]) < 0 or size > REGION // 2:
            raise ValueError(f"result: expected a shape that fits its memory, found {shape}")
        found.append(a.Tensor(np.frombuffer(memory[at:at + size], kind).reshape(shape), code, a.wrap_numpy))
        at += size
    return found
