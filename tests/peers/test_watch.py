"""mha.watch: what is heard and checked, the same bits with and without it, what is wrong by layer, what is refused."""
import html.parser
import json
import sys
import threading
import types

import mha
import numpy as np
import pytest
from test_transformers import ids_of, model_of

torch = pytest.importorskip("torch")
interface = pytest.importorskip("transformers.modeling_utils").AttentionInterface
masking = pytest.importorskip("transformers.masking_utils")
F = torch.nn.functional
sdpa = F.scaled_dot_product_attention


def wrong_in(layer, change):
    """An implementation as eager attention, but for the layer of this number, in which `change` computes."""
    def attention(module, query, key, value, mask, scaling, **kwargs):
        attend = change if module.layer_idx == layer else right
        return attend(query, key, value, mask, scaling).transpose(1, 2).contiguous(), None
    interface.register("wrong", attention)
    masking.AttentionMaskInterface.register("wrong", masking.eager_mask)
    return model_of("llama", "wrong", num_hidden_layers=4)


def right(query, key, value, mask, scale):
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    return (query @ key.mT * scale + mask).softmax(-1) @ value


class Plain(torch.nn.Module):
    """Attention by PyTorch's function, under a name of its own, and by a copy of the function that was imported."""

    def __init__(self, layers=3, **said):
        super().__init__()
        self.said, self.wrong = {"is_causal": True, **said}, -1
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(16, 48) for _ in range(layers)])

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            q, k, v = (block(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4))
            said = dict(self.said, scale=0.9) if i == self.wrong else self.said
            y = (sdpa if i % 2 else F.scaled_dot_product_attention)(q, k, v, **said)
            x = x + y.transpose(1, 2).flatten(2)
        return x


# PyTorch's has neither softcap nor sinks.
IMPLEMENTED = [(kind, by) for kind in ("llama", "mistral", "gemma2", "gpt_oss")
               for by in ("eager", "sdpa", "mha", "mha-exact") if by != "sdpa" or kind in ("llama", "mistral")]


@pytest.mark.parametrize("model_type, implementation", IMPLEMENTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_same_bits_and_no_alarm(model_type, implementation, dtype):
    model, mask = model_of(model_type, implementation, dtype), torch.ones(2, 11, dtype=int)
    mask[0, :4] = 0
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            plain = model(ids_of(), attention_mask=mask).logits
            with mha.watch(model) as w:
                watched = model(ids_of(), attention_mask=mask).logits
        assert torch.equal(plain, watched)
        assert w.passed and not w.unheard and not w.uncompared, w
        assert list(w.layers) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
        assert all(len(row.heads) == 4 and 0 < row.ratio <= 1 for row in w.layers.values())
        assert {(row.n_heads, row.kv_heads, row.rows) for row in w.layers.values()} == {(4, 2, 22)}
        assert {row.rows_checked for row in w.layers.values()} == {18}  # four see no key
    first, second = (row.asked[0] for row in w.layers.values())
    assert "causal" in first and "padding" in first and "of 22 keys" in first
    assert ("window 3" in first) == (model_type != "llama") and ("window 3" in second) == (model_type == "mistral")
    assert ("softcap 50" in first) == (model_type == "gemma2") and ("sinks" in first) == (model_type == "gpt_oss")


def test_generation():
    model, mask = model_of("mistral", "sdpa"), torch.ones(2, 6, dtype=int)
    mask[0, :2] = 0
    said = {"max_new_tokens": 6, "do_sample": False, "attention_mask": mask}
    plain = model.generate(ids_of(T=6), **said)
    with mha.watch(model) as w:
        assert torch.equal(model.generate(ids_of(T=6), **said), plain)
    assert w.passed, w
    assert all(row.calls == row.checked == 6 and row.queries == 6 for row in w.layers.values())


CHANGES = {
    "causal-missing": lambda q, k, v, mask, scale: right(q, k, v, 0 * mask, scale),
    "scale-missing": lambda q, k, v, mask, scale: right(q, k, v, mask, 1.0),
    "groups-tiled": lambda q, k, v, mask, scale: right(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), mask, scale),
    "fill-0": lambda q, k, v, mask, scale: torch.where(mask < 0, 0.0, q @ k.repeat_interleave(2, 1).mT * scale)
    .softmax(-1) @ v.repeat_interleave(2, 1),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("layer", [0, 2])
def test_first_wrong_layer(name, layer, tmp_path):
    """The layer, the bug by its name, a case that shows it again; later layers are right on their inputs."""
    model = wrong_in(layer, CHANGES[name])
    with torch.no_grad(), mha.watch(model, save=tmp_path) as w:
        model(ids_of())
    assert not w.passed and [f.layer for f in w.findings] == [f"model.layers.{layer}.self_attn"]
    assert name in w.first.names and w.first.kind == "output" and w.first.call == 1
    assert f"model.layers.{layer}.self_attn, call 1: the output is off by" in str(w) and name in str(w)
    assert [row.ratio > 1 for row in w.layers.values()] == [i == layer for i in range(4)]
    assert mha.check(w.saved).failed and name in mha.diagnose(w.saved).names
    assert f"case saved: mha check {w.saved}" in str(w)


def test_one_head_of_a_large_call():
    """Rows are sampled, heads told apart, and what is wrong in every row is seen."""
    model = wrong_in(1, lambda q, k, v, mask, scale: torch.cat(
        [right(q, k, v, mask, scale)[:, :3], right(q, k, v, mask, 2 * scale)[:, 3:]], 1))
    ids = torch.from_numpy(np.random.default_rng(1).integers(1, 50, (1, 600)))
    with torch.no_grad(), mha.watch(model) as w:
        model(ids)
    assert [row.rows_checked for row in w.layers.values()] == [32] * 4
    ratios = w.layers["model.layers.1.self_attn"].heads
    assert max(ratios[:3]) <= 1 < ratios[3] and w.first.layer == "model.layers.1.self_attn"
    assert w.table().column("worst head")[1] == 3 and w.heads().column("head 3")[1] == ratios[3]
    with torch.no_grad(), mha.watch(model, sample=7) as w:
        model(ids[:, :50])
    assert [row.rows_checked for row in w.layers.values()] == [7] * 4 and not w.passed


def test_pytorch_function():
    """Also where a module has it under a name of its own; its masks, axes and groups; what hides nothing."""
    x = torch.randn(2, 9, 16)
    keeps = torch.ones(9, 9).tril().bool()
    added = torch.where(keeps, torch.randn(9, 9), -torch.inf)
    for said, words in (({}, "causal"), ({"is_causal": False}, "full"),
                        ({"is_causal": False, "attn_mask": keeps}, "causal"),
                        ({"is_causal": False, "attn_mask": added}, "causal, a bias"),
                        ({"scale": 0.5}, "causal, scale 0.5")):
        model = Plain(**said)
        plain = model(x)
        with mha.watch(model) as w:
            assert torch.equal(model(x), plain)
        assert w.passed and w.layers["Plain"].calls == 3, w
        assert w.layers["Plain"].asked == [words]
    F.scaled_dot_product_attention(x, x, x)
    assert w.layers["Plain"].calls == 3 and F.scaled_dot_product_attention is sdpa and Plain.forward.__globals__[
        "sdpa"] is sdpa


def test_wrong_function(monkeypatch):
    model = Plain()
    monkeypatch.setattr(F, "scaled_dot_product_attention",
                        lambda q, k, v, is_causal=False: sdpa(q, k, v, is_causal=is_causal, scale=1.0))
    with mha.watch(model) as w:
        model(torch.randn(1, 6, 16))
    assert w.first.call == 1 and "scale-missing" in w.first.names


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_pytorch_module(batch_first, need_weights):
    """nn.MultiheadAttention is checked as a whole layer, on its own path and on its fast one."""
    torch.manual_seed(1)
    module = torch.nn.MultiheadAttention(16, 4, batch_first=batch_first).eval()
    model = torch.nn.ModuleList([module])
    x = torch.randn(2, 7, 16) if batch_first else torch.randn(7, 2, 16)
    hidden = torch.ones(7, 7).triu(1).bool()
    padding = torch.zeros(2, 7).bool()
    padding[1, 5:] = True
    masks = ({}, {"attn_mask": hidden}, {"key_padding_mask": padding},
             {"attn_mask": torch.randn(2 * 4, 7, 7)}, {"attn_mask": hidden, "key_padding_mask": padding},
             {"attn_mask": torch.randn(7, 7), "key_padding_mask": torch.where(padding, -torch.inf, 0.0)})
    for context in (torch.no_grad, torch.enable_grad):
        for said in masks:
            with context():
                plain = module(x, x, x, need_weights=need_weights, **said)[0]
                with mha.watch(model) as w:
                    assert torch.equal(module(x, x, x, need_weights=need_weights, **said)[0], plain)
            assert w.passed and list(w.layers) == ["0"], (said.keys(), w)


def test_module_that_is_wrong():
    class Wrong(torch.nn.MultiheadAttention):
        """Forgets the bias of the output."""

        def forward(self, *args, **kwargs):
            y, weights = super().forward(*args, **kwargs)
            return y, weights

    module = Wrong(16, 4, batch_first=True).eval()
    torch.nn.init.normal_(module.out_proj.bias)
    whole = torch.nn.MultiheadAttention.forward

    def forgets(self, *args, **kwargs):
        y, weights = whole(self, *args, **kwargs)
        return y - self.out_proj.bias, weights

    torch.nn.MultiheadAttention.forward = forgets
    forgets.__wrapped__ = whole
    try:
        with torch.no_grad(), mha.watch(torch.nn.Sequential(module)) as w:
            x = torch.randn(2, 9, 16)
            module(x, x, x)
        assert torch.nn.MultiheadAttention.forward is forgets
    finally:
        torch.nn.MultiheadAttention.forward = whole
    assert w.first.layer == "0" and "bias-o-dropped" in w.first.names


def test_fast_path_of_an_encoder():
    """A fused encoder layer computes attention by itself: it keeps its bits, and is said not to be heard."""
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        plain = model(x)
        with mha.watch(model) as w:
            assert torch.equal(model(x), plain)
    assert not w.passed and not w.layers and w.unheard == ["layers.0.self_attn", "layers.1.self_attn"]
    assert "no attention call was heard; not heard" in str(w)


def test_flex():
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    class Flex(torch.nn.Module):
        def forward(self, x, **said):
            return flex.flex_attention(x, x, x, **said)

    model, x = Flex(), torch.randn(1, 2, 16, 8)
    block = flex.create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 3), None, None, 16, 16, device="cpu")
    with torch.no_grad():
        with mha.watch(model) as w:
            model(x, block_mask=block)
        assert w.passed and w.layers["Flex"].asked == ["causal, window 3"], w
        with mha.watch(model) as w:
            model(x, score_mod=lambda score, b, h, q, k: score + 1)
    assert not w.passed and w.uncompared == {"Flex": ["score_mod: scores from a function of the caller"]}
    assert "not compared" in str(w)


def test_what_is_not_checked():
    model = model_of("llama", "eager", attention_dropout=0.5).train()
    with torch.no_grad(), mha.watch(model) as w:
        model(ids_of())
    assert not w.passed and w.uncompared["model.layers.0.self_attn"] == ["dropout 0.5: model.eval() turns it off"]
    with mha.watch(torch.nn.Linear(2, 2)) as w:
        pass
    assert not w.passed and "no attention call was heard" in str(w)
    with pytest.raises(TypeError, match="model: expected a torch.nn.Module, found int"):
        mha.watch(3)
    with pytest.raises(TypeError, match="dtype: expected"):
        mha.watch(model, dtype="int3")


def test_one_at_a_time():
    """Another watch is refused; other threads and other models are not heard; everything is restored after an error."""
    model, other = Plain(), Plain()
    before = (vars(F)["scaled_dot_product_attention"], torch.nn.MultiheadAttention.forward,
              interface.get_interface, vars(interface).get("__getitem__"))
    x = torch.randn(1, 4, 16)
    with pytest.raises(ZeroDivisionError):
        with mha.watch(model) as w:
            with pytest.raises(RuntimeError, match="^model: expected one watched model at a time, found two"):
                with mha.watch(other):
                    pass
            other(x)
            thread = threading.Thread(target=lambda: model(x))
            thread.start()
            thread.join()
            assert not w.layers
            model(x)
            1 / 0
    assert w.passed and w.layers["Plain"].calls == 3
    assert before == (vars(F)["scaled_dot_product_attention"], torch.nn.MultiheadAttention.forward,
                      interface.get_interface, vars(interface).get("__getitem__"))


def test_report():
    model = wrong_in(1, CHANGES["scale-missing"])
    with torch.no_grad(), mha.watch(model) as w:
        model(ids_of())
    said = json.loads(json.dumps(w.to_dict()))
    assert said["first"] == "model.layers.1.self_attn" and said["findings"][0]["names"] == ["scale-missing"]
    assert len(said["layers"]) == 4 and len(said["layers"][0]["heads"]) == 4 and not said["passed"]
    assert 0 < said["cost"]["checking"] < said["cost"]["seconds"]
    assert w.table().column("")[:3] == ["ok", "FIRST", "ok"] and "FIRST" in w._repr_html_()
    page = Page(w.to_html())
    assert page.classes.count("wrong") == 4 and page.classes[0] == "failed" and not page.addresses
    assert page.tags.count("tr") == 1 + 4 + 1 + 4 and "script" not in page.tags and "default-src 'none'" in page.policy
    assert "layers.1.self_attn" in page.text and "scale-missing" in page.text
    assert page.text.count("FIRST") == 2  # in the map and in the table
    assert "4 of 4 calls checked in 4 layers, checking took" in str(w)


class Page(html.parser.HTMLParser):
    """Tags, classes, addresses and text of a page; unbalanced tags are refused."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.classes, self.addresses, self.text, self.policy, self.open = [], [], [], "", "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        said = dict(attributes)
        self.tags.append(tag)
        self.classes += [said["class"]] if "class" in said else []
        self.addresses += [name for name in said if name in ("src", "href") or name.startswith("on")]
        self.policy += said.get("content", "")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_page_shows_names_as_text():
    class Named(Plain):
        def __init__(self):
            super().__init__(1)
            self.add_module("<script>alert(1)</script>", Plain(1))

        def forward(self, x):
            return self._modules["<script>alert(1)</script>"](x)

    with torch.no_grad(), mha.watch(Named()) as w:
        Named.forward(w._model, torch.randn(1, 4, 16))
    page = Page(w.to_html())
    assert "<script>alert(1)</script>" in page.text and "script" not in page.tags and page.classes[0] == "passed", w
    with mha.watch(Plain()) as w:
        pass
    page = Page(w.to_html())
    assert page.classes == ["not-checked"] and "no attention call was heard" in page.text and "table" not in page.tags
    assert w._repr_html_().startswith("<iframe sandbox srcdoc=")


def test_configuration():
    """What a layer is asked for beside what its configuration says, behind padding on the left, with every cache."""
    mask = torch.ones(2, 9, dtype=int)
    mask[0, :3] = 0
    for model_type in ("mistral", "gpt_oss"):
        model = model_of(model_type, "eager", num_hidden_layers=3)
        for more in ({}, {"cache_implementation": "static"}, {"num_beams": 2}, {"use_cache": False}):
            with mha.watch(model) as w:
                model.generate(ids_of(T=9), attention_mask=mask, max_new_tokens=3, do_sample=False, **more)
            assert w.passed and not w.undescribed and all(row.projected for row in w.layers.values()), (more, w)
    attention = model.model.layers[1].self_attn
    attention.forward, forward = lambda *args, **kwargs: forward(*args, **{
        **kwargs, "attention_mask": None}), attention.forward
    with torch.no_grad():
        with mha.watch(model) as w:
            model(ids_of())
        assert not w.passed and w.first.kind == "config" and w.first.names == ("causal-missing",)
        assert w.first.layer == "model.layers.1.self_attn" and len(w.findings) == 1
        assert w.first.sentence.startswith("full in the call, causal in the configuration")
        with mha.watch(model, config=False) as w:
            model(ids_of())
        assert w.passed and w.undescribed == "not asked for"


def test_queries_of_another_rotation():
    model = model_of("llama", "sdpa")
    attention = model.model.layers[1].self_attn
    forward = attention.forward

    def behind(*args, **kwargs):
        cos, sin = kwargs["position_embeddings"]
        return forward(*args, **{**kwargs, "position_embeddings": (cos, -sin)})

    attention.forward = behind
    with torch.no_grad(), mha.watch(model) as w:
        model(ids_of())
    assert w.first.layer == "model.layers.1.self_attn" and "rope-inverse" in w.first.names
    assert "the queries are not what the configuration makes" in str(w)


def test_models_that_are_not_described(monkeypatch):
    model = Plain()
    with mha.watch(model) as w:
        model(torch.randn(1, 4, 16))
    assert w.passed and w.undescribed == "no configuration of transformers"
    model = model_of("llama", "eager")
    monkeypatch.setattr(type(model.config), "model_type", "nonsense")
    with torch.no_grad(), mha.watch(model) as w:
        model(ids_of())
    assert w.status == "not checked" and w.undescribed.startswith("not described: ")
    assert list(w.unchecked) == list(w.layers) and "not compared with a configuration" in str(w)


# ---------------------------------------------------------------- modules that are calls themselves


class Core(torch.nn.Module):
    """Attention that computes by itself: nothing hears it that is not told."""

    def __init__(self, scale=0.25, wrong=False):
        super().__init__()
        self.scale, self.wrong = scale, wrong

    def forward(self, query, key, value, attn_mask=None):
        scores = query @ key.mT * (self.scale * (0.9 if self.wrong else 1))
        hidden = torch.ones(scores.shape[-2:], dtype=bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
        return (scores if attn_mask is None else scores + attn_mask).softmax(-1) @ value, scores


class Rows(torch.nn.Module):
    """The same after arguments of its own."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x, *, past=None):
        return self.core(*x)[0]


class Own(torch.nn.Module):
    def __init__(self, *cores):
        super().__init__()
        self.cores = torch.nn.ModuleList(cores)

    def forward(self, x):
        for core in self.cores:
            rows = x.view(2, 7, 2, 8).transpose(1, 2)
            y = core((rows,) * 3) if isinstance(core, Rows) else core(rows, rows, value=rows)[0]
            x = x + y.transpose(1, 2).flatten(2)
        return x


def said(x, past=None):
    return {"query": x[0], "key": x[1], "value": x[2], "scale": 0.25, "is_causal": True}


WORDS = {"is_causal": True, "scale": 0.25}


@pytest.mark.parametrize("wrong", [None, 0, 1, 2])
def test_modules_that_are_named_are_checked(wrong):
    torch.manual_seed(0)
    cores = [Core(wrong=i == wrong) for i in range(3)]
    model, x = Own(cores[0], Rows(cores[1]), cores[2]), torch.randn(2, 7, 16)
    plain = model(x)
    assert not (lambda w: w.layers)(watched(model, x))
    w = watched(model, x, modules={"cores.0": WORDS, "cores.1": said, "cores.2": WORDS})
    assert list(w.layers) == ["cores.0", "cores.1", "cores.2"] and all(row.calls == 1 for row in w.layers.values())
    assert w.passed == (wrong is None) and (w.first is None or w.first.layer == f"cores.{wrong}"), w
    assert torch.equal(model(x), plain) and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def watched(model, x, **more):
    with torch.no_grad(), mha.watch(model, **more) as w:
        model(x)
    return w


def test_a_module_that_is_named_holds_what_it_calls():
    model, whole = Plain(), {"": lambda x: dict.fromkeys(("query", "key", "value"), x[None])}
    with torch.no_grad(), mha.watch(model, modules=whole) as w:
        model(torch.randn(1, 5, 16))
    assert list(w.layers) == [""] and w.layers[""].calls == 1 and not w.passed


def test_a_module_that_fails_leaves_the_watch_as_it_was():
    model, x = Own(Core(), Core()), torch.randn(2, 7, 16)
    with torch.no_grad(), mha.watch(model, modules={"cores.0": WORDS, "cores.1": WORDS}) as w:
        model.cores[0].scale = None
        with pytest.raises(TypeError):
            model(x)
        model.cores[0].scale = 0.25
        model(x)
    assert w.passed and w.layers["cores.0"].calls == 1, w


def test_what_is_said_of_modules_is_refused_by_name():
    model, x = Own(Core(), Rows(Core())), torch.randn(2, 7, 16)
    for modules, error, words in (("cores.0", TypeError, "names of modules"), (["core"], ValueError, "'core'"),
                                  ({"cores.0": 3}, TypeError, r"modules\['cores.0'\]")):
        with pytest.raises(error, match=words):
            mha.watch(model, modules=modules)
    w = watched(model, x, modules={"cores.0": {"slope": 2}, "cores.1": lambda x, past=None: x})
    assert not w.passed and "slope" in w.uncompared["cores.0"][0] and "a dict" in w.uncompared["cores.1"][0], w


# ---------------------------------------------------------------- flash_attn


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None):
    """What flash_attn computes: (B, T, h, d), aligned bottom-right."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1]**-0.5 if softmax_scale is None else softmax_scale)
    scores = softcap * (scores / softcap).tanh() if softcap else scores
    ahead = torch.arange(k.shape[2])[None] - torch.arange(q.shape[2])[:, None] - (k.shape[2] - q.shape[2])
    hidden = (ahead > 0) & causal
    hidden = hidden | (ahead < -window_size[0]) if window_size[0] >= 0 else hidden
    hidden = hidden | (ahead > window_size[1]) if window_size[1] >= 0 else hidden
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2)


class Flash(torch.nn.Module):
    def __init__(self, function, **said):
        super().__init__()
        self.function, self.said = function, said
        self.rows = torch.nn.Linear(8, 8)

    def forward(self, x):
        q, k = x[:, -5:].unflatten(2, (4, 8)), x.unflatten(2, (4, 8))[:, :, :2]
        return self.function()(q, self.rows(k), k, **self.said)


@pytest.mark.parametrize("said, wrong, words", [
    ({}, {}, "full"), ({"causal": True}, {}, "causal"), ({"window_size": (2, 1), "softcap": 3.0}, {}, "window -2..+1"),
    ({"softmax_scale": 0.3, "causal": True, "window_size": (2, 0)}, {"window_size": (1, 0)}, "scale 0.3"),
    ({"causal": True}, {"causal": False}, "causal"), ({"alibi_slopes": torch.ones(4)}, {}, "alibi_slopes"),
    ({"dropout_p": 0.5}, {}, "dropout")])
@pytest.mark.parametrize("backward", [False, True])
def test_flash_attn_is_heard(said, wrong, words, backward, monkeypatch):
    module = types.ModuleType("flash_attn")
    module.flash_attn_func = lambda *x, **given: flash_attn_func(*x, **{**given, **wrong})
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    torch.manual_seed(1)
    model, function = Flash(lambda: module.flash_attn_func, **said), module.flash_attn_func
    with torch.no_grad(), mha.watch(model, backward=backward) as w:
        model(torch.randn(2, 9, 32))
    assert list(w.layers) == ["Flash"] and module.flash_attn_func is function
    if words in ("alibi_slopes", "dropout"):
        assert not w.passed and words in w.uncompared["Flash"][0]
        return
    assert w.passed == (not wrong) and words in w.layers["Flash"].asked[0], w
    if backward and not wrong:
        with mha.watch(model, backward=True) as w:
            model(torch.randn(2, 9, 32)).sum().backward()
        assert "flash_attn_func" in w.uncompared["Flash"][0] and w.layers["Flash"].ratio <= 1


# ---------------------------------------------------------------- maps


def test_maps_are_the_right_weights_and_lie_folded_on_the_page():
    model, x = Plain(2), torch.randn(2, 5, 16)
    with torch.no_grad(), mha.watch(model, maps=True) as w:
        model(x)
        model(torch.randn(2, 7, 16))
    q, k, _ = model.blocks[0](x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
    scores = (q @ k.mT / 8**0.5).masked_fill(torch.ones(5, 5, dtype=bool).triu(1), -torch.inf)
    first = next(iter(w.layers.values()))
    assert np.allclose(np.array(first.maps), scores.softmax(-1)[0].detach().numpy(), atol=1e-6)
    page = w.to_html()
    assert page.count("<details>") == len(w.layers) and page.count("<figure>") == sum(
        len(row.maps) for row in w.layers.values()) > 0
    json.dumps(w.to_dict())
    with torch.no_grad(), mha.watch(model) as plain:
        model(x)
    assert "<details>" not in plain.to_html() and not next(iter(plain.layers.values())).maps
