"""Every architecture against the library that owns it: names, shapes and ties of all parameters, and which are trained.

Needs transformers (5.24 was compared) and torch; models are made without memory, but for small ones, whose files must
match their config.json. Buffers that the library does not write into checkpoints (masks, rotary tables) are not
compared. A null for each key that a description reads is counted as the library counts it, or refused. Then
configurations are drawn from every key of a type's class, under each name that the class knows, with keys of other
classes among them, and written as they are and as the library saves them: each is counted right, or refused with a
reason.
python3 tests/peers/architectures_peer.py build/mha [--draws N] [MODEL_TYPE ...]
"""
import argparse
import dataclasses
import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter

import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from architectures_drawn import KEPT, draw, draw_any


def theirs(model_type, class_name, config):
    """Names of parameters and stored buffers, as the library writes them into a checkpoint: shape, whether it is
    trained, first name."""
    with torch.device("meta"):
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(model_type, **config))
    model.tie_weights()
    held = {**model.state_dict(keep_vars=True), **dict(model.named_parameters(remove_duplicate=False))}
    first, frozen = {}, {id(tensor) for tensor in held.values() if not tensor.requires_grad}
    # Of ViTMAE's decoder transformers 5.23 writes other names than published files have, which it reads as well.
    # Norms of ESM have their old names in what it writes, and dense layers of Kimi-Linear the name of sparse ones.
    renamed = (("decoder.decoder_encoder.layer.", "decoder.decoder_layers."), ("LayerNorm.gamma", "LayerNorm.weight"),
               ("LayerNorm.beta", "LayerNorm.bias"), *((f"block_sparse_moe.{name}_proj", f"mlp.{name}_proj")
                                                       for name in ("gate", "up", "down")))
    published = lambda name: functools.reduce(lambda text, pair: text.replace(*pair), renamed, name)
    stored = {published(name): tensor
              for name, tensor in revert_weight_conversion(model, held).items() if "*" not in name}  # one buffer of ESM
    # transformers allocates projections of LongCat's identity experts, which published files lack.
    routed = getattr(model.config, "n_routed_experts", None) if model_type == "longcat_flash" else None
    stored = {name: tensor for name, tensor in stored.items()
              if not routed or not (at := re.search(r"experts\.(\d+)\.", name)) or int(at[1]) < routed}
    return {name: ((list(tensor.shape), id(tensor) not in frozen), first.setdefault(id(tensor), name))
            for name, tensor in stored.items()}


def ours(program, class_name, path):
    done = subprocess.run([program, "params", "--config", path, "--class", class_name, "--all", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip(), ""
    rows = json.loads(done.stdout)["tensors"]
    return ({row["name"]: ((row["shape"], row["trainable"]), row["storage"]) for row in rows},
            {row["name"] for row in rows if row["kind"] == "buffer"})


def plain(names):
    """Ties as the set of names that share a storage."""
    groups = {}
    for name, (_, storage) in names.items():
        groups.setdefault(storage, set()).add(name)
    return {name: (shape, frozenset(groups[storage])) for name, (shape, storage) in names.items()}


def bare(names, prefix):
    """Without the prefix that bare models lack."""
    cut = lambda name: name[len(prefix):] if name.startswith(prefix) else name
    return {cut(name): (shape, frozenset(map(cut, tied))) for name, (shape, tied) in names.items()}


def difference(program, model_type, class_name, config, path, own_prefix):
    """What the model of a configuration has otherwise than its config.json says, as lines; or why that is refused."""
    found, buffers = ours(program, class_name, path)
    if isinstance(found, str):
        return found
    a, b = plain(found), plain(theirs(model_type, class_name, config))
    cut = {name: ([], []) for name in buffers}
    for prefix in (getattr(transformers, class_name).base_model_prefix + ".", own_prefix):
        a, b, cut = bare(a, prefix), bare(b, prefix), bare(cut, prefix)
    for name in set(cut) - set(b):
        del a[name]
    return [f"   {name}: ours {a.get(name)}, theirs {b.get(name)}"
            for name in sorted(set(a) | set(b)) if a.get(name) != b.get(name)]


def written(config, folder):
    """The path of a config.json."""
    path = os.path.join(folder, "config.json")
    with open(path, "w") as file:
        json.dump(config, file)
    return path


def classes_of(program, path):
    """The classes of a described model type that the library has."""
    refusal, _ = ours(program, "no such class", path)
    names = refusal.split("expected one of ")[1].split(", found")[0].split(", ")
    return [name for name in names if hasattr(transformers, name)]


def drawn(program, model_type, folder, own_prefix):
    """Configurations with flags both ways: (compared, wrong)."""
    wrong = compared = 0
    for number in range(6):
        config = draw(model_type, number)
        path = written(dict(config, model_type=model_type), folder)
        for class_name in classes_of(program, path):
            found = difference(program, model_type, class_name, config, path, own_prefix)
            compared += 1
            if found:
                wrong += 1
                print(f"{model_type} {class_name} {config}:", found if isinstance(found, str) else "\n".join(found))
            if number < 2 and (found := file_differs(program, model_type, class_name, config)):
                wrong += 1
                print(f"{model_type} {class_name} {config}, saved:", found)
    return compared, wrong


def file_differs(program, model_type, class_name, config):
    """What `mha params` says of the file that the library writes for a small model; "": it matches both ways."""
    model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(model_type, **config))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights, path = os.path.join(folder, "model.safetensors"), os.path.join(folder, "config.json")
        runs = [subprocess.run([program, "params", "--weights", weights, *more], capture_output=True, text=True)
                for more in ((), ("--config", path))]
    return "" if all(run.returncode == 0 for run in runs) else runs[1].stdout + runs[1].stderr


def keys_read(path):
    """The keys that a description and those that it is like read."""
    text = json.load(open(path))
    keys = keys_read(os.path.join(os.path.dirname(path), text["like"] + ".json")) if "like" in text else set()
    return keys.union(*(row.get("key", "").split() for part in ("symbols", "numbers")
                        for row in text.get(part, {}).values()))


def nulls(program, model_type, path, folder, own_prefix):
    """A null in the place of each key: what became of them."""
    became, class_name = Counter(), classes_of(program, written({"model_type": model_type}, folder))[0]
    for key in sorted(key for key in keys_read(path) if "." not in key):
        config = {**draw(model_type, 0), key: None}
        try:
            theirs(model_type, class_name, config)
        except Exception:  # noqa: BLE001: the library refuses it
            became["not made"] += 1
            continue
        file = written(dict(config, model_type=model_type), folder)
        found = difference(program, model_type, class_name, config, file, own_prefix)
        became["right" if not found else "refused" if isinstance(found, str) else "wrong"] += 1
        if found and not isinstance(found, str):
            print(f"{model_type} {class_name} {key} null:", *found[:12], sep="\n")
    return became


def saved(model_type, class_name, config):
    """The config.json that save_pretrained writes."""
    made = transformers.AutoConfig.for_model(model_type, **config)
    made.architectures = [class_name]
    return json.loads(made.to_json_string(use_diff=True))


def read(file):
    """The settings of a config.json, which its class reads again."""
    return {key: value for key, value in file.items() if key not in ("model_type", "transformers_version")}


def any_keys(program, model_type, folder, own_prefix, draws, foreign):
    """Configurations drawn from every key of the class, as they are and as they are saved: each is counted right, or
    refused with a reason. Returns what became of them."""
    kind = CONFIG_MAPPING[model_type]
    complete = lambda config: kind(**config).to_dict()
    others = {key: value for key, value in foreign.items()
              if key not in complete(draw(model_type, 0)) and key not in kind.attribute_map}
    source = inspect.getsource(kind)
    old = {key: foreign[key] for key in re.findall(r'kwargs\.(?:get|pop)\(\s*"(\w+)"', source) if key in foreign}
    names = classes_of(program, written({"model_type": model_type}, folder))
    became = Counter()
    for number in range(draws):
        config = draw_any(model_type, number, complete, kind.attribute_map, old, others)
        class_name = names[number % len(names)]
        try:
            # transformers 5 ties mT5 and UMT5 whatever the key says; their published files have an lm_head of its own.
            if config.get("tie_word_embeddings") is False and kind(**config).tie_word_embeddings:
                became["tied in spite of the key"] += 1
                continue
            theirs(model_type, class_name, config)
            own = saved(model_type, class_name, config)
            theirs(model_type, class_name, read(own))
            files = [(dict(config, model_type=model_type), config), (own, read(own))]
        except Exception:  # noqa: BLE001: the library refuses it
            became["not made"] += 1
            continue
        for file, meant in files:
            found = difference(program, model_type, class_name, meant, written(file, folder), own_prefix)
            outcome = "right" if not found else "refused" if isinstance(found, str) else "wrong"
            became[outcome] += 1
            if outcome == "refused":
                became[found.split("config.json: ")[-1].split("; leave it out")[0]] += 1
            if outcome == "wrong":
                print(f"{model_type} {class_name} {file}:", *found[:12], sep="\n")
    return became


def spellings(model_type, path):
    """Keys with two names of which the description lacks one, or reads the other one first: a name that is no field of
    the class is read before the field."""
    text = json.load(open(path))
    if "like" in text:
        yield from spellings(model_type, os.path.join(os.path.dirname(path), text["like"] + ".json"))
    kind = CONFIG_MAPPING[model_type]
    fields = {field.name for field in dataclasses.fields(kind)}
    read = [row.get("key", "").split() for part in ("symbols", "numbers") for row in text.get(part, {}).values()]
    for pair in kind.attribute_map.items():
        first, last = sorted(pair, key=fields.__contains__)
        for keys in read:
            if keys and keys[0] in pair and [key for key in keys if key in pair] != [first, last]:
                yield f"{os.path.basename(path)}: {' '.join(keys)}: expected {first} before {last}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=10, help="configurations drawn from every key, for each type")
    parser.add_argument("program")
    parser.add_argument("types", nargs="*")
    args = parser.parse_intermixed_args()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    here = os.path.join(os.path.dirname(__file__), "../../src/models/architectures")
    types = [name[:-5] for name in sorted(os.listdir(here)) if name.endswith(".json")]
    types = [name for name in types if name not in ("transformer", "multihead_attention", "qwen", "schema")]
    foreign = {key: value for name in types for key, value in CONFIG_MAPPING[name](**draw(name, 0)).to_dict().items()
               if key not in KEPT and isinstance(value, int)}
    wrong = compared = 0
    became = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for model_type in args.types or types:
            path = os.path.join(here, model_type + ".json")
            with open(path) as file:
                own_prefix = json.load(file).get("model_prefix", "")
            for line in spellings(model_type, path):
                wrong += 1
                print(line)
            counts = drawn(args.program, model_type, folder, own_prefix)
            compared, wrong = compared + counts[0], wrong + counts[1]
            became += nulls(args.program, model_type, path, folder, own_prefix)
            became += any_keys(args.program, model_type, folder, own_prefix, args.draws, foreign)
    for reason, count in became.most_common():
        print(f"   {count} {reason}")
    print(f"{compared} models compared with transformers {transformers.__version__}, {wrong} differ; of configurations "
          f"drawn from every key {became['right']} right, {became['refused']} refused, {became['wrong']} wrong")
    return wrong + became["wrong"] > 0 or compared == 0


sys.exit(main())
