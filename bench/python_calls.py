"""Times tiny calls through the Python module next to the same call of the library through one prepared ctypes call.

    make bench-python                 # or PYTHON=... of a venv that has PyTorch

Each group makes one and the same call of the library. Its rows take turns, 20 calls in a row, until each has made
10,000; every call is timed. Shown are the minimum and the median in microseconds, and how far both are above those of
the prepared call. The target for arrays of numpy: a median of at most 15 microseconds above it.
"""
import argparse
import ctypes
import statistics
import time

import numpy as np

import mha
from mha.core import abi
from mha.core.call import Request
from mha.core.library import lib
from mha.core.semantics import Semantics
from mha.core.shapes import Heads

ROW = 20  # calls before the next contender takes its turn


def prepared(shape, request):
    """The call by ctypes with its structs and its output made: no binding through ctypes can cost less."""
    memory, view = shape.out(abi.F64 if request.exact else abi.F32)
    request.run(view)
    call, error, layer = ctypes.byref(request.struct), ctypes.byref(abi.Error()), request.layer_address
    run, held = lib.mha_run, (memory, request)
    return lambda: run(layer, call, error) and held


def of_heads(q, k, v, **settings):
    """The prepared call of given heads."""
    heads = Heads(q, k, v, "BHTD")
    return prepared(heads, Request(heads.inputs, Semantics(heads.sizes(), settings)))


def of_layer(layer, x, cache=None):
    """The prepared call of a layer."""
    return prepared(*layer.request(x, None, None, {}, cache=cache))


def groups():
    """Calls that are one and the same for the library: a title, the prepared call, and the other rows by name."""
    r = np.random.default_rng(0)
    q, k, v = (r.standard_normal((1, 2, 4, 16)).astype("f4") for _ in range(3))
    sdpa, flash = mha.scaled_dot_product_attention, [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    rows = {"numpy": lambda: sdpa(q, k, v, is_causal=True),
            "numpy, mha.attention": lambda: mha.attention(*flash, layout="BTHD", causal=True),
            "numpy, with its lse": lambda: sdpa(q, k, v, is_causal=True, return_lse=True)}
    try:
        import torch
        tensors = [torch.from_numpy(x) for x in (q, k, v)]
        rows["torch"] = lambda: sdpa(*tensors, is_causal=True)
    except ImportError:
        print("PyTorch is not installed here")
    yield "heads (1, 2, 4, 16), causal", of_heads(q, k, v, causal=True), rows
    mask = r.random((4, 4)) < 0.9
    yield "the same heads with a mask", of_heads(q, k, v, mask=mask, mask_kind="keeps"), {
        "numpy": lambda: sdpa(q, k, v, mask)}
    wide = [x.astype("f8") for x in (q, k, v)]
    yield "the same heads in float64, on the exact path", of_heads(*wide), {"numpy": lambda: sdpa(*wide)}
    layer, x = mha.MultiHeadAttention(32, 2, causal=True), r.standard_normal((1, 4, 32)).astype("f4")
    yield "a layer of width 32, 4 tokens", of_layer(layer, x), {"numpy": lambda: layer(x)}
    token, caches = x[:, :1].copy(), [layer.cache(1, 64, window=16) for _ in range(2)]
    yield "that layer, one token, with a cache", of_layer(layer, token, caches[0]), {
        "numpy": lambda: layer(token, cache=caches[1])}


def measure(runs, calls):
    """Minimum and median microseconds of a call, by name."""
    clock, seen = time.perf_counter_ns, {name: [] for name in runs}
    for _ in range(-(-calls // ROW)):
        for name, run in runs.items():
            for _ in range(ROW):
                begin = clock()
                run()
                seen[name].append(clock() - begin)
    return {name: (min(times) / 1000, statistics.median(times) / 1000) for name, times in seen.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10000)
    options = parser.parse_args()
    print("microseconds of a call            min  median   above the prepared call (min, median)")
    for title, run, rows in groups():
        print(title)
        found = measure({"ctypes, prepared": run, **rows}, options.calls)
        least, middle = found["ctypes, prepared"]
        for name, (best, median) in found.items():
            print(f"  {name:<28}{best:7.2f}{median:8.2f}{best - least:10.2f}{median - middle:8.2f}")


if __name__ == "__main__":
    main()
