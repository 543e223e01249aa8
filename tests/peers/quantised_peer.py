"""Quantised tensors, compared with the programs that define their formats, bit for bit (a NaN is a NaN).

Needs the Python module of this library, numpy, safetensors and the package gguf (0.19.0 was compared).
python3 tests/peers/quantised_peer.py [--blocks 1000000] [TYPE ...]
With --record FOLDER it writes the vectors of tests/formats/test_formats_quantised.c (tests/formats/quantised) instead.
"""
import argparse
import os
import struct
import tempfile

import gguf
import numpy as np
from safetensors.numpy import save_file

TYPES = {"Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34),
         "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17)}
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": ()}
# Zero, subnormals, one, the largest numbers, infinities and a NaN.
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e01], "<u2")


def blocks(name, count, seed):
    """Random bytes; the F16 scales of the first blocks are special numbers."""
    r = np.random.default_rng([seed, TYPES[name][0]])
    made = r.integers(0, 256, (count, TYPES[name][2]), np.uint8)
    for at in HALVES[name]:
        few = min(count, 4 * len(SPECIAL))
        made[:few:2, at:at + 2] = r.choice(SPECIAL, (few + 1) // 2)[:, None].view(np.uint8)
    if name == "MXFP4":
        made[:6, 0] = [0, 1, 2, 254, 255, 127][:count]
    return made


def defined(name, made):
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(made, gguf.GGMLQuantizationType(TYPES[name][0])).ravel()


def write_gguf(path, tensors):
    """tensors: (name, type number, elements, bytes)."""
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), 0), b""
    for name, number, elements, held in tensors:
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, elements, number, len(data))
        data += held + bytes(-len(held) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def same(a, b):
    return np.where(np.isnan(b), np.isnan(a), a.view(np.uint32) == b.view(np.uint32))


def compare(names, count):
    import mha
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "blocks.gguf")
        for name in names:
            seen = 0
            while seen < count:
                made = blocks(name, min(count - seen, 50000), seen)
                write_gguf(path, [("x", TYPES[name][0], len(made) * TYPES[name][1], made.tobytes())])
                expected = defined(name, made)
                right = same(np.asarray(mha.load(path)["x"]).ravel(), expected)
                if not right.all():
                    raise SystemExit(f"{name}: {np.count_nonzero(~right)} values differ, the first in block "
                                     f"{seen + np.argmin(right) // TYPES[name][1]}")
                seen += len(made)
            print(f"{name}: {seen} blocks, every value has the same bits", flush=True)


def record(folder):
    tensors = []
    for name, (number, elements, _) in TYPES.items():
        made = blocks(name, 24 if elements == 32 else 6, 7)
        values = defined(name, made)
        tensors += [(name, number, len(values), made.tobytes()), (name + ".values", 0, len(values), values.tobytes())]
    write_gguf(os.path.join(folder, "blocks.gguf"), tensors)


def record_rounding(folder):
    """Floats of all sizes, zeros, ties and tiny numbers among them, and the blocks that gguf makes of them."""
    r = np.random.default_rng(11)
    x = (r.standard_normal((64, 96)) * 2.0 ** r.integers(-12, 10, (64, 3)).repeat(32, 1)).astype(np.float32)
    x[0, :32] = 0
    x[1, :32] = np.arange(32, dtype=np.float32) - 16  # the greatest comes first, and 16 steps of half a code
    x[2, :32] = np.arange(32, dtype=np.float32)[::-1] * 0.5 + 0.25
    x[3, :64] = np.float32(2.0 ** -120) * np.arange(64, dtype=np.float32)  # the scale is 0, the codes are not
    x[4, :32] *= np.float32(1e-6)  # a subnormal scale
    made = [("x", 0, x.size, x.tobytes())]
    for name in ("Q8_0", "Q4_0"):
        held = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
        made.append(("x." + name, TYPES[name][0], x.size, held.tobytes()))
    write_gguf(os.path.join(folder, "rounded.gguf"), made)


def record_model(folder):
    """A small LLaMA as a checkpoint, and as two files of GGUF, whose W_Q and W_K have their rows in another order."""
    r = np.random.default_rng(3)
    width, heads, kv_heads, layers = 32, 2, 1, 2
    rows = {"attn_q": width, "attn_k": width // 2, "attn_v": width // 2, "attn_output": width, "ffn_gate": 4,
            "ffn_up": 4, "ffn_down": width, "attn_norm": 0, "ffn_norm": 0}
    theirs = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
              "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
              "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    made = {"output": ("lm_head", 3), "token_embd": ("model.embed_tokens", 3), "output_norm": ("model.norm", 0)}
    for i in range(layers):
        made.update({f"blk.{i}.{n}": (f"model.layers.{i}.{theirs[n]}", count) for n, count in rows.items()})
    checkpoint, plain = {}, {}
    for name, (other, count) in made.items():
        values = (r.standard_normal((count, width) if count else width) / 4).astype(np.float32)
        checkpoint[other + ".weight"] = values
        h = {"attn_q": heads, "attn_k": kv_heads}.get(name.split(".")[-1])
        plain[name + ".weight"] = values.reshape(h, 2, -1, width).swapaxes(1, 2).reshape(-1, width) if h else values
    save_file(checkpoint, os.path.join(folder, "model.safetensors"))
    for kind in ("F32", "Q4_0"):
        writer = gguf.GGUFWriter(os.path.join(folder, f"model_{kind.lower()}.gguf"), "llama")
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv_heads)
        writer.add_embedding_length(width)
        writer.add_rope_dimension_count(width // heads)
        for name, values in plain.items():
            held = gguf.GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
            writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(values), held), raw_dtype=held)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def record_mixed(folder):
    """The attention of a layer whose matrices have several types, as GGUF's Q4_K_M and the like mix them."""
    width, heads, d_k = 256, 2, 16
    writer = gguf.GGUFWriter(os.path.join(folder, "mixed.gguf"), "llama")
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_key_length(d_k)
    writer.add_value_length(d_k)
    writer.add_embedding_length(width)
    r = np.random.default_rng(5)
    for name, kind, rows, columns in (("attn_q", "Q4_K", heads * d_k, width), ("attn_k", "Q5_K", d_k, width),
                                      ("attn_v", "Q6_K", d_k, width), ("attn_output", "MXFP4", width, heads * d_k)):
        number, elements, size = TYPES[kind]
        made = r.integers(0, 256, (rows, columns // elements, size), np.uint8)
        for at in HALVES[kind]:
            made[..., at:at + 2] = np.float16(1e-4).view(np.uint16).reshape(1).view(np.uint8)
        if kind == "MXFP4":
            made[..., 0] = 124
        writer.add_tensor(f"blk.0.{name}.weight", made.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=1000000)
    parser.add_argument("--record")
    parser.add_argument("types", nargs="*", default=list(TYPES))
    given = parser.parse_args()
    if given.record:
        record(given.record)
        record_rounding(given.record)
        record_model(given.record)
        record_mixed(given.record)
    else:
        compare(given.types, given.blocks)
