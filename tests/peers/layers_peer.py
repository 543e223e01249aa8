"""Attention layers of tiny random models beside transformers: what a config.json says is what its owner computes.

    PYTHONPATH=build/python python3 tests/peers/layers_peer.py [--record FOLDER] [NAME ...]

Each model is made from a configuration, in float64, and run once. Every attention layer is run again by mha, from its
weights and the config.json alone: on the exact path its weights of attention and its output must be the same to 1e-12.
--record FOLDER writes what transformers computed, for tests/models/test_layers_recorded.c. Exit code 1 when a layer
differs, or was not compared.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch

SINGLE = torch.float32
torch.set_default_dtype(torch.float64)
torch.float32 = torch.float = torch.float64  # transformers rotates and takes the softmax in float32, whatever the model
torch.Tensor.float = torch.Tensor.double

import transformers  # noqa: E402
from transformers.core_model_loading import revert_weight_conversion  # noqa: E402

import mha  # noqa: E402
from layers_drawn import B, MODELS, inputs_of, settings  # noqa: E402

DESCRIPTIONS = pathlib.Path(__file__).parents[2] / "src/models/architectures"
ALLOWED = 1e-12
SHARED = ("relative_", "rel_embeddings", "encoder.LayerNorm")  # in names of tensors that layers share
softmaxes = []  # weights of attention, in the order in which they are computed


def listen():
    """Keeps what every softmax returns."""
    def kept(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            if result.ndim == 4:
                softmaxes.append(result.detach().numpy())
            return result
        return call

    torch.softmax, torch.Tensor.softmax = kept(torch.softmax), kept(torch.Tensor.softmax)
    torch.nn.functional.softmax = kept(torch.nn.functional.softmax)


def make(model_type, more):
    """A model of random weights that BF16 holds."""
    config = transformers.AutoConfig.for_model(model_type, **settings(more))
    # Where it does not call PyTorch's attention, which gives no weights, Falcon adds ALiBi twice.
    config._attn_implementation = "sdpa" if getattr(config, "alibi", False) else "eager"
    config._experts_implementation = "eager"
    for part in ("text_config", "vision_config"):
        if hasattr(config, part):
            getattr(config, part)._attn_implementation = "eager"
    name = "ForPreTraining" if model_type == "vit_mae" else "Model"
    architecture = type(config).__name__.removesuffix("Config") + name
    model = getattr(transformers, architecture)(config).double().eval()
    random = np.random.default_rng(7)
    for role, parameter in model.named_parameters():
        middle = 4.5 * role.endswith("logit_scale")  # some beyond what Swin v2 clamps
        parameter.data = torch.tensor(random.normal(middle, 0.3, parameter.shape)).bfloat16().double()
    config.architectures = [architecture]
    return model, config


def stored(model):
    """The parameters under the names of the public checkpoint."""
    held = dict(model.named_parameters(remove_duplicate=False))
    # Of ViTMAE's decoder transformers 5.23 writes other names than published files have, which it reads as well.
    return {name.replace("decoder.decoder_encoder.layer.", "decoder.decoder_layers."): tensor
            for name, tensor in revert_weight_conversion(model, held).items()}


def in_a_row(x):
    """The cells of images (B, height, width, d) as tokens."""
    return x.reshape(len(x), -1, x.shape[-1]) if x.ndim == 4 else x


class Layer:
    """What one attention layer was given, and what it made of it."""

    def __init__(self, prefix, weights, roles, modules, model):
        self.prefix, self.weights = prefix, weights
        self.seen, self.query, self.key, self.output, self.attention = 0, None, None, None, None
        found = {role: modules.get(id(weights[name])) for role, name in roles.items()}
        if "W_QKV" in found and found["W_QKV"] is None:  # the library splits it while it loads
            del found["W_QKV"]
            parent = next(m for m in model.modules() if found["W_O"] in m.children())
            found.update({f"W_{x.upper()}": getattr(parent, f"{x}_proj") for x in "qkv"})
        if "W_QA" in found:  # what W_Q reads is the layer's own
            del found["W_Q"]
        for role, module in found.items():
            if module is None:
                raise LookupError(f"{roles[role]}: no module has this weight")
            if isinstance(module, torch.nn.MultiheadAttention):
                module.register_forward_pre_hook(self.joined_before, with_kwargs=True)
                module.register_forward_hook(self.after)
                break
            if role == "W_O":
                module.register_forward_hook(self.after)
            else:
                module.register_forward_pre_hook(self.before(role))

    def before(self, role):
        """Rounds what goes into a projection to BF16, so that a small file holds it."""
        def hook(_, args):
            if len(args[0]) < B:  # relative embeddings, which DeBERTa projects as tokens
                return args
            x = args[0].bfloat16().double()
            shown = in_a_row(x.detach().numpy())
            if role in ("W_Q", "W_QG", "W_QA", "W_QKV"):
                self.query, self.seen = shown, len(softmaxes)
            if role in ("W_K", "W_KVA", "W_QKV"):
                self.key = shown
            return (x, *args[1:])
        return hook

    def joined_before(self, _, args, kwargs):
        given = [x.bfloat16().double() for x in args[:3]]
        self.query, self.key = given[0].detach().numpy(), given[1].detach().numpy()
        return (*given, *args[3:]), kwargs

    def after(self, module, _, output):
        output = output[0] if isinstance(output, tuple) else output
        self.output = in_a_row(output.detach().numpy())
        made = softmaxes[self.seen:]
        if made and not isinstance(module, torch.nn.MultiheadAttention):  # which computes the mean over heads alone
            self.attention = made[-1][..., :self.key.reshape(-1, *self.key.shape[-2:]).shape[1]]


def layers_of(model, config, path):
    """The layers that mha finds in the configuration, listening to their modules."""
    named = stored(model)
    modules = {id(x): module for module in model.modules() for x in module._parameters.values() if x is not None}
    own = json.loads((DESCRIPTIONS / f"{config.model_type}.json").read_text())
    while "model_prefix" not in own and "like" in own:
        own = json.loads((DESCRIPTIONS / f"{own['like']}.json").read_text())
    base = own.get("model_prefix", "")
    named = {name: x for name, x in named.items()} | {base + name: x for name, x in named.items()}
    ours = mha.Model.from_config(path)
    found = []
    others = [layer.prefix + "." for layer in ours.layers]  # tables of biases outside of layers are shared
    for layer in ours.layers:
        begin = layer.prefix + "."
        roles = {row.role: row.name for row in ours.parameters() if row.name.startswith(begin)
                 and row.role in ("W_Q", "W_QG", "W_G", "W_K", "W_V", "W_QKV", "W_QA", "W_KVA", "W_O")}
        weights = {name: x for name, x in named.items() if name.startswith(begin)
                   or name.startswith(base) and any(word in name for word in SHARED)
                   and not any(map(name.startswith, others))}
        found.append(Layer(layer.prefix, weights, roles, modules, model))
    return found


def run(model, config):
    """Runs the model once; which keys are padding of the encoder, and of the decoder."""
    given, padding = inputs_of(model, config)
    softmaxes.clear()
    with torch.no_grad():
        model(**given)
    return padding


def compare(layer, padding, folder):
    """The largest relative differences of the output and of the weights of attention."""
    T = max(layer.query.shape[-2], layer.key.shape[-2])
    ours = mha.MultiHeadAttention.from_file(folder / "model.safetensors", layer=layer.prefix, dtype="float64",
                                            config=folder / "config.json", length=T)
    more = {} if padding is None else {"key_padding": padding, "key_padding_kind": "hides"}
    if "q_segments" in ours.settings:  # of the windows of one image
        more["q_segments"] = np.tile(ours.settings["q_segments"], (B, 1))
    output, trace = ours(layer.query, layer.key, path="exact", keep=("weights",), out_dtype="float64", **more)
    yield np.abs(output - layer.output).max() / np.abs(layer.output).max()
    if layer.attention is not None:
        yield np.abs(trace["weights"][..., :layer.attention.shape[-1]] - layer.attention).max()


def record(path, config, layers, paddings):
    """Writes weights and calls of the layers, and the configuration."""
    tensors, half = {}, lambda x: torch.tensor(x).to(torch.bfloat16)
    for layer in layers:
        at = f"recorded/{layer.prefix}/"
        tensors.update({name: half(x.detach().numpy()) for name, x in layer.weights.items()})
        tensors[at + "query"] = half(layer.query)
        tensors[at + "output"] = torch.tensor(layer.output)
        if layer.key is not layer.query and (layer.key.shape != layer.query.shape or (layer.key != layer.query).any()):
            tensors[at + "key"] = half(layer.key)
        if layer.attention is not None:
            tensors[at + "weights"] = torch.tensor(layer.attention)
        if paddings[layer.prefix] is not None:
            tensors[at + "padding"] = torch.tensor(paddings[layer.prefix])
    from safetensors.torch import save_file
    path.touch()
    save_file({name: x.contiguous() for name, x in tensors.items()}, path,
              {"config": json.dumps({key: value for key, value in config.items() if key not in NOISE})})


NOISE = ("_name_or_path", "id2label", "label2id", "transformers_version", "dtype", "return_dict", "output_attentions",
         "output_hidden_states", "chunk_size_feed_forward", "problem_type", "is_encoder_decoder",
         "_attn_implementation")


def examine(name, model_type, more, to):
    """The differences of all layers of a model, by prefix."""
    model, config = make(model_type, more)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config.to_json_file(folder / "config.json", use_diff=False)
        layers = layers_of(model, config, folder / "config.json")
        padding = run(model, config)
        mha.save(folder / "model.safetensors", {n: x.detach().numpy() for l in layers for n, x in l.weights.items()})
        silent = [layer.prefix for layer in layers if layer.output is None or layer.query is None]
        if silent or not layers:
            raise LookupError(f"the model did not run {silent}")
        paddings = {layer.prefix: padding(layer) for layer in layers}
        rows = {layer.prefix: list(compare(layer, paddings[layer.prefix], folder)) for layer in layers}
        if to:
            record(pathlib.Path(to) / f"{name}.safetensors", json.loads((folder / "config.json").read_text()), layers,
                   paddings)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    listen()
    wrong = 0
    for name, (model_type, more) in MODELS.items():
        if args.names and name not in args.names:
            continue
        try:
            rows = examine(name, model_type, more, args.record)
        except Exception as why:  # noqa: BLE001: a family that cannot be compared is reported, not hidden
            rows = {}
            print(f"{name}: {type(why).__name__}: {str(why)[:300]}")
        bad = {prefix: off for prefix, off in rows.items() if not max(off) <= ALLOWED}
        wrong += bool(bad) or not rows
        worst = [max((off[i] for off in rows.values() if len(off) > i), default=np.nan) for i in range(2)]
        print(f"{name}: {len(rows)} layers, output {worst[0]:.1e}, weights {worst[1]:.1e}",
              *(f"{prefix} {off}" for prefix, off in bad.items()))
    print(f"{wrong} of {len(args.names or MODELS)} differ from transformers {transformers.__version__}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
