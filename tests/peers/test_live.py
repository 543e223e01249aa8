"""mha.Model.from_torch: counts against the storages of torch, layers against the results of the model, refusals."""
import functools
import re

import mha
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from test_transformers import ids_of, model_of  # noqa: E402

F, nn = torch.nn.functional, torch.nn
torch.set_num_threads(1)
WIDE, HEADS = 24, 4
D = WIDE // HEADS


class Own(nn.Module):
    """Attention under no name of its own. how: the order in which a fused projection has its features."""

    def __init__(self, how, bias=True):
        super().__init__()
        self.how = how
        self.mix = nn.Linear(WIDE, 3 * WIDE, bias=bias)
        self.drop = nn.Dropout(0.5)
        self.back = nn.Linear(WIDE, WIDE, bias=bias)

    def forward(self, x):
        a, b = x.shape[:2]
        y = self.drop(self.mix(x))
        if self.how == "thirds":
            q, k, v = (t.view(a, b, HEADS, D).transpose(1, 2) for t in y.chunk(3, -1))
        elif self.how == "by head, copied":
            q, k, v = (t.transpose(1, 2).contiguous() for t in y.view(a, b, HEADS, 3 * D).chunk(3, -1))
        elif self.how == "feature by feature":
            q, k, v = y.view(a, b, D, 3, HEADS).permute(3, 0, 4, 1, 2)
        elif self.how == "time first":
            q, k, v = (t.reshape(a, b, HEADS, D).permute(1, 2, 0, 3) for t in y.chunk(3, -1))
        elif self.how == "rotated":
            q, k, v = (t.view(a, b, HEADS, D).transpose(1, 2) for t in y.chunk(3, -1))
            q = q * torch.linspace(1, 2, b)[:, None]
        elif self.how == "in place":
            y[..., :WIDE] *= 2
            q, k, v = (t.view(a, b, HEADS, D).transpose(1, 2) for t in y.chunk(3, -1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
        if self.how == "time first":
            return self.back(z.permute(2, 0, 1, 3).reshape(a, b, WIDE))
        return self.back(z.transpose(1, 2).reshape(a, b, WIDE))


class Groups(nn.Module):
    """Two key/value heads for four, repeated; keys and values of something else; no bias but that of the keys."""

    def __init__(self, repeat=True, gated=False):
        super().__init__()
        self.repeat, self.gated = repeat, gated
        self.q, self.out = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, WIDE, bias=False)
        self.k, self.v = nn.Linear(10, 2 * D), nn.Linear(10, 2 * D, bias=False)

    def forward(self, x, other):
        q = self.q(x).unflatten(-1, (HEADS, D)).transpose(1, 2)
        k, v = (f(other).unflatten(-1, (2, D)).transpose(1, 2) for f in (self.k, self.v))
        if self.repeat:
            k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=not self.repeat).transpose(1, 2).flatten(2)
        return self.out(y.sigmoid() * y if self.gated else y)


def storages(module):
    """Bytes of parameters by storage, as torch has them."""
    return sum({p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in module.parameters()}.values())


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("how", ["thirds", "by head, copied", "feature by feature", "time first"])
def test_layers_found_by_tracing(how, bias, dtype):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(WIDE, WIDE), Own(how, bias), nn.ReLU(), Own("thirds", bias)).to(dtype).eval()
    x = drawn(3, 7, WIDE).to(dtype)
    net = mha.Model.from_torch(model, x.float() if dtype == torch.bfloat16 else x)
    assert list(net.attention) == ["1", "3"] and not net.refused
    layer, own = net.attention["1"], model[1]
    assert np.array_equal(layer.weights["W_O"].T, own.back.weight.detach().float() if dtype == torch.bfloat16
                          else own.back.weight.detach())
    assert ("b_Q" in layer.weights) == bias == ("b_O" in layer.weights)
    assert layer.settings == {"causal": True, "scale": 0.3} and layer.totals.parameters == sum(
        p.numel() for p in own.parameters())
    with torch.no_grad():
        entered = model[0](x)
        want = own(entered)
    kwargs = {"layout": "TBE"} if how == "time first" else {}
    mha.testing.assert_attention_close(want.float() if dtype == torch.bfloat16 else want, entered, layer=layer,
                                       dtype=str(dtype).replace("torch.", ""), **kwargs)
    weights = net.trace("1", return_stages=["weights"])["weights"]
    assert weights.shape == ((7, 4, 3, 3) if how == "time first" else (3, 4, 7, 7))
    rows = {row.name: (row.role, row.group) for row in net.parameters()}
    assert rows["1.mix.weight"] == ("W_QKV", "attention") and rows["1.back.weight"] == ("W_O", "attention")
    assert rows["0.weight"] == ("", "")
    assert net.group_totals("attention").parameters == 2 * layer.totals.parameters


@pytest.mark.parametrize("repeat", [True, False])
def test_groups_and_other_rows(repeat):
    torch.manual_seed(2)
    model, x, other = Groups(repeat).eval(), drawn(2, 5, WIDE), drawn(2, 9, 10)
    net = mha.Model.from_torch(model, {"x": x, "other": other})
    layer = net.attention["Groups"]
    c = layer.config
    assert (c["n_heads"], c["kv_heads"], c["d_kin"], c["d_vin"]) == (4, 2, 10, 10) and not net.refused
    assert set(layer.weights) == {"W_Q", "W_K", "W_V", "W_O", "b_K"}
    with torch.no_grad():
        mha.testing.assert_attention_close(model(x, other), x, other, other, layer=layer)


@pytest.mark.parametrize("model, inputs, why", [
    (Own("rotated"), drawn(2, 5, WIDE), "its queries are no columns of a projection: .* such as a rotation"),
    (Own("in place"), drawn(2, 5, WIDE), "gives other numbers than the model"),
    (Own("thirds"), torch.ones(2, 5, WIDE), None),
    (Own("thirds"), torch.zeros(2, 5, WIDE), None),
    (Own("thirds", False), torch.zeros(2, 5, WIDE), "give inputs that tell them apart"),
    (Groups(gated=True), (drawn(2, 5, WIDE), drawn(2, 9, 10)), "no projection takes its heads side by side"),
])
def test_what_is_refused(model, inputs, why):
    net = mha.Model.from_torch(model.eval(), inputs)
    if why is None:
        assert len(net.attention) == 1
        return
    assert not net.attention and list(net.refused) == [type(model).__name__]
    assert re.search(why, next(iter(net.refused.values()))), net.refused
    with pytest.raises(ValueError, match="^layer: expected one of "):
        net.trace("x")


def test_projection_that_is_no_matrix():
    class Normed(Own):
        def __init__(self):
            super().__init__("thirds")
            self.mix = nn.Sequential(self.mix, nn.LayerNorm(3 * WIDE))

    net = mha.Model.from_torch(Normed().eval(), drawn(2, 5, WIDE))
    assert "'mix.1' (LayerNorm) is no matrix and bias" in net.refused["Normed"]


# ---------------------------------------------------------------- storages


def test_counts_are_those_of_the_storages():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
            self.head.weight = self.embed.weight
            self.turned = nn.Parameter(self.embed.weight.data.t())        # the same memory, another shape
            self.flat = nn.Parameter(torch.randn(40))
            self.first = nn.Parameter(self.flat.data[:16].view(4, 4))     # a part of it
            self.halves = nn.ParameterList(torch.randn(2, 8).unbind())    # one storage, disjoint parts
            self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
            self.register_buffer("ids", torch.arange(5).expand(3, 5))     # five numbers
            self.register_buffer("table", torch.randn(7), persistent=False)

    net = mha.Model.from_torch(Tied())
    rows, totals = {row.name: row for row in net.parameters()}, net.totals
    assert totals.parameters == 60 + 40 + 16 + 3 and totals.trainable == totals.parameters - 3
    assert totals.parameter_bytes == storages(Tied())
    assert totals.buffers == 12 and rows["ids"].shape == (1, 5)
    assert [name for name, row in rows.items() if row.alias_of == "turned"] == ["embed.weight", "head.weight"]
    assert rows["turned"].shape == (6, 10) and rows["first"].kind == "derived" and not rows["frozen"].trainable
    with pytest.raises(ValueError, match="expected a configuration that is described"):
        net.costs(1, 4)
    with torch.device("meta"):
        assert mha.Model.from_torch(nn.Linear(1000, 1000)).totals.parameters == 1001000


@pytest.mark.parametrize("model_type", ["llama", "mistral", "gemma2", "gpt_oss", "llama4_text", "modernbert"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_of_transformers(model_type, dtype):
    model = model_of(model_type, "eager", dtype)
    wide = dict(model_of(model_type, "eager").named_buffers())
    for name, held in model.named_buffers():  # frequencies, which the configuration does not round
        held.data = wide[name]
    mask = torch.ones(2, 11, dtype=int)
    mask[0, :4] = 0
    net = mha.Model.from_torch(model, {"input_ids": ids_of(), "attention_mask": mask})
    assert not net.refused and len(net.attention) == 2 == len(net.layers), net.refused
    assert net.totals.parameter_bytes == storages(model)
    described = mha.Model.from_config(model.config, class_name=type(model).__name__)
    assert net.totals.parameters == described.totals.parameters and net.costs(1, 8) == described.costs(1, 8)
    assert net.group_totals("attention").parameters == described.group_totals("attention").parameters
    for name in net.attention:
        trace = net.trace(name)
        assert trace["weights"].shape == (2, 4, 11, 11) and not trace["weights"][0, :, 4:, :4].any()
    assert mha.Model.from_torch(model).attention.keys() == net.attention.keys()


def test_a_model_that_is_not_what_its_configuration_says():
    model = model_of("llama", "eager")
    attention = model.model.layers[1].self_attn
    attention.scaling *= 1.5
    net = mha.Model.from_torch(model, {"input_ids": ids_of()})
    assert list(net.attention) == ["model.layers.0.self_attn"]
    assert "gives other heads than the model computed" in net.refused["model.layers.1.self_attn"]


def test_layers_of_which_no_call_was_compared():
    """They have a reason, and are not shown as if the run had confirmed them."""
    given = {"input_ids": ids_of()}
    model = model_of("llama", "eager")
    assert not mha.Model.from_torch(model, given).unchecked and not mha.Model.from_torch(model).unchecked
    with torch.no_grad():
        for part in (model.model.layers[1].self_attn.q_proj, model.model.layers[1].self_attn.k_proj):
            part.weight.mul_(1e24)
    net = mha.Model.from_torch(model, given)
    assert list(net.attention) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert list(net.unchecked) == ["model.layers.1.self_attn"] and "1 not checked" in repr(net), net.unchecked
    with pytest.raises(ValueError, match="compared with a call of the model, found 'model.layers.1.self_attn'"):
        net.trace("layers.1.self_attn")
    model = model_of("llama", "eager", attention_dropout=0.5).train()
    net = mha.Model.from_torch(model, given)
    assert set(net.unchecked) == set(net.attention) and "dropout 0.5" in net.unchecked["model.layers.0.self_attn"]

    class Own(nn.Module):
        def forward(self, hidden_states, **_):
            return (hidden_states @ hidden_states.mT).softmax(-1) @ hidden_states, None

    model = model_of("llama", "eager")
    kept = model.model.layers[1].self_attn
    forward = Own().forward
    kept.forward = forward
    net = mha.Model.from_torch(model, given)
    assert list(net.unchecked) == ["model.layers.1.self_attn"] and "was heard" in str(net.unchecked)


def test_layers_without_a_module():
    model = model_of("llama", "eager", num_hidden_layers=3)
    del model.model.layers[2]
    net = mha.Model.from_torch(model)
    assert len(net.attention) == 2 and list(net.refused) == ["model.layers.2.self_attn"], net.refused
    assert "no module" in net.refused["model.layers.2.self_attn"]


def test_a_module_of_torch_that_is_wrong():
    model = nn.Sequential(nn.TransformerEncoderLayer(WIDE, HEADS, 16, batch_first=True)).eval()
    whole = nn.MultiheadAttention.forward
    shifted = functools.wraps(whole)(lambda self, *args, **kwargs: (whole(self, *args, **kwargs)[0] + 1, None))
    nn.MultiheadAttention.forward = shifted
    try:
        net = mha.Model.from_torch(model, drawn(2, 5, WIDE))
    finally:
        nn.MultiheadAttention.forward = whole
    assert not net.attention and "its weights give other rows" in net.refused["0.self_attn"], net.refused


@pytest.mark.parametrize("model_type, names", [("llama", ["q_proj", "v_proj", "o_proj"]),
                                               ("gpt2", ["c_attn", "c_proj"]),
                                               ("gpt2", ["c_proj"])])
def test_adapters(model_type, names):
    peft = pytest.importorskip("peft")
    model = model_of(model_type, "eager")
    plain = mha.Model.from_torch(model).totals.parameters
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=names,
                                                       fan_in_fan_out=model_type == "gpt2")).eval()
    for name, p in model.named_parameters():
        if "lora_B" in name or "bias" in name:
            nn.init.normal_(p)
    net = mha.Model.from_torch(model, {"input_ids": ids_of()})
    assert len(net.attention) == model.config.num_hidden_layers and not net.refused, net.refused
    added = net.group_totals("adapter")
    assert added.parameters == added.trainable == net.totals.trainable == net.totals.parameters - plain
    roles = {row.role for row in net.parameters() if row.group == "adapter"}
    assert roles == {"lora_A", "lora_B"}
    back = dict(model.named_modules())[f"{next(iter(net.attention))}.{'o_proj' if model_type == 'llama' else 'c_proj'}"]
    W_O = next(iter(net.attention.values())).weights["W_O"]
    with torch.no_grad():
        assert np.allclose(W_O, back(torch.eye(32)) - back(torch.zeros(1, 32)), atol=1e-5)
    if len(names) == 1:
        return
    first = next(iter(net.attention.values())).weights["W_V"]
    values = "v_proj" if model_type == "llama" else "c_attn"
    wrapped = dict(model.named_modules())[f"{next(iter(net.attention))}.{values}"]
    with torch.no_grad():
        whole = (wrapped(torch.eye(first.shape[0])) - wrapped(torch.zeros(1, first.shape[0])))[:, -first.shape[1]:]
    assert np.allclose(first, whole, atol=1e-5) and not np.allclose(first, wrapped.base_layer.weight.detach().numpy()[
        ..., -first.shape[1]:] if model_type == "gpt2" else wrapped.base_layer.weight.detach().numpy().T, atol=1e-3)


def test_module_of_torch():
    for first in (True, False):
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDE, HEADS, 16, batch_first=first), 2).eval()
        x = drawn(2, 5, WIDE)
        net = mha.Model.from_torch(model, x if first else x.transpose(0, 1))
        assert list(net.attention) == ["layers.0.self_attn", "layers.1.self_attn"] and not net.refused
        layer = net.attention["layers.0.self_attn"]
        want = model.layers[0].self_attn(*[x if first else x.transpose(0, 1)] * 3, need_weights=False)[0].detach()
        got = net.trace("layers.0.self_attn")["output"]
        assert np.abs(np.asarray(got) - (want if first else want.transpose(0, 1)).numpy()).max() < 1e-5
        assert layer.totals.parameters == sum(p.numel() for p in model.layers[0].self_attn.parameters())
        rows = {row.name: row.group for row in net.parameters()}
        assert rows["layers.0.self_attn.in_proj_weight"] == "attention" and rows["layers.0.linear1.weight"] == ""


def test_words():
    with pytest.raises(TypeError, match="^model: expected a torch.nn.Module, found int"):
        mha.Model.from_torch(3)
    with pytest.raises(TypeError, match="^inputs: expected a tensor"):
        mha.Model.from_torch(nn.Linear(2, 2), 3)

    class SomeAttention(nn.Module):
        pass

    model = nn.Sequential(SomeAttention())
    assert "inputs= finds" in mha.Model.from_torch(model).refused["0"]
    assert "LlamaForCausalLM" in repr(mha.Model.from_torch(model_of("llama", "eager")))


@pytest.mark.parametrize("counts", [None, [2, 4]])
def test_heads_without_a_configuration(counts):
    net = mha.Model.from_torch(nn.MultiheadAttention(8, 2))
    with pytest.raises(ValueError, match="^model: expected a configuration that is described, found none: "):
        net.heads(counts)
