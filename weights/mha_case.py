"""Writes case files for `mha check` and `mha diagnose`, with numpy alone.

    import mha_case
    mha_case.save("case.npz", query=x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o, output=y, num_heads=4, causal=True)
    mha_case.save("case.safetensors", **mha_case.from_torch(module, x, module(x, x, x)))

What the words mean stands in src/verify/case/CASES.md; `mha help case` lists them. Copy this file to where you need it.
"""
import json
import struct

import numpy as np

# Types of safetensors by the names of numpy.
TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8",
         "bool": "BOOL", "bfloat16": "BF16"}


def write(path, tensors, metadata=None):
    """Writes a safetensors file.

    tensors: name -> array. They lie in the file by element size (8, 4, 2, 1 bytes), so that each is aligned.
    metadata: name -> value, written as text.
    """
    header, at, ordered = {}, 0, []
    if metadata:
        header["__metadata__"] = {key: str(value) for key, value in metadata.items()}
    for name, array in sorted(tensors.items(), key=lambda item: -np.asarray(item[1]).dtype.itemsize):
        array = np.asarray(array, order="C")
        if str(array.dtype) not in TYPES:
            raise ValueError(f"{name}: expected one of {', '.join(TYPES)}, found {array.dtype}")
        header[name] = {"dtype": TYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        ordered.append(array)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in ordered:
            file.write(array.tobytes())


def save(path, **words):
    """Writes a case to path, which ends in .npz or .safetensors.

    words: the tensors and the metadata of the case. Arrays with extents are tensors, plain values (4, 0.5, True,
    "sdpa") are metadata; None is left out. Words with a dot are given as save(path, **{"expected.weights": w}).
    Inputs of 4 axes need layout="BHTD" or layout="BTHD".
    """
    words = {name: as_array(value) for name, value in words.items() if value is not None}
    if "layout" not in words and "query" in words and words["query"].ndim == 4:
        raise ValueError('query: expected a word layout beside 4 axes, "BHTD" or "BTHD", found none')
    if str(path).endswith(".npz"):
        np.savez(path, **words)
        return
    if not str(path).endswith(".safetensors"):
        raise ValueError(f"{path}: expected a name that ends in .npz or .safetensors")
    write(path, {name: array for name, array in words.items() if array.ndim > 0},
          {name: array[()] for name, array in words.items() if array.ndim == 0})


def as_array(value):
    """A numpy array of a value that may be a tensor of torch, on any device and with a gradient."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        value = value.numpy()
    return np.asarray(value)


def from_torch(module, x, y, key=None, value=None, **more):
    """The words of a case of an nn.MultiheadAttention, for save.

    module: the layer; torch itself is not needed here.
    x: its query, (B, T, E), (T, B, E) without batch_first, or (T, E). key and value: x and key without them.
    y: what it gave, or what another program made of the same weights: the output, or (output, weights) as the module
       returns them, averaged over the heads or not.
    more: further words, such as causal=True. A boolean attn_mask or key_padding_mask hides where it is True, as in
       torch.
    """
    output, weights = y if isinstance(y, (tuple, list)) else (y, None)
    x = as_array(x)
    words = {"query": x, "output": as_array(output), "num_heads": module.num_heads, "kind": "mha",
             "layout": "TE" if x.ndim == 2 else "BTE" if module.batch_first else "TBE"}
    if key is not None:
        words["key"] = as_array(key)
    if value is not None:
        words["value"] = as_array(value)
    if module.in_proj_weight is not None:
        words["torch.in_proj_weight"] = as_array(module.in_proj_weight)
    else:  # kdim or vdim: three matrices, output dimension first
        matrices = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
        words.update({name: as_array(matrix).T for name, matrix in zip(("W_q", "W_k", "W_v"), matrices)})
    if module.in_proj_bias is not None:
        words["torch.in_proj_bias"] = as_array(module.in_proj_bias)
    words["torch.out_proj.weight"] = as_array(module.out_proj.weight)
    if module.out_proj.bias is not None:
        words["torch.out_proj.bias"] = as_array(module.out_proj.bias)
    if getattr(module, "bias_k", None) is not None:
        words["bias_k"], words["bias_v"] = as_array(module.bias_k).reshape(-1), as_array(module.bias_v).reshape(-1)
    words["add_zero_attn"] = bool(getattr(module, "add_zero_attn", False))
    if weights is not None:
        weights = as_array(weights)
        per_head = weights.ndim == 3 + (x.ndim > 2)
        words["expected.weights" if per_head else "expected.weights_mean"] = weights
    for name in ("attn_mask", "key_padding_mask"):
        mask = more.get(name)
        if mask is not None and as_array(mask).dtype == bool:
            words.setdefault(name + "_kind", "bool_true_masks")
    words.update(more)
    return words
