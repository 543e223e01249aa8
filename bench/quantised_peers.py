"""Products with quantised weights: this library, ONNX Runtime, oneDNN and PyTorch on the same numbers, in turns.

Some rows through matrices of 4096 x 4096, as many in turns as no cache holds. Weights stand for the values of Q8_0 or
Q4_0 blocks, which the others take as codes and scales of 32, and of F8; the int8 of oneDNN and PyTorch has a scale for
each output instead.
Beside the time stands the error against float64, of the values that a contender's own weights stand for: what its
arithmetic costs, root mean square over that of the result.

    make bench-quantised PEER_PYTHON=build/peers-venv/bin/python
"""
import argparse
import ctypes
import time
import warnings

import numpy as np

from onnx_runtime import Graph, MICROSOFT, OnnxRuntime
from work import Absent, Shim, aligned, library

K = N = 4096
BLOCK = 32
SETTLE = 0.05  # seconds in which another's idle workers stop spinning
SHOWN = 64  # outputs that are checked in float64


class Matrix:
    """Random blocks of 4 or 8 bits: codes (N, K), which are signed, and scales (N, K / 32)."""

    def __init__(self, bits, seed):
        r = np.random.default_rng(seed)
        most = 2 ** (bits - 1)
        self.bits, self.codes = bits, r.integers(-most, most, (N, K), np.int8)
        self.scales = (r.uniform(0.5, 1.5, (N, K // BLOCK)) * 0.03 / most).astype(np.float16)

    def values(self, rows):
        return self.codes[:rows].astype(np.float64) * self.scales[:rows].astype(np.float64).repeat(BLOCK, 1)

    def halves(self, codes):
        """Two codes of 4 bits to a byte, the first in the low half."""
        return (codes[..., 0] | codes[..., 1] << 4).astype(np.uint8)

    def blocks(self):
        """As GGUF has them."""
        codes = self.codes.reshape(N, -1, BLOCK)
        if self.bits == 8:
            packed = codes.view(np.uint8)
        else:  # of 32 elements the first 16 are the low halves
            packed = self.halves(np.stack([codes[..., :16] + 8, codes[..., 16:] + 8], -1))
        return np.concatenate([self.scales[..., None].view(np.uint8), packed], -1)


class F8(Matrix):
    """Random codes of E4M3, none of them NaN, behind scales of F32."""

    def __init__(self, seed):
        r = np.random.default_rng(seed)
        self.codes = r.integers(0, 127, (N, K), np.uint8) | r.integers(0, 2, (N, K), np.uint8) << 7
        self.scales = (r.uniform(0.5, 1.5, (N, K // BLOCK)) * 0.03 / 448).astype(np.float32)

    def values(self, rows):
        codes = np.arange(256)
        exponent, fraction = codes >> 3 & 15, codes & 7
        size = np.where(exponent == 0, fraction / 512, (8 + fraction) * 2.0 ** (exponent - 10))
        each = (np.where(codes < 128, size, -size)).astype(np.float32)
        return (each[self.codes[:rows]] * self.scales[:rows].repeat(BLOCK, 1)).astype(np.float64)

    def blocks(self):
        return np.concatenate([self.scales[..., None].view(np.uint8), self.codes.reshape(N, -1, BLOCK)], -1)


class Ours:
    def __init__(self, threads, libraries, type_name):
        self.threads, self.type, self.lib = threads, type_name, Shim(libraries).lib
        self.lib.shim_pack.restype = ctypes.c_void_p

    def prepare(self, matrices, x):
        self.x, self.y, self.packed = x, np.empty((len(x), N), np.float32), []
        for m in matrices:
            W = np.ascontiguousarray(m.values(N).T, np.float32) if self.type == "F32" else m.blocks()
            packed = self.lib.shim_pack(self.type.encode(), ctypes.c_size_t(K), ctypes.c_size_t(N),
                                        ctypes.c_void_p(W.ctypes.data))
            self.packed.append(ctypes.c_void_p(packed))

    def multiply(self, i):
        self.lib.shim_multiply(self.packed[i], ctypes.c_size_t(len(self.x)), ctypes.c_void_p(self.x.ctypes.data),
                               ctypes.c_void_p(self.y.ctypes.data), self.threads)

    def run(self):
        for i in range(len(self.packed)):
            self.multiply(i)

    def first(self, matrix):
        self.multiply(0)
        return self.y, matrix.values(SHOWN)

    def release(self):
        for packed in self.packed:
            self.lib.shim_unpack(packed)


class Ort:
    """MatMulNBits; level 1 computes in float32, level 4 rounds x to 8 bits."""

    def __init__(self, threads, libraries, level):
        self.level, self.runtime = level, OnnxRuntime(threads, "mm")

    def prepare(self, matrices, x):
        graph, rows = Graph(), {}
        at = graph.feed("x", x)
        for i, m in enumerate(matrices):
            codes = (m.codes.reshape(N, K // BLOCK, BLOCK) + np.int16(2 ** (m.bits - 1))).astype(np.uint8)
            packed = codes if m.bits == 8 else m.halves(codes.reshape(N, K // BLOCK, BLOCK // 2, 2))
            inputs = [at, graph.constant(packed), graph.constant(m.scales.astype(np.float32).reshape(-1))]
            graph.node("MatMulNBits", inputs, [f"y{i}"], MICROSOFT, K=K, N=N, bits=m.bits, block_size=BLOCK,
                       accuracy_level=self.level)
            rows[f"y{i}"] = (len(x), N)
        self.runtime.open(graph, rows)
        self.run = self.runtime.call

    def first(self, matrix):
        self.run()
        return self.runtime.results[0], matrix.values(SHOWN)

    def release(self):
        self.run = None
        self.runtime.release()


class OneDnn:
    """Its matmul of bytes, a scale for each output; x is rounded, row by row, in the time it takes.

    Without VNNI its kernels add two products of bytes in 16 bits, which 8 bits of x exceed and 7 do not."""

    def __init__(self, threads, libraries, bits):
        self.lib, self.bits, self.products = library(libraries, "libonednn_peer.so"), bits, []
        if not self.lib:
            raise Absent("not built: needs Debian's libdnnl-dev, version 2")
        self.lib.onednn_int8_create.restype = ctypes.c_void_p
        self.lib.onednn_error.restype = ctypes.c_char_p
        self.lib.onednn_threads(threads)

    def prepare(self, matrices, x):
        self.x, self.y = x, aligned(np.zeros((len(x), N), np.float32))
        for m in matrices:
            scales = m.scales[:, 0].astype(np.float32)
            made = self.lib.onednn_int8_create(*map(ctypes.c_int64, (len(x), K, N)), self.bits,
                                               ctypes.c_void_p(m.codes.ctypes.data),
                                               ctypes.c_void_p(scales.ctypes.data))
            if not made:
                raise Absent("oneDNN's product of 8 bits: " + self.lib.onednn_error().decode())
            self.products.append(ctypes.c_void_p(made))

    def run(self):
        for product in self.products:
            if self.lib.onednn_int8_run(product, ctypes.c_void_p(self.x.ctypes.data),
                                        ctypes.c_void_p(self.y.ctypes.data)):
                raise RuntimeError(self.lib.onednn_error().decode())

    def first(self, m):
        self.products, rest = self.products[:1], self.products[1:]
        self.run()
        self.products += rest
        return self.y, m.codes[:SHOWN] * m.scales[:SHOWN, :1].astype(np.float64)

    def release(self):
        for product in self.products:
            self.lib.onednn_int8_destroy(product)
        self.products = []


class Torch:
    """dynamic: x rounded to 8 bits, oneDNN's product; pack8: float32 and a scale for each output; pack4: blocks."""

    def __init__(self, threads, libraries, kind):
        try:
            import torch
        except ImportError as error:
            raise Absent(str(error)) from None
        self.torch, self.kind = torch, kind
        torch.set_num_threads(threads)
        if kind == "dynamic":
            if "onednn" not in torch.backends.quantized.supported_engines:
                raise Absent("this PyTorch has no oneDNN for quantised products")
            torch.backends.quantized.engine = "onednn"

    def prepare(self, matrices, x):
        torch = self.torch
        self.x, self.calls = torch.from_numpy(x), [self.made(m) for m in matrices]

    def made(self, m):
        torch, x = self.torch, self.x_of
        if self.kind == "pack4":
            W = torch.from_numpy(m.codes.astype(np.int32) + 8)
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(W, 1)
            scales = torch.from_numpy(m.scales.astype(np.float32).T.copy())
            both = torch.stack([scales, torch.zeros_like(scales)], -1)
            return lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(x(), packed, BLOCK, both)
        scales = torch.from_numpy(m.scales[:, 0].astype(np.float32))
        codes = torch.from_numpy(m.codes)
        if self.kind == "pack8":
            return lambda: torch._weight_int8pack_mm(x(), codes, scales)
        W = torch._make_per_channel_quantized_tensor(codes, scales, torch.zeros(N, dtype=torch.long), 0)
        packed = torch.ops.quantized.linear_prepack(W, None)
        return lambda: torch.ops.quantized.linear_dynamic(x(), packed)

    def x_of(self):
        return self.x

    def run(self):
        for call in self.calls:
            call()

    def first(self, m):
        own = m.values(SHOWN) if self.kind == "pack4" else m.codes[:SHOWN] * m.scales[:SHOWN, :1].astype(np.float64)
        return self.calls[0]().numpy(), own

    def release(self):
        self.calls = None


# Name, bits of the weights, how it is made. The first is what ratios are to.
CONTENDERS = (
    ("mha F32", 8, lambda t, f: Ours(t, f, "F32")),
    ("mha Q8_0", 8, lambda t, f: Ours(t, f, "Q8_0")),
    ("mha F8_E4M3", 8, lambda t, f: Ours(t, f, "F8_E4M3_SCALED")),
    ("ONNX Runtime MatMulNBits, 8 bits, x in 8 bits", 8, lambda t, f: Ort(t, f, 4)),
    ("ONNX Runtime MatMulNBits, 8 bits, x in float32", 8, lambda t, f: Ort(t, f, 1)),
    ("oneDNN matmul, x in 8 bits", 8, lambda t, f: OneDnn(t, f, 8)),
    ("oneDNN matmul, x in 7 bits", 8, lambda t, f: OneDnn(t, f, 7)),
    ("PyTorch linear_dynamic, oneDNN, x in 8 bits", 8, lambda t, f: Torch(t, f, "dynamic")),
    ("PyTorch _weight_int8pack_mm, x in float32", 8, lambda t, f: Torch(t, f, "pack8")),
    ("mha Q4_0", 4, lambda t, f: Ours(t, f, "Q4_0")),
    ("ONNX Runtime MatMulNBits, 4 bits, x in 8 bits", 4, lambda t, f: Ort(t, f, 4)),
    ("ONNX Runtime MatMulNBits, 4 bits, x in float32", 4, lambda t, f: Ort(t, f, 1)),
    ("PyTorch _weight_int4pack_mm, x in float32", 4, lambda t, f: Torch(t, f, "pack4")),
)


def measure(options, rows):
    x = aligned(np.random.default_rng(1).uniform(-1, 1, (rows, K)).astype(np.float32))
    able, times = [], {}
    for name, bits, make in CONTENDERS:
        copies = max(1, round(options.mib * 2 ** 20 * 8 / (K * N * (32 if name == "mha F32" else bits))))
        matrices = [F8(100 + i) if "F8" in name else Matrix(bits, 100 + i) for i in range(copies)]
        try:
            contender = make(options.threads, options.libraries)
            contender.prepare(matrices, x)
            found, values = contender.first(matrices[0])
        except (Absent, RuntimeError, AttributeError, NotImplementedError) as why:
            print(f"{name}: {str(why).splitlines()[0]}")
            continue
        exact = x.astype(np.float64) @ values.T
        error = np.sqrt(((found[:, :SHOWN] - exact) ** 2).mean() / (exact ** 2).mean())
        able.append((name, contender, copies, error))
        times[name] = []
    for turn in range(options.rounds):
        for name, contender, copies, _ in able[turn % len(able):] + able[:turn % len(able)]:
            time.sleep(SETTLE)
            start = time.perf_counter()
            contender.run()
            times[name].append((time.perf_counter() - start) * 1e3 / copies)
    base = times["mha F32"]
    print(f"\n{rows} row(s) through {K} x {N}, {options.threads} thread(s)\n")
    print("| weights | best ms | median ms | times as fast as float32: best | median | error |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, contender, _, error in able:
        ms = times[name]
        print(f"| {name} | {min(ms):.3g} | {np.median(ms):.3g} | {min(base) / min(ms):.2f} "
              f"| {np.median(base) / np.median(ms):.2f} | {error:.1e} |")
        contender.release()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", required=True, metavar="FOLDER", help="where make bench-quantised put its shim")
    parser.add_argument("--rows", default="1 8 128", type=lambda s: [int(n) for n in s.split()])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--mib", type=float, default=128, help="of weights that take turns: more than caches hold")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # PyTorch means to move its quantised operators
    for rows in options.rows:
        measure(options, rows)


if __name__ == "__main__":
    main()
