"""Records gradients of PyTorch's autograd, in float32 and in float64, as case files beside this script.

    python3 -m pip install torch
    python3 tests/vectors/make_gradient_vectors.py [directory]

gradients_sdpa: scaled_dot_product_attention of grouped heads with an additive mask, its gradient too;
gradients_d_missing the same in float32, but without D = rowsum(dO O), a mistake that has a name; gradients_torch:
torch.nn.MultiheadAttention with the gradients of its input and parameters. The last has tolerances, 1e-5 of the largest
number in float32 and 1e-13 in float64.
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
    mha_case.save(f"{folder}/dialects/gradients_d_missing.safetensors", name="gradients_d_missing", **said, **wrong,
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


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
