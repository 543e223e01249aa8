"""Writes weights/lookup/wrong_port.safetensors: the lookup layer ported to numpy, with one bug to be found.

    python3 weights/make_wrong_port.py            (numpy alone; the same bytes every time)

The port is what a careful person writes, up to the line that puts the heads side by side again: it forgets that they
lie in front of the time, as (h, T, d_v), and views them as (T, h*d_v) all the same.
"""
import json
import pathlib
import struct

import numpy as np

import mha_case

TOKENS = 8  # of the recorded input: enough to tell the bugs apart


def read(path):
    """The tensors of a safetensors file in float32."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    return {name: np.frombuffer(body[entry["data_offsets"][0]:entry["data_offsets"][1]], "<f4").reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"}


def split(rows, heads):
    """(T, h*d) as (h, T, d)."""
    return rows.reshape(len(rows), heads, -1).transpose(1, 0, 2)


def port(x, W, b, heads):
    """Causal attention of x (T, d_model), wrong in one line. Returns the weights, the merged heads and the output."""
    q, k, v = (split(x @ W[n] + b[n], heads) for n in "qkv")
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    merged = (weights @ v).reshape(x.shape)  # the bug: .transpose(1, 0, 2) is missing before .reshape
    return weights, merged, merged @ W["o"] + b["o"]


def main():
    folder = pathlib.Path(__file__).resolve().parent / "lookup"
    heads = json.loads((folder / "config.json").read_text())["num_attention_heads"]
    model = read(folder / "model.safetensors")
    x = read(folder / "recorded.safetensors")["input"][0, :TOKENS]
    # Exported in float16, as models often are; from here on these are the weights.
    packed, bias = model["in_proj_weight"].astype(np.float16), model["in_proj_bias"].astype(np.float16)
    W = dict(zip("qkv", (part.T for part in np.split(packed, 3))), o=model["out_proj.weight"].astype(np.float16).T)
    b = dict(zip("qkv", np.split(bias, 3)), o=model["out_proj.bias"].astype(np.float16))
    wide = [{name: np.float64(array) for name, array in d.items()} for d in (W, b)]
    weights, merged, output = (a.astype(np.float32) for a in port(np.float64(x), *wide, heads))
    words = {f"W_{n}": np.ascontiguousarray(W[n]) for n in "qkvo"} | {f"b_{n}": b[n] for n in "qkvo"}
    mha_case.save(folder / "wrong_port.safetensors", query=x, num_heads=heads, layout="TE", causal=True, output=output,
                  name="lookup, ported", note="one bug: see make_wrong_port.py",
                  **words, **{"expected.weights": weights, "expected.heads": merged})


if __name__ == "__main__":
    main()
