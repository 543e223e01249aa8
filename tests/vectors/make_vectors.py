"""Records PyTorch's nn.MultiheadAttention as case files next to this script. Needs python3-torch.

    python3 tests/vectors/make_vectors.py [directory]

expected.* is the module in float32, expected64.* the same module in float64. Weights are stored
as W_* (inputs, outputs), and once more under PyTorch's own names where all three widths agree.
"""
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

# The module's composite path: its fused inference path needs gradients off.
TOLERANCE = {"rtol": 1.3e-6, "atol": 1e-5,  # torch.testing.assert_close, float32; atol of the module's own tests
             "rtol64": 1e-12, "atol64": 1e-12}  # sums of at most 64 terms of order 1: 64 * 2^-53 * 10, rounded up


def case(name, *, E=24, h=4, B=2, T=7, S=None, layout="BTE", bias=True, kdim=None, vdim=None, bias_kv=False,
         zero_attn=False, attn_mask=None, mask_kind="none", padding=None, causal=False, mean=False, note=None):
    """attn_mask (broadcastable to B,h,T,S) and padding (B,S) as the case format stores them."""
    torch.manual_seed(sum(map(ord, name)))
    S = S or T
    module = nn.MultiheadAttention(E, h, bias=bias, kdim=kdim, vdim=vdim, add_bias_kv=bias_kv, add_zero_attn=zero_attn,
                                   batch_first=True)
    with torch.no_grad():
        for parameter in module.parameters():  # PyTorch's zero biases would hide bugs
            if parameter.dim() == 1 or parameter.shape[:-1].numel() == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.5)
    x = torch.randn(B, T, E)
    is_self = T == S and kdim is None and vdim is None
    key = x if is_self else torch.randn(B, S, kdim or E)
    value = key if vdim is None and (kdim or E) == E else torch.randn(B, S, vdim or E)
    mask = attn_mask
    if causal:
        mask = torch.ones(T, S, dtype=torch.bool).triu(1)
    if mask is not None and mask.dim() > 2:
        mask = mask.expand(B, h, T, S).reshape(B * h, T, S)

    def run(m, dtype):
        arguments = dict(attn_mask=mask.to(dtype) if mask is not None and mask.is_floating_point() else mask,
                         key_padding_mask=padding, need_weights=True, average_attn_weights=False)
        with torch.enable_grad():
            out, weights = m(x.to(dtype), key.to(dtype), value.to(dtype), **arguments)
        return out.detach(), weights.detach()

    exact = nn.MultiheadAttention(E, h, bias=bias, kdim=kdim, vdim=vdim, add_bias_kv=bias_kv, add_zero_attn=zero_attn,
                                  batch_first=True, dtype=torch.float64)
    exact.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
    results = {"expected": run(module, torch.float32), "expected64": run(exact, torch.float64)}

    state = {k: v.detach() for k, v in module.state_dict().items()}
    if "in_proj_weight" in state:
        projections = state["in_proj_weight"].chunk(3)
    else:
        projections = [state[f"{letter}_proj_weight"] for letter in "qkv"]
    tensors = {f"W_{letter}": w.T for letter, w in zip("qkv", projections)}
    tensors["W_o"] = state["out_proj.weight"].T
    if bias:
        tensors.update({f"b_{letter}": b for letter, b in zip("qkv", state["in_proj_bias"].chunk(3))})
        tensors["b_o"] = state["out_proj.bias"]
    if bias_kv:
        tensors.update(bias_k=state["bias_k"].flatten(), bias_v=state["bias_v"].flatten())
    if "in_proj_weight" in state:
        tensors.update({f"torch.{k}": v for k, v in state.items() if not k.startswith("bias_")})

    def lay(t):
        return {"BTE": t, "TBE": t.transpose(0, 1), "TE": t[0]}[layout]

    def unbatch(t):
        return t[0] if layout == "TE" else t

    tensors.update(query=lay(x), key=lay(key), value=lay(value))
    for prefix, (out, weights) in results.items():
        tensors[f"{prefix}.output"] = lay(out)
        name = f"{prefix}.weights_mean" if mean else f"{prefix}.weights"
        tensors[name] = unbatch(weights.mean(1) if mean else weights)
    if attn_mask is not None:
        tensors["attn_mask"] = attn_mask
    if padding is not None:
        tensors["key_padding_mask"] = padding
    if causal:
        tensors["position_offset"] = torch.zeros(B, dtype=torch.int64)

    d = E // h
    metadata = dict(format_version=1, name=name, kind="mha", layout=layout, num_heads=h, kv_heads=h, d_k=d, d_v=d,
                    d_model=E, batch=B, q_len=T, kv_len=S, past_len=0, scale=repr(d ** -0.5), scale_is_default=1,
                    softcap="0.0", causal=int(causal), window_left=-1, window_right=-1, attn_mask_kind=mask_kind,
                    key_padding_mask_kind="none" if padding is None else "bool_true_masks", add_bias_kv=int(bias_kv),
                    add_zero_attn=int(zero_attn), fully_masked="none", rope="none", rope_dim=0, alibi=0,
                    source="pytorch", source_version=f"PyTorch {torch.__version__}", op="torch.nn.MultiheadAttention",
                    source_dtype="F32", expected64_origin="PyTorch in float64", need_weights=1,
                    average_attn_weights=int(mean), **TOLERANCE)
    if note:
        metadata["note"] = note
    assert all(torch.isfinite(t).all() for t in results["expected64"])
    return tensors, metadata


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    torch.set_num_threads(1)
    padding = torch.zeros(3, 9, dtype=torch.bool)
    padding[0, 7:] = True
    padding[2, :2] = padding[2, 5] = True
    hides = torch.zeros(5, 5, dtype=torch.bool)
    hides[0, 1:] = hides[2, 0] = hides[4, ::2] = True
    generator = torch.Generator().manual_seed(5)
    per_head = torch.randn(2, 3, 6, 8, generator=generator)
    per_head[1, 2, 3, :5] = float("-inf")
    cases = [
        case("torch_self", E=40, h=5),
        case("torch_self_tbe", layout="TBE"),
        case("torch_self_unbatched_no_bias", B=1, E=12, h=1, T=3, layout="TE", bias=False),
        case("torch_one_token", B=1, T=1, E=16, h=2),
        case("torch_long_mean", B=1, T=33, E=16, h=2, mean=True),
        case("torch_cross", T=6, S=17, E=32, h=2),
        case("torch_cross_kdim_vdim", T=4, S=9, E=24, h=3, kdim=10, vdim=14),
        case("torch_causal", T=16, E=24, h=3, causal=True),
        case("torch_mask_hides", T=5, attn_mask=hides, mask_kind="bool_true_masks"),
        case("torch_mask_per_head", T=6, S=8, h=3, attn_mask=per_head, mask_kind="additive"),
        case("torch_padding", B=3, T=4, S=9, padding=padding),
        case("torch_bias_kv", bias_kv=True, T=6, S=6),
        case("torch_bias_kv_zero_attn_padding", B=3, T=4, S=9, bias_kv=True, zero_attn=True, padding=padding),
    ]
    for tensors, metadata in cases:
        mha_case.write(directory / (metadata["name"] + ".safetensors"),
                               {k: v.numpy() for k, v in tensors.items()}, metadata)


if __name__ == "__main__":
    main()
