"""The module in one process with numpy, torch, jax and onnxruntime, which have their own BLAS and threads.

    company.py ROUNDS

A process imports them and mha in one of all orders. A round in it computes with mha in a thread of each while that one
computes itself, forks, and says the bits of mha and of the others. All rounds must say the same; each order has as many
of them as another. Those peers that are not installed are left out.
"""
from __future__ import annotations

import hashlib
import importlib.util
import itertools
import math
import os
import random
import subprocess
import sys
import threading
import time

PEERS = [name for name in ("numpy", "torch", "jax", "onnxruntime") if importlib.util.find_spec(name)]


def bits(*arrays):
    """A name for the bits of arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def own(mha, x):
    """The bits of mha, on each path."""
    layer = mha.MultiHeadAttention(64, 4)
    return bits(*(layer(x, path=path) for path in ("fast", "blas", "exact")))


def work_of(peer, x):
    """A product that a peer computes in its own way, as a function."""
    import numpy as np
    if peer == "torch":
        import torch
        y = torch.from_numpy(x)
        return lambda: (y @ y.transpose(1, 2)).numpy()
    if peer == "jax":
        import jax
        return lambda: np.asarray(jax.numpy.matmul(x, x.transpose(0, 2, 1)))
    if peer == "onnxruntime":
        import onnx
        import onnxruntime
        v = onnx.helper.make_tensor_value_info
        node = onnx.helper.make_node("MatMul", ["x", "y"], ["z"])
        graph = onnx.helper.make_graph([node], "g", [v("x", 1, x.shape), v("y", 1, (2, 64, 64))], [v("z", 1, None)])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y = np.ascontiguousarray(x.transpose(0, 2, 1))
        return lambda: session.run(None, {"x": x, "y": y})[0]
    return lambda: x @ x.transpose(0, 2, 1)


def child(mha, x):
    """The bits of mha in a child of fork, which uses nothing else."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(into, own(mha, x).encode())
        finally:
            os._exit(0)
    os.close(into)
    said = os.read(out, 64).decode()
    os.waitpid(pid, 0)
    return said


def a_round(mha, works, x):
    """The bits of mha next to running works and in a child, and those of each peer by itself."""
    before = {peer: bits(work()) for peer, work in works.items()}
    found, failures = {own(mha, x)}, []

    def beside(peer):
        for _ in range(5):
            found.add(own(mha, x))
            if bits(works[peer]()) != before[peer]:
                failures.append(f"{peer} computes other bits")

    threads = [threading.Thread(target=beside, args=(peer,)) for peer in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.add(child(mha, x))
    return " ".join([*sorted(found), *(f"{peer}={value}" for peer, value in sorted(before.items())), *failures])


def one(rounds, order):
    """Rounds in an order, in the process of its own."""
    modules = {name: importlib.import_module(name) for name in order}
    import numpy as np
    x = np.random.default_rng(5).standard_normal((2, 64, 64)).astype("f4")
    works = {peer: work_of(peer, x) for peer in order if peer != "mha"}
    for _ in range(rounds):
        print(a_round(modules["mha"], works, x))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        if any("libmha" in line and "openblas" in line for line in maps):
            print("a library of mha has a second BLAS next to it")


def main(rounds):
    """Rounds in random orders, as many in each as in another."""
    orders = [list(order) for order in itertools.permutations([*PEERS, "mha"])]
    random.Random(0).shuffle(orders)
    orders = orders[:rounds]
    said, began = {}, time.monotonic()
    for i, order in enumerate(orders):
        here = rounds // len(orders) + (i < rounds % len(orders))
        run = subprocess.run([sys.executable, "-W", "ignore", __file__, "--one", str(here), *order],
                             capture_output=True, text=True, timeout=600)
        lines = run.stdout.splitlines()
        if run.returncode or run.stderr.count("Traceback") or len(lines) < here:
            sys.exit(f"{' '.join(order)}: exit {run.returncode}\n{run.stderr[-2000:]}")
        for line in lines:
            said.setdefault(line, order)
        if len(said) > 1:
            sys.exit("\n".join(f"{' '.join(order)}: {line}" for line, order in said.items()))
    print(f"{rounds} rounds beside {', '.join(PEERS)}, {len(orders)} of {math.factorial(len(PEERS) + 1)} orders: the "
          f"same bits, no crash, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(int(sys.argv[2]), sys.argv[3:])
    else:
        main(int(sys.argv[1]))
