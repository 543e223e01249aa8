"""mha.watch on random right models, which it accepts: packed sequences in windows and chunks, eager attention of 16
bits with any scale, encoder-decoders, vision; and layers that it cannot check, which it names.
"""
import mha
import numpy as np
import planted_peer
import pytest
from layers_drawn import inputs_of
from layers_drawn import model_of as row_of
from mha.torch.families import Described
from test_transformers import ids_of, model_of

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def packed(r):
    """Positions of 2 batch rows of 2 to 4 sequences, sometimes of one length."""
    if r.random() < 0.3:
        return torch.arange(int(r.integers(3, 8))).tile(2, int(r.integers(2, 4)))
    ends = [np.sort(r.choice(np.arange(1, 17), int(r.integers(1, 4)), replace=False)) for _ in range(2)]
    return torch.tensor(np.stack([np.concatenate([np.arange(n) for n in np.diff(end, prepend=0, append=17)])
                                  for end in ends]))


KINDS = ("llama", "mistral", "gemma2", "gpt_oss", "llama4_text")


@pytest.mark.parametrize("seed", range(40))
def test_packed_sequences(seed):
    """With windows and with chunks, which transformers counts from where a sequence begins; then without the window of
    one layer."""
    r = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    width = int(r.integers(2, 6))
    size = {"llama": {}, "llama4_text": {"attention_chunk_size": width}}.get(kind, {"sliding_window": width})
    model = model_of(kind, r.choice(["eager", "sdpa"]) if kind in ("llama", "mistral") else "eager", **size)
    positions = packed(r)
    given = {"input_ids": torch.from_numpy(r.integers(1, 50, positions.shape)), "position_ids": positions,
             "use_cache": False}
    with mha.watch(model) as w:
        model(**given)
    assert w.passed, w
    attention = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
    if kind == "llama" or int(positions.max()) < width:
        return
    forward, T = attention.forward, positions.shape[1]
    numbers = (torch.diff(positions, prepend=positions[:, :1] - 1) != 1).cumsum(1)
    seen = torch.ones(T, T).tril().bool() & (numbers[:, :, None] == numbers[:, None])
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
    attention.forward = lambda *args, **kwargs: forward(*args, **{**kwargs, "attention_mask": added})
    with mha.watch(model) as w:
        model(**given)
    assert w.status == "failed" and w.first.kind == "config", w


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(20))
def test_eager_attention_of_16_bits(seed, dtype):
    """Eager attention rounds q k before the scale and after it, each step of a softcap, and the sum with a mask."""
    r = np.random.default_rng(seed)
    kind = r.choice(["llama", "gemma2", "gpt_oss"])
    model = model_of(kind, "eager", dtype, head_dim=int(r.choice([8, 24, 96, 128])), initializer_range=0.2)
    for name, parameter in model.named_parameters():
        if "q_proj" in name or "k_proj" in name:
            parameter.mul_(float(r.choice([1, 2, 4])))
    mask = torch.ones(2, 24, dtype=int)
    mask[0, :int(r.integers(0, 5))] = 0
    with mha.watch(model) as w:
        model(torch.from_numpy(r.integers(1, 50, (2, 24))), attention_mask=mask)
    assert w.passed and all(row.projected for row in w.layers.values()), w


RIGHT = ["t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "whisper", "vit", "deit", "vit_mae",
         "dinov2", "beit", "clip_vision_model", "siglip_vision_model", "clip", "nomic_bert"]


def drawn(name, implementation="eager", dtype=torch.float32):
    model = row_of(name, implementation, dtype)
    given = inputs_of(model, model.config)[0]
    return model, {key: x.to(dtype) if x.is_floating_point() else x for key, x in given.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", RIGHT)
def test_encoder_decoders_and_vision(name, dtype):
    """All layers are checked, each with its projections; a torch.nn.MultiheadAttention is checked as a whole."""
    model, given = drawn(name, dtype=dtype)
    with mha.watch(model) as w:
        model(**given)
    assert w.passed and all(row.projected or len(row.heads) == 1 for row in w.layers.values()), w


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind, part", [("qwen2", "q_proj"), ("qwen2", "k_proj"), ("qwen2", "v_proj"),
                                        ("qwen3", "q_norm"), ("qwen3", "k_norm"), ("llama", "rotation")])
def test_a_part_of_a_projection_that_is_lost(kind, part, dtype):
    model = model_of(kind, "eager", dtype)
    attention = model.model.layers[1].self_attn
    if part == "rotation":
        forward = attention.forward
        attention.forward = lambda *args, **kwargs: forward(*args, **{**kwargs, "position_embeddings": tuple(
            torch.full_like(x, 1 - i) for i, x in enumerate(kwargs["position_embeddings"]))})
    elif "proj" in part:
        module = getattr(attention, part)
        module.bias.copy_(torch.randn(len(module.bias)))
        module.forward = lambda x: x @ module.weight.T
    else:
        getattr(attention, part).forward = lambda x: x
    with mha.watch(model) as w:
        model(ids_of())
    assert w.status == "failed" and w.first.layer == "model.layers.1.self_attn" and w.first.kind == "config", w
    assert part != "rotation" or "rope-missing" in w.first.names, w


def test_frequencies_that_were_rounded():
    """Far from the beginning they turn queries and keys by other angles: the watch accepts and reports them."""
    positions = torch.arange(400, 411)[None]
    for rounded in (True, False):
        model = model_of("llama", "eager", torch.bfloat16, head_dim=64, max_position_embeddings=512)
        if not rounded:
            model.model.rotary_emb = model_of("llama", "eager", head_dim=64).model.rotary_emb
        with mha.watch(model) as w:
            model(ids_of(), position_ids=positions)
        assert w.passed and all(row.rounded == rounded for row in w.layers.values()), w
        assert ("with rounded frequencies" in w.summary) == rounded


@pytest.mark.parametrize("said", [{"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}, {"do_sample": True},
                                  {"cache_implementation": "static"}, {"prompt_lookup_num_tokens": 3}], ids=str)
@pytest.mark.parametrize("kind", ["bart", "t5", "gemma2", "gpt_oss"])
def test_generated_tokens(kind, said):
    """Caches whose batch rows move with the beams, whose windows drop their first rows, and whose last rows a guess of
    several tokens takes back; encoders that `generate` calls by themselves."""
    model = planted_peer.model_of(kind, "AutoModelForSeq2SeqLM" if kind in ("bart", "t5") else "AutoModelForCausalLM")
    ids = torch.randint(3, 50, (1 if "prompt_lookup_num_tokens" in said else 2, 24))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    with mha.watch(model) as w:
        model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, **said)
    assert w.passed, w


def test_what_was_compared_is_said():
    for dtype in (torch.float32, torch.bfloat16):
        model = model_of("llama", "eager", dtype)
        with mha.watch(model) as w:
            model(ids_of())
        layers = w.to_dict()["layers"]
        assert [row["compared"] for row in layers] == [
            ["output", "settings", "queries, keys and values", "merged heads"]] * 2
        assert "settings in 2, queries, keys and values in 2, merged heads in 2" in w.summary, w
    with mha.watch(model, config=False) as w:
        model(ids_of())
    assert [row["compared"] for row in w.to_dict()["layers"]] == [["output"]] * 2
    assert w.passed and "compared: output in 2 layers" in w.summary and "queries" not in w.summary, w


def test_projections_that_no_type_can_compare():
    """Of adapters in 16 bits the roundings are not known."""
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(model_of("llama", "eager"), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    with mha.watch(model.eval()) as w:
        model(ids_of())
    assert w.passed, w
    with mha.watch(model.to(torch.bfloat16)) as w:
        model(ids_of())
    assert w.status == "not checked" and list(w.unchecked) == list(w.layers), w
    assert all(reasons == ["queries, keys and values: an adapter in 16 bits"] for reasons in w.unchecked.values()), w


def test_sinks_that_no_module_holds(monkeypatch):
    """They cannot be told from those of another layer."""
    monkeypatch.setattr("mha.torch.configured._sinks_in", lambda module: None)
    model = model_of("gpt_oss", "eager")
    with mha.watch(model) as w:
        model(ids_of())
    assert w.status == "not checked" and set(w.unchecked) == set(w.layers), w
    assert w.unchecked["model.layers.1.self_attn"] == ["sinks: its module holds none"], w


def test_a_described_layer_that_is_not_heard():
    """Whatever the class of its module is called."""
    class Own(torch.nn.Module):
        def forward(self, hidden_states, **_):
            return (hidden_states @ hidden_states.mT).softmax(-1) @ hidden_states, None

    model = model_of("llama", "eager")
    model.model.layers[1].self_attn = Own()
    with mha.watch(model) as w:
        model(ids_of())
    assert w.unchecked == {"model.layers.1.self_attn": ["it computes attention by itself"]}, w


def test_a_mask_in_a_vision_model():
    model, given = drawn("vit", "sdpa")
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = True
    with mha.watch(model) as w:
        model(**given)
    assert w.status == "failed" and w.first.names == ("case-lacks-causal",), w


def test_layers_that_cannot_be_checked(monkeypatch):
    """Each has its reason, and the run is not passed; what is wrong elsewhere still is."""
    model = model_of("llama", "eager")
    layer = Described.layer

    def refused(self, place, *args):
        if "layers.1" in place[1]:
            raise ValueError("this layer has no file")
        return layer(self, place, *args)

    monkeypatch.setattr(Described, "layer", refused)
    with mha.watch(model) as w:
        model(ids_of())
    assert not w.passed and w.status == "not checked" and not w.findings and not w.uncompared
    assert w.unchecked == {"model.layers.1.self_attn": ["queries, keys and values: this layer has no file"]}
    assert "not checked: model.layers.1.self_attn: queries, keys and values: this layer has no file" in str(w)
    assert w.to_dict()["unchecked"] == w.unchecked and "this layer has no file" in w.to_html()
    monkeypatch.undo()

    class OwnAttention(torch.nn.Module):
        def forward(self, x):
            return (x @ x.mT).softmax(-1) @ x

    model.model.layers[0].mlp = torch.nn.Sequential(OwnAttention())
    model.model.own = OwnAttention()  # which does not run
    with mha.watch(model) as w:
        model(ids_of())
    assert w.unchecked == {"model.layers.0.mlp.0": ["it computes attention by itself"]} and w.status == "not checked"
    assert w.unheard == ["model.layers.0.mlp.0", "model.own"]
    with mha.watch(model, config=False) as w:
        model.model.layers[1].self_attn(torch.randn(1, 3, 32), (torch.ones(1, 3, 8), torch.zeros(1, 3, 8)), None)
    assert w.passed, w


def test_traced_modules_with_other_arguments():
    """What a module gets beside tensors, a torch.dtype too, is none."""
    class Core(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)
            self.cast = Cast()

        def forward(self, x):
            q, k, v = self.all(self.cast(x, torch.float32)).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).flatten(2))

    class Cast(torch.nn.Module):
        def forward(self, x, dtype, *others, **more):
            return x.to(dtype)

    found = mha.Model.from_torch(Core(), torch.randn(1, 5, 8))
    assert len(found.attention) == 1 and not found.refused, found.refused
