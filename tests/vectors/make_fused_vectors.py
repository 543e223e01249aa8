"""Records the fused attention of other libraries as case files next to this script: PyTorch's
scaled_dot_product_attention and FlexAttention, JAX's dot_product_attention, ONNX's reference evaluator.

    python3 -m pip install torch jax onnx ml_dtypes
    python3 tests/vectors/make_fused_vectors.py [directory]

expected.* is what the library computes in the type of the inputs, expected64.* what it computes in float64 from the
same numbers (JAX's softmax is float32 in any case, so that JAX has none). A file's source_version says which release
that was. Results in F16 and BF16 are allowed twice the error of a plain computation in that type, as FlashAttention's
own tests do; others state no tolerance. The cases are small: their edges matter, not their size. ONNX must be 1.23 or
later: ../conventions/make_onnx_conventions.py says what errata changed before.
"""
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from torch.nn.attention.bias import causal_lower_right  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
TORCH_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


class Draw:
    """Random inputs of one case, (B, heads, T, d): the same for the same name."""

    def __init__(self, name, B=2, h=4, h_kv=None, T=4, S=7, d=4, d_v=None, dtype="F32", peak=2.0):
        self.rng = np.random.default_rng(sum(map(ord, name)))
        self.name, self.B, self.h, self.h_kv, self.T, self.S, self.dtype = name, B, h, h_kv or h, T, S, dtype
        self.query = self.numbers(B, h, T, d) * TYPES[dtype](peak)  # scores that differ
        self.key = self.numbers(B, self.h_kv, S, d)
        self.value = self.numbers(B, self.h_kv, S, d_v or d)

    def numbers(self, *shape):
        return self.rng.normal(size=shape).astype(np.float32).astype(TYPES[self.dtype])

    def plain_error(self, words):
        """The largest error of softmax(Q K^T / sqrt(d) + mask) V when every step is rounded to the inputs' type."""
        def plain(dtype):
            q, k, v = (of_numpy(x, dtype) for x in (self.query, self.key, self.value))
            scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
            mask = words.get("attn_mask")
            if words.get("causal"):
                mask = np.tri(self.T, self.S, dtype=bool)
            if mask is not None and mask.dtype == bool:
                scores = scores.masked_fill(~torch.from_numpy(mask), -torch.inf)
            elif mask is not None:
                scores = scores + of_numpy(mask, dtype)
            return scores.softmax(-1) @ v

        assert self.h_kv == self.h
        return (plain(self.dtype).double() - plain("F64")).abs().max().item()


def case(draw, results, results64, source, version, op, layout="BHTD", attributes="", **words):
    """The tensors and metadata of a case file. results, results64: stage -> array, in the case's layout."""
    inputs = {"query": draw.query, "key": draw.key, "value": draw.value}
    if layout == "BTHD":
        inputs = {name: x.transpose(0, 2, 1, 3) for name, x in inputs.items()}
    tensors = {name: x for name, x in words.items() if isinstance(x, np.ndarray)}
    metadata = {name: x for name, x in words.items() if not isinstance(x, np.ndarray)}
    tensors.update(inputs)
    tensors.update({f"expected.{stage}": x for stage, x in results.items()})
    tensors.update({f"expected64.{stage}": x for stage, x in results64.items()})
    assert all(x.dtype == np.float64 for x in results64.values())
    assert all(x.dtype == TYPES[draw.dtype] or stage == "lse" for stage, x in results.items())
    if draw.dtype != "F32":
        metadata.update({"rtol": 0, "atol.expected.output": repr(2 * draw.plain_error(words))},
                        tolerance_origin=f"twice the error of a plain computation in {draw.dtype}")
    metadata.update(format_version=1, name=draw.name, kind="sdpa", layout=layout, source=source,
                    source_version=version, op=op)
    if results64:
        metadata["expected64_origin"] = f"{source} in float64"
    if attributes:
        metadata["attributes"] = attributes
    return tensors, metadata


def of_numpy(x, dtype):
    return torch.from_numpy(np.asarray(x, np.float64)).to(TORCH_TYPES[dtype])


def to_numpy(x, dtype):
    return x.detach().double().numpy().astype(TYPES.get(dtype, np.float64))


# ---------------------------------------------------------------- PyTorch

def sdpa(draw, mask=None, attributes="", scale=None, lower_right=False, **words):
    """scaled_dot_product_attention, on the CPU kernel that PyTorch chooses."""
    def run(dtype):
        q, k, v = (of_numpy(x, dtype) for x in (draw.query, draw.key, draw.value))
        bias = causal_lower_right(draw.T, draw.S) if lower_right else None
        if mask is not None:
            bias = torch.from_numpy(mask) if mask.dtype == bool else of_numpy(mask, dtype)
        return scaled_dot_product_attention(q, k, v, bias, is_causal=bool(words.get("causal")) and not lower_right,
                                            scale=scale, enable_gqa=draw.h_kv < draw.h)

    if mask is not None:
        words["attn_mask"] = mask
        words["attn_mask_kind"] = "bool_true_keeps" if mask.dtype == bool else "additive"
    if scale is not None:
        words["scale"] = repr(scale)
    if words.get("causal"):
        words["position_offset"] = np.full(draw.B, draw.S - draw.T if lower_right else 0)
    return case(draw, {"output": to_numpy(run(draw.dtype), draw.dtype)}, {"output": to_numpy(run("F64"), "F64")},
                "pytorch", f"PyTorch {torch.__version__}", "torch.nn.functional.scaled_dot_product_attention",
                attributes=attributes, **words)


def flex(draw, score_mod=None, mask_mod=None, lse=False, sinks=None, attributes="", **words):
    """flex_attention without a compiler. With sinks, its output is scaled as the gpt-oss models do."""
    def run(dtype):
        q, k, v = (of_numpy(x, dtype) for x in (draw.query, draw.key, draw.value))
        block = mask_mod and create_block_mask(mask_mod, draw.B, draw.h, draw.T, draw.S, device="cpu")
        out, aux = flex_attention(q, k, v, score_mod, block, enable_gqa=draw.h_kv < draw.h,
                                  return_aux=AuxRequest(lse=True))
        logits = aux.lse
        if sinks is not None:
            sink = of_numpy(sinks, "F64" if dtype == "F64" else "F32")[None, :, None]
            out = (out * torch.sigmoid(logits - sink)[..., None]).to(out.dtype)
            logits = torch.logaddexp(logits, sink)
        narrow = "F64" if dtype == "F64" else "F32"  # the log sum is kept in float32
        found = {"output": to_numpy(out, dtype), "lse": to_numpy(logits, narrow)}
        return found if lse else {"output": found["output"]}

    if sinks is not None:
        words["head_sink"] = sinks
    return case(draw, run(draw.dtype), run("F64"), "pytorch", f"PyTorch {torch.__version__}",
                "torch.nn.attention.flex_attention.flex_attention", attributes=attributes, **words)


def torch_cases():
    draw = Draw("sdpa_causal_top_left")
    yield sdpa(draw, causal=1, attributes="is_causal=True")
    draw = Draw("sdpa_causal_lower_right", h_kv=2, d_v=6)
    yield sdpa(draw, causal=1, lower_right=True, attributes="attn_mask=causal_lower_right(4, 7), enable_gqa=True")
    draw = Draw("sdpa_bool_mask_empty_row", h_kv=1)
    mask = draw.rng.random((2, 1, 4, 7)) < 0.6
    mask[1, 0, 2] = False
    yield sdpa(draw, mask, fully_masked="zero", attributes="enable_gqa=True")
    draw = Draw("sdpa_additive_mask_scale")
    mask = draw.numbers(1, 4, 4, 7)
    mask[0, 1, 2, 3:] = -np.inf
    yield sdpa(draw, mask, scale=0.3, attributes="scale=0.3")
    for dtype in ("F16", "BF16"):
        draw = Draw(f"sdpa_causal_{dtype.lower()}", dtype=dtype, T=6, S=6, d=8)
        yield sdpa(draw, causal=1, attributes="is_causal=True")

    draw = Draw("flex_alibi_causal_lse", h=8, B=1, T=5, S=5)
    slopes = 2.0 ** -np.arange(1, 9)
    table = torch.from_numpy(slopes)
    yield flex(draw, lambda s, b, h, i, j: s + table[h].to(s.dtype) * (j - i), lambda b, h, i, j: j <= i, lse=True,
               attributes="score_mod: s + slope (j - i); mask_mod: j <= i", causal=1, alibi=1, alibi_slopes=slopes,
               position_offset=np.zeros(1, np.int64))
    draw = Draw("flex_softcap_window_groups", h_kv=2, T=7, S=7)
    yield flex(draw, lambda s, b, h, i, j: 2.5 * torch.tanh(s / 2.5), lambda b, h, i, j: (j <= i) & (i - j <= 2),
               lse=True, attributes="score_mod: 2.5 tanh(s / 2.5); mask_mod: 0 <= i - j <= 2", causal=1, softcap="2.5",
               window_left=2, window_right=0, position_offset=np.zeros(2, np.int64))
    draw = Draw("flex_sinks", h_kv=2, T=5, S=5)
    sinks = draw.numbers(4)
    yield flex(draw, None, lambda b, h, i, j: j <= i, lse=True, sinks=sinks, causal=1,
               attributes="mask_mod: j <= i; output * sigmoid(lse - sink)", position_offset=np.zeros(2, np.int64))
    draw = Draw("flex_documents_prefix", T=6, S=6, B=1)
    document = torch.tensor([0, 0, 0, 1, 1, 1])

    def documents(b, h, i, j):
        return (document[i] == document[j]) & ((j <= i) | (j < 2))

    keeps = documents(0, 0, torch.arange(6)[:, None], torch.arange(6)[None]).numpy()
    yield flex(draw, None, documents, lse=True, attn_mask=keeps, attn_mask_kind="bool_true_keeps",
               attributes="mask_mod: same document of three tokens, and j <= i or j < 2")
    draw = Draw("flex_score_mod_bf16", dtype="BF16", d=8)
    bias = draw.numbers(4, 4, 7)
    shift = of_numpy(bias, "F64")
    yield flex(draw, lambda s, b, h, i, j: s + shift[h, i, j].to(s.dtype), lse=True, attn_mask=bias,
               attn_mask_kind="additive", attributes="score_mod: s + bias[h, i, j]")


# ---------------------------------------------------------------- JAX

def of_jax(draw, lse=True, attributes="", **arguments):
    """jax.nn.dot_product_attention, (B, T, heads, d), by XLA."""
    words = arguments.pop("words", {})

    def run(dtype):
        to = TYPES[dtype]
        q, k, v = (jnp.asarray(x.transpose(0, 2, 1, 3).astype(to)) for x in (draw.query, draw.key, draw.value))
        given = dict(arguments)
        if "bias" in given:
            given["bias"] = jnp.asarray(given["bias"].astype(to))
        out, residual = jax.nn.dot_product_attention(q, k, v, implementation="xla", return_residual=True, **given)
        found = {"output": np.asarray(out)}
        if lse:
            found["lse"] = np.asarray(residual).transpose(0, 2, 1)
        return found

    words = dict(words)
    if "bias" in arguments:
        words.update(attn_mask=arguments["bias"], attn_mask_kind="additive")
    return case(draw, run(draw.dtype), {}, "jax", f"JAX {jax.__version__}", "jax.nn.dot_product_attention",
                layout="BTHD", attributes=attributes, **words)


def jax_cases():
    draw = Draw("jax_causal_groups", h_kv=2)
    yield of_jax(draw, is_causal=True, attributes="is_causal=True",
                 words=dict(causal=1, position_offset=np.zeros(2, np.int64)))
    draw = Draw("jax_bias_lengths", d_v=None)
    bias = draw.numbers(2, 4, 4, 7)
    lengths = np.array([7, 3])
    yield of_jax(draw, bias=bias, key_value_seq_lengths=jnp.asarray(lengths, jnp.int32), scale=0.4,
                 attributes="bias, key_value_seq_lengths=[7, 3], scale=0.4",
                 words=dict(kv_lengths=lengths, scale="0.4"))
    draw = Draw("jax_window", T=7, S=7)
    yield of_jax(draw, local_window_size=(2, 1), attributes="local_window_size=(2, 1)",
                 words=dict(window_left=2, window_right=1, position_offset=np.zeros(2, np.int64)))
    for dtype in ("F16", "BF16"):
        draw = Draw(f"jax_causal_{dtype.lower()}", T=6, S=6, d=8, dtype=dtype)
        yield of_jax(draw, lse=False, is_causal=True, attributes="is_causal=True",
                     words=dict(causal=1, position_offset=np.zeros(2, np.int64)))


# ---------------------------------------------------------------- ONNX

def of_onnx(draw, opset, outputs=("Y",), attributes=None, words=None, past=None, lengths=None, mask=None):
    """ai.onnx Attention by the reference evaluator, inputs (B, heads, T, d)."""
    attributes, words = dict(attributes or {}), dict(words or {})
    optional = {"attn_mask": mask, "past_key": past and past[0], "past_value": past and past[1],
                "nonpad_kv_seqlen": lengths}
    while optional and optional[list(optional)[-1]] is None:
        optional.pop(list(optional)[-1])

    def run(dtype):
        to = np.float64 if dtype == "F64" else TYPES[dtype]
        feeds = {"Q": draw.query, "K": draw.key, "V": draw.value}
        feeds.update({name: x for name, x in optional.items() if x is not None})
        feeds = {name: x.astype(to) if x.dtype.kind not in "ib" else x for name, x in feeds.items()}
        names = ["Q", "K", "V", *(name if x is not None else "" for name, x in optional.items())]
        node = helper.make_node("Attention", names, list(outputs), **attributes)
        kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
        graph = helper.make_graph(
            [node], "one", [helper.make_tensor_value_info(name, kinds[name], x.shape) for name, x in feeds.items()],
            [helper.make_tensor_value_info(name, kinds["Q"], None) for name in outputs if name])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        stages = {"Y": "output", "present_key": "present_key", "present_value": "present_value", "qk": "qk"}
        found = ReferenceEvaluator(model).run(None, feeds)
        return {stages[name]: np.asarray(x) for name, x in zip((name for name in outputs if name), found)}

    if past is not None:
        words.update(past_key=past[0], past_value=past[1])
    if mask is not None:
        words.update(attn_mask=mask, attn_mask_kind="bool_true_keeps" if mask.dtype == bool else "additive")
    if lengths is not None:
        words["kv_lengths"] = lengths
    return case(draw, run(draw.dtype), run("F64"), "onnx", f"onnx {onnx.__version__}", f"ai.onnx Attention {opset}",
                opset=opset, attributes=", ".join(f"{k}={v}" for k, v in attributes.items()), **words)


def onnx_cases():
    draw = Draw("onnx_past_causal", h_kv=2, T=3, S=3)
    past = [draw.numbers(2, 2, 4, 4), draw.numbers(2, 2, 4, 4)]
    yield of_onnx(draw, 23, ("Y", "present_key", "present_value", "qk"), {"is_causal": 1, "qk_matmul_output_mode": 3},
                  dict(causal=1, qk_mode=3, position_offset=np.full(2, 4)), past)
    draw = Draw("onnx_softcap_mask", d_v=6)
    mask = draw.numbers(4, 7)
    yield of_onnx(draw, 24, ("Y",), {"softcap": 2.0, "scale": 0.5625}, dict(softcap="2.0", scale="0.5625"),
                  mask=mask)
    draw = Draw("onnx_lengths_causal", T=3)
    yield of_onnx(draw, 24, ("Y",), {"is_causal": 1},
                  dict(causal=1, position_offset=np.array([4, 2])), lengths=np.array([7, 5]))
    draw = Draw("onnx_window", h_kv=1, T=7, S=7)
    yield of_onnx(draw, 25, ("Y",), {"left_window_size": 2, "right_window_size": 1},
                  dict(window_left=2, window_right=1, position_offset=np.zeros(2, np.int64)))
    draw = Draw("onnx_bool_mask_f16", dtype="F16", d=8)
    yield of_onnx(draw, 23, ("Y",), mask=draw.rng.random((2, 1, 4, 7)) < 0.7)


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    torch.set_num_threads(1)
    for cases in (torch_cases, jax_cases, onnx_cases):
        for tensors, metadata in cases():
            mha_case.write(directory / (metadata["name"] + ".safetensors"), tensors, metadata)


if __name__ == "__main__":
    main()
