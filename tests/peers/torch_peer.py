#!/usr/bin/env python3
"""Random layers that PyTorch can run too: nn.MultiheadAttention in float64 against every path of the library.

    torch_peer.py SHIM [N [SEED]]

Each path must lie within the library's own error bound of PyTorch's float64 result; the exact path within that
of float64. A configuration that differs is printed with its number, which as SEED with N = 1 runs only that one.
"""
import ctypes
import sys

import numpy as np
import torch

WEIGHTS = ["W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O", "bias_k", "bias_v", "sinks", "q_norm", "k_norm"]
PATHS = ["exact", "blas", "fast"]


class Layer(ctypes.Structure):
    _fields_ = (
        [(n, ctypes.c_int64) for n in ("B", "T_q", "T_k", "d_model", "heads", "d_kin", "d_vin")]
        + [(n, ctypes.c_int32) for n in ("bias", "bias_kv", "zero_attn", "empty_nan")]
        + [("weight", ctypes.c_void_p * len(WEIGHTS))]
        + [(n, ctypes.c_void_p) for n in ("query", "key", "value", "mask")]
        + [("mask_rows", ctypes.c_int64), ("padding", ctypes.c_void_p)]
    )


def draw(number):
    """A configuration: sizes, which extras, which masks; the module and its inputs."""
    r = np.random.default_rng(number)
    pick = lambda *values: values[r.integers(len(values))]
    c = {"B": pick(1, 1, 2, 3), "T_q": pick(1, 2, 7, 16, 17, 33), "heads": pick(1, 2, 3, 4, 6)}
    c["T_k"] = c["T_q"] if r.random() < 0.5 else int(pick(1, 3, 8, 17, 40))
    c["d_model"] = int(c["heads"] * pick(1, 2, 4, 5, 8, 16))
    c["d_kin"], c["d_vin"] = (c["d_model"],) * 2 if r.random() < 0.6 else (int(pick(1, 5, 12)), int(pick(2, 7, 16)))
    c["bias"], c["bias_kv"], c["zero_attn"] = r.random() < 0.7, r.random() < 0.3, r.random() < 0.3
    c["mask"] = pick("none", "none", "causal", "bool", "float", "per_head")
    c["padding"] = r.random() < 0.3
    c["amplitude"] = float(pick(0.01, 1, 1, 1, 4))
    return c, r


def build(c, r):
    torch.manual_seed(int(r.integers(2**31)))
    module = torch.nn.MultiheadAttention(c["d_model"], c["heads"], bias=bool(c["bias"]), add_bias_kv=bool(c["bias_kv"]),
                                         add_zero_attn=bool(c["zero_attn"]), kdim=c["d_kin"], vdim=c["d_vin"],
                                         batch_first=True, dtype=torch.float64)
    with torch.no_grad():  # what the float paths hold must be what PyTorch computes with
        for p in module.parameters():
            if p.dim() == 1:
                p.uniform_(-0.5, 0.5)
            p.copy_(p.float().double())
    module.eval()
    shape = {"query": ("T_q", "d_model"), "key": ("T_k", "d_kin"), "value": ("T_k", "d_vin")}
    inputs = {n: (r.uniform(-1, 1, (c["B"], c[t], c[w])) * c["amplitude"]).astype(np.float32) for n,
              (t, w) in shape.items()}
    mask = None
    rows = c["B"] * c["heads"] if c["mask"] == "per_head" else 1
    size = (rows, c["T_q"], c["T_k"])
    if c["mask"] == "causal":
        mask = np.where(np.tri(c["T_q"], c["T_k"], dtype=bool), 0, -np.inf)[None]
    elif c["mask"] in ("bool", "per_head"):
        mask = np.where(r.random(size) < 0.3, -np.inf, 0)
    elif c["mask"] == "float":
        mask = np.where(r.random(size) < 0.2, -np.inf, r.normal(size=size) * 2)
    mask = None if mask is None else np.ascontiguousarray(mask, dtype=np.float32)
    padding = (r.random((c["B"], c["T_k"])) < 0.3) if c["padding"] else None
    return module, inputs, mask, padding


def reference(c, module, inputs, mask, padding):
    to = lambda x: torch.from_numpy(x).double()
    m = None if mask is None else (torch.from_numpy(mask).double() if mask.shape[0] > 1
                                   else torch.from_numpy(mask[0]).double())
    p = None if padding is None else torch.from_numpy(padding)
    with torch.enable_grad():  # keeps PyTorch on its composite path
        out, weights = module(to(inputs["query"]), to(inputs["key"]), to(inputs["value"]), attn_mask=m,
                              key_padding_mask=p,
                              need_weights=True, average_attn_weights=False)
    return out.detach().numpy(), weights.detach().numpy()


def weights_of(c, module):
    """The module's tensors as y = x W wants them: (in, out)."""
    E = c["d_model"]
    state = {k: v.detach().numpy() for k, v in module.named_parameters()}
    if "in_proj_weight" in state:
        q, k, v = np.split(state["in_proj_weight"], 3)
    else:
        q, k, v = (state[n + "_proj_weight"] for n in "qkv")
    w = {"W_Q": q.T, "W_K": k.T, "W_V": v.T, "W_O": state["out_proj.weight"].T}
    if c["bias"]:
        b = state["in_proj_bias"]
        w.update(b_Q=b[:E], b_K=b[E:2 * E], b_V=b[2 * E:], b_O=state["out_proj.bias"])
    if c["bias_kv"]:
        w.update(bias_k=state["bias_k"].ravel(), bias_v=state["bias_v"].ravel())
    return {n: np.ascontiguousarray(x, dtype=np.float64) for n, x in w.items()}


def worst(found, expected, bound):
    """Largest difference as a part of the bound; infinite when one side is NaN and the other is not."""
    if not np.array_equal(np.isnan(found), np.isnan(expected)):
        return np.inf
    return float(np.nanmax(np.abs(found - expected), initial=0.0) / bound)


def compare(shim, number):
    c, r = draw(number)
    module, inputs, mask, padding = build(c, r)
    out, weights = reference(c, module, inputs, mask, padding)
    ours = weights_of(c, module)
    layer = Layer(B=c["B"], T_q=c["T_q"], T_k=c["T_k"], d_model=c["d_model"], heads=c["heads"], d_kin=c["d_kin"],
                  d_vin=c["d_vin"], bias=c["bias"], bias_kv=c["bias_kv"], zero_attn=c["zero_attn"], empty_nan=1)
    for i, name in enumerate(WEIGHTS):
        layer.weight[i] = ours[name].ctypes.data if name in ours else None
    for name, x in inputs.items():
        setattr(layer, name, x.ctypes.data)
    padding = None if padding is None else padding.astype(np.uint8)
    layer.mask, layer.mask_rows = (None, 0) if mask is None else (mask.ctypes.data, mask.shape[0])
    layer.padding = None if padding is None else padding.ctypes.data
    parts = []
    for path in PATHS:
        y, w = np.full(out.shape, 7.0), np.full(weights.shape, 7.0)
        bound, message = (ctypes.c_double * 2)(), ctypes.create_string_buffer(400)
        if shim.peer_run(ctypes.byref(layer), path.encode(), y.ctypes.data_as(ctypes.c_void_p),
                         w.ctypes.data_as(ctypes.c_void_p), bound, message):
            return c, path, message.value.decode()
        # PyTorch's own float64 rounding is of the size of the exact path's: twice its bound covers both
        room = 2 if path == "exact" else 1
        parts.append(max(worst(y, out, room * bound[0]), worst(w, weights, room * bound[1])))
        if not parts[-1] <= 1:
            return c, path, f"{parts[-1]:.3g} times the bound"
    return c, None, parts


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    shim = ctypes.CDLL(sys.argv[1])
    n, seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1000, int(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    failed, largest = 0, [0.0] * len(PATHS)
    for number in range(seed, seed + n):
        c, path, result = compare(shim, number)
        if path:
            failed += 1
            print(f"{number}: {path}: {result}: {c}")
        else:
            largest = [max(a, b) for a, b in zip(largest, result)]
    parts = ", ".join(f"{p} {x:.2g}" for p, x in zip(PATHS, largest))
    print(f"PyTorch {torch.__version__}, largest difference as a part of the bound: {parts}")
    print(f"{n - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
