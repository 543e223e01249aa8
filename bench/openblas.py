"""Plain OpenBLAS as a contender of bench/peers.py: bench/openblas.c, called by ctypes."""
import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_void_p

import numpy as np

from work import Absent, library, time_calls


class Core(ctypes.Structure):
    _fields_ = ([(n, c_size_t) for n in "B T_q T_k h h_kv d".split()] + [("causal", c_int), ("threads", c_int)]
                + [(n, c_void_p) for n in "q k v out".split()]
                + [(n, c_size_t) for n in "k_batch k_time k_head".split()])


def address(array):
    return None if array is None else array.ctypes.data


class OpenBlas:
    def __init__(self, threads, libraries):
        self.threads, self.lib, self.kept = threads, library(libraries, "libopenblas_peer.so"), []
        if not self.lib:
            raise Absent("not built: make bench-peers builds it")
        self.lib.plain_version.restype = self.lib.plain_kernels.restype = c_char_p
        self.lib.plain_project.argtypes = [c_size_t] * 3 + [c_void_p] * 4 + [c_int]
        self.lib.plain_start()
        self.version = self.lib.plain_version().decode() + ", kernels " + self.lib.plain_kernels().decode()

    def keep(self, array):
        if array is not None:
            self.kept.append(array)
        return array

    def core(self, w, q, k, v, out, cached):
        """The call that computes it; K and V as a cache keeps them or (B, T, h, d)."""
        time, head = (w.d_k, w.T_k * w.d_k) if cached else (w.h_kv * w.d_k, w.d_k)
        core = Core(w.B, w.T_q, w.T_k, w.h, w.h_kv, w.d_k, int(w.causal and w.T_q > 1), self.threads,
                    address(q), address(k), address(v), address(out), w.T_k * w.h_kv * w.d_k, time, head)
        return lambda: self.lib.plain_core(ctypes.byref(core))

    def project(self, w, x, name):
        W, b = self.keep(w["W_" + name]), self.keep(w["b_" + name])
        y = self.keep(np.zeros((*x.shape[:-1], W.shape[1]), np.float32))
        arguments = (x.size // W.shape[0], W.shape[1], W.shape[0], address(x), address(W), address(b), address(y),
                     self.threads)
        return y, lambda: self.lib.plain_project(*arguments)

    def prepare(self, w):
        x, y = self.keep(w["query"]), self.keep(w["key"])
        if w.part == "core":
            out = self.keep(np.zeros_like(x))
            self.results, self.call = [out], self.core(w, x, y, self.keep(w["value"]), out, w.decodes)
            return
        y = y if w.crosses else x
        (q, to_q), (k, to_k), (v, to_v) = (self.project(w, i, n) for i, n in ((x, "Q"), (y, "K"), (y, "V")))
        if w.part == "proj":
            o, to_o = self.project(w, self.keep(w["heads"]), "O")
            self.results, steps = [q, k, v, o], [to_q, to_k, to_v, to_o]
        else:
            heads = self.keep(np.zeros_like(q))
            o, to_o = self.project(w, heads, "O")
            keys, values, append = k, v, []
            if w.decodes:
                keys, values = self.keep(w["cached_keys"]), self.keep(w["cached_values"])
                append = [lambda: np.copyto(keys[:, :, -1], k.reshape(w.B, w.h_kv, w.d_k)),
                          lambda: np.copyto(values[:, :, -1], v.reshape(w.B, w.h_kv, w.d_k))]
            self.results = [o]
            steps = [to_q, to_k, to_v, *append, self.core(w, q, keys, values, heads, w.decodes), to_o]

        def run():
            for step in steps:
                step()

        self.call = run

    def turn(self):
        return time_calls(self.call)

    def output(self):
        return np.concatenate([a.reshape(-1) for a in self.results])

    def release(self):
        self.call, self.kept, self.results = None, [], []
