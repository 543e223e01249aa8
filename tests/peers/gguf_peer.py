"""Attention layers of GGUF files, compared with transformers: the metadata of a file and its family compute the same.

    PYTHONPATH=build/python \\
      python3 tests/peers/gguf_peer.py [--record FOLDER] build/mha [NAME ...]

Each model of gguf_drawn.py is made in float64 and run once, with the numbers that F32, F16 and Q8_0 leave of its
weights. They are written as a GGUF by the package gguf, under its names, in the order of rows that llama.cpp's
converter gives them. Every attention layer is run again by `mha forward --weights FILE.gguf --layer blk.N`, and by the
Python module, on the exact path: from only the file, the output must be the same to 1e-12. --record FOLDER writes two
layers of each with what transformers computed; tests/models/test_gguf_layers.c reads those of tests/gguf. Exit code 1
when a layer differs.
"""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import types

import gguf
import numpy as np
from layers_peer import Layer, layers_of, make, torch, transformers

import mha
from gguf_drawn import MODELS

ALLOWED = 1e-12
T, B = 7, 2
TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16,
         "Q8_0": gguf.GGMLQuantizationType.Q8_0}
# The changes of llama.cpp's converter to weights.
PERMUTED = {"llama", "granite", "granitemoe", "smollm3", "olmo"}  # halves of queries and keys become pairs
PLUS_ONE = {"gemma", "gemma2", "gemma3"}  # norms hold the 1 that the model adds
BY_HEAD = {"bloom", "gptneox"}  # query, key and value of each head in turn
BY_GROUP = {"falcon"}  # query heads, then key and value, of each key/value head in turn
CONV1D = {"gpt2"}
DESCRIBED_AS = {"olmo3": "olmo2"}  # whose layers have the same names


def number(config, key):
    """A number of a configuration under one of its names; None: it has none."""
    return next((x for x in (getattr(config, name, None) for name in key.split()) if x is not None), None)


def metadata(arch, config, more):
    """What every converter writes of a configuration, and what this one writes beside it."""
    get = lambda key: number(config, key)
    heads = get("num_attention_heads n_head n_heads")
    written = {"block_count": get("num_hidden_layers n_layer n_layers"),
               "embedding_length": get("hidden_size n_embd d_model"), "attention.head_count": heads,
               "context_length": get("max_position_embeddings n_positions max_seq_len") or 32,
               "attention.head_count_kv": get("num_key_value_heads") or heads}
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_theta"):
        written["rope.freq_base"] = float(rope["rope_theta"])
    if arch in ("qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "gpt-oss", "glm4"):
        written.update({"attention.key_length": config.head_dim, "attention.value_length": config.head_dim})
    usual = type(config)()
    for key, name in (("rms_norm_eps", "rms_"), ("layer_norm_eps layer_norm_epsilon norm_eps", "")):
        if number(usual, key):
            written[f"attention.layer_norm_{name}epsilon"] = float(get(key))
    return {**written, **more}


def add(writer, key, value):
    """A value of its type: U32, F32, BOOL, STRING, or an array of these."""
    kind = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
            list: writer.add_array}
    kind[type(value)](key, value)


def file_name(names, name):
    """A tensor's name in GGUF."""
    name += ".weight" * name.endswith("sinks")
    bare = name.partition(".")[2]
    for known in (name, bare, "model." + name, "transformer." + name, "transformer." + bare):
        found = names.get_name(known, try_suffixes=(".weight", ".bias"))
        if found:
            return found
    raise LookupError(f"{name}: GGUF has no name for it")


def to_pairs(x, heads):
    return x.reshape(heads, 2, len(x) // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def to_parts(x, groups, each):
    """Blocks of `each` query heads, a key and a value head: all queries, all keys, all values."""
    blocks = x.reshape(groups, each + 2, -1, *x.shape[1:])
    return np.concatenate([blocks[:, part].reshape(-1, *x.shape[1:])
                           for part in (slice(0, each), slice(each, each + 1), slice(each + 1, each + 2))])


def converted(arch, name, x, keys):
    """A tensor as GGUF has it; what is learned stays the same numbers."""
    heads, kv_heads = keys["attention.head_count"], keys["attention.head_count_kv"]
    if arch in PERMUTED and ".q_proj." in name:
        x = to_pairs(x, heads)
    if arch in PERMUTED and ".k_proj." in name:
        x = to_pairs(x, kv_heads)
    if arch in PLUS_ONE and name.endswith("norm.weight"):
        x = x + 1
    if arch in BY_HEAD and "query_key_value" in name:
        x = to_parts(x, heads, 1)
    if arch in BY_GROUP and "query_key_value" in name:
        x = to_parts(x, kv_heads, heads // kv_heads)
    return np.ascontiguousarray(x)


def rounded(x, kind, turned):
    """What a type leaves of a matrix, whose blocks run along its inputs; vectors stay as they are."""
    y = x.T if turned else x
    if x.ndim == 2 and y.shape[1] % 32 == 0:
        y = gguf.dequantize(gguf.quantize(np.ascontiguousarray(y, np.float32), TYPES[kind]), TYPES[kind])
    return (y.T if turned else y).astype(np.float64)


def norms_of_heads(weights):
    """Norms that a family keeps for each head (`q_layernorm.norms.3.weight`), in one tensor, as its converter does."""
    joined = {}
    for name, x in weights.items():
        begin, middle, rest = name.partition(".norms.")
        if middle:
            joined.setdefault(begin + ".weight", {})[int(rest.split(".")[0])] = x
        else:
            joined[name] = x
    return {name: np.stack([x[i] for i in sorted(x)]) if isinstance(x, dict) else x for name, x in joined.items()}


def factors(config, keys):
    """Tensors that scale a rotation."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        inv = 1e4 ** -(np.arange(0, 8, 2) / 8)
        long = 2 * np.pi / inv > rope["original_max_position_embeddings"]
        return {"rope_freqs.weight": np.where(long, rope["factor"], 1.0)}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{kind}.weight": np.array(rope[f"{kind}_factor"]) for kind in ("long", "short")}
    return {}


@contextlib.contextmanager
def writing(path, arch, keys, tensors, kind):
    """Writes a file; `tensors` by name, (out, in). More may be added to the writer that it gives."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        add(writer, f"{arch}.{key}", value)
    for name, x in tensors.items():
        x = x.astype(np.float32)
        if x.ndim == 2 and kind != "F32" and "norm" not in name:
            writer.add_tensor(name, gguf.quantize(x, TYPES[kind]), raw_dtype=TYPES[kind])
        else:
            writer.add_tensor(name, x)
    yield writer
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def examine(name, kind, program, to):
    """The largest relative difference of each layer of a model, and what the program said."""
    arch, model_type, more, extra = MODELS[name]
    model, config = make(model_type, more)
    for x in model.parameters():
        x.data = torch.tensor(rounded(x.data.numpy(), kind, arch in CONV1D))
    keys = metadata(arch, config, extra)
    blocks = keys["block_count"]
    names = gguf.get_tensor_name_map(next(a for a, text in gguf.MODEL_ARCH_NAMES.items() if text == arch), blocks)
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        described = types.SimpleNamespace(model_type=DESCRIBED_AS.get(model_type, model_type))
        said = {**config.to_dict(), **vars(described), "architectures": None}
        (folder / "config.json").write_text(json.dumps(said, default=str))
        layers = layers_of(model, described, folder / "config.json")
        tensors = {}
        for layer in layers:
            weights = {n: x.detach().numpy() for n, x in layer.weights.items()}
            for n, x in norms_of_heads(weights).items():
                x = x.T if arch in CONV1D and x.ndim == 2 else x
                if "inv_freq" not in n:
                    tensors[file_name(names, n)] = converted(arch, n, x, keys)
        tensors.update(factors(config, keys))
        (folder / "config.json").unlink()  # the file must suffice
        path = folder / "model.gguf"
        with writing(path, arch, keys, tensors, kind):
            pass
        with torch.no_grad():
            model(torch.tensor(np.random.default_rng(11).integers(3, 20, (B, T))))
        recorded = {}
        for i, layer in enumerate(layers):
            np.save(folder / "x.npy", layer.query)
            command = [program, "forward", "--weights", path, "--layer", f"blk.{i}", "--input", folder / "x.npy",
                       "--output", folder / "y.npy", "--path", "exact", "--json", "--dtype", "f64"]
            said = subprocess.run(command, capture_output=True, text=True)
            if said.returncode != 0:
                raise RuntimeError(said.stderr.strip())
            answer = json.loads(said.stdout)["config"]
            wanted = layer.output
            ours = np.load(folder / "y.npy"), mha.MultiHeadAttention.from_file(
                path, layer=f"blk.{i}", dtype="float64", length=T)(layer.query, path="exact", out_dtype="float64")
            off = max(np.abs(y - wanted).max() / np.abs(wanted).max() for y in ours)
            rows[f"blk.{i}"] = off, answer["causal"], answer["caveat"]
            recorded[f"blk.{i}"] = layer.query, wanted
        if to:
            record(pathlib.Path(to) / f"{name}.gguf", arch, keys, tensors, recorded)
    return rows


def record(path, arch, keys, tensors, calls):
    """Writes the first and the last layer in Q8_0, with the call of one batch row of each: its input in BF16, which it
    was rounded to, its output in F64."""
    first, last = (f"blk.{i}." for i in (0, len(calls) - 1))
    inside = {name: x for name, x in tensors.items() if not name.startswith("blk.") or name.startswith((first, last))}
    with writing(path, arch, keys, inside, "Q8_0") as writer:
        for block, (query, output) in calls.items():
            if first.startswith(block + ".") or last.startswith(block + "."):
                half = gguf.GGMLQuantizationType.BF16
                writer.add_tensor(f"recorded.{block}.query", gguf.quantize(query[:1].astype(np.float32), half),
                                  raw_dtype=half)
                writer.add_tensor(f"recorded.{block}.output", output[:1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    layers = wrong = 0
    for name in MODELS:
        if args.names and name not in args.names:
            continue
        for kind in TYPES:
            try:
                rows = examine(name, kind, args.program, args.record if kind == "Q8_0" else None)
            except Exception as why:  # noqa: BLE001: an architecture that cannot be compared is reported, not hidden
                print(f"{name} {kind}: {type(why).__name__}: {str(why)[:300]}")
                wrong, layers = wrong + 1, layers + 1
                continue
            bad = {block: off for block, (off, *_) in rows.items() if not off <= ALLOWED}
            layers, wrong = layers + len(rows), wrong + len(bad)
            causal, caveats = {c for _, c, _ in rows.values()}, {c for *_, c in rows.values() if c}
            print(f"{name} {kind}: {len(rows)} layers, {max(off for off, *_ in rows.values()):.1e}, "
                  f"causal {'/'.join(map(str, causal))}{''.join('; ' + c for c in caveats)}",
                  *(f"{block} {off:.1e}" for block, off in bad.items()))
    print(f"{wrong} of {layers} layers of GGUF files differ from transformers {transformers.__version__}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
