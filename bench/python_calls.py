"""What a call costs through Python: the same call in C, through ctypes alone, and through every face of the module.

    make bench-python                 # or PYTHON=... of a venv that has PyTorch

All take turns in rounds, each round of at most 30 calls in a row; shown are the best and the median round, and what
each takes more than the same call in C. The targets: 3 microseconds for arrays of numpy, 5 for tensors of PyTorch.
"""
import argparse
import ctypes
import os
import statistics
import time

import mha
import numpy as np
from mha import _abi
from mha._call import Request
from mha._library import lib
from mha.semantics import Semantics
from mha.shapes import Heads, Rows


def timed(run, count):
    """Nanoseconds of `count` calls."""
    start = time.perf_counter_ns()
    for _ in range(count):
        run()
    return time.perf_counter_ns() - start


class Prepared:
    """A call as the library takes it, with its output: run again and again without the module."""

    def __init__(self, shape, request, output):
        self.request, self.layer = request, request.layer.address if request.layer else None
        self.memory, view = shape.out(_abi.F64 if output == "float64" else _abi.F32)
        self.error = _abi.Error()
        request.run(view)

    def in_ctypes(self):
        """The call by ctypes, its struct prepared: what no binding of this kind can go below."""
        call, error, layer, run = (ctypes.byref(self.request.struct), ctypes.byref(self.error), self.layer,
                                   lib.mha_run)
        return lambda: run(layer, call, error)

    def in_c(self, library):
        """The call in a loop of C; as a function of their number."""
        pointer = ctypes.cast(lib.mha_run, ctypes.c_void_p)
        return lambda count: library.time_calls(pointer, self.layer, ctypes.byref(self.request.struct), count)


def of_heads(q, k, v, **settings):
    """The prepared call of given heads."""
    heads = Heads(q, k, v, "BHTD")
    path = "exact" if q.dtype == np.float64 else "auto"
    return Prepared(heads, Request(heads.inputs, Semantics(heads.sizes(), settings), path=path), q.dtype.name)


def of_layer(layer, x, cache=None):
    """The prepared call of a layer."""
    rows = Rows(x, None, None, "BTE", layer.config["d_out"])
    sizes = rows.sizes(layer.config["n_heads"], len(cache) if cache is not None else 0)
    return Prepared(rows, Request(rows.inputs, Semantics(sizes, layer.settings), cache=cache, layer=layer.handle),
                    "float32")


def groups():
    """Calls that are one and the same in C: what it is, the prepared call, and each face by name."""
    r = np.random.default_rng(0)
    q, k, v = (r.standard_normal((1, 2, 4, 8)).astype("f4") for _ in range(3))
    sdpa = mha.scaled_dot_product_attention
    faces = {"numpy": lambda: sdpa(q, k, v, is_causal=True)}
    flash = [x.swapaxes(1, 2) for x in (q, k, v)]
    faces["mha.attention, numpy"] = lambda: mha.attention(*flash, causal=True)
    try:
        import torch
        tensors = [torch.from_numpy(x) for x in (q, k, v)]
        faces["torch"] = lambda: sdpa(*tensors, is_causal=True)
    except ImportError:
        print("PyTorch is not installed here")
    yield "heads (1, 2, 4, 8), causal", of_heads(q, k, v, causal=True), faces
    mask = r.random((4, 4)) < 0.9
    yield "the same with a mask", of_heads(q, k, v, mask=mask, mask_kind="keeps"), {
        "numpy": lambda: sdpa(q, k, v, mask)}
    wide = [x.astype("f8") for x in (q, k, v)]
    yield "the same in float64, on the exact path", of_heads(*wide), {"numpy": lambda: sdpa(*wide)}
    layer, x = mha.MultiHeadAttention(16, 2, causal=True), r.standard_normal((1, 4, 16)).astype("f4")
    yield "a layer of width 16, 4 tokens", of_layer(layer, x), {"numpy": lambda: layer(x)}
    token, caches = x[:, :1].copy(), [layer.cache(1, 64, window=16) for _ in range(2)]
    yield "that layer, one token, with a cache", of_layer(layer, token, caches[0]), {
        "numpy": lambda: layer(token, cache=caches[1])}
    q, k, v = (r.standard_normal((1, 12, 512, 64)).astype("f4") for _ in range(3))
    yield "heads (1, 12, 512, 64)", of_heads(q, k, v), {"numpy": lambda: sdpa(q, k, v)}


def measure(library, prepared, faces, rounds):
    """Best and median microseconds of a call, by name."""
    in_c = prepared.in_c(library)
    runs = {"C": in_c, "ctypes": (lambda run: lambda count: timed(run, count))(prepared.in_ctypes())}
    runs.update({name: (lambda run: lambda count: timed(run, count))(run) for name, run in faces.items()})
    count = max(1, min(30, int(1e7 / in_c(3))))
    seen = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            took = run(count)
            if took < 0:
                raise SystemExit(f"python_calls: a call of {name} fails")
            seen[name].append(took / count / 1000)
    return {name: (min(times), statistics.median(times)) for name, times in seen.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libcalls.so, which make bench-python builds")
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    library = ctypes.CDLL(os.path.abspath(options.library))
    library.time_calls.restype = ctypes.c_double
    library.time_calls.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int]
    print("microseconds of a call            best  median   more than C (best, median)")
    for title, prepared, faces in groups():
        print(title)
        found = measure(library, prepared, faces, options.rounds)
        least, middle = found["C"]
        for name, (best, median) in found.items():
            print(f"  {name:<28}{best:9.2f}{median:8.2f}{best - least:10.2f}{median - middle:8.2f}")


if __name__ == "__main__":
    main()
