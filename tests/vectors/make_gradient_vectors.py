"""Records gradients of PyTorch's autograd, in float32 and in float64, as case files next to this script.

    python3 -m pip install torch
    python3 tests/vectors/make_gradient_vectors.py [directory]

gradients_sdpa: scaled_dot_product_attention of grouped heads with an additive mask, its gradient too;
gradients_d_missing the same in float32, but without D = rowsum(dO O), a bug that has a name; gradients_torch:
torch.nn.MultiheadAttention with the gradients of its input and parameters. The last has tolerances, 1e-5 of the largest
number in float32 and 1e-13 in float64. gradients_stages: what autograd gives on the way through softmax(QK^T) V of
rotated grouped heads, causal, and D of both; gradients_stage_without_d the same, but dS = P dP from there on.
"""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

B, HEADS, KV_HEADS, T, S, D = 2, 4, 2, 5, 7, 8
NOTES = {"format_version": 1, "source": "PyTorch", "source_version": f"PyTorch {torch.__version__}"}
WIDTHS = (("expected", torch.float32), ("expected64", torch.float64))


def sdpa(q, k, v, mask):
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def without_d(q, k, v, mask, do):
    """dq, dk, dv with dS = P dP."""
    wide = [x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v)]
    p = torch.softmax(q @ wide[0].mT * D**-0.5 + mask, -1)
    ds = p * (do @ wide[1].mT) * D**-0.5
    fold = lambda x: x.unflatten(1, (KV_HEADS, -1)).sum(2)
    return ds @ wide[0], fold(ds.mT @ q), fold(p.mT @ do)


def turned(x):
    """Rows rotated by their position, half split, base 10000."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 10000.0**(-torch.arange(half, dtype=x.dtype) / half)
    (a, b), c, s = x.split(half, -1), angle.cos(), angle.sin()
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def staged(q, k, v, do, wrong=False):
    """The stages of a causal backward of rotated heads; wrong: without D in dS."""
    q, k, v = (x.detach().requires_grad_() for x in (turned(q), turned(k), v))
    k_wide, v_wide = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    scores = q @ k_wide.mT * D**-0.5
    masked = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    weights = masked.softmax(-1)
    out = weights @ v_wide
    of = {"d_heads": out, "d_weights": weights, "d_masked": masked, "d_scores": scores, "d_q_rot": q, "d_k_rot": k,
          "d_v": v}
    d = dict(zip(of, torch.autograd.grad((out * do).sum(), list(of.values()))))
    d["row_sums"] = (do * out).sum(-1)
    if wrong:
        d["d_scores"] = d["d_masked"] = weights * d["d_weights"]
        d["d_q_rot"] = d["d_scores"] @ k_wide * D**-0.5
    for name in ("d_heads", "d_q_rot", "d_k_rot", "d_v"):
        d[name] = d[name].transpose(1, 2).flatten(2)
    return {name: x.contiguous() for name, x in d.items()}


def arrays(**tensors):
    return {name.replace("__", "."): x.detach().numpy() for name, x in tensors.items()}


def main(folder):
    torch.manual_seed(23)
    shapes = ((B, HEADS, T, D), (B, KV_HEADS, S, D), (B, KV_HEADS, S, D), (1, HEADS, T, S))
    inputs, do = [torch.randn(s) for s in shapes], torch.randn(B, HEADS, T, D)
    inputs[3][0, :, 2, 3:] = -torch.inf
    said = arrays(query=inputs[0], key=inputs[1], value=inputs[2], attn_mask=inputs[3], d_output=do)
    results = {}
    for expected, dtype in WIDTHS:
        leaves = [x.to(dtype).detach().requires_grad_() for x in inputs]
        output = sdpa(*leaves)
        d = torch.autograd.grad((output * do).sum(), leaves)
        results |= arrays(**{f"{expected}__output": output},
                          **{f"{expected}__d_{name}": x for name, x in zip(("query", "key", "value", "mask"), d)})
    more = {"kind": "sdpa", "layout": "BHTD", "attn_mask_kind": "additive"}
    mha_case.save(f"{folder}/vectors/gradients_sdpa.safetensors", name="gradients_sdpa", **said, **results, **NOTES,
                  **more)
    wrong = {f"expected.d_{name}": x.numpy() for name, x in
             zip(("query", "key", "value"), without_d(*inputs, do))}
    mha_case.save(f"{folder}/conventions/gradients_d_missing.safetensors", name="gradients_d_missing", **said, **wrong,
                  **NOTES, **more)

    module, x = torch.nn.MultiheadAttention(12, 3, batch_first=True), torch.randn(B, T, 12)
    do = torch.randn(B, T, 12)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    words, largest = {}, 0
    for expected, dtype in WIDTHS:
        module, leaf = module.to(dtype), x.to(dtype).detach().requires_grad_()
        mask = torch.full((T, T), -torch.inf, dtype=dtype).triu(1)
        output = module(leaf, leaf, leaf, attn_mask=mask, need_weights=False)[0]
        names, parameters = zip(*module.named_parameters())
        d = torch.autograd.grad((output * do).sum(), [leaf, *parameters])
        by_name = dict(zip(names, d[1:]))
        thirds = [dict(zip("qkv", by_name[f"in_proj_{part}"].chunk(3))) for part in ("weight", "bias")]
        words |= arrays(**{f"{expected}__output": output, f"{expected}__d_query": d[0],
                           f"{expected}__d_W_o": by_name["out_proj.weight"].t().contiguous(),
                           f"{expected}__d_b_o": by_name["out_proj.bias"]},
                        **{f"{expected}__d_W_{l}": w.t().contiguous() for l, w in thirds[0].items()},
                        **{f"{expected}__d_b_{l}": b for l, b in thirds[1].items()})
        largest = max(largest, *(float(y.abs().max()) for y in d))
    case = mha_case.from_torch(module.to(torch.float32), x, torch.from_numpy(words["expected.output"]))
    case.update(words, d_output=do.numpy(), causal=1, name="gradients_torch", atol=repr(1e-5 * largest),
                atol64=repr(1e-13 * largest), **NOTES)
    case.pop("output", None)
    mha_case.save(f"{folder}/vectors/gradients_torch.safetensors", **case)


def save_stages(folder):
    torch.manual_seed(29)
    *inputs, do = (torch.randn(B, h, T, D) for h in (HEADS, KV_HEADS, KV_HEADS, HEADS))
    said = arrays(**dict(zip(("query", "key", "value"), inputs)), d_output=do)
    more = {"kind": "sdpa", "layout": "BHTD", "causal": 1, "rope": "half_split", "rope_base": "10000"}
    for wrong, name in ((False, "vectors/gradients_stages"), (True, "conventions/gradients_stage_without_d")):
        results = {}
        for expected, dtype in WIDTHS if not wrong else WIDTHS[:1]:
            found = staged(*(x.to(dtype) for x in (*inputs, do)), wrong)
            results |= arrays(**{f"{expected}__{stage}": x for stage, x in found.items()})
        mha_case.save(f"{folder}/{name}.safetensors", name=name.split("/")[1], **said, **results, **NOTES, **more)


if __name__ == "__main__":
    to = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    main(to)
    save_stages(to)
