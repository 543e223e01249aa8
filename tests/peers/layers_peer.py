"""Attention layers of tiny random models, compared with transformers: a config.json and its owner compute the same.

    PYTHONPATH=build/python python3 tests/peers/layers_peer.py [--record FOLDER] [NAME ...]

Each model is made from a configuration, in float64, and run once. Every attention layer is run again by mha, from its
only weights and the config.json: on the exact path its weights of attention and its output must be the same to 1e-12,
and the gradients of its inputs and parameters those of autograd to 1e-10 of the largest number of the gradient, or of a
hundredth of that of all gradients of the layer: a key bias that softmax cannot see has 0.
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
ALLOWED = (1e-12, 1e-12, 1e-10)  # output, weights of attention, gradients
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


def stored(model, held):
    """Parameters, or their gradients, under the names of the public checkpoint."""
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
        self.inputs, self.made = {"query": [], "key": []}, None  # as autograd sees them
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
            x = args[0].detach().bfloat16().double().requires_grad_()
            self.inputs["key" if role in ("W_K", "W_V", "W_KVA") else "query"].append(x)
            shown = in_a_row(x.detach().numpy())
            if role in ("W_Q", "W_QG", "W_QA", "W_QKV"):
                self.query, self.seen = shown, len(softmaxes)
            if role in ("W_K", "W_KVA", "W_QKV"):
                self.key = shown
            return (x, *args[1:])
        return hook

    def joined_before(self, _, args, kwargs):
        given = [x.detach().bfloat16().double().requires_grad_() for x in args[:3]]
        self.inputs = {"query": given[:1], "key": given[1:]}
        self.query, self.key = given[0].detach().numpy(), given[1].detach().numpy()
        return (*given, *args[3:]), kwargs

    def after(self, module, _, output):
        output = self.made = output[0] if isinstance(output, tuple) else output
        self.output = in_a_row(output.detach().numpy())
        made = softmaxes[self.seen:]
        keys = self.key.reshape(-1, *self.key.shape[-2:]).shape[1]
        # Granite SWA takes the softmax without sinks, and scales the output afterwards.
        later = made and made[-1].shape[-1] == keys and any(name.endswith("sinks") for name in self.weights)
        if made and not later and not isinstance(module, torch.nn.MultiheadAttention):  # only the mean over heads
            self.attention = made[-1][..., :keys]


def base_of(config):
    """What begins the names of a model that stands alone, in checkpoints of larger ones."""
    own = json.loads((DESCRIPTIONS / f"{config.model_type}.json").read_text())
    while "model_prefix" not in own and "like" in own:
        own = json.loads((DESCRIPTIONS / f"{own['like']}.json").read_text())
    return own.get("model_prefix", "")


def layers_of(model, config, path):
    """The layers that mha finds in the configuration, listening to their modules."""
    named = stored(model, dict(model.named_parameters(remove_duplicate=False)))
    modules = {id(x): module for module in model.modules() for x in module._parameters.values() if x is not None}
    base = base_of(config)
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
    model(**given)
    return padding


def compare(layer, padding, folder, gradients):
    """The largest relative differences of the output and of the weights of attention."""
    T = max(layer.query.shape[-2], layer.key.shape[-2])
    ours = mha.MultiHeadAttention.from_file(folder / "model.safetensors", layer=layer.prefix, dtype="float64",
                                            config=folder / "config.json", length=T)
    more = {} if padding is None else {"key_padding": padding, "key_padding_kind": "hides"}
    if "q_segments" in ours.settings:  # of the windows of one image
        more["q_segments"] = np.tile(ours.settings["q_segments"], (B, 1))
    output, trace = ours(layer.query, layer.key, path="exact", return_stages=("weights",), out_dtype="float64", **more)
    yield np.abs(output - layer.output).max() / np.abs(layer.output).max()
    if layer.attention is not None:
        yield np.abs(trace["weights"][..., :layer.attention.shape[-1]] - layer.attention).max()
    else:
        yield None
    yield compare_gradients(layer, ours, more, folder, T, gradients) if gradients else None


def gradients_of(model, config, names):
    """A function that gives autograd's gradients of leaves, and of all parameters under the names of a checkpoint."""
    held, base = dict(model.named_parameters(remove_duplicate=False)), base_of(config)

    def gradients(loss, leaves):
        learned = {name: x for name, x in held.items() if x.requires_grad}
        found = torch.autograd.grad(loss, [*leaves, *learned.values()], allow_unused=True, retain_graph=True)
        made = {name: d for name, d in zip(learned, found[len(leaves):]) if d is not None}
        named = stored(model, {name: made.get(name, torch.zeros_like(x)) for name, x in held.items()})
        public = {name: named[name] if name in named else named[name.removeprefix(base)] for name in names}
        return [torch.zeros_like(x) if d is None else d for x, d in zip(leaves, found)], public
    return gradients


def compare_gradients(layer, ours, more, folder, T, gradients):
    """The largest relative difference of a gradient. Autograd's are stored as weights of their names, and read as the
    library reads weights: turned, split and put together. Weights that are made of parameters have none of these, and
    share_att_key's projections of queries and keys have more, because they project relative embeddings, too."""
    do = np.random.default_rng(5).standard_normal(layer.output.shape)
    leaves = [x for inputs in layer.inputs.values() for x in inputs]
    found, named = gradients((layer.made.reshape(do.shape) * torch.tensor(do)).sum(), leaves)
    mha.save(folder / "gradients.safetensors", {name: d.numpy().copy() for name, d in named.items()})
    read = mha.MultiHeadAttention.from_file(folder / "gradients.safetensors", layer=layer.prefix, dtype="float64",
                                            config=folder / "config.json", length=T)
    d = ours.backward(do, layer.query, layer.key, out_dtype="float64", **more)
    n = len(layer.inputs["query"])
    theirs = {"query": sum(found[:n]), "key": sum(found[n:])}
    theirs = {name: in_a_row(x.numpy()) if n else x for name, x in theirs.items() if torch.is_tensor(x)}
    if len(theirs) == 1 or layer.query.shape == layer.key.shape and (layer.query == layer.key).all():
        theirs, d["query"] = {"query": sum(theirs.values())}, d["query"] + d.pop("key")
    known = layer.query.any(-1, keepdims=True)  # a norm of a row of zeros has no derivative
    theirs["query"], d["query"] = theirs["query"] * known, d["query"] * known
    left_out = {row.role for row in ours.parameters() if row.kind == "derived"}
    if json.loads((folder / "config.json").read_text()).get("share_att_key"):
        left_out |= {"W_Q", "b_Q", "W_K", "b_K"}
    theirs.update((name, x) for name, x in read.weights.items() if name not in left_out)
    largest = max(np.abs(x).max() for x in theirs.values())
    return max(np.abs(d[name].reshape(x.shape) - x).max() / max(np.abs(x).max(), 0.01 * largest)
               for name, x in theirs.items())


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


def differs(off):
    return not all(x is None or x <= allowed for x, allowed in zip(off, ALLOWED))


def examine(name, model_type, more, to, learned=True):
    """The differences of all layers of a model, by prefix; learned: of gradients, too."""
    model, config = make(model_type, more)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config.to_json_file(folder / "config.json", use_diff=False)
        layers = layers_of(model, config, folder / "config.json")
        padding = run(model, config)
        everything = {n: x for layer in layers for n, x in layer.weights.items()}
        mha.save(folder / "model.safetensors", {n: x.detach().numpy() for n, x in everything.items()})
        silent = [layer.prefix for layer in layers if layer.output is None or layer.query is None]
        if silent or not layers:
            raise LookupError(f"the model did not run {silent}")
        paddings = {layer.prefix: padding(layer) for layer in layers}
        gradients = gradients_of(model, config, everything) if learned else None
        rows = {layer.prefix: list(compare(layer, paddings[layer.prefix], folder, gradients)) for layer in layers}
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
        bad = {prefix: off for prefix, off in rows.items() if differs(off)}
        wrong += bool(bad) or not rows
        worst = [max((off[i] for off in rows.values() if off[i] is not None), default=np.nan) for i in range(3)]
        print(f"{name}: {len(rows)} layers, output {worst[0]:.1e}, weights {worst[1]:.1e}, gradients {worst[2]:.1e}",
              *(f"{prefix} {off}" for prefix, off in bad.items()))
    print(f"{wrong} of {len(args.names or MODELS)} differ from transformers {transformers.__version__}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
