"""Operations and caches of random small models, compared with PyTorch's counts while transformers runs them.

    PYTHONPATH=build/python python3 tests/peers/costs_peer.py [-n N] [MODEL_TYPE ...]

N random configurations of every model type (architectures_drawn.py; windows, experts and lengths are drawn here), every
class, are run under torch.utils.flop_counter on inputs of random lengths. Compared with mha.Model: all operations, to
the last one; the keys that queries see, layer by layer, where a softmax over four axes shows them; the elements of
dynamic and static caches and of states. What is counted otherwise on purpose is subtracted in `meant_otherwise`, each
with its reason. With --presets SEQ the models that are built in are run in their own sizes, without numbers. Exit code
1 when something differs.
"""
import argparse
import collections
import functools
import inspect
import json
import pathlib
import random
import sys
import traceback
import warnings

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import mha
from architectures_drawn import draw

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

NOT_TRANSFORMERS = ("transformer", "multihead_attention", "qwen", "schema")
WINDOWS = ("sliding_window", "attention_window_size", "local_attention", "window_size", "attention_chunk_size")
seen = []  # of each softmax over heads: its shape, and how many weights are not 0


def listen():
    """Counts the weights that every softmax of attention leaves."""
    def counted(function):
        def call(*args, **kwargs):
            before = len(seen)
            result = function(*args, **kwargs)
            if result.ndim == 4 and len(seen) == before:  # one softmax calls another
                seen.append((tuple(result.shape), int((result > 0).sum())))
            return result
        return call

    torch.softmax, torch.Tensor.softmax = counted(torch.softmax), counted(torch.Tensor.softmax)
    torch.nn.functional.softmax = counted(torch.nn.functional.softmax)


def delta_rule(query, key, value, g, beta, initial_state=None, output_final_state=False, **_):
    """The gated delta rule token by token; its three products with the state are matrix products, which are counted."""
    (B, T, h), times = value.shape[:3], value.shape[2] // key.shape[2]
    query, key = (x.repeat_interleave(times, 2) for x in (query, key))
    q, k, v, decay, rate = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value, g, beta))
    state, outputs = v.new_zeros(B * h, k.shape[-1], v.shape[-1]), []
    for t in range(T):
        state = state * decay[:, t, None, None].exp()
        change = (v[:, t, None] - torch.bmm(k[:, t, None], state)) * rate[:, t, None, None]
        state = state + torch.bmm(k[:, t, :, None], change)
        outputs.append(torch.bmm(q[:, t, None], state))
    return (torch.cat(outputs, 1).unflatten(0, (B, h)).transpose(1, 2),
            state.unflatten(0, (B, h)) if output_final_state else None)


def causal_convolution(x, weight, bias=None, activation=None, **_):
    """As many outputs as tokens, where the library computes more and drops them."""
    x = torch.nn.functional.pad(x, (weight.shape[-1] - 1, 0))
    return torch.nn.functional.silu(torch.nn.functional.conv1d(x, weight[:, None], bias, groups=len(weight)))


def drawn(model_type, number):
    """A configuration with windows that are shorter than some of the sequences."""
    config = draw(model_type, number)
    r = random.Random(f"costs {model_type} {number}")
    own = transformers.AutoConfig.for_model(model_type, **config).to_dict()
    if model_type not in ("swin", "swinv2", "sam_vision_model"):
        config.update({key: r.randint(2, 9) for key in WINDOWS
                       if isinstance(own.get(key), int) or key == "sliding_window" and key in own})
    if "local_attention" in config:
        config["local_attention"] *= 2
    if "use_sliding_window" in own:
        config.update(use_sliding_window=True, max_window_layers=r.randint(0, 2))
    if model_type == "gpt_neo":
        config["attention_types"] = [[[r.choice(["local", "global"]) for _ in range(config["num_layers"])], 1]]
    if "max_position_embeddings" in own and model_type not in ("whisper",):
        config["max_position_embeddings"] = 64
    if "n_positions" in own:
        config["n_positions"] = 64
    if "relative_attention_num_buckets" in own:
        config["relative_attention_num_buckets"] = 32
    if model_type == "deepseek_v2":  # transformers turns pairs in place, which must lie at even numbers
        config["qk_nope_head_dim"] *= 2
        config["kv_lora_rank"] *= 2
    if config.get("new_decoder_architecture"):  # of Falcon, which transformers runs only in parallel
        config["parallel_attn"] = True
    if model_type == "swinv2":  # with them transformers' own shapes do not match
        config["use_absolute_embeddings"] = False
    if "text_config" in config:
        config["text_config"]["max_position_embeddings"] = 64
    return config, r


def inputs_of(model, config, r, sizes=None):
    """What the model is called with, and the pass: batch, seq, encoder_seq."""
    given, parameters = {}, inspect.signature(model.forward).parameters
    batch, seq, encoder = sizes or (r.randint(1, 3), r.randint(2, 17), r.randint(2, 17))
    cross = 0
    size = lambda c: c.image_size if isinstance(c.image_size, int) else c.image_size[0]
    vision = getattr(config, "vision_config", config)
    if "pixel_values" in parameters:
        given["pixel_values"] = torch.randn(batch, vision.num_channels, size(vision), size(vision))
    if model.main_input_name == "input_values":
        length = seq
        for stride, kernel in list(zip(config.conv_stride, config.conv_kernel))[::-1]:
            length = (length - 1) * stride + kernel
        given["input_values"] = torch.randn(batch, length)
    if model.main_input_name == "input_features":
        encoder = config.max_source_positions
        given["input_features"] = torch.randn(batch, config.num_mel_bins, 2 * encoder)
    text = getattr(config, "text_config", config)
    if "input_ids" in parameters:
        decoder = "decoder_input_ids" in parameters
        ids = torch.randint(3, text.vocab_size, (batch, encoder if decoder else seq))
        if "MultipleChoice" in type(model).__name__:
            ids = ids[None]
        if "SequenceClassification" in type(model).__name__ and decoder:
            seq = encoder
            ids[:, -1] = config.eos_token_id
        given["input_ids"] = ids
    if "decoder_input_ids" in parameters and not (
            "SequenceClassification" in type(model).__name__ or "QuestionAnswering" in type(model).__name__):
        given["decoder_input_ids"] = torch.randint(3, config.vocab_size, (batch, seq))
    elif "decoder_input_ids" in parameters:
        seq = encoder
    if "decoder_input_ids" in parameters:
        cross = encoder
    return given, (batch, seq, cross)


def eager(config):
    """The configuration, with attention and experts as plain products."""
    for part in (config, getattr(config, "text_config", config), getattr(config, "vision_config", config)):
        part._attn_implementation = part._experts_implementation = "eager"
    return config


def first_expert(self, hidden, chosen, *_):
    """Experts where there are no numbers to choose by: the products of one, as often as one is chosen."""
    for _ in range(chosen.shape[-1]):
        for weight, x in ((self.gate_up_proj[0], hidden), (self.down_proj[0], hidden.new_empty(
                *hidden.shape[:-1], self.gate_up_proj[0].numel() // hidden.shape[-1] // 2))):
            torch.matmul(x, weight if weight.shape[0] == x.shape[-1] else weight.T)
    return hidden


def made(class_name, config):
    """A model of random weights, whose linear attention is the one above."""
    model = getattr(transformers, class_name)(config).eval().requires_grad_(False)
    module = sys.modules[type(model).__module__]
    if hasattr(module, "torch_chunk_gated_delta_rule"):
        module.torch_chunk_gated_delta_rule, module.causal_conv1d_fn = delta_rule, causal_convolution
    return model


def meant_otherwise(model, config, counter, batch, seq):
    """Operations that transformers does and mha means not to count."""
    extra, own, top_k = 0, getattr(config, "num_local_experts", 1), getattr(config, "num_experts_per_tok", 1)
    for name, counts in counter.get_flop_counts().items():
        last = name.rsplit(".", 1)[-1]
        if last in ("rotary_emb", "rotary_embeddings", "global_rotary_emb", "local_rotary_emb"):
            extra += sum(counts.values())  # angles of rotations, positions times frequencies
        if last in ("continuous_position_bias_mlp", "pos_proj", "pos_q_proj", "pos_key_proj", "pos_query_proj"):
            extra += sum(counts.values())  # tables that are computed only from weights
        if config.model_type == "llama4_text" and last == "experts":  # runs all of them, and multiplies most by 0
            extra += sum(counts.values()) * (own - top_k) // own
        if last == "feature_extractor":  # of sounds, whose length the frames do not say
            extra += sum(counts.values())
        if last == "pos_conv_embed" and config.num_conv_pos_embeddings % 2 == 0:  # one output more, which is dropped
            extra += sum(counts.values()) // (seq + 1)
        if last == "encoder" and getattr(config, "share_att_key", False) and config.relative_attention:
            rows, width = model.get_submodule(name.split(".", 1)[1]).rel_embeddings.weight.shape  # likewise
            extra += 2 * 2 * rows * width**2 * config.num_hidden_layers  # by W_Q and W_K, used or not
        if last == "indexer":  # whose scores are not counted, of all pairs
            extra += 2 * batch * seq * seq * (config.index_head_dim + 1) * config.index_n_heads
    if type(model).__name__ in ("CLIPModel", "SiglipModel"):  # of every text with every image
        extra += 2 * batch * batch * getattr(config, "projection_dim", config.vision_config.hidden_size)
    return extra


def visible(ours, lengths, batch):
    """Of each layer the shape of its softmax, and the weights that are not 0, as mha counts them.

    SigLIP's last layer is PyTorch's own, which nobody sees into.
    """
    return collections.Counter(((batch * of.windows, layer.n_heads, of.queries, of.keys),
                                batch * layer.n_heads * of.visible) for layer, of in zip(ours.layers, lengths)
                               if not layer.prefix.endswith("head.attention"))


def of_layers(cache):
    """The layers of a cache that hold keys and values: what they hold, and their window, 0 without one."""
    if isinstance(cache, transformers.EncoderDecoderCache):
        return of_layers(cache.self_attention_cache) + of_layers(cache.cross_attention_cache)
    return [(layer.keys.numel() + layer.values.numel(), getattr(layer, "sliding_window", None) or 0)
            for layer in cache.layers if getattr(layer, "keys", None) is not None]


def states(cache):
    """Elements of the states of linear attention."""
    held = [getattr(layer, name, None) for layer in getattr(cache, "layers", ())
            for name in ("conv_states", "recurrent_states")]
    tensors = [x for part in held for x in (part.values() if isinstance(part, dict) else [part])]
    return sum(x.numel() for x in tensors if x is not None)


def held_bytes(cache):
    """Bytes of keys, values and states of a cache."""
    if isinstance(cache, transformers.EncoderDecoderCache):
        return held_bytes(cache.self_attention_cache) + held_bytes(cache.cross_attention_cache)
    kept = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(tensor.nbytes for tensor in kept if tensor is not None) + 4 * states(cache)


def compare_caches(model, own, given, batch, seq, ours, costs, lengths, ledger):
    """What differs between caches: a dynamic one, which keeps one row less of a window, and a static one."""
    kept = [(batch * layer.kv_heads * (layer.d_k + layer.d_v), of.cached)
            for layer, of in zip(ours.layers, lengths) if of.cached]
    if sum(width * rows for width, rows in kept) != costs.cache_elements:
        yield f"cache: {costs.cache_elements} in all, by layers {kept}"
    with torch.no_grad():
        made = model(**given, use_cache=True).past_key_values
    found = of_layers(made)
    if costs.latent_elements:  # which transformers caches
        if sum(elements for elements, _ in found) != costs.latent_elements:
            yield f"latents: ours {costs.latent_elements}, theirs {found}"
        TALLY["caches of latents"] += 1
        if held_bytes(made) != ledger:
            yield f"bytes of latents: ours {ledger}, theirs {held_bytes(made)}"
        return
    less = sum(4 * width for (width, rows), (_, window) in zip(kept, found) if 0 < window == rows)
    if own.model_type != "gpt_neo" and not getattr(own, "new_decoder_architecture", False):
        TALLY["bytes of caches"] += 1
        if held_bytes(made) != ledger - less:
            yield f"bytes: ours {ledger} less {less}, theirs {held_bytes(made)}"
    if own.model_type == "gpt_neo":  # of whose windows transformers' caches know nothing
        kept = [(batch * layer.kv_heads * (layer.d_k + layer.d_v), of.keys)
                for layer, of in zip(ours.layers, lengths)]
    if getattr(own, "new_decoder_architecture", False):  # of Falcon: copies for each query head that shares them
        kept = [(width * own.num_attention_heads // own.num_kv_heads, rows) for width, rows in kept]
    expected = [(width * (rows - (0 < window == rows)), window) for (width, rows), (_, window) in zip(kept, found)]
    TALLY["dynamic caches"] += 1
    if found != expected or len(found) != len(kept):
        yield f"dynamic cache: ours {expected} of {kept}, theirs {found}"
    if states(made) != costs.state_elements:
        yield f"states: ours {costs.state_elements}, theirs {states(made)}"
    if own.is_encoder_decoder or costs.state_elements or not model._can_compile_fullgraph:
        return
    static = transformers.StaticCache(own, max_cache_len=seq)
    with torch.no_grad():
        model(**given, use_cache=True, past_key_values=static)
    TALLY["static caches"] += 1
    if [elements for elements, _ in of_layers(static)] != [width * rows for width, rows in kept]:
        yield f"static cache: ours {kept}, theirs {of_layers(static)}"


def counted(model, own, given, batch, seq):
    """Operations that PyTorch counts in one run, less those that mha means not to count; and by module."""
    seen.clear()
    more = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    counter = FlopCounterMode(display=False, depth=None)
    with torch.no_grad(), counter:
        model(**given, **more)
    return counter.get_total_flops() - meant_otherwise(model, own, counter, batch, seq), counter.get_flop_counts()


def in_all(costs):
    """All operations over all pairs."""
    return (costs.projections + costs.scores_full + costs.feed_forward + costs.heads + costs.patches + costs.relative
            + costs.linear)


def compare(model_type, class_name, config, r):
    """What differs between mha and transformers, in words."""
    if "QuestionAnswering" in class_name:
        config = {**config, "num_labels": 2}
    own = eager(transformers.AutoConfig.for_model(model_type, **config))
    model = made(class_name, own)
    given, (batch, seq, cross) = inputs_of(model, own, r)
    ours = mha.Model.from_config({**config, "model_type": model_type}, class_name=class_name)
    costs, lengths = ours.costs(batch, seq, cross), ours.lengths(batch, seq, cross)
    theirs, modules = counted(model, own, given, batch, seq)
    if in_all(costs) != theirs:
        yield f"operations: ours {in_all(costs)}, theirs {theirs} (x{in_all(costs) / max(theirs, 1):.4f}); {costs}"
        for name, counts in modules.items() if ARGS.verbose else ():
            print("     ", name, sum(counts.values()))
    shown = collections.Counter(seen)
    if model_type == "gpt_oss":  # whose sinks are a column more
        shown = collections.Counter({((*shape[:3], shape[3] - 1), kept - shape[0] * shape[1] * shape[2]): count
                                     for (shape, kept), count in shown.items()})
    expected = visible(ours, lengths, batch)
    if seen and not model_type.startswith("swin"):  # whose rolled windows hide more than a position says
        TALLY["lists of visible keys"] += 1
        if not expected <= shown:
            yield f"visible keys: ours {expected}, theirs {shown}"
    decodes = not any(word in class_name for word in ("Classification", "Answering"))
    if costs.cache_elements and decodes and "use_cache" in inspect.signature(model.forward).parameters:
        ledger = sum(kind.bytes for kind in ours.caches(batch, seq, cross, dtype="float32").kinds
                     if kind.cache != "index keys")  # which transformers caches otherwise
        yield from compare_caches(model, own, given, batch, seq, ours, costs, lengths, ledger)


def compare_preset(path, seq):
    """What differs for a model that is built in, which is run without numbers."""
    said = json.loads(path.read_text())
    class_name = said["architectures"][0]
    own = eager(transformers.AutoConfig.for_model(**said))
    with torch.device("meta"):
        model = made(class_name, own)
        for module in model.modules():
            if type(module).__name__.endswith("Experts"):
                module.forward = functools.partial(first_expert, module)
        model.warn_if_padding_and_no_attention_mask = lambda *_: None  # which looks at numbers
        longest = getattr(own.get_text_config(), "max_position_embeddings", None) or seq
        given, (batch, seq, cross) = inputs_of(model, own, None, (1, min(seq, longest), seq // 2))
    costs = mha.Model.from_preset(path.stem).costs(batch, seq, cross)
    theirs, _ = counted(model, own, given, batch, seq)
    print(f"{path.stem} {batch} x {seq}, {cross}: ours {in_all(costs)}, theirs {theirs}", flush=True)
    if in_all(costs) != theirs:
        yield f"operations: ours {in_all(costs)}, theirs {theirs} (x{in_all(costs) / theirs:.4f})"


def drawn_runs(root):
    """Name and comparison of every class of N random configurations of each model type."""
    known = sorted(path.stem for path in (root / "src/models/architectures").glob("*.json"))
    for model_type in ARGS.names or [name for name in known if name not in NOT_TRANSFORMERS]:
        for number in range(ARGS.n):
            config, r = drawn(model_type, number)
            try:
                mha.Model.from_config({**config, "model_type": model_type}, class_name="no such class")
            except mha.Error as why:
                classes = str(why).split("expected one of ")[1].split(", found")[0].split(", ")
            for class_name in filter(lambda name: hasattr(transformers, name), classes):
                torch.manual_seed(number)
                yield f"{model_type} {class_name} #{number}", lambda: compare(model_type, class_name, config, r)


def preset_runs(root):
    for path in sorted((root / "weights/presets").glob("*.json")):
        known = not path.stem.startswith("transformer-")  # which no library has
        if path.stem in ARGS.names or known and not ARGS.names:
            yield path.stem, lambda: compare_preset(path, ARGS.presets)


def main():
    global ARGS
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=2, help="configurations of each type")
    parser.add_argument("-v", "--verbose", action="store_true", help="operations of each module, and where errors are")
    parser.add_argument("--presets", metavar="SEQ", type=int, help="the models that are built in, without numbers")
    parser.add_argument("names", nargs="*")
    ARGS = parser.parse_args()
    if ARGS.presets:  # there are no numbers in which sequences could be seen to be packed
        transformers.masking_utils.find_packed_sequence_indices = lambda positions: None
    else:
        listen()
    wrong = 0
    root = pathlib.Path(__file__).parents[2]
    for name, run in preset_runs(root) if ARGS.presets else drawn_runs(root):
        try:
            found = list(run())
            TALLY["models"] += 1
        except Exception as why:  # noqa: BLE001: a model that cannot be compared is reported, not hidden
            found = [f"{type(why).__name__}: {str(why)[:300]}"]
            if ARGS.verbose:
                traceback.print_exc()
        wrong += len(found)
        for line in found:
            print(f"{name}: {line}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in TALLY.items()),
          f"compared with transformers {transformers.__version__}, {wrong} differ")
    return wrong > 0 or not TALLY["models"]


TALLY = collections.Counter()
if __name__ == "__main__":
    sys.exit(main())
