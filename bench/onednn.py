"""oneDNN as a contender of bench/peers.py: bench/onednn.cpp, called by ctypes. Needs libdnnl-dev when it is built."""
import ctypes
import math
from ctypes import c_char_p, c_float, c_int, c_int64, c_void_p

import numpy as np

from work import Absent, library, time_calls


def numbers(values):
    return (c_int64 * len(values))(*values)


class OneDnn:
    """Steps are numpy views: what strides they have is what the primitives get."""

    def __init__(self, threads, libraries):
        self.lib, self.program, self.kept = library(libraries, "libonednn_peer.so"), None, []
        if not self.lib:
            raise Absent("not built: needs Debian's libdnnl-dev, version 2")
        self.lib.onednn_create.restype = c_void_p
        self.lib.onednn_error.restype = self.lib.onednn_kernels.restype = c_char_p
        self.version = ".".join(str(self.lib.onednn_version(i)) for i in range(3))

    def add(self, name, *arguments):
        if getattr(self.lib, "onednn_" + name)(self.program, *arguments):
            raise Absent(f"oneDNN's {name}: " + self.lib.onednn_error().decode())

    def layout(self, array):
        """Shape, strides in elements, address; of what has an extent of 1 the stride does not matter."""
        self.kept.append(array)
        strides, dense = [], 1
        for extent, stride in zip(reversed(array.shape), reversed(array.strides)):
            strides.append(stride // 4 if extent > 1 else dense)
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
            steps = [(q, out, np.zeros((w.B, w.h_kv, group, w.T_k), np.float32))]
        else:  # those that share keys come one after the other: broadcasting them takes its slowest kernel
            q, out = (x.transpose(0, 2, 1, 3) for x in (q, out))
            steps = [(q[:, i::group], out[:, i::group], np.zeros((w.B, w.h_kv, w.T_q, w.T_k), np.float32))
                     for i in range(group)]
        mask = np.triu(np.full((w.T_q, w.T_k), -np.inf, np.float32), 1)[None, None] if w.causal and w.T_q > 1 else None
        for some_q, some_out, scores in steps:
            self.matmul(some_q, k.swapaxes(-1, -2), scores, scale=scale, mask=mask)
            self.add("softmax", 4, *self.layout(scores))
            self.matmul(scores, v, some_out)

    def project(self, w, x, name):
        """Rows times packed weights."""
        W, b = w["W_" + name], w["b_" + name]
        y = np.zeros((*x.shape[:2], W.shape[1]), np.float32)
        self.matmul(x.reshape(-1, W.shape[0]), W, y.reshape(-1, W.shape[1]), bias=b, pack=True)
        return y

    def prepare(self, w):
        if w.part != "proj":
            w.hold_scores()
        self.program = c_void_p(self.lib.onednn_create())
        x, y = w["query"], w["key"]

        def split(a, n):
            return a.reshape(w.B, -1, n, w.d_k)

        if w.part == "core":
            out, value = np.zeros_like(x), w["value"]
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
            self.results = [q, k, v, self.project(w, w["heads"], "O")]
            return
        keys, values = (split(a, w.h_kv).transpose(0, 2, 1, 3) for a in (k, v))
        if w.decodes:
            for new, name in ((keys, "cached_keys"), (values, "cached_values")):
                cache = w[name]
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
        return np.concatenate([a.reshape(-1) for a in self.results])

    def release(self):
        if self.program:
            self.lib.onednn_destroy(self.program)
        self.program, self.kept, self.results = None, [], []
