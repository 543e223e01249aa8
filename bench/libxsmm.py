"""libxsmm as a contender of bench/peers.py, for the projections alone: bench/libxsmm.c, called by ctypes. Needs
libxsmm-dev when it is built."""
import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import numpy as np

from work import Absent, library, time_calls


# Rows, columns and terms of a block, terms in a call: those that were among the fastest of some hundred for rows and
# widths from 128 to 4096.
CUTS = [(128, 64, 256, 512), (256, 128, 256, 512), (32, 64, 64, 512), (128, 64, 64, 512), (128, 32, 256, 8192)]


class Cut(ctypes.Structure):
    _fields_ = [(n, c_int) for n in "rows columns terms reduced".split()]


def divisor(n, most):
    return max(d for d in range(1, most + 1) if n % d == 0)


def address(array):
    return None if array is None else c_void_p(array.ctypes.data)


class Libxsmm:
    """`blocks`: its batch-reduce kernels over packed weights, in the best of a few cuts; else its own GEMM."""

    def __init__(self, threads, libraries, blocks):
        self.threads, self.blocks, self.lib = threads, blocks, library(libraries, "libxsmm_peer.so")
        if not self.lib:
            raise Absent("not built: needs libxsmm-dev")
        self.lib.xsmm_version.restype = self.lib.xsmm_arch.restype = c_char_p
        self.lib.xsmm_create.restype = c_void_p
        self.lib.xsmm_create.argtypes = [c_size_t] * 3 + [c_void_p] * 4
        self.lib.xsmm_destroy.argtypes = [c_void_p]
        self.lib.xsmm_run.argtypes = [c_void_p, c_int, c_void_p, c_int]
        self.lib.xsmm_gemm.argtypes = [c_int] * 3 + [c_void_p] * 4
        self.version = f"{self.lib.xsmm_version().decode()}, kernels {self.lib.xsmm_arch().decode()}"
        self.products, self.made, self.best = [], [], None

    def calls(self, cut):
        """One call for all products of one x, or None where libxsmm has no kernel."""
        calls = []
        for x, products in self.products:
            k, made = x.shape[1], []
            for W, b, y in products:
                n = W.shape[1]
                own = Cut(min(cut[0], len(x)), divisor(n, cut[1]), divisor(k, cut[2]),
                          max(1, cut[3] // divisor(k, cut[2])))
                made.append(self.lib.xsmm_create(len(x), n, k, address(W), address(b), address(y), byref(own)))
                self.made += filter(None, made[-1:])
            if None in made:
                return None
            calls.append((self.lib.xsmm_run, (c_void_p * len(made))(*made), len(made), address(x), self.threads))
        return calls

    def prepare(self, w):
        if w.part != "proj":
            raise Absent("no attention in it")
        x, y, heads = w["query"], w["key"], w["heads"]
        inputs = [(x, "Q"), (y, "KV"), (heads, "O")] if w.crosses else [(x, "QKV"), (heads, "O")]
        for x, names in inputs:
            x = np.ascontiguousarray(x.reshape(-1, x.shape[-1]))
            weights = [(np.ascontiguousarray(w["W_" + n]), w["b_" + n]) for n in names]
            self.products.append((x, [(W, b, np.zeros((len(x), W.shape[1]), np.float32)) for W, b in weights]))
        if not self.blocks:
            self.best = [(self.lib.xsmm_gemm, len(x), W.shape[1], W.shape[0], *map(address, (x, W, b, y)))
                         for x, products in self.products for W, b, y in products]
            return
        least = None
        for cut in CUTS:
            kept, self.made = self.made, []
            calls = self.calls(cut)
            ms = min(time_calls(lambda: self.run(calls)) for _ in range(2)) if calls else None
            if calls and (least is None or ms < least):
                least, self.best = ms, calls
            else:
                kept, self.made = self.made, kept
            self.destroy(kept)
        if not self.best:
            raise Absent("no kernels here")

    @staticmethod
    def run(calls):
        for function, *arguments in calls:
            function(*arguments)

    def turn(self):
        return time_calls(lambda: self.run(self.best))

    def output(self):
        return np.concatenate([y.reshape(-1) for _, products in self.products for _, _, y in products])

    def destroy(self, made):
        for product in made:
            self.lib.xsmm_destroy(product)

    def release(self):
        self.destroy(self.made)
        self.products, self.made, self.best = [], [], None
