"""Records attention whose queries see segments, lists and blocks of keys, as case files next to this script.

    python3 -m pip install torch "jax[cpu]"
    python3 tests/vectors/make_pattern_vectors.py [directory]

Segments are those of JAX's reference of its flash attention (Pallas, TPU), query padding that of
jax.nn.dot_product_attention, blocks those of PyTorch's FlexAttention; a list of keys becomes a mask by scattering, as
transformers' deepseek_v32 does it. In float32, and in float64.
"""
import pathlib
import sys

import jax
import numpy as np
import torch
from jax.experimental.pallas.ops.tpu import flash_attention as pallas
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

jax.config.update("jax_enable_x64", True)
B, HEADS, T, S, D = 2, 2, 7, 9, 4


def in_segments(r, q, k, v):
    """Numbers in any order; one query that finds no key would be averaged there, so that each finds one."""
    queries, keys = r.integers(0, 3, (B, T)), np.concatenate([np.arange(3)[None].repeat(B, 0),
                                                              r.integers(0, 3, (B, S - 3))], 1)
    ids = pallas.SegmentIds(queries.astype("i4"), keys.astype("i4"))
    y = pallas.mha_reference_no_custom_vjp(q, k, v, segment_ids=ids, sm_scale=D**-0.5)
    return np.asarray(y), {"q_segments": queries, "k_segments": keys}


def padded(r, q, k, v):
    """Queries after query_seq_lengths are padding."""
    lengths, keys = np.array([T - 2, T]), np.array([S, S - 4])
    y = jax.nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), query_seq_lengths=lengths.astype("i4"),
                                     key_value_seq_lengths=keys.astype("i4"))
    return np.asarray(y).swapaxes(1, 2), {"query_padding_mask": np.arange(T)[None] >= lengths[:, None],
                                          "query_padding_mask_kind": "bool_true_masks", "kv_lengths": keys}


def listed(r, q, k, v):
    """Three keys for each query, in any order, some twice, some not used."""
    lists = r.integers(0, S, (B, 1, T, 4))
    lists[..., -1] = np.where(r.random((B, 1, T)) < 0.5, -1, lists[..., 0])
    hidden = np.ones((B, 1, T, S + 1), bool)
    np.put_along_axis(hidden, np.where(lists < 0, S, lists), False, -1)
    y = scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), attn_mask=torch.from_numpy(~hidden[..., :S]))
    return y.numpy(), {"key_lists": lists}


def in_blocks(r, q, k, v):
    """Blocks of 2 queries and 4 keys, of which the last ones are cut off; some for each head."""
    rows, columns = -(-T // 2), -(-S // 4)
    seen = torch.from_numpy(r.random((B, HEADS, rows, columns)) < 0.5)
    seen[..., 0] |= ~seen.any(-1)

    def mask_mod(b, h, i, j):
        return seen[b, h, i // 2, j // 4]

    mask = create_block_mask(mask_mod, B, HEADS, T, S, device="cpu", BLOCK_SIZE=(2, 4))
    y = flex_attention(*map(torch.from_numpy, (q, k, v)), block_mask=mask)
    return y.numpy(), {"block_mask": mask.to_dense().numpy().astype(bool), "block_mask_kind": "bool_true_keeps",
                       "block_queries": 2, "block_keys": 4}


def main(folder):
    torch_version, jax_version = f"PyTorch {torch.__version__}", f"JAX {jax.__version__}"
    for name, make, version in (("segments", in_segments, jax_version), ("query_padding", padded, jax_version),
                                ("lists", listed, torch_version), ("blocks", in_blocks, torch_version)):
        r = np.random.default_rng(sum(map(ord, name)))
        inputs = [2 * r.normal(size=(B, HEADS, n, D)).astype("f4") for n in (T, S, S)]
        state = r.bit_generator.state
        results = {}
        for expected, dtype in (("expected", "f4"), ("expected64", "f8")):
            if expected == "expected64" and make is padded:  # whose softmax is of float32 always
                continue
            r.bit_generator.state = state
            results[f"{expected}.output"], words = make(r, *(x.astype(dtype) for x in inputs))
        q, k, v = inputs
        mha_case.save(f"{folder}/pattern_{name}.safetensors", query=q, key=k, value=v, format_version=1,
                      name=f"pattern_{name}", kind="sdpa", layout="BHTD", source=version.split()[0],
                      source_version=version, **results, **words)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
