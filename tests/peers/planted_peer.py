"""Faults planted in one attention layer of twelve of a running model: mha.watch names the layer first, and the fault.

    PYTHONPATH=build/python:tests/peers python3 tests/peers/planted_peer.py [-v] [--drawn N | NAME ...]

Each fault is made in a tiny random model of transformers: in what a layer is asked for (its mask, scale, sinks, ...),
in what goes into it (rotation, norms, weights, cached rows), or in how its attention is computed. Before that the same
model is watched without a fault, which must pass. Exit code 1 when a layer is not the first that is named, fewer than
nine in ten faults get their name, or a right model is refused.
"""
import argparse
import os
import random
import sys
import warnings

import mha
import torch
import transformers
from transformers import masking_utils

warnings.simplefilter("ignore")
torch.set_num_threads(1)
LAYERS, T = 12, 24
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": LAYERS,
         "intermediate_size": 16, "vocab_size": 50, "max_position_embeddings": 64, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "llama": {}, "qwen3": {"head_dim": 8}, "bert": {}, "mistral": {"sliding_window": 5},
    "gemma2": {"sliding_window": 5, "head_dim": 8, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 3.0},
    "gemma3_text": {"sliding_window": 5, "head_dim": 8, "query_pre_attn_scalar": 7},
    "granite": {"attention_multiplier": 0.3}, "smollm3": {"no_rope_layer_interval": 4},
    "gpt_oss": {"sliding_window": 5, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
    "llama4_text": {"intermediate_size_mlp": 16, "num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8,
                    "attention_chunk_size": 8, "no_rope_layer_interval": 4},
    "bart": {"encoder_layers": LAYERS, "decoder_layers": LAYERS, "d_model": 32, "encoder_ffn_dim": 16,
             "decoder_ffn_dim": 16, "encoder_attention_heads": 4, "decoder_attention_heads": 4},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 16, "num_layers": LAYERS, "num_decoder_layers": LAYERS, "num_heads": 4},
}


def model_of(name, kind="AutoModel"):
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(name, **{**SIZES, **MODELS[name]})
    config._experts_implementation = "eager"
    model = getattr(transformers, kind).from_config(config, attn_implementation="eager").eval()
    for role, parameter in model.named_parameters():
        if "sinks" in role or parameter.ndim > 1 or "norm" in role or "bias" in role:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def attention_of(model):
    """The modules of attention that are called through the interface, in order."""
    found = [m for m in model.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "layer_idx")
             or type(m).__name__.endswith("SelfAttention")]
    if model.config.is_encoder_decoder:
        return [m for m in found if hasattr(m, "k") or hasattr(m, "k_proj")]
    return sorted({id(m): m for m in found}.values(), key=lambda m: m.layer_idx)


# ---------------------------------------------------------------- where faults are planted


def asks(change):
    """Changes what the module is called with: its keywords."""
    def plant(modules, at):
        forward = modules[at].forward
        modules[at].forward = lambda *args, **kwargs: forward(*args, **change(modules, at, dict(kwargs)))
    return plant


def has(**values):
    """Other attributes of the module."""
    def plant(modules, at):
        for name, value in values.items():
            setattr(modules[at], name, value(modules, at) if callable(value) else value)
    return plant


def while_it_runs(name, other):
    """Another module, or tensor, in place of one of the module's, as long as the module runs."""
    def plant(modules, at):
        module, forward = modules[at], modules[at].forward

        def run(*args, **kwargs):
            held = getattr(module, name)
            store = module._modules if isinstance(held, torch.nn.Module) else module._parameters
            store[name] = other(modules, at, held)
            try:
                return forward(*args, **kwargs)
            finally:
                store[name] = held
        module.forward = run
    return plant


def computes(change):
    """Another core of attention: change(query, key, value, mask, scale, module) -> output."""
    def plant(modules, at):
        module, source = modules[at], sys.modules[type(modules[at]).__module__]
        held = source.eager_attention_forward

        def attention(module_, query, key, value, mask, *args, **kwargs):
            if module_ is not module:
                return held(module_, query, key, value, mask, *args, **kwargs)
            scale = kwargs.get("scaling", module.scaling)
            return change(query, key, value, mask, scale, module).transpose(1, 2).contiguous(), None
        source.eager_attention_forward = attention
        return lambda: setattr(source, "eager_attention_forward", held)
    return plant


def mask_of(function, padding=False):
    """A mask of transformers' own, with the batch's padding or without."""
    def change(modules, at, kwargs):
        mask = kwargs["attention_mask"]
        B, _, rows, keys = mask.shape
        kept = PADDING.bool() if padding is True else padding
        kwargs["attention_mask"] = masking_utils.eager_mask(
            B, rows, keys, mask_function=function, attention_mask=None if kept is False else kept)
        return kwargs
    return asks(change)


PADDING = torch.ones(2, T, dtype=int)
PADDING[1, T - 5:] = 0
LEFT = PADDING.flip(1).bool()


def groups(x, module, tiled=False):
    n = module.num_key_value_groups
    return x.repeat(1, n, 1, 1) if tiled else x.repeat_interleave(n, 1)


def core(query, key, value, mask, scale, module, tiled=(False, False), softmax=lambda s: s.softmax(-1)):
    key, value = groups(key, module, tiled[0]), groups(value, module, tiled[1])
    return softmax(query @ key.mT * scale + mask) @ value


def low(query, key, value, mask, scale, module):
    return core(*(x.bfloat16().float() for x in (query, key, value)), mask, scale, module)


def capped_late(query, key, value, mask, scale, module):
    cap = module.attn_logit_softcapping
    scores = query @ groups(key, module).mT * scale
    return (torch.tanh((scores + mask.clamp(min=-1e4)) / cap) * cap).softmax(-1) @ groups(value, module)


def rotation(turn):
    """Other cosines and sines for one layer."""
    def change(modules, at, kwargs):
        cos, sin = kwargs["position_embeddings"]
        kwargs["position_embeddings"] = turn(cos, sin)
        return kwargs
    return asks(change)


def of_base(base):
    def turn(cos, sin):
        half = cos.shape[-1] // 2
        angles = torch.arange(cos.shape[1])[:, None] * base ** (-torch.arange(half) / half)
        angles = torch.cat([angles, angles], -1)[None].to(cos)
        return angles.cos().expand_as(cos), angles.sin().expand_as(sin)
    return rotation(turn)


def pairs_side_by_side(module):
    """Rotates features (0, 1), (2, 3), ... of what the projections give, where halves are meant."""
    def turned(linear):
        def run(x):
            y = torch.nn.functional.linear(x, linear.weight, linear.bias)
            y = y.view(*y.shape[:2], -1, module.head_dim)
            return torch.cat([y[..., ::2], y[..., 1::2]], -1).flatten(2)
        return run
    for linear in (module.q_proj, module.k_proj):
        linear.forward = turned(linear)


class Nothing(torch.nn.Module):
    def forward(self, x):
        return x


class NotPlusOne(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm._norm(x.float()).type_as(x) * self.norm.weight


class WithoutBias(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return x @ self.linear.weight.T


def cached(which, change):
    """Changes a cached row after the prompt, in one layer."""
    def plant(modules, at):
        forward = modules[at].forward

        def run(*args, **kwargs):
            cache = kwargs.get("past_key_values", kwargs.get("cache"))
            layer = cache.layers[at] if cache is not None and cache.get_seq_length(at) > 0 else None
            if layer is not None:
                change(getattr(layer, which))
            return forward(*args, **kwargs)
        modules[at].forward = run
    return plant


def overwritten(rows):
    rows[0, 1, 3] = rows[0, 1, 4]


def swapped(rows):
    rows[1, :, [2, 6]] = rows[1, :, [6, 2]].clone()


def reversed_batch(rows):
    rows[:] = rows.flip(0).clone()


def both(change):
    """Changes cached keys and values."""
    def plant(modules, at):
        for which in ("keys", "values"):
            cached(which, change)(modules, at)
    return plant


def entering(change):
    """Changes the heads (B, T, h, d) that enter the output projection."""
    def plant(modules, at):
        module = modules[at]
        projection = getattr(module, "o_proj", None) or getattr(module, "out_proj", None) or module.o

        def hook(_, args):
            heads = args[0].view(*args[0].shape[:2], 4, -1)
            return (change(heads).reshape(args[0].shape),)
        projection.register_forward_pre_hook(hook)
    return plant


def without(kwargs, *names):
    """Zeros in place of what is added to scores."""
    return {**kwargs, **{name: torch.zeros_like(kwargs[name]) if name == "position_bias" else None
                         for name in names if kwargs.get(name) is not None}}


def unbiased(modules, at, kwargs):
    bias, mask = kwargs["position_bias"], kwargs.get("mask")
    return {**kwargs, "position_bias": torch.zeros_like(bias) + (0 if mask is None else mask)}


def joined(modules, at, kwargs):
    return {**kwargs, "attention_mask": masking_utils.eager_mask(2, T, T, mask_function=causal)}


window, chunked = masking_utils.sliding_window_causal_mask_function, masking_utils.chunked_causal_mask_function
causal, full = masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function
EVEN, ODD = 4, 7

# Name: model, layer, how it is planted, names that say it.
FAULTS = {
    "a sliding layer is full": ("gemma2", EVEN, mask_of(causal, True), {"window-missing"}),
    "a full layer slides": ("gemma2", ODD, mask_of(window(5), True), {"case-lacks-window"}),
    "window one less": ("mistral", 3, mask_of(window(4), True), {"window-left-less"}),
    "window one more": ("mistral", 8, mask_of(window(6), True), {"window-left-more"}),
    "window forgotten": ("gpt_oss", EVEN, mask_of(causal, True), {"window-missing"}),
    "window on a full layer": ("gpt_oss", ODD, mask_of(window(5), True), {"case-lacks-window"}),
    "window of local layers on a global one": ("gemma3_text", 5, mask_of(window(5), True), {"case-lacks-window"}),
    "mask forgotten": ("llama", 6, asks(lambda m, i, k: {**k, "attention_mask": None}), {"causal-missing"}),
    "causal forgotten": ("qwen3", 9, mask_of(full, True), {"causal-missing"}),
    "own position hidden": ("llama", 2, mask_of(lambda b, h, q, k: k < q, True), {"causal-strict"}),
    "one position ahead": ("llama", 10, mask_of(lambda b, h, q, k: k <= q + 1, True), {"causal-plus-1"}),
    "an encoder that is causal": ("bert", 5, mask_of(causal, True), {"case-lacks-causal"}),
    "padding forgotten": ("llama", 5, mask_of(causal), {"padding-missing"}),
    "padding of an encoder forgotten": ("bert", 8, mask_of(full), {"padding-missing"}),
    "padding on the wrong side": ("llama", 7, mask_of(causal, LEFT), {"padding-other"}),
    "chunk forgotten": ("llama4_text", 4, mask_of(causal, True), {"chunk-missing"}),
    "chunk on a layer without": ("llama4_text", 7, mask_of(chunked(8, torch.zeros(2, dtype=int)), True),
                                 {"case-lacks-chunk"}),
    "sinks of another layer": ("gpt_oss", 6, while_it_runs("sinks", lambda m, i, _: m[i - 1].sinks), {"sinks-other"}),
    "sinks not counted": ("gpt_oss", 8, computes(core), {"sinks-missing"}),
    "softcap forgotten": ("gemma2", 5, has(attn_logit_softcapping=None), {"softcap-missing"}),
    "another softcap": ("gemma2", 6, has(attn_logit_softcapping=30.0), {"softcap-other"}),
    "softcap after the mask": ("gemma2", 9, computes(capped_late), {"softcap-after-mask"}),
    "scale of the head's width": ("gemma2", 3, has(scaling=8**-0.5), {"scale-other", "scale-default"}),
    "scale forgotten": ("llama", 4, has(scaling=1.0), {"scale-missing"}),
    "scale of a granite forgotten": ("granite", 7, has(scaling=8**-0.5), {"scale-other", "scale-default"}),
    "scale not multiplied": ("llama", 9, computes(lambda q, k, v, m, s, x: core(q, k, v, m, 1.0, x)),
                             {"scale-missing"}),
    "another base of the rotation": ("qwen3", 3, of_base(500.0), {"rope-base-other"}),
    "a usual base in place of the model's": ("smollm3", 4, of_base(1e4), {"rope-base-1e4"}),
    "rotation forgotten": ("llama", 8, rotation(lambda c, s: (torch.ones_like(c), torch.zeros_like(s))),
                           {"rope-missing"}),
    "rotation on a layer without": ("smollm3", 7, has(use_rope=1), {"case-lacks-rope-halves"}),
    "rotation backwards": ("qwen3", 7, rotation(lambda c, s: (c, -s)), {"rope-inverse"}),
    "positions from 1": ("llama", 3, rotation(lambda c, s: (c * c[:, 1:2] - s * s[:, 1:2],
                                                            s * c[:, 1:2] + c * s[:, 1:2])), {"rope-from-1"}),
    "features paired side by side": ("llama", 11, lambda m, i: pairs_side_by_side(m[i]),
                                     {"rope-pairing", "rope-regrouped", "permute-qk", "permute-q", "unpermute-q"}),
    "norm of queries forgotten": ("qwen3", 5, while_it_runs("q_norm", lambda m, i, _: Nothing()), {"norm-missing",
                                                                                                 "norm-q-missing"}),
    "norm weight of another layer": ("qwen3", 8, while_it_runs("q_norm", lambda m, i, _: m[i - 1].q_norm),
                                     {"q_norm-other"}),
    "norm weight without its 1": ("gemma3_text", 7, while_it_runs("q_norm", lambda m, i, x: NotPlusOne(x)),
                                  {"norm-not-plus-one"}),
    "bias of queries forgotten": ("bert", 6, while_it_runs("query", lambda m, i, x: WithoutBias(x)),
                                  {"bias-q-dropped", "biases-dropped"}),
    "queries of another layer's weights": ("llama", 1, while_it_runs("q_proj", lambda m, i, _: m[i + 1].q_proj),
                                           {"W_Q-other"}),
    "heads dealt in turn": ("llama", 6, computes(lambda *a: core(*a, tiled=(True, True))), {"groups-tiled"}),
    "values dealt in turn": ("qwen3", 4, computes(lambda *a: core(*a, tiled=(False, True))), {"groups-v-tiled"}),
    "a cached key overwritten": ("llama", 5, cached("keys", overwritten), {"cache-row-changed"}),
    "cached values change places": ("qwen3", 6, cached("values", swapped), {"cache-row-changed"}),
    "inputs in bfloat16": ("llama", 7, computes(low), {"inputs-bf16"}),
    "softmax over queries": ("llama", 8, computes(lambda *a: core(
        *a, softmax=lambda s: s.softmax(-2).masked_fill(s < -1e30, 0))), {"softmax-queries"}),
    "heads merged untransposed": ("llama", 3, computes(
        lambda q, *a: core(q, *a).reshape(q.shape[0], T, q.shape[1], -1).transpose(1, 2)), {"merge-untransposed"}),
    "hidden scores become 0": ("bert", 9, computes(
        lambda q, k, v, m, s, x: torch.where(m < 0, 0.0, q @ k.mT * s).softmax(-1) @ v), {"fill-0"}),
    "padding hidden after the softmax": ("bert", 3, computes(
        lambda q, k, v, m, s, x: ((q @ k.mT * s).softmax(-1) * (m == 0)) @ v), {"padding-after-softmax",
                                                                              "all-after-softmax"}),
    "padding of an encoder and a decoder forgotten": ("bart", 7, asks(lambda m, i, k: without(k, "attention_mask")),
                                                      {"padding-missing"}),
    "padding of the encoder forgotten in cross attention": (
        "bart", LAYERS + 7, asks(lambda m, i, k: without(k, "attention_mask")), {"padding-missing"}),
    "padding of a t5 forgotten": ("t5", LAYERS + 9, asks(lambda m, i, k: without(k, "mask", "position_bias")),
                                  {"padding-missing"}),
    "position bias of an encoder forgotten": ("t5", 5, asks(unbiased), {"position-bias-missing"}),
    "position bias of a decoder forgotten": ("t5", LAYERS + 8, asks(unbiased), {"position-bias-missing"}),
    "heads roll before the output": ("llama", 5, entering(lambda x: x.roll(1, 2)), {"merge-permuted"}),
    "heads untransposed before the output": ("bart", 4, entering(lambda x: x.transpose(1, 2)), {"merge-untransposed"}),
    "a head is dropped before the output": ("t5", LAYERS + 4, entering(
        lambda x: x * torch.tensor([1.0, 1, 0, 1])[:, None]), {"output-lacks-heads"}),
    "batch rows exchanged before the output": ("gemma2", 7, entering(lambda x: x.flip(0)), {"batch-permuted"}),
    "output projection forgotten": ("qwen3", 5, while_it_runs("o_proj", lambda m, i, _: Nothing()),
                                    {"output-unprojected"}),
    "output projection of another layer": ("gpt_oss", 5, while_it_runs("o_proj", lambda m, i, _: m[i + 1].o_proj),
                                           {"W_O-other"}),
    "cached batch rows exchanged": ("llama", 6, both(reversed_batch), {"cache-batch-permuted"}),
    "cached batch rows of the first layer exchanged": ("qwen3", 0, both(reversed_batch), {"cache-batch-permuted"}),
    "packed sequences joined": ("llama", 7, asks(joined), {"segments-missing"}),
    "packed sequences joined in the first layer": ("gemma2", 1, asks(joined), {"segments-missing"}),
}


def run(model, decode, packed=False):
    torch.manual_seed(3)
    ids = torch.randint(3, 50, (2, T))
    if packed:
        positions = torch.cat([torch.arange(10), torch.arange(T - 10)])[None].expand(2, -1)
        model(input_ids=ids, position_ids=positions, use_cache=False)
        return
    if model.config.is_encoder_decoder:
        model(input_ids=ids, attention_mask=PADDING, decoder_input_ids=ids[:, :9])
        return
    if not decode:
        model(input_ids=ids, attention_mask=PADDING)
        return
    past = transformers.DynamicCache(config=model.config)
    for begin, end in ((0, 10), (10, 11), (11, 12)):
        model(input_ids=ids[:, begin:end], past_key_values=past, use_cache=True)


def main():
    torch.set_grad_enabled(False)
    parser = argparse.ArgumentParser()
    parser.add_argument("-v", action="store_true", help="prints all that is found")
    parser.add_argument("--drawn", type=int, default=len(FAULTS), metavar="N", help="N faults, which $PEER_SEED draws")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or random.Random(os.environ.get("PEER_SEED", 0)).sample(list(FAULTS), args.drawn)
    alarms, layers, named = [], 0, 0
    for kind in dict.fromkeys(FAULTS[name][0] for name in names):
        for decode in ((False,) if kind in ("bert", "bart", "t5") else (False, True)):
            model = model_of(kind)
            with mha.watch(model) as w:
                run(model, decode)
            if not w.passed:
                alarms.append(kind)
                print(f"REFUSED {kind}\n{w}")
    for name in names:
        kind, at, plant, said = FAULTS[name]
        model = model_of(kind)
        modules = attention_of(model)
        path = next(path for path, module in model.named_modules() if module is modules[at])
        undo = plant(modules, at)
        with mha.watch(model) as w:
            run(model, decode="cached" in name, packed="packed" in name)
        if undo:
            undo()
        first = w.first.layer if w.first else "nothing"
        of_first = {word.split(" ")[0] for found in w.findings if found.layer == first for name in found.names
                    for word in name.split("+")}
        right = bool(said & of_first) and first == path
        layers, named = layers + (first == path), named + right
        others = {found.layer for found in w.findings} - {path}
        print(f"{'named' if right else 'LAYER' if first == path else 'MISSED':6} {kind:12} {name}: "
              f"{', '.join(sorted(of_first)) or (w.first.sentence if w.first else first)}"
              + (f"; also {', '.join(sorted(others))}" if others else ""))
        if args.v:
            print(w)
    print(f"{layers} of {len(names)} layers named first, {named} faults named; {len(alarms)} right models refused")
    return bool(alarms) or layers < len(names) or named < 0.9 * len(names)


if __name__ == "__main__":
    sys.exit(main())
