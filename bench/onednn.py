"""oneDNN as a contender of bench/peers.py: bench/onednn.cpp, called by ctypes. Needs libdnnl-dev when it is built."""
import ctypes
import math
from ctypes import c_char_p, c_float, c_int, c_int64, c_void_p

import numpy as np

from work import Absent, library, time_calls


def numbers(values):
    return (c_int64 * len(values))(*values)


def to_bf16(array):
    """The bits of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class OneDnn:
    """Steps are numpy views: what strides they have is what the primitives get. With bf16 all arrays, scores among
    them, are bfloat16, and sums float32."""

    def __init__(self, threads, libraries, bf16=False):
        self.bf16, self.dtype = bf16, np.uint16 if bf16 else np.float32
        self.lib, self.program, self.kept = library(libraries, "libonednn_peer.so"), None, []
        if not self.lib:
            raise Absent("not built: needs Debian's libdnnl-dev, version 2")
        self.lib.onednn_create.restype = c_void_p
        self.lib.onednn_error.restype = self.lib.onednn_kernels.restype = c_char_p
        self.version = ".".join(str(self.lib.onednn_version(i)) for i in range(3))

    def of(self, array):
        """An array of the work in the type of the program; None stays None."""
        return to_bf16(array) if self.bf16 and array is not None else array

    def add(self, name, *arguments):
        if getattr(self.lib, "onednn_" + name)(self.program, *arguments):
            kind = " in bfloat16, which it may not have on this processor" if self.bf16 else ""
            raise Absent(f"oneDNN's {name}{kind}: " + self.lib.onednn_error().decode())

    def layout(self, array):
        """Shape, strides in elements, address; of what has an extent of 1 the stride does not matter."""
        self.kept.append(array)
        strides, dense = [], 1
        for extent, stride in zip(reversed(array.shape), reversed(array.strides)):
            strides.append(stride // array.itemsize if extent > 1 else dense)
            dense = strides[-1] * extent
        return numbers(array.shape), numbers(strides[::-1]), c_void_p(array.ctypes.data)

    def matmul(self, a, b, c, bias=None, scale=1.0, mask=None, pack=False):
        b_shape, b_strides, b_data = self.layout(b)
        self.kept.append(bias)
        extra = self.layout(mask) if mask is not None else (None, None, None)
        self.add("matmul", a.ndim, *self.layout(a), b_shape, None if pack else b_strides, b_data, *self.layout(c),
                 None if bias is None else c_void_p(bias.ctypes.data), c_float(scale), *extra)

    def core(self, w, q, k, v, out):
        """q and out (B, T_q, h, d_k); k and v (B, h_kv, S, d_k) whatever their strides."""
        group, scale = w.h // w.h_kv, 1 / math.sqrt(w.d_k)
        if w.T_q == 1:  # heads that share keys are the rows
            q, out = (x.reshape(w.B, w.h_kv, group, w.d_k) for x in (q, out))
            steps = [(q, out, np.zeros((w.B, w.h_kv, group, w.T_k), self.dtype))]
        else:  # those that share keys come one after the other: broadcasting them takes its slowest kernel
            q, out = (x.transpose(0, 2, 1, 3) for x in (q, out))
            steps = [(q[:, i::group], out[:, i::group], np.zeros((w.B, w.h_kv, w.T_q, w.T_k), self.dtype))
                     for i in range(group)]
        mask = None
        if w.causal and w.T_q > 1:
            mask = self.of(np.triu(np.full((w.T_q, w.T_k), -np.inf, np.float32), 1)[None, None])
        for some_q, some_out, scores in steps:
            self.matmul(some_q, k.swapaxes(-1, -2), scores, scale=scale, mask=mask)
            self.add("softmax", 4, *self.layout(scores))
            self.matmul(scores, v, some_out)

    def project(self, w, x, name):
        """Rows times packed weights."""
        W, b = self.of(w["W_" + name]), self.of(w["b_" + name])
        y = np.zeros((*x.shape[:2], W.shape[1]), self.dtype)
        self.matmul(x.reshape(-1, W.shape[0]), W, y.reshape(-1, W.shape[1]), bias=b, pack=True)
        return y

    def prepare(self, w):
        if w.part != "proj":
            w.hold_scores()
        self.program = c_void_p(self.lib.onednn_create(self.bf16))
        x, y = self.of(w["query"]), self.of(w["key"])

        def split(a, n):
            return a.reshape(w.B, -1, n, w.d_k)

        if w.part == "core":
            out, value = np.zeros_like(x), self.of(w["value"])
            if w.decodes:
                keys, values = (a.reshape(w.B, w.h_kv, w.T_k, w.d_k) for a in (y, value))
            else:
                keys, values = (split(a, w.h_kv).transpose(0, 2, 1, 3) for a in (y, value))
            self.core(w, split(x, w.h), keys, values, split(out, w.h))
            self.results = [out]
            return
        y = y if w.crosses else x
        q, k, v = self.project(w, x, "Q"), self.project(w, y, "K"), self.project(w, y, "V")
        if w.part == "proj":
            self.results = [q, k, v, self.project(w, self.of(w["heads"]), "O")]
            return
        keys, values = (split(a, w.h_kv).transpose(0, 2, 1, 3) for a in (k, v))
        if w.decodes:
            for new, name in ((keys, "cached_keys"), (values, "cached_values")):
                cache = self.of(w[name])
                shape, strides, data = self.layout(new)
                self.add("copy", 4, shape, strides, data, *self.layout(cache[:, :, -1:])[1:])
                keys, values = (cache, values) if name == "cached_keys" else (keys, cache)
        heads = np.zeros_like(q)
        self.core(w, split(q, w.h), keys, values, split(heads, w.h))
        self.results = [self.project(w, heads, "O")]

    def turn(self):
        def once():
            if self.lib.onednn_run(self.program):
                raise RuntimeError(self.lib.onednn_error().decode())
        return time_calls(once)

    def output(self):
        output = np.concatenate([a.reshape(-1) for a in self.results])
        return from_bf16(output) if self.bf16 else output

    def release(self):
        if self.program:
            self.lib.onednn_destroy(self.program)
        self.program, self.kept, self.results = None, [], []
