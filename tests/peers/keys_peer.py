"""Keys of a config.json that change attention: each is obeyed, or refused in a clear line, never passed over.

    PYTHONPATH=build/python python3 tests/peers/keys_peer.py [NAME ...]

For every tiny model of layers_drawn.py and every key of its library's configuration, another value is tried: the model
is made and run again, and every attention layer is compared as layers_peer.py does. A key that transformers takes,
with which mha computes other numbers without a word, is printed. Exit code 1 when there is one.
"""
import argparse
import sys

import layers_peer
from layers_drawn import MODELS, inputs_of, settings

import torch  # noqa: I001: layers_peer prepares it
import transformers

# Keys without effect on attention: tokens, training, output, names; and those that decide which layers there are.
QUIET = {"vocab_size", "num_labels", "model_type", "architectures", "transformers_version", "torch_dtype", "dtype",
         "output_attentions", "output_hidden_states", "return_dict", "_attn_implementation", "_name_or_path",
         "id2label", "label2id", "use_cache", "problem_type", "initializer_range", "pad_token_id",
         "_experts_implementation", "is_encoder_decoder"}  # the last: how T5 caches
WORDS = {"hidden_act": ["gelu"], "rope_type": ["linear", "dynamic", "default"],
         "position_embedding_type": ["absolute", "relative_key", "relative_key_query", "rotary"]}
MASK = "attention_mask"


def others(key, value):
    """Other values that a key could have."""
    if isinstance(value, bool):
        return [not value]
    if key in WORDS:
        return [word for word in WORDS[key] if word != value]
    if value is None:
        return [True, 3, 0.7]
    if isinstance(value, int):
        return [x for x in (value + 1, value * 2, value // 2, 0) if x != value] + [None]
    if isinstance(value, float):
        return [value * 1.7 + (value == 0) * 0.37]
    if key == "layer_types":
        return [[word] * len(value) for word in ("full_attention", "sliding_attention")] + [value[::-1]]
    if isinstance(value, list) and value and isinstance(value[0], (int, bool)):
        return [[type(x)(not x) if isinstance(x, bool) else x + 1 for x in value]]
    return []


def changes(held, path=()):
    """(path of a key, another value), objects inside included."""
    for key, value in held.items():
        if key in QUIET or key.endswith("_token_id") or "dropout" in key or key.endswith("pdrop"):
            continue
        if isinstance(value, dict):
            yield from changes(value, (*path, key))
        else:
            yield from (((*path, key), other) for other in others(key, value))


def with_change(held, path, value):
    """A copy in which one key has another value."""
    return {**held, path[0]: with_change(held[path[0]] or {}, path[1:], value) if len(path) > 1 else value}


def without_padding(model, config):
    """Rows in which every key is hidden are left to their owners."""
    given, _ = inputs_of(model, config)
    return {key: x if key != MASK else torch.ones_like(x) for key, x in given.items()}, lambda layer: None


def attempt(name, model_type, more, told):
    """1: mha computes the same; 0: it refuses; -1: it computes something else; None: transformers does not."""
    try:
        rows = layers_peer.examine(name, model_type, more, None, learned=False)
    except layers_peer.mha.Error as why:
        print(f"  {name}: {told}: refused: {str(why)[:150]}")
        return 0
    except Exception as why:  # noqa: BLE001: transformers does not take the value, or runs other layers
        if ARGS.all:
            print(f"  {name}: {told}: {type(why).__name__}: {str(why)[:100]}")
        return None
    bad = [off for off in rows.values() if layers_peer.differs(off)]
    if bad:
        print(f"WRONG {name}: {told}: {bad}")
    return -1 if bad else 1


def probe(name, model_type, more):
    """Prints the keys that change what transformers computes, but not what mha does."""
    layers_peer.settings = dict
    whole = settings(more)
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        whole.update({key: max(2, whole[key])} if key in whole and len(more.get("layer_types", "..")) > 1 else {})
    base = transformers.AutoConfig.for_model(model_type, **whole).to_dict()
    base.pop("model_type", None)
    if "sliding_window" in base:  # shorter than the inputs, so that flags which turn it on are seen
        base["sliding_window"] = 3
    found = [attempt(name, model_type, base, "as it is")]
    write = transformers.PreTrainedConfig.to_json_file
    transformers.PreTrainedConfig.to_json_file = lambda self, path, use_diff: write(self, path, use_diff=True)
    found.append(attempt(name, model_type, base, "without keys that have their default"))
    transformers.PreTrainedConfig.to_json_file = write
    found += [attempt(name, model_type, with_change(base, path, value), f"{'.'.join(path)} = {value}")
              for path, value in changes(base)]
    bare = {key: value for key, value in base.items() if key != "layer_types"}  # which then follow from flags
    found += [attempt(name, model_type, with_change(bare, path, value), f"{'.'.join(path)} = {value}, no layer_types")
              for path, value in changes(bare) if isinstance(value, bool) and "layer_types" in base]
    print(f"{name}: {found.count(1)} obeyed, {found.count(0)} refused, {found.count(-1)} passed over", flush=True)
    return -1 in found


def main():
    global ARGS
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="say why a value could not be tried, too")
    parser.add_argument("names", nargs="*")
    ARGS = parser.parse_args()
    layers_peer.listen()
    layers_peer.inputs_of = without_padding
    torch.manual_seed(1)
    return any([probe(name, *MODELS[name]) for name in ARGS.names or MODELS])


if __name__ == "__main__":
    sys.exit(main())
