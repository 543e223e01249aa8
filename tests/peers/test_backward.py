"""Gradients of random calls, compared with PyTorch's autograd in float64: to 1e-12 of the largest number of a
gradient, or of a hundredth of the largest of all gradients of the call, whose sums may cancel.

PEER_CALLS is their number.
"""
import os

import mha
import numpy as np
import pytest

torch = pytest.importorskip("torch")
CALLS, SEED = int(os.environ.get("PEER_CALLS", 2000)), int(os.environ.get("PEER_SEED", 0))
torch.set_num_threads(1)


def draw(number):
    """A call: its tensors with gradients, its settings, and attention of them in float64 as autograd sees it."""
    r = np.random.default_rng(number)
    pick = lambda *values: values[r.integers(len(values))]
    B, h_kv, groups = int(pick(1, 2)), int(pick(1, 2, 3)), int(pick(1, 1, 2, 4))
    T, S, d, d_v = (int(pick(1, 2, 3, 5, 8, 16, 17)) for _ in range(4))
    S = T if r.random() < 0.4 else S
    h, size = h_kv * groups, float(pick(0.1, 1, 1, 3))
    leaf = lambda *shape, times=1.0: torch.from_numpy(times * r.standard_normal(shape)).requires_grad_()
    x = {"query": leaf(B, h, T, d, times=size), "key": leaf(B, h_kv, S, d, times=size),
         "value": leaf(B, h_kv, S, d_v)}
    said, hidden, added = {}, torch.zeros(B, h, T, S, dtype=torch.bool), []
    scale = said["scale"] = float(r.uniform(0.05, 1.5)) if r.random() < 0.3 else d**-0.5
    place = (torch.arange(T)[:, None] - torch.arange(S)[None, :]).expand(B, h, T, S)
    if r.random() < 0.4:
        said["is_causal"] = True
        hidden = hidden | (place < 0)
    if r.random() < 0.3:
        said["window"] = (left, right) = int(pick(0, 1, 4)), int(pick(-1, 0, 2))
        said["offset"] = 0
        hidden = hidden | (place > left) | ((place < -right) if right >= 0 else torch.zeros_like(hidden))
    if r.random() < 0.4:
        shape = pick((T, S), (1, S), (B, 1, T, S), (B, h, T, S), (h, 1, S))
        mask = r.standard_normal(shape)
        mask[r.random(shape) < 0.2] = -np.inf
        x["mask"] = torch.from_numpy(mask).requires_grad_()
        said["attn_mask"] = x["mask"]
        added.append(x["mask"])
    if r.random() < 0.3:
        lengths = said["lengths"] = r.integers(0, S + 1, B)
        hidden = hidden | (torch.arange(S) >= torch.from_numpy(lengths)[:, None, None, None])
    if r.random() < 0.3:
        x["alibi_slopes"] = leaf(h)
        said["alibi_slopes"], said["offset"] = x["alibi_slopes"].detach().numpy(), 0
        added.append(-x["alibi_slopes"][:, None, None] * place)
    cap = said["softcap"] = float(pick(0, 0, 0.5, 5))
    sigmoid = r.random() < 0.15
    if sigmoid:
        said["normaliser"], said["sigmoid_bias"] = "sigmoid", float(pick(0, -2))
    elif r.random() < 0.4:
        x["sinks"] = leaf(h)
        said["sinks"] = x["sinks"].detach().numpy()
    elif r.random() < 0.2:
        said["softmax_plus_one"] = True

    k, v = (x[name].repeat_interleave(groups, 1) for name in ("key", "value"))
    scores = scale * x["query"] @ k.transpose(-1, -2)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    for term in added:
        scores = scores + term
    hidden = hidden | torch.isneginf(scores)
    if sigmoid:
        weights = torch.sigmoid(torch.where(hidden, 0.0, scores) + said["sigmoid_bias"]).masked_fill(hidden, 0)
        return r, x, said, weights @ v, None
    more = x["sinks"][:, None, None].expand(B, h, T, 1) if "sinks" in x else torch.zeros(B, h, T, 1).double()
    more = more if "sinks" in x or "softmax_plus_one" in said else torch.full_like(more, -1e300)
    # a row without anything visible keeps a term that underflows, so that autograd meets no NaN
    every = torch.cat([torch.where(hidden, -1e300, scores), more], -1)
    weights = torch.softmax(every, -1)[..., :S].masked_fill(hidden, 0)
    sees = ~hidden.all(-1) | ("sinks" in x) | ("softmax_plus_one" in said)
    return r, x, said, weights @ v, torch.where(sees, torch.logsumexp(every, -1), 0.0)


def test_gradients_of_random_calls():
    seen, most = {}, 0.0
    for number in range(SEED, SEED + CALLS):
        r, x, said, output, lse = draw(number)
        do = torch.from_numpy(r.standard_normal(output.shape))
        dlse = torch.from_numpy(r.standard_normal(lse.shape)) if lse is not None and r.random() < 0.4 else None
        loss = (output * do).sum() + ((lse * dlse).sum() if dlse is not None else 0)
        names = list(x)
        theirs = dict(zip(names, torch.autograd.grad(loss, [x[name] for name in names], allow_unused=True)))
        also = [name for name in names if name not in ("query", "key", "value")]
        if "attn_mask" in said:
            said["attn_mask"] = said["attn_mask"].detach()
        found = mha.attention_backward(*(x[name].detach() for name in ("query", "key", "value")), do, dlse=dlse,
                                       also=also, layout="BHTD", **said)
        ours = dict(zip(("query", "key", "value"), found), **(found[3] if also else {}))
        largest = max(float(g.nan_to_num(0.0).abs().max()) for g in theirs.values() if g is not None and g.numel())
        for name in names:
            expected = torch.zeros_like(x[name]) if theirs[name] is None else theirs[name]
            expected = expected.nan_to_num(0.0) if name == "mask" else expected
            size = max(float(expected.abs().max()) if expected.numel() else 0.0, 0.01 * largest, 1e-3)
            size = max(size, largest) if name in ("alibi_slopes", "sinks") else size  # of all queries and keys
            off = float((ours[name].reshape(expected.shape) - expected).abs().max()) if expected.numel() else 0.0
            most = max(most, off / size)
            assert off <= 1e-12 * size, f"call {number}, d_{name}: off by {off / size:.2g} of {size:.3g}; {said.keys()}"
            seen[name] = seen.get(name, 0) + 1
        for name in said:
            seen[name] = seen.get(name, 0) + 1
    print(f"{CALLS} calls, at most {most:.2g} apart:", ", ".join(f"{n} {count}" for n, count in sorted(seen.items())))
    assert {"is_causal", "window", "mask", "lengths", "alibi_slopes", "softcap", "normaliser", "sinks",
            "softmax_plus_one"} <= set(seen)


def test_torch_modules():
    """Parameters and inputs of random torch.nn.MultiheadAttention, whose state turned is that of our layers."""
    for number in range(40):
        r = np.random.default_rng(number)
        pick = lambda *values: values[r.integers(len(values))]
        h, wide, rows = int(pick(1, 2, 4)), bool(pick(0, 1)), bool(pick(0, 1))
        E, kdim, vdim = 4 * h, (7, 5) if wide else (None, None), int(pick(0, 1))
        torch.manual_seed(number)
        module = torch.nn.MultiheadAttention(E, h, bias=not (wide and number % 3 == 0), add_bias_kv=rows,
                                             add_zero_attn=bool(vdim), kdim=kdim[0], vdim=kdim[1],
                                             batch_first=bool(pick(0, 1))).double()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        T, S, B = int(pick(1, 5, 9)), int(pick(2, 6)), 2
        shape = lambda n, width: (B, n, width) if module.batch_first else (n, B, width)
        x = [torch.randn(shape(n, width), dtype=torch.float64, requires_grad=True)
             for n, width in ((T, E), (S, kdim[0] or E), (S, kdim[1] or E))]
        mask = torch.randn(T, S, dtype=torch.float64)
        output = module(*x, attn_mask=mask, need_weights=False)[0]
        do = torch.randn_like(output)
        parameters = dict(module.named_parameters())
        theirs = torch.autograd.grad((output * do).sum(), [*x, *parameters.values()])
        layer = mha.MultiHeadAttention.from_torch(module)
        d = layer.backward(do, *(y.detach() for y in x), mask=mask)
        held = torch.nn.MultiheadAttention(E, h, bias=module.in_proj_bias is not None, add_bias_kv=rows,
                                           add_zero_attn=bool(vdim), kdim=kdim[0], vdim=kdim[1],
                                           batch_first=module.batch_first).double()
        held.load_state_dict(dict(zip(parameters, theirs[3:])))  # their gradients, read as weights are
        expected = {"query": theirs[0], "key": theirs[1], "value": theirs[2]}
        expected.update((name, torch.tensor(w)) for name, w in mha.MultiHeadAttention.from_torch(held).weights.items())
        assert list(d) == list(expected)
        largest = max(float(y.abs().max()) for y in expected.values())
        for name, y in expected.items():
            off = float((torch.as_tensor(d[name]) - y).abs().max())
            assert off <= 1e-12 * max(float(y.abs().max()), 0.01 * largest), f"module {number}, d_{name}: {off:.2g}"


def written_down(np_, q, k, v, causal):
    """(B, T, heads, width), causal top-left."""
    k, v = (np_.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    scores = np_.einsum("bihd,bjhd->bhij", q, k) / q.shape[3]**0.5
    if causal:
        scores = np_.where(np_.tril(np_.ones(scores.shape[2:], bool)), scores, -np_.inf)
    weights = np_.exp(scores - scores.max(-1, keepdims=True))
    return np_.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v)


def test_jax():
    """jax.vjp of attention as it is written down, in float64, of grouped heads; jax.nn's own takes float32 softmaxes.
    """
    jax = pytest.importorskip("jax")
    r = np.random.default_rng(1)
    wide = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        for T, S, h, h_kv, causal in ((5, 9, 4, 2, False), (7, 7, 3, 3, True), (9, 9, 4, 1, True)):
            q, do = (r.standard_normal((2, T, h, 8)) for _ in range(2))
            k, v = (r.standard_normal((2, S, h_kv, 8)) for _ in range(2))
            attend = lambda *x: written_down(jax.numpy, *x, causal)
            theirs = jax.vjp(attend, *map(jax.numpy.asarray, (q, k, v)))[1](jax.numpy.asarray(do))
            for ours, other in zip(mha.attention_backward(q, k, v, do, layout="BTNH", is_causal=causal), theirs):
                np.testing.assert_allclose(ours, other, rtol=0, atol=1e-12 * np.abs(other).max())
    finally:
        jax.config.update("jax_enable_x64", wide)
