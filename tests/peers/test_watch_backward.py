"""mha.watch(backward=True): gradients of a training step checked call by call, the same bits of all parameters."""
import json

import mha
import pytest
from test_transformers import ids_of, model_of
from test_watch import Plain

torch = pytest.importorskip("torch")
interface = pytest.importorskip("transformers.modeling_utils").AttentionInterface
masking = pytest.importorskip("transformers.masking_utils")
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
F = torch.nn.functional


def step(model, mask=None):
    """One training step; the gradients of all parameters."""
    model.zero_grad()
    model(ids_of(), attention_mask=mask, labels=ids_of()).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model_type, implementation", [("llama", "sdpa"), ("mistral", "eager"), ("gemma2", "eager"),
                                                        ("gpt_oss", "eager")])
def test_same_bits_and_no_alarm(model_type, implementation, dtype, padding):
    model, mask = model_of(model_type, implementation, dtype), torch.ones(2, 11, dtype=int)
    mask[0, :padding] = 0
    plain = step(model, mask)
    with mha.watch(model, backward=True) as w:
        watched = step(model, mask)
    assert plain.keys() == watched.keys() and all(torch.equal(plain[name], watched[name]) for name in plain)
    assert w.passed and not w.uncompared, w
    for row in w.layers.values():
        assert set(row.gradients) == {"dq", "dk", "dv"} and row.backward == row.calls == 1
        assert 0 < row.gradient_ratio <= 1 and bool(row.in_part) == bool(padding)
    assert w.table().column("backward") == [row.gradient_ratio for row in w.layers.values()]
    after = step(model, mask)
    assert all(torch.equal(plain[name], after[name]) for name in plain)


class Planted(torch.autograd.Function):
    """Eager attention of grouped heads, whose backward has a bug."""

    bug = ""

    @staticmethod
    def weights(q, k, mask, scale):
        return (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale + mask).softmax(-1)

    @staticmethod
    def forward(context, q, k, v, mask, scale):
        context.save_for_backward(q, k, v, mask)
        context.scale = scale
        return Planted.weights(q, k, mask, scale) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)

    @staticmethod
    def backward(context, do):
        q, k, v, mask = context.saved_tensors
        group, scale, bug = q.shape[1] // k.shape[1], context.scale, Planted.bug
        p = Planted.weights(q, k, mask, scale)
        dp = do @ v.repeat_interleave(group, 1).mT
        taken = 0 if bug == "d-missing" else (p * dp).sum(-1, keepdim=True)
        ds = p * (dp - taken)
        dk, dv = ((ds.mT @ q * scale).unflatten(1, (-1, group)), (p.mT @ do).unflatten(1, (-1, group)))
        dq = ds @ k.repeat_interleave(group, 1) * (1 if bug == "scale-missing-dq" else scale)
        dk = dk[:, :, -1] if bug == "group-last-dk" else dk.sum(2)
        return dq, dk, dv.sum(2), None, None


def planted_in(layer, dtype=torch.float32):
    def attention(module, query, key, value, mask, scaling, **kwargs):
        if module.layer_idx == layer:
            y = Planted.apply(query, key, value, mask, scaling)
        else:
            wide = [x.repeat_interleave(2, 1) for x in (key, value)]
            y = (query @ wide[0].mT * scaling + mask).softmax(-1) @ wide[1]
        return y.transpose(1, 2).contiguous(), None
    interface.register("planted", attention)
    masking.AttentionMaskInterface.register("planted", masking.eager_mask)
    return model_of("llama", "planted", dtype, num_hidden_layers=4)


@pytest.mark.parametrize("bug", ["scale-missing-dq", "group-last-dk", "d-missing", ""])
@pytest.mark.parametrize("layer", [0, 2])
def test_first_wrong_backward(monkeypatch, layer, bug):
    """The forward passes; the layer and the bug are named, and no layer that only passes wrong gradients on."""
    monkeypatch.setattr(Planted, "bug", bug)
    model = planted_in(layer)
    with mha.watch(model, backward=True) as w:
        step(model)
    assert w.passed == (not bug), w
    if bug:
        name = f"model.layers.{layer}.self_attn"
        assert [f.layer for f in w.findings] == [name] and w.first.kind == "backward" and w.first.call == 1
        assert bug in w.first.names and bug in str(w) and f"{name}, call 1: d" in str(w), w
        assert [row.gradient_ratio > 1 for row in w.layers.values()] == [i == layer for i in range(4)]
        assert all(row.ratio <= 1 for row in w.layers.values())
        said = json.loads(json.dumps(w.to_dict()))
        assert said["findings"][0]["kind"] == "backward" and said["layers"][layer]["gradients"]["dq"] is not None


def test_functions_and_what_is_not_checked():
    model, x = Plain(), torch.randn(2, 5, 16)
    with mha.watch(model, backward=True) as w:
        model(x).square().sum().backward(retain_graph=True)
    assert w.passed and w.layers["Plain"].backward == 3, w
    with mha.watch(model, backward=True) as w:
        y = model(x).square().sum()
        y.backward(retain_graph=True)
        y.backward()
    assert w.passed and w.layers["Plain"].backward == 6, w
    with mha.watch(model, backward=True) as w:
        loss = model(x).sum()
    assert not w.passed and w.uncompared == {"Plain": ["no gradient came back"]}
    loss.backward()  # after the watch nothing listens
    assert w.layers["Plain"].backward == 0
    with torch.no_grad(), mha.watch(model, backward=True) as w:
        model(x)
    assert w.passed and w.layers["Plain"].backward == 0
    model.wrong = 1  # another scale: its output is right for what was asked for, and so is its backward
    with mha.watch(model, backward=True) as w:
        model(x).sum().backward()
    assert w.passed, w
    whole = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    with mha.watch(whole, backward=True) as w:
        whole(x).sum().backward()
    assert "of the weights of torch.nn.MultiheadAttention alone" in str(w.uncompared) and not w.passed
    with pytest.raises(TypeError, match="backward: expected"):
        mha.watch(model, backward="yes")


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_forward_that_is_computed_again(reentrant):
    model, x = Plain(1), torch.randn(2, 5, 16, requires_grad=True)
    plain, = torch.autograd.grad(checkpoint(model, x, use_reentrant=False).square().sum(), x)
    with mha.watch(model, backward=True) as w:
        checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
    assert torch.equal(x.grad, plain) and w.passed and w.layers["Plain"].backward == 1, w


class Shared(torch.nn.Module):
    """Two calls that share keys and values, whose gradients are sums; and somebody who uses the weights."""

    def forward(self, q, k, v):
        y = F.scaled_dot_product_attention(q, k, v)
        return F.scaled_dot_product_attention(y, k, v) + y


def test_gradients_are_those_of_the_call():
    model = Shared()
    inputs = [torch.randn(1, 2, 6, 8, requires_grad=True) for _ in range(3)]
    plain = torch.autograd.grad(model(*inputs).square().sum(), inputs)
    with mha.watch(model, backward=True) as w:
        found = torch.autograd.grad(model(*inputs).square().sum(), inputs)
    assert all(torch.equal(x, y) for x, y in zip(plain, found))
    assert w.passed and w.layers["Shared"].backward == 2, w
    q, k, v = inputs
    with mha.watch(model, backward=True) as w:  # keys that autograd does not follow
        model(q, k.detach(), v).sum().backward()
    assert w.passed and set(w.layers["Shared"].gradients) == {"dq", "dv", "dk"} - {"dk"}, w


def test_gradients_of_the_weights():
    model = model_of("llama", "eager")
    with mha.watch(model, backward=True) as w:
        out = model(ids_of(), output_attentions=True)
        (out.logits.sum() + out.attentions[0].square().sum()).backward()
    assert w.uncompared == {"model.layers.0.self_attn": ["gradients of weights or of lse"]}, w
    assert w.layers["model.layers.1.self_attn"].backward == 1


@pytest.mark.parametrize("T, said", [(600, "2 of 8 key/value heads"), (2100, "dq of 32 of 2,100 queries")])
def test_large_calls_are_checked_in_part(monkeypatch, T, said):
    model = Shared()
    q, k, v = (torch.randn(2, 4, T, 8, requires_grad=True) for _ in range(3))
    with mha.watch(model, backward=True) as w:
        model(q, k, v).square().sum().backward()
    assert w.passed and w.layers["Shared"].in_part[0].startswith(said), w
    right = torch.nn.functional.scaled_dot_product_attention

    def wrong(q, k, v):
        y = right(q, k, v)
        return y + (Twice.apply(q, y) if q.shape[-2] == T else 0)

    class Twice(torch.autograd.Function):
        """Nothing, of which the gradient of q is 1."""

        @staticmethod
        def forward(context, q, y):
            return torch.zeros_like(y)

        @staticmethod
        def backward(context, do):
            return torch.ones_like(do), None

    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong)
    with mha.watch(model, backward=True) as w:
        model(q, k, v).square().sum().backward()
    assert w.first.kind == "backward" and w.first.sentence.startswith("dq is off by"), w


# ---------------------------------------------------------------- whole layers


class Layer(torch.nn.Module):
    """nn.MultiheadAttention of inputs of which some are one tensor."""

    def __init__(self, same, **said):
        super().__init__()
        self.same, self.attention = same, torch.nn.MultiheadAttention(16, 2, **said)

    def forward(self, inputs, **said):
        query, key, value = (inputs[i] for i in self.same)
        return self.attention(query, key, value, **said)[0]


def layer_step(model, inputs, said, T):
    """The gradients of inputs and weights."""
    found = [*inputs, *model.parameters()]
    return torch.autograd.grad((model(inputs, **said) * torch.arange(16.0)).square().sum(), found, allow_unused=True)


MASKS = {
    "": lambda B, T, S: {},
    "causal": lambda B, T, S: {"attn_mask": torch.ones(T, S, dtype=bool).triu(1), "need_weights": False},
    "numbers": lambda B, T, S: {"attn_mask": torch.randn(2 * B, T, S)},
    "padding": lambda B, T, S: {"key_padding_mask": torch.arange(S)[None] >= torch.tensor([[S], [2], [S - 1]])[:B]},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("same, gradients", [((0, 0, 0), {"dq"}), ((0, 1, 1), {"dq", "dk"}),
                                             ((0, 1, 2), {"dq", "dk", "dv"})])
@pytest.mark.parametrize("said", [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_whole_layers_are_checked(same, gradients, batch_first, mask, said):
    torch.manual_seed(1)
    B, T, S = 3, 5, 5 if same == (0, 0, 0) else 7
    model = Layer(same, batch_first=batch_first, **said)
    inputs = [torch.randn(*((B, n) if batch_first else (n, B)), 16, requires_grad=True) for n in (T, S, S)]
    masks = MASKS[mask](B, T, S)
    plain = layer_step(model, inputs, masks, T)
    with mha.watch(model, backward=True) as w:
        watched = layer_step(model, inputs, masks, T)
    assert all(x is y is None or torch.equal(x, y) for x, y in zip(plain, watched))
    row = w.layers["attention"]
    assert w.passed and not w.uncompared and not row.in_part, w
    assert row.backward == 1 and set(row.gradients) == gradients and 0 < row.gradient_ratio <= 1
    after = layer_step(model, inputs, masks, T)
    assert all(x is y is None or torch.equal(x, y) for x, y in zip(plain, after))


def test_layers_of_other_widths_and_of_no_batch():
    model = Layer((0, 1, 2), kdim=6, vdim=10).double()
    inputs = [torch.randn(n, width, dtype=torch.float64, requires_grad=True) for n, width in ((3, 16), (4, 6), (4, 10))]
    with mha.watch(model, backward=True) as w:
        model(inputs).square().sum().backward()
    assert w.passed and set(w.layers["attention"].gradients) == {"dq", "dk", "dv"}, w
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2,
                                          enable_nested_tensor=False)
    with mha.watch(encoder, backward=True) as w:
        encoder(torch.randn(2, 5, 16, requires_grad=True)).square().sum().backward()
    assert w.passed and [row.backward for row in w.layers.values()] == [1, 1], w


class Grown(torch.autograd.Function):
    """Its input, of which the gradient lacks the scale of four features."""

    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient * gradient.shape[-1]**0.5


@pytest.mark.parametrize("same, shown", [((0, 0, 0), ["dq"]), ((0, 1, 1), ["dq"]), ((0, 1, 2), ["dq"])])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_wrong_backward_of_a_layer_is_named(monkeypatch, same, shown, batch_first):
    right = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, *x, **said: right(Grown.apply(q), *x, **said))
    torch.manual_seed(1)
    model = Layer(same, batch_first=batch_first)
    inputs = [torch.randn(4, 4, 16, requires_grad=True) for _ in range(3)]
    with mha.watch(model, backward=True) as w:
        model(inputs, need_weights=False).square().sum().backward()
    assert not w.passed and [(f.layer, f.kind) for f in w.findings] == [("attention", "backward")], w
    row = w.layers["attention"]
    assert row.ratio <= 1 and [name for name, ratio in row.gradients.items() if ratio > 1] == shown
    assert "scale-missing-dq" in w.first.names and "dq is off by" in w.first.sentence, w


def test_layers_that_are_checked_in_part_or_not(monkeypatch):
    model = Layer((0, 0, 0), batch_first=True)
    with mha.watch(model, backward=True) as w:
        model([torch.randn(5, 600, 16, requires_grad=True)]).sum().backward()
    assert w.passed and w.layers["attention"].in_part == ["1 of 5 batch rows"], w
    for layer, width, said in ((Layer((0, 0, 1)), 16, "query is also key or value, but not both"),
                               (Layer((0, 0, 0)).bfloat16(), 16, "the backward of a whole layer in bfloat16")):
        x = [torch.randn(3, 2, width, dtype=next(layer.parameters()).dtype, requires_grad=True) for _ in range(2)]
        with mha.watch(layer, backward=True) as w:
            layer(x).sum().backward()
        assert said in str(w.uncompared) and not w.passed and not w.findings, w
    padded = torch.arange(600)[None] >= torch.tensor([[600], [0]])
    with mha.watch(model, backward=True) as w:
        y = model([torch.randn(2, 600, 16, requires_grad=True)], key_padding_mask=padded)
        y[:1].sum().backward()
    assert not w.findings, w
