"""Every architecture against the library that owns it: names, shapes and ties of all parameters.

Needs transformers (5.23 was compared) and torch; models are made without memory. What the library keeps apart from its
checkpoints (masks, rotary tables) is not compared. python3 tests/peers/architectures_peer.py build/mha [MODEL_TYPE ...]
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import transformers

# Model type: the sizes that are drawn, by key; each model has every class that both sides know.
SIZES = {
    "bert": dict(width="hidden_size", heads="num_attention_heads", layers="num_hidden_layers", ffn="intermediate_size"),
    "gpt2": dict(width="n_embd", heads="n_head", layers="n_layer", ffn="n_inner"),
    "distilbert": dict(width="dim", heads="n_heads", layers="n_layers", ffn="hidden_dim"),
    "t5": dict(width="d_model", heads="num_heads", layers="num_layers", ffn="d_ff", key_width="d_kv"),
}
LIKE = {"electra": "bert", "roberta": "bert", "xlm-roberta": "bert", "camembert": "bert", "albert": "bert",
        "vit": "bert"}
DECODERS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "starcoder2", "olmo", "olmo2", "phi3")
HEAD_DIM = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2")  # may differ from d_model / h
FLAGS = {"llama": ("attention_bias", "mlp_bias"), "qwen3": ("attention_bias",), "gemma": ("attention_bias",),
         "gemma2": ("attention_bias",), "starcoder2": ("use_bias",), "olmo": ("attention_bias",),
         "olmo2": ("attention_bias",)}


def draw(model_type, number):
    r = random.Random(f"{model_type} {number}")
    keys = SIZES.get(LIKE.get(model_type, model_type), SIZES["bert"])
    heads = r.choice((1, 2, 4, 6))
    config = {keys["heads"]: heads, keys["width"]: heads * 2 * r.randint(1, 9), keys["layers"]: r.randint(1, 3),
              keys["ffn"]: r.randint(1, 90), "vocab_size": r.randint(5, 300)}
    if "key_width" in keys:
        config[keys["key_width"]] = r.randint(1, 20)
        config["feed_forward_proj"] = r.choice(("relu", "gated-gelu"))
    if model_type in DECODERS:
        config["num_key_value_heads"] = r.choice([n for n in range(1, heads + 1) if heads % n == 0])
        if model_type in HEAD_DIM:
            config["head_dim"] = 2 * r.randint(1, 12)
        config["pad_token_id"] = 0
    if model_type in ("albert", "electra"):
        config["embedding_size"] = r.randint(1, 30)
    config["tie_word_embeddings"] = model_type == "t5" or r.random() < 0.5  # transformers ties all of T5 since 5.0
    for flag in FLAGS.get(model_type, ()):
        config[flag] = r.random() < 0.5
    if model_type in ("bert", "roberta", "albert"):
        config["num_labels"] = r.randint(2, 6)
    return config


def theirs(model_type, class_name, config):
    with torch.device("meta"):
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(model_type, **config))
    model.tie_weights()
    first = {}
    return {name: (list(p.shape), first.setdefault(id(p), name))
            for name, p in model.named_parameters(remove_duplicate=False)}


def ours(program, class_name, path):
    done = subprocess.run([program, "params", "--config", path, "--class", class_name, "--all", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip()
    rows = [row for row in json.loads(done.stdout)["tensors"] if row["kind"] == "parameter"]
    return {row["name"]: (row["shape"], row["storage"]) for row in rows}


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
        if model_type in ("transformer", "multihead_attention"):
            continue
        for number in range(6):
            config = draw(model_type, number)
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(dict(config, model_type=model_type), file)
                file.flush()
                refusal = ours(program, "no such class", file.name)
                for class_name in refusal.split("expected one of ")[1].split(", found")[0].split(", "):
                    if not hasattr(transformers, class_name):
                        continue
                    found, expected = ours(program, class_name, file.name), theirs(model_type, class_name, config)
                    if isinstance(found, str):
                        print(f"{model_type} {class_name} {config}: {found}")
                        wrong += 1
                        continue
                    prefix = getattr(transformers, class_name).base_model_prefix + "."
                    a, b = bare(plain(found), prefix), bare(plain(expected), prefix)
                    compared += 1
                    if model_type == "vit":  # transformers renames what the checkpoints hold since 5.0
                        a, b = ({i: shape for i, shape in enumerate(sorted(shape for shape, _ in x.values()))}
                                for x in (a, b))
                    if a != b:
                        wrong += 1
                        print(f"{model_type} {class_name} {config}:")
                        for name in sorted(set(a) | set(b)):
                            if a.get(name) != b.get(name):
                                print(f"   {name}: ours {a.get(name)}, theirs {b.get(name)}")
    print(f"{compared} models compared with transformers {transformers.__version__}, {wrong} differ")
    return wrong > 0 or compared == 0


sys.exit(main())
