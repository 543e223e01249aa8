"""Whoever takes part in bench/peers.py: each one makes a shape ready, computes it, says what it is.

A contender runs in a process of its own with a fixed number of threads. `prepare(work)` makes what is timed, or raises
Absent with the reason; `turn()` gives milliseconds; `output()` the result of the last call, flat: of the projections
alone Q, K, V and the product with W_O, one after the other.
"""
import numpy as np

from libxsmm import Libxsmm
from onednn import OneDnn
from onnx_runtime import OnnxRuntime
from openblas import OpenBlas
from pytorch import Torch
from work import Absent, Shim


class Ours:
    """The fast path of this library, through its program's own benchmark code."""

    def __init__(self, threads, libraries):
        self.threads, self.shim, self.opened = threads, Shim(libraries), None
        lib = self.shim.lib
        self.version = f"{lib.shim_version().decode()}, kernels {lib.shim_isa().decode()}"

    def prepare(self, work):
        self.work, self.opened = work, self.shim.open(work.shape, work.part, packs=True)

    def turn(self):
        ms = self.shim.lib.shim_run(self.opened, b"fast", self.threads)
        if ms < 0:
            raise Absent("the fast path does not take this shape")
        return ms

    def output(self):
        output = self.shim.array(self.opened, "output").reshape(-1)
        if self.work.part != "proj":
            return output
        stages = [self.shim.stage(self.opened, "fast", self.threads, name) for name in "qkv"]
        return np.concatenate([*stages, output])

    def release(self):
        if self.opened:
            self.shim.close(self.opened)
        self.opened = None


# Name in the tables, what it is, how it is made. The first is this library; the others are what it is compared with.
CONTENDERS = {
    "mha": ("this library, its fast path", Ours),
    "openblas": ("plain OpenBLAS: bench/openblas.c, SGEMM per block of rows and head, a vectorised softmax, one team "
                 "of threads",
                 OpenBlas),
    "onednn": ("oneDNN: its matmul and softmax primitives, weights packed when made ready", OneDnn),
    "onednn-bf16": ("oneDNN: the same in bfloat16", lambda threads, libraries: OneDnn(threads, libraries, bf16=True)),
    "xsmm": ("libxsmm: its batch-reduce kernels over packed weights, block by block, for projections only",
             lambda threads, libraries: Libxsmm(threads, libraries, blocks=True)),
    "xsmm-gemm": ("libxsmm: its own GEMM, for projections only", lambda threads,
                  libraries: Libxsmm(threads, libraries, blocks=False)),
    "ort-mha": ("ONNX Runtime: MultiHeadAttention", lambda threads, _: OnnxRuntime(threads, "mha")),
    "ort-attn": ("ONNX Runtime: the ONNX operator Attention", lambda threads, _: OnnxRuntime(threads, "attn")),
    "ort-gqa": ("ONNX Runtime: GroupQueryAttention, where causal", lambda threads, _: OnnxRuntime(threads, "gqa")),
    "ort-mm": ("ONNX Runtime: MatMul, for projections only", lambda threads, _: OnnxRuntime(threads, "mm")),
    "torch": ("PyTorch: linear, baddbmm, softmax, bmm", lambda threads, _: Torch(threads, "plain")),
    "torch-mha": ("PyTorch: nn.MultiheadAttention", lambda threads, _: Torch(threads, "module")),
    "torch-sdpa": ("PyTorch 2: linear, scaled_dot_product_attention", lambda threads, _: Torch(threads, "sdpa")),
    "torch-bf16": ("PyTorch 2: the same in bfloat16", lambda threads, _: Torch(threads, "sdpa", "bfloat16")),
}
# Those that round to fewer bits than float32: their times and errors are shown, nothing is held against them.
ROUNDED = {"onednn-bf16", "torch-bf16"}
