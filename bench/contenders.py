"""Whoever takes part in bench/peers.py: each one makes a shape ready, computes it, says what it is.

A contender runs in a process of its own with a fixed number of threads. `prepare(work)` gives the callable that is
timed, or raises Absent with the reason; `output()` gives the result of the last call as a float32 array.
"""
import ctypes
import math
import time

import numpy as np

from onnx_runtime import OnnxRuntime

ENOUGH_MS = 4  # short work is repeated until this is filled, as mha bench does


class Absent(Exception):
    """Why a contender cannot take part, or cannot do one shape."""


class Shim:
    """bench/shim.c: the program's shapes, inputs and timing."""

    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(path)
        lib.shim_open.restype = ctypes.c_void_p
        lib.shim_run.restype = lib.shim_flops.restype = ctypes.c_double
        lib.shim_version.restype = lib.shim_isa.restype = lib.shim_blas.restype = ctypes.c_char_p

    def open(self, shape, layer, packs=False):
        opened = self.lib.shim_open(shape.encode(), int(layer), int(packs))
        if not opened:
            raise SystemExit(f"peers: no shape '{shape}'")
        return ctypes.c_void_p(opened)

    def close(self, opened):
        self.lib.shim_close(opened)

    def sizes(self, opened):
        values = (ctypes.c_size_t * 9)()
        self.lib.shim_shape(opened, values)
        sizes = dict(zip("B T_q T_k d_model h h_kv d_k causal bias".split(), values))
        sizes["flops"] = self.lib.shim_flops(opened)
        sizes["decodes"] = sizes["T_q"] == 1 and sizes["T_k"] > 1
        sizes["crosses"] = sizes["T_q"] != sizes["T_k"] and not sizes["decodes"]
        return sizes

    def array(self, opened, name):
        """A copy, or None where the shape has no such array."""
        data, shape = ctypes.POINTER(ctypes.c_float)(), (ctypes.c_size_t * 4)()
        rank = self.lib.shim_array(opened, name.encode(), ctypes.byref(data), shape)
        return np.ctypeslib.as_array(data, tuple(shape[:rank])).copy() if rank else None

    def limits(self, threads):
        peak, reads = ctypes.c_double(), ctypes.c_double()
        return peak.value if self.lib.shim_limits(threads, ctypes.byref(peak), ctypes.byref(reads)) else 0.0


class Work:
    """One shape as every contender sees it: sizes, and arrays loaded from files when they are asked for."""

    def __init__(self, shape, layer, sizes, folder):
        self.shape, self.layer, self.folder = shape, layer, folder
        self.__dict__.update(sizes)

    def __getitem__(self, name):
        try:
            return np.load(f"{self.folder}/{name}.npy")
        except FileNotFoundError:
            return None

    def heads(self, name):
        """Q, K or V of a core as (B, h, T, d_k), contiguous."""
        n = self.h if name == "query" else self.h_kv
        if name != "query" and self.decodes:  # decoding reads them as a cache keeps them
            return self[name].reshape(self.B, n, self.T_k, self.d_k)
        return np.ascontiguousarray(self[name].reshape(self.B, -1, n, self.d_k).transpose(0, 2, 1, 3))


def time_calls(call):
    """Milliseconds of one call, averaged over enough calls to fill some milliseconds."""
    runs, ms = 1, 0.0
    for _ in range(2):
        start = time.perf_counter()
        for _ in range(runs):
            call()
        ms = (time.perf_counter() - start) * 1e3 / runs
        if ms >= ENOUGH_MS:
            break
        runs = 1 + int(ENOUGH_MS / ms)
    return ms


class Ours:
    """A path of this library, through its program's own benchmark code."""

    def __init__(self, threads, shim, path):
        self.threads, self.shim, self.path, self.opened = threads, Shim(shim), path, None
        lib = self.shim.lib
        self.version = f"{lib.shim_version().decode()}, kernels {lib.shim_isa().decode()}"
        if path == "blas":
            self.version = lib.shim_blas().decode()

    def prepare(self, work):
        self.opened = self.shim.open(work.shape, work.layer, packs=self.path == "fast")

    def turn(self):
        ms = self.shim.lib.shim_run(self.opened, self.path.encode(), self.threads)
        if ms < 0:
            raise Absent(f"the {self.path} path does not take this shape")
        return ms

    def output(self):
        return self.shim.array(self.opened, "output")

    def release(self):
        if self.opened:
            self.shim.close(self.opened)
        self.opened = None


class Torch:
    """PyTorch. `plain`: linear, baddbmm, softmax, bmm, on tensors in the layout it likes best; `module`:
    nn.MultiheadAttention, which takes its fused path where it can."""

    def __init__(self, threads, shim, kind):
        try:
            import torch
        except ImportError as error:
            raise Absent(str(error))
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch, self.kind, self.call, self.result = torch, kind, None, None
        self.version = torch.__version__

    def prepare(self, work):
        if self.kind == "module":
            self.call = self.module(work)
        elif work.layer:
            self.call = self.plain_layer(work)
        else:
            q, k, v = (self.torch.from_numpy(work.heads(n)) for n in ("query", "key", "value"))
            core = self.core(work)
            self.call = lambda: core(q, k, v).transpose(1, 2)

    def core(self, work):
        """softmax(Q K^T / sqrt(d_k) + mask) V on (B, h, T, d_k)."""
        torch, w = self.torch, work
        B, h, T_q, T_k, d, scale = w.B, w.h, w.T_q, w.T_k, w.d_k, 1 / math.sqrt(w.d_k)
        mask = torch.full((T_q, T_k), -math.inf).triu(1) if w.causal else torch.zeros(1, 1)

        def run(q, k, v):
            if w.h_kv != h:
                k, v = (x.repeat_interleave(h // w.h_kv, dim=1) for x in (k, v))
            q, k, v = q.reshape(B * h, T_q, d), k.reshape(B * h, T_k, d), v.reshape(B * h, T_k, d)
            scores = torch.baddbmm(mask, q, k.transpose(1, 2), beta=1 if w.causal else 0, alpha=scale)
            return torch.bmm(torch.softmax(scores, dim=-1), v).view(B, h, T_q, d)

        return run

    def weights(self, work):
        """W_Q, b_Q, ... in PyTorch's (out, in) order."""
        torch = self.torch
        out = {}
        for x in "QKVO":
            out["W" + x] = torch.from_numpy(np.ascontiguousarray(work[f"W_{x}"].T))
            bias = work[f"b_{x}"]
            out["b" + x] = None if bias is None else torch.from_numpy(bias)
        return out

    def plain_layer(self, work):
        torch, w, core = self.torch, work, self.core(work)
        linear, p = torch.nn.functional.linear, self.weights(work)
        x = torch.from_numpy(w["query"])
        context = torch.from_numpy(w["key"]) if w.crosses else x
        wide, narrow = w.h * w.d_k, w.h_kv * w.d_k
        fused = torch.cat([p["WQ"], p["WK"], p["WV"]])
        fused_bias = torch.cat([p["bQ"], p["bK"], p["bV"]]) if w.bias else None
        if w.decodes:
            keys, values = torch.from_numpy(w["cached_keys"]), torch.from_numpy(w["cached_values"])

        def split(y, n):
            return y.view(w.B, -1, n, w.d_k).transpose(1, 2)

        def run():
            if w.crosses:
                q, k, v = linear(x, p["WQ"], p["bQ"]), linear(context, p["WK"], p["bK"]), linear(context, p["WV"], p["bV"])
            else:
                q, k, v = linear(x, fused, fused_bias).split([wide, narrow, narrow], dim=-1)
                q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
            q, k, v = split(q, w.h), split(k, w.h_kv), split(v, w.h_kv)
            if w.decodes:
                keys[:, :, -1:], values[:, :, -1:] = k, v
                k, v = keys, values
            heads = core(q, k, v).transpose(1, 2).reshape(w.B, w.T_q, wide)
            return linear(heads, p["WO"], p["bO"])

        return run

    def module(self, work):
        torch, w = self.torch, work
        if not w.layer:
            raise Absent("nn.MultiheadAttention is a whole layer")
        if w.decodes or w.h_kv != w.h or w.h * w.d_k != w.d_model:
            raise Absent("nn.MultiheadAttention has no cache, grouped heads or free head width")
        mha, p = torch.nn.MultiheadAttention(w.d_model, w.h, batch_first=True).eval(), self.weights(w)
        mha.in_proj_weight.copy_(torch.cat([p["WQ"], p["WK"], p["WV"]]))
        mha.out_proj.weight.copy_(p["WO"])
        if w.bias:  # else its biases stay zero: without any, its fused path does not run
            mha.in_proj_bias.copy_(torch.cat([p["bQ"], p["bK"], p["bV"]]))
            mha.out_proj.bias.copy_(p["bO"])
        x = torch.from_numpy(w["query"])
        context = torch.from_numpy(w["key"]) if w.crosses else x
        mask = torch.ones(w.T_q, w.T_k, dtype=torch.bool).triu(1) if w.causal else None
        return lambda: mha(x, context, context, attn_mask=mask, need_weights=False)[0]

    def turn(self):
        def once():
            self.result = self.call()
        return time_calls(once)

    def output(self):
        return self.result.contiguous().numpy()

    def release(self):
        self.call = self.result = None


def onnx(kind):
    return lambda threads, shim: OnnxRuntime(threads, kind, Absent, time_calls)


# Name in the tables, what it is, how it is made. The first is this library; the others are what it is compared with.
CONTENDERS = {
    "mha": ("this library, its fast path", lambda threads, shim: Ours(threads, shim, "fast")),
    "openblas": ("plain OpenBLAS: this library's blas path, SGEMM per head and per projection",
                 lambda threads, shim: Ours(threads, shim, "blas")),
    "torch": ("PyTorch: linear, baddbmm, softmax, bmm", lambda threads, shim: Torch(threads, shim, "plain")),
    "torch-mha": ("PyTorch: nn.MultiheadAttention", lambda threads, shim: Torch(threads, shim, "module")),
    "ort-mha": ("ONNX Runtime: MultiHeadAttention", onnx("mha")),
    "ort-attn": ("ONNX Runtime: the ONNX operator Attention", onnx("attn")),
    "ort-gqa": ("ONNX Runtime: GroupQueryAttention, where causal", onnx("gqa")),
}
