"""Weights in several tensors, compared with the libraries that define their formats, bit for bit (a NaN is a NaN).

Needs the Python module of this library, numpy, torch, safetensors, transformers (5.23 was compared), bitsandbytes
(0.50.2), auto-gptq (0.7.1) and compressed-tensors (0.20.0), each for its kinds; AWQ is written down here once more,
as in AutoAWQ's packing_utils.py.
python3 tests/peers/packed_peer.py [--blocks 1000000] [KIND ...]
With --record FOLDER it writes the vectors of tests/formats/test_formats_packed.c (tests/formats/quantised) instead:
packed.safetensors, and compressed.safetensors for the kinds compressed and nvfp4.
"""
import argparse
import functools
import importlib.util
import os
import tempfile
import unittest.mock

import numpy as np
import torch
from safetensors.torch import save_file

from quantised_peer import same

torch.set_num_threads(1)  # most tensors are small


def bytes_of(r, *shape):
    return torch.from_numpy(r.integers(0, 256, shape, np.uint8))


def words_of(r, *shape):
    return torch.from_numpy(r.integers(-2**31, 2**31, shape).astype(np.int32))


def scales_of(r, *shape, dtype=torch.float32):
    made = r.standard_normal(shape) * 2.0**r.integers(-20, 10, shape)
    return torch.from_numpy(np.asarray(made, np.float32)).to(dtype)


def scaled(r, size):
    """F8 with a scale for all, for each row or for each block, whose last ones may be cut."""
    types = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int8)
    kind, block = r.integers(4), 2**int(r.integers(4, 8))
    out, ins = (int(n) for n in r.integers(1, size, 2))
    if kind == 3:
        out, ins = max(out, block + 1), max(ins, block + 1)  # of one block nothing would tell the size
    weight = bytes_of(r, out, ins).view(types[r.integers(len(types))])
    shape = ((), (out,), (out, 1), (-(-out // block), -(-ins // block)))[kind]
    scale = scales_of(r, *shape, dtype=(torch.float32, torch.bfloat16)[r.integers(2)])
    if kind == 3 and weight.dtype != torch.int8 and r.integers(3) == 0:  # bytes are powers of two: MXFP8
        scale = bytes_of(r, *shape).clamp(1, 254)
    whole = scale.float() if scale.dtype != torch.uint8 else torch.exp2(scale.float() - 127)
    if kind == 3:
        whole = whole.repeat_interleave(block, 0)[:out].repeat_interleave(block, 1)[:, :ins]
    elif kind == 1:
        whole = whole[:, None]
    name = "x.weight_scale" + ("_inv" if r.integers(2) else "")
    return {"x.weight": weight, name: scale}, weight.float() * whole, max(1, scale.numel())


def mxfp4(r, size):
    experts, out, n = int(r.integers(1, 4)), int(r.integers(1, size)), int(r.integers(1, 9))
    blocks, scales = bytes_of(r, experts, out, n, 16), bytes_of(r, experts, out, n)
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    scales[scales > 252] = 252  # beyond, 6 times the power leaves F32: inf, and for 255 a NaN
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return {"x.weight_blocks": blocks, "x.weight_scales": scales}, values, experts * out * n


@functools.cache
def auto_gptq():
    """The one file of it that is needed, which needs no more than torch."""
    spec = importlib.util.find_spec("auto_gptq")
    file = os.path.join(os.path.dirname(spec.origin), "nn_modules", "qlinear", "qlinear_cuda.py")
    described = importlib.util.spec_from_file_location("qlinear_cuda", file)
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def gptq(r, size):
    """The matrix that a layer of auto-gptq multiplies by, in groups in order or shuffled."""
    bits, group = int(r.choice([2, 3, 4, 8])), int(r.choice([32, 64, 128]))
    out, ins = 32 * int(r.integers(1, size // 16 + 2)), group * int(r.integers(1, 4))
    layer = auto_gptq().QuantLinear(bits, group, ins, out, False, weight_dtype=torch.float32)
    scales = scales_of(r, ins // group, out, dtype=(torch.float16, torch.bfloat16, torch.float32)[r.integers(3)])
    parts = {"x.qweight": words_of(r, ins // 32 * bits, out), "x.qzeros": words_of(r, ins // group, out // 32 * bits),
             "x.scales": scales, "x.g_idx": torch.arange(ins, dtype=torch.int32) // group}
    if r.integers(2):
        parts["x.g_idx"] = parts["x.g_idx"][torch.from_numpy(r.permutation(ins))]
    layer.qweight, layer.qzeros, layer.scales = parts["x.qweight"], parts["x.qzeros"], scales.float()
    layer.g_idx = parts["x.g_idx"].long()
    with unittest.mock.patch.object(torch, "matmul", lambda x, weights: weights):
        values = layer(torch.eye(ins)).T.contiguous()
    if r.integers(2) and bool((parts["x.g_idx"] == torch.arange(ins) // group).all()):
        del parts["x.g_idx"]
    return parts, values, out * ins // group


def awq(r, size):
    group = int(r.choice([32, 64, 128]))
    out, ins = 8 * int(r.integers(1, size // 4 + 2)), group * int(r.integers(1, 4))
    codes, zeros = words_of(r, ins, out // 8), words_of(r, ins // group, out // 8)
    scales = scales_of(r, ins // group, out, dtype=torch.float16)

    def unpacked(words):
        return ((words[:, :, None] >> torch.tensor([0, 16, 4, 20, 8, 24, 12, 28])) & 15).reshape(len(words), -1).float()
    each = torch.arange(ins) // group
    values = (unpacked(codes) - unpacked(zeros)[each]) * scales.float()[each]
    return {"x.qweight": codes, "x.qzeros": zeros, "x.scales": scales}, values.T.contiguous(), out * ins // group


def compressed(r, size):
    """Whole numbers of 4 and 8 bits, with a scale for each row or group, perhaps with zero points and shuffled."""
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    from compressed_tensors.quantization.lifecycle.forward_helpers import _dequantize
    bits, group = int(r.choice([4, 8])), int(r.choice([32, 64, 128]))
    out, ins = int(r.integers(1, size)), int(r.integers(5, 3 * size))
    groups = 1
    if r.integers(2):
        groups = int(r.integers(2, 4))
        ins = group * groups
    words = [-(-n * bits // 32) for n in (ins, out)]
    parts = {"x.weight_packed": words_of(r, out, words[0]), "x.weight_shape": torch.tensor([out, ins]),
             "x.weight_scale": scales_of(r, out, groups, dtype=(torch.bfloat16, torch.float32)[r.integers(2)])}
    each = torch.arange(ins) * groups // ins
    if r.integers(2) and groups > 1:
        each = each[torch.from_numpy(r.permutation(ins))]
        parts["x.weight_g_idx"] = each.int()
    zeros = None
    if r.integers(2):
        parts["x.weight_zero_point"] = words_of(r, words[1], groups)
        turned = torch.tensor(parts["x.weight_zero_point"].T.tolist(), dtype=torch.int32)
        zeros = unpack_from_int32(turned, bits, torch.Size([groups, out])).T[:, each]
    codes = unpack_from_int32(parts["x.weight_packed"], bits, torch.Size([out, ins]))
    return parts, _dequantize(codes, parts["x.weight_scale"].float()[:, each], zeros), out * groups


def nvfp4(r, size):
    """E2M1 with scales of F8, which one number divides; or, as NVIDIA's modelopt names them, which one multiplies."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward_helpers import _dequantize
    out, blocks = int(r.integers(1, size)), int(r.integers(1, 9))
    codes, whole = bytes_of(r, out, 8 * blocks), scales_of(r, 1).abs()
    scales = (bytes_of(r, out, blocks) % 127).view(torch.float8_e4m3fn)
    values, each = unpack_fp4_from_uint8(codes, out, 16 * blocks, torch.float32), torch.arange(16 * blocks) // 16
    if r.integers(2):
        return ({"x.weight_packed": codes, "x.weight_scale": scales, "x.weight_global_scale": whole},
                _dequantize(values, scales.float()[:, each], global_scale=whole), out * blocks)
    return ({"x.weight": codes, "x.weight_scale": scales, "x.weight_scale_2": whole[0]},
            values * (scales.float() * whole)[:, each], out * blocks)


def int8(r, size):
    out, ins = (int(n) for n in r.integers(1, size, 2))
    codes, scales = bytes_of(r, out, ins).view(torch.int8), scales_of(r, out)
    return ({"x.weight": codes, "x.SCB": scales, "x.weight_format": torch.tensor(0, dtype=torch.uint8)},
            import_bnb().int8_vectorwise_dequant(codes, scales), out)


def import_bnb():
    import bitsandbytes.functional
    return bitsandbytes.functional


def four_bits(r, size):
    """nf4 and fp4, the scales as numbers or quantised themselves. The two zeros of fp4 have one sign in its table, but
    not in all of its kernels: only one of them is drawn."""
    bnb, block, kind = import_bnb(), 2**int(r.integers(6, 9)), ("nf4", "fp4")[r.integers(2)]
    out, ins = (2 * int(n) for n in r.integers(1, size, 2))
    made, state = bnb.quantize_4bit(scales_of(r, out, ins), blocksize=block, quant_type=kind,
                                    compress_statistics=bool(r.integers(2)))
    made = bytes_of(r, *made.shape)
    if kind == "fp4":
        made[made & 15 == 8] -= 8
        made[made >> 4 == 8] -= 128
    if state.nested:
        state.absmax = bytes_of(r, *state.absmax.shape)
    parts = {f"x.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    return {"x.weight": made, **parts}, bnb.dequantize_4bit(made, state), -(-out * ins // block)


KINDS = {"scaled": scaled, "mxfp4": mxfp4, "gptq": gptq, "awq": awq, "int8": int8, "4bit": four_bits}
LATER = {"compressed": compressed, "nvfp4": nvfp4}  # recorded in a file of their own


def compare(kinds, count):
    import mha
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "packed.safetensors")
        for kind in kinds:
            seen, draws = 0, 0
            while seen < count:
                r = np.random.default_rng([draws, sorted(KINDS | LATER).index(kind)])
                parts, values, blocks = (KINDS | LATER)[kind](r, (12, 300)[draws % 2])
                save_file(parts, path)
                file = mha.load(path)
                if list(file) != ["x.weight"]:
                    raise SystemExit(f"{kind} {draws}: {list(file)} instead of only the weight")
                found = np.asarray(file["x.weight"])
                if found.shape != tuple(values.shape) or not same(found, values.float().numpy()).all():
                    raise SystemExit(f"{kind} {draws}: other values or another shape, {found.shape}")
                seen, draws = seen + blocks, draws + 1
            print(f"{kind}: {seen} blocks in {draws} tensors, every value has the same bits", flush=True)


def record(path, kinds):
    tensors = {}
    for kind, draw in kinds.items():
        number, kept = 0, 0
        while kept < 6:
            parts, values, _ = draw(np.random.default_rng([number, 5]), 6)
            number += 1
            if values.numel() > 2100:
                continue
            tensors.update({f"{kind}.{kept}.{name[2:]}": part.contiguous() for name, part in parts.items()})
            tensors[f"{kind}.{kept}.weight.values"] = values.float().contiguous()
            kept += 1
    save_file(tensors, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=1000000)
    parser.add_argument("--record")
    parser.add_argument("kinds", nargs="*", default=list(KINDS | LATER))
    given = parser.parse_args()
    if given.record:
        for name, kinds in (("packed", KINDS), ("compressed", LATER)):
            if set(kinds) & set(given.kinds):
                record(os.path.join(given.record, name + ".safetensors"), kinds)
    else:
        compare(given.kinds, given.blocks)
