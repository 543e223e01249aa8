"""Every architecture against the library that owns it: names, shapes and ties of all parameters.

Needs transformers (5.23 was compared) and torch; models are made without memory. Buffers that the library does not
write into checkpoints (masks, rotary tables) are not compared.
python3 tests/peers/architectures_peer.py build/mha [MODEL_TYPE ...]
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from architectures_drawn import draw


def theirs(model_type, class_name, config):
    """Names, shapes and first names of parameters and stored buffers, as the library writes them into a checkpoint."""
    with torch.device("meta"):
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(model_type, **config))
    model.tie_weights()
    held = {**model.state_dict(keep_vars=True), **dict(model.named_parameters(remove_duplicate=False))}
    first = {}
    # Of ViTMAE's decoder transformers 5.23 writes other names than published files have, which it reads as well.
    stored = {name.replace("decoder.decoder_encoder.layer.", "decoder.decoder_layers."): tensor
              for name, tensor in revert_weight_conversion(model, held).items() if "*" not in name}  # one buffer of ESM
    return {name: (list(tensor.shape), first.setdefault(id(tensor), name)) for name, tensor in stored.items()}


def ours(program, class_name, path):
    done = subprocess.run([program, "params", "--config", path, "--class", class_name, "--all", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip(), ""
    rows = json.loads(done.stdout)["tensors"]
    return ({row["name"]: (row["shape"], row["storage"]) for row in rows},
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


def main():
    program, asked = sys.argv[1], sys.argv[2:]
    wrong = compared = 0
    folder = os.path.join(os.path.dirname(__file__), "../../src/models/architectures")
    for model_type in asked or sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".json")):
        if model_type in ("transformer", "multihead_attention", "schema"):
            continue
        with open(os.path.join(folder, model_type + ".json")) as file:
            own_prefix = json.load(file).get("model_prefix", "")
        for number in range(6):
            config = draw(model_type, number)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(dict(config, model_type=model_type), file)
                file.flush()
                refusal, _ = ours(program, "no such class", file.name)
                for class_name in refusal.split("expected one of ")[1].split(", found")[0].split(", "):
                    if not hasattr(transformers, class_name):
                        continue
                    found, buffers = ours(program, class_name, file.name)
                    expected = theirs(model_type, class_name, config)
                    if isinstance(found, str):
                        print(f"{model_type} {class_name} {config}: {found}")
                        wrong += 1
                        continue
                    a, b = plain(found), plain(expected)
                    cut = {name: ([], []) for name in buffers}
                    for prefix in (getattr(transformers, class_name).base_model_prefix + ".", own_prefix):
                        a, b, cut = bare(a, prefix), bare(b, prefix), bare(cut, prefix)
                    for name in set(cut) - set(b):
                        del a[name]
                    compared += 1
                    if a != b:
                        wrong += 1
                        print(f"{model_type} {class_name} {config}:")
                        for name in sorted(set(a) | set(b)):
                            if a.get(name) != b.get(name):
                                print(f"   {name}: ours {a.get(name)}, theirs {b.get(name)}")
    print(f"{compared} models compared with transformers {transformers.__version__}, {wrong} differ")
    return wrong > 0 or compared == 0


sys.exit(main())
