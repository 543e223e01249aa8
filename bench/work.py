"""What every contender of bench/peers.py is given: a shape, its arrays, and how calls are timed."""
import ctypes
import os
import time

import numpy as np

MOST_GIB = 6  # who needs more for its scores does not take part
ENOUGH_MS = 4  # short work is repeated until this is filled, as mha bench does
LONG_MS = 500  # such a call needs no warming up


class Absent(Exception):
    """Why a contender cannot take part, or cannot do one shape."""


class Shim:
    """bench/shim.c: the program's shapes, inputs and timing."""

    def __init__(self, folder):
        self.lib = lib = ctypes.CDLL(os.path.join(os.path.abspath(folder), "libshim.so"))
        lib.shim_open.restype = ctypes.c_void_p
        lib.shim_run.restype = lib.shim_flops.restype = lib.shim_bytes.restype = ctypes.c_double
        lib.shim_stage.restype = ctypes.POINTER(ctypes.c_float)
        lib.shim_version.restype = lib.shim_isa.restype = ctypes.c_char_p

    def open(self, shape, part, packs=False):
        opened = self.lib.shim_open(shape.encode(), part.encode(), int(packs))
        if not opened:
            raise SystemExit(f"peers: no shape '{shape}'")
        return ctypes.c_void_p(opened)

    def close(self, opened):
        self.lib.shim_close(opened)

    def sizes(self, opened):
        values = (ctypes.c_size_t * 9)()
        self.lib.shim_shape(opened, values)
        sizes = dict(zip("B T_q T_k d_model h h_kv d_k causal bias".split(), values))
        sizes["flops"], sizes["bytes"] = self.lib.shim_flops(opened), self.lib.shim_bytes(opened)
        sizes["decodes"] = sizes["T_q"] == 1 and sizes["T_k"] > 1
        sizes["crosses"] = sizes["T_q"] != sizes["T_k"] and not sizes["decodes"]
        return sizes

    def array(self, opened, name):
        """A copy, or None where the shape has no such array."""
        data, shape = ctypes.POINTER(ctypes.c_float)(), (ctypes.c_size_t * 4)()
        rank = self.lib.shim_array(opened, name.encode(), ctypes.byref(data), shape)
        return np.ctypeslib.as_array(data, tuple(shape[:rank])).copy() if rank else None

    def stage(self, opened, path, threads, name):
        """A stage of one more run, kept; flat."""
        n = ctypes.c_size_t()
        data = self.lib.shim_stage(opened, path.encode(), threads, name.encode(), ctypes.byref(n))
        if not data:
            raise Absent(f"no stage {name}")
        kept = np.ctypeslib.as_array(data, (n.value,)).copy()
        self.lib.shim_release(data)
        return kept

    def limits(self, threads, reads):
        """GFLOP/s, and GB/s where that is asked for."""
        peak, gbs = ctypes.c_double(), ctypes.c_double()
        self.lib.shim_limits(threads, ctypes.byref(peak), ctypes.byref(gbs) if reads else None)
        return peak.value, gbs.value


def aligned(array):
    """The same at a multiple of 64 bytes, as the frameworks' own tensors are, and this library's."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Work:
    """One shape as every contender sees it: sizes, and arrays loaded from files when they are asked for."""

    def __init__(self, shape, part, sizes, folder):
        self.shape, self.part, self.folder = shape, part, folder
        self.__dict__.update(sizes)

    def __getitem__(self, name):
        try:
            return aligned(np.load(f"{self.folder}/{name}.npy"))
        except FileNotFoundError:
            return None

    def scores_gib(self):
        """What scores and weights take where both are kept whole."""
        return 2 * 4 * self.B * self.h * self.T_q * self.T_k / 2**30

    def hold_scores(self):
        if self.scores_gib() > MOST_GIB:
            raise Absent(f"stores all scores and weights: {self.scores_gib():.0f} GiB")

    def heads(self, name):
        """Q, K or V of a core as (B, h, T, d_k), contiguous."""
        n = self.h if name == "query" else self.h_kv
        if name != "query" and self.decodes:  # decoding reads them as a cache keeps them
            return self[name].reshape(self.B, n, self.T_k, self.d_k)
        return aligned(self[name].reshape(self.B, -1, n, self.d_k).transpose(0, 2, 1, 3))


def time_calls(call):
    """Milliseconds of one call, averaged over enough calls to fill some milliseconds, after one to warm up."""
    runs, ms = 1, 0.0
    for _ in range(2):
        start = time.perf_counter()
        for _ in range(runs):
            call()
        ms = (time.perf_counter() - start) * 1e3 / runs
        if ms >= LONG_MS:
            break
        runs = 1 + int(ENOUGH_MS / ms)
    return ms


def library(folder, name):
    """A contender's shared object, or None where it was not built."""
    path = os.path.join(os.path.abspath(folder), name)
    return ctypes.CDLL(path) if os.path.exists(path) else None
