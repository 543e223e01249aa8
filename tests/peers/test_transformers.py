"""attn_implementation="mha": masks as rules, compared with those of transformers; caches, weights, types, refusals."""
import pathlib
import sys

import mha
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
masking = pytest.importorskip("transformers.masking_utils")
torch.set_num_threads(1)
mha.transformers.register()
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
         "intermediate_size": 16, "vocab_size": 50, "max_position_embeddings": 64, "pad_token_id": 0}
LLAMA4 = {"intermediate_size_mlp": 16, "num_local_experts": 2, "num_experts_per_tok": 1, "attention_chunk_size": 4,
          "no_rope_layer_interval": 2, "head_dim": 8}
MODELS = {"llama": {}, "mistral": {"sliding_window": 3}, "gemma2": {"sliding_window": 3, "head_dim": 8},
          "gpt_oss": {"sliding_window": 3, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
          "llama4_text": LLAMA4, "modernbert": {}}


def model_of(model_type, implementation="mha-exact", dtype=torch.float32, **more):
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(model_type, **{**SIZES, **MODELS.get(model_type, {}), **more})
    config._experts_implementation = "eager"
    kind = transformers.AutoModel if model_type in ("modernbert", "llama4_text") else transformers.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation=implementation).to(dtype).eval()
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            torch.nn.init.normal_(parameter)
    return model


def first(output):
    return output[0] if "logits" not in output else output.logits


def ids_of(B=2, T=11):
    return torch.from_numpy(np.random.default_rng(5).integers(1, 50, (B, T)))


@pytest.mark.parametrize("seed", range(200))
def test_rules_are_the_masks(seed):
    """Masks of transformers as rules hide the same keys; the mask that is made of rules is transformers' own."""
    r = np.random.default_rng(seed)
    B, n = int(r.integers(1, 3)), int(r.integers(1, 9))
    q_offset, kv_offset = (int(r.integers(0, 6)), 0) if r.random() < 0.7 else (4, 2)
    T_q = int(r.integers(1, 9))
    S = q_offset + T_q - kv_offset + int(r.integers(0, 3))
    padding = torch.from_numpy(np.arange(S + kv_offset)[None] >= r.integers(0, S, (B, 1)))
    left = (~padding).sum(-1)
    kind = ["causal", "full", "window", "bidirectional window", "chunk", "packed", "packed window"][r.integers(7)]
    function = {"causal": masking.causal_mask_function, "full": masking.bidirectional_mask_function,
                "window": masking.sliding_window_causal_mask_function(n),
                "bidirectional window": masking.sliding_window_bidirectional_mask_function(n),
                "chunk": masking.chunked_causal_mask_function(n, left)}.get(kind)
    if function is None:
        T_q, S, q_offset, kv_offset, padding = S, S, 0, 0, None
        begins = np.sort(r.integers(0, S, 2))
        positions = np.arange(S)
        for begin in begins:
            positions[begin:] = np.arange(S - begin)
        positions = torch.from_numpy(np.tile(positions, (B, 1)))
        packed = (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)
        inner = (masking.sliding_window_causal_mask_function(n) if "window" in kind
                 else masking.causal_mask_function)
        function = masking.and_masks(masking.remap_positions_for_packed_sequence(inner, positions),
                                     masking.packed_sequence_mask_function(packed))
    padding = padding if r.random() < 0.6 else None
    said = {"batch_size": B, "q_length": T_q, "kv_length": S, "q_offset": q_offset, "kv_offset": kv_offset,
            "mask_function": function, "attention_mask": padding}
    theirs = masking.sdpa_mask(**said, allow_is_causal_skip=False).numpy()
    mask = mha.transformers.rule_mask(**said, dtype=torch.float64)
    np.testing.assert_array_equal(np.broadcast_to(mask.rules.keeps(np.arange(T_q), S), (B, T_q, S)), theirs[:, 0])
    assert mask.shape == theirs.shape and mask.dtype == torch.float64
    np.testing.assert_array_equal((mask + 0).numpy() == 0, theirs)


def test_masks_that_are_no_rules():
    """Chunks of packed sequences, and functions of others, become numbers."""
    positions = torch.tensor([[0, 1, 2, 0, 1]])
    remapped = masking.remap_positions_for_packed_sequence(
        masking.chunked_causal_mask_function(2, torch.zeros(1, dtype=int)), positions)
    for function in (remapped, lambda b, h, q, k: k <= q, masking.or_masks(masking.causal_mask_function)):
        mask = mha.transformers.rule_mask(1, 5, 5, mask_function=function)
        assert type(mask) is torch.Tensor and mask.shape == (1, 1, 5, 5)


@pytest.mark.parametrize("model_type", MODELS)
def test_no_mask_is_made(model_type, monkeypatch):
    """Rules reach the call as rules: also of batches with padding and of packed sequences."""
    model = model_of(model_type)
    monkeypatch.setattr(masking, "sdpa_mask", None)  # which every mask is made by
    ids, mask = ids_of(), torch.ones(2, 11, dtype=int)
    mask[0, :4] = 0
    with torch.no_grad():
        model(ids)
        model(ids, attention_mask=mask)
        if model_type in ("llama", "mistral", "gemma2"):
            model(ids[:1], position_ids=torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]]), use_cache=False)


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("name", ["mha", "mha-exact", "mha-fast"])
def test_models(model_type, name):
    """Logits of eager attention, to what float32 leaves; with padding on the left, and packed."""
    ours, eager = model_of(model_type, name), model_of(model_type, "eager")
    ids, mask = ids_of(), torch.ones(2, 11, dtype=int)
    mask[0, :4] = 0
    packed = {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]]), "use_cache": False}
    calls = [((ids,), {}), ((ids,), {"attention_mask": mask})]
    calls += [((ids[:1],), packed)] if model_type in ("llama", "mistral", "gemma2") else []
    for given, more in calls:
        with torch.no_grad():
            y, x = first(ours(*given, **more)), first(eager(*given, **more))
        kept = mask.bool() if "attention_mask" in more else torch.ones(x.shape[:2], dtype=bool)
        assert (y - x)[kept].abs().max() < 1e-4 * x.abs().max()
        assert not torch.equal(y, x) or name == "mha-exact"


@pytest.mark.parametrize("model_type", [name for name in MODELS if name != "modernbert"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_caches(model_type, cache):
    """A model that reads token by token, with padding on the left, says what it says of all tokens at once."""
    model = model_of(model_type)
    ids, mask = ids_of(), torch.ones(2, 11, dtype=int)
    mask[0, :3] = 0
    with torch.no_grad():
        whole = first(model(ids, attention_mask=mask))
        past = (transformers.DynamicCache(config=model.config) if cache == "dynamic"
                else transformers.StaticCache(config=model.config, max_cache_len=16))
        for begin, end in ((0, 5), (5, 6), (6, 9), (9, 10), (10, 11)):
            more = {"position_ids": torch.arange(begin, end)[None]}
            part = first(model(ids[:, begin:end], attention_mask=mask[:, :end], past_key_values=past, **more))
            more = {"position_ids": torch.arange(11)[None]}
            whole = first(model(ids, attention_mask=mask, **more))
            kept = mask[:, begin:end].bool()
            assert (part - whole[:, begin:end])[kept].abs().max() < 1e-4 * whole.abs().max(), (begin, end)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["mha", "mha-fast"])
def test_types(dtype, name):
    ours, eager = model_of("llama", name, dtype), model_of("llama", "eager", dtype)
    with torch.no_grad():
        y, x = ours(ids_of()).logits, eager(ids_of()).logits
    assert y.dtype == dtype
    assert (y - x).abs().max() < 30 * torch.finfo(dtype).eps * x.abs().max()


def test_weights():
    for model_type in ("llama", "gpt_oss", "gemma2"):
        ours, eager = model_of(model_type), model_of(model_type, "eager")
        with torch.no_grad():
            y, x = (model(ids_of(), output_attentions=True).attentions for model in (ours, eager))
            assert ours(ids_of()).attentions is None
        assert len(y) == len(x) == 2
        for mine, theirs in zip(y, x):
            assert mine.shape == theirs.shape and (mine - theirs).abs().max() < 1e-5


def test_generate():
    ours, eager = model_of("mistral"), model_of("mistral", "eager")
    mask = torch.ones(2, 6, dtype=int)
    mask[0, :2] = 0
    said = {"max_new_tokens": 6, "do_sample": False, "attention_mask": mask}
    assert torch.equal(ours.generate(ids_of(T=6), **said), eager.generate(ids_of(T=6), **said))


def test_what_is_refused():
    model = model_of("llama", attention_dropout=0.5).train()
    with pytest.raises(ValueError, match="'mha': dropout: expected 0, found 0.5; call model.eval"):
        model(ids_of())
    loss = model.eval()(ids_of()).logits.sum()
    with pytest.raises(RuntimeError, match="expected one with a backward pass, found 'mha'"):
        loss.backward()
    with pytest.raises(ValueError, match="attention_mask: expected rules or a mask of 4 axes"):
        mha.transformers.attend("auto", model, *[torch.ones(1, 1, 2, 4)] * 3, torch.ones(1, 2))
    with pytest.raises(ValueError, match="sinks: expected one for each head, found some by query"):
        mha.transformers.attend("auto", model, *[torch.ones(1, 1, 2, 4)] * 3, None, sinks=torch.ones(1, 1, 2, 1))
    with pytest.raises(TypeError, match="bfloat16 on the float paths, found float64"):
        model_of("llama", "mha-fast", torch.float64)(ids_of())
    with pytest.raises(TypeError, match="query: expected a tensor with numbers, found one on meta"):
        mha.transformers.attend("auto", model, *[torch.ones(1, 1, 2, 4, device="meta")] * 3, None)


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", None)
    with pytest.raises(ImportError, match="transformers: expected 4.53 or newer"):
        mha.transformers.register()


def test_import_touches_neither_torch_nor_transformers():
    import subprocess
    source = "import sys, mha; mha.transformers; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True,
                          cwd=pathlib.Path(__file__).parent).stdout == "[]\n"
