"""The attention layers of a live model of transformers, as mha's description of its family has them."""
from __future__ import annotations

import copy
import importlib
import os
import re
import tempfile
from typing import Any, Callable, Mapping, Optional, cast

from ..core import abi
from ..core import arrays as a
from ..core.errors import Error
from ..core.files import save
from ..core.layer import MultiHeadAttention, settings_of_facts
from ..core.library import lib
from ..models.model import ConfiguredModel, ModelLayer

_BLOCK = re.compile(r"\.((?:layers|layer|h|blocks|block)\.\d+\..*)$")  # a layer by its number and what follows


class Described:
    """why: why there is no description, or "". layers: index, sizes and settings by the prefix of tensors' names."""

    def __init__(self, model: a.Module) -> None:
        self.why, self.layers = "", dict[str, tuple[int, ModelLayer, dict[str, Any]]]()
        self.model: Optional[ConfiguredModel] = None
        self.modules = dict(model.named_modules())
        self._live, self._tables = model, list[str]()
        self._prefixes, self._nameless = dict[str, Optional[str]](), cast("Optional[set[str]]", None)
        self._config: Any = getattr(model, "config", None)
        if not hasattr(self._config, "model_type"):
            self.why = "no configuration of transformers"
            return
        for class_name in (type(model).__name__, None):  # its own class, or what the configuration says
            try:
                self.model = ConfiguredModel.from_config(self._config, class_name=class_name)
                break
            except (Error, TypeError, ValueError) as reason:
                self.why = f"not described: {str(reason)[:120]}"
        if self.model is None:
            return
        self.why = ""
        for index, layer in enumerate(self.model.layers):
            self.layers[layer.prefix] = (index, layer, settings_of_facts(self._facts(index)))
        self._tables = [row.name for row in self.model.parameters() if row.role == "relative bias"]

    def _facts(self, index: int) -> abi.ModelFacts:
        assert self.model is not None
        return lib.mha_model_layer_facts(self.model._model.address, index).contents

    def facts(self, prefix: str) -> abi.ModelFacts:
        """What the library knows of a layer."""
        return self._facts(self.layers[prefix][0])

    def prefix_of(self, name: str) -> Optional[str]:
        """The prefix of the layer that a module is, also where models are below another root; where no module has the
        name of a layer, by the names that parameters have in the model's files."""
        if name not in self._prefixes:
            self._prefixes[name] = self._named(name) or self._filed(name)
        return self._prefixes[name]

    def _named(self, name: str) -> Optional[str]:
        fits = [prefix for prefix in self.layers if prefix == name or prefix.endswith("." + name)
                or name.endswith("." + prefix)]
        if not fits and (inside := _BLOCK.search(name)):
            fits = [prefix for prefix in self.layers if prefix.endswith("." + inside[1])]
        return fits[0] if len(fits) == 1 else None

    def _filed(self, name: str) -> Optional[str]:
        """Of nested modules the outermost."""
        above = name.rpartition(".")[0]
        if "attention" not in type(self.modules.get(name)).__name__.lower() or above and self.prefix_of(above):
            return None
        if self._nameless is None:
            self._nameless = set(self.layers) - {self._named(each) for each in self.modules if each}
        keys = self._in_files(name) if self._nameless else ()
        fits = [prefix for prefix in self._nameless if keys and all(below(prefix, key) for key in keys)]
        return fits[0] if len(fits) == 1 else None

    def _in_files(self, name: str) -> Mapping[str, a.Torch]:
        """The parameters of a module under the names of the model's files."""
        held = {f"{name}.{key}": x for key, x in self.modules[name].named_parameters(remove_duplicate=False)}
        return self._reverted(folded(self.modules, held))

    def _reverted(self, held: Mapping[str, a.Torch]) -> Mapping[str, a.Torch]:
        try:
            loading = importlib.import_module("transformers.core_model_loading")
            revert: Callable[[object, object], Mapping[str, a.Torch]] = loading.revert_weight_conversion
            return revert(self._live, dict(held))
        except (ImportError, AttributeError):
            return held

    def module_of(self, prefix: str) -> str:
        """The name of the module that a layer is; "" where there is none."""
        return next((name for name in self.modules if name and self.prefix_of(name) == prefix), "")

    def modules_of(self, role: str) -> dict[str, str]:
        """The module that holds a layer's matrix of a role as its weight, by the prefix of the layer."""
        found = dict[str, str]()
        if self.model is None:
            return found
        keys = [row.name for row in self.model.parameters() if row.role == role]
        for prefix in self.layers:
            own = [below(prefix, key) for key in keys if key.startswith(prefix + ".")]
            name = self.module_of(prefix) + (own[0].removesuffix(".weight") if len(own) == 1 else "")
            if own and name in self.modules and name != self.module_of(prefix):
                found[prefix] = name
        return found

    def place_of(self, heard: str) -> Optional[tuple[str, str]]:
        """The module whose parameters are the layer's, and the prefix, of a module that computes its attention."""
        above = heard.rpartition(".")[0]
        found = [(name, self.prefix_of(name)) for name in (heard, above, above.rpartition(".")[0]) if name]
        return next(((name, prefix) for name, prefix in found if prefix is not None), None)

    def parameters(self) -> Mapping[str, a.Torch]:
        """The parameters of attention layers as they are now, under the names of the model's files, with adapters in
        the matrices that they change."""
        layers = tuple(name + "." for name in self.modules if name and self.prefix_of(name) is not None)
        held = {name: x for name, x in self._live.named_parameters(remove_duplicate=False) if name.startswith(layers)}
        return self._reverted(folded(self.modules, held))

    def layer(self, place: tuple[str, str], named: Mapping[str, a.Torch], length: int, dtype: str
              ) -> MultiHeadAttention:
        """The layer of the live weights, with what the configuration says. named: what `parameters` gave."""
        name, prefix = place
        inside = {prefix + key[len(name):]: x for key, x in named.items() if key.startswith(name + ".")}
        if not inside:
            inside = {key: x for key, x in named.items() if key.startswith(prefix + ".")}
        if not inside and name in self.modules:
            inside = {prefix + (below(prefix, key) or ""): x for key, x in self._in_files(name).items()}
        for table in self._tables:  # of another layer, which this one shares
            if table in named:
                inside.setdefault(table, named[table])
        with tempfile.TemporaryDirectory() as folder:
            save(os.path.join(folder, "layer.safetensors"), {key: x.detach() for key, x in inside.items()})
            self._config.to_json_file(os.path.join(folder, "config.json"), use_diff=False)
            return MultiHeadAttention.from_file(
                os.path.join(folder, "layer.safetensors"), prefix, config=os.path.join(folder, "config.json"),
                length=length, dtype=dtype)


def below(prefix: str, key: str) -> str:
    """What follows a layer's prefix in the name of a tensor, ".q_proj.weight", also where one of the two begins with
    the name of a model that contains it; "" where the tensor is not the layer's."""
    for at in (i for i, letter in enumerate(key) if letter == "."):
        begin = key[:at]
        if begin == prefix or prefix.endswith("." + begin) or begin.endswith("." + prefix):
            return key[at:]
    return ""


# ---------------------------------------------------------------- matrices by what they do


def affine(module: a.Module, width: int) -> Optional[tuple[a.Torch, a.Torch]]:
    """The matrix (in, out) and the bias (out) that a module multiplies by and adds, in float64, found by calling a copy
    of it; None where it does something else."""
    torch = importlib.import_module("torch")
    try:
        with torch.no_grad():
            twin = copy.deepcopy(module).double().eval()
            bias = twin(torch.zeros(1, width, dtype=torch.float64))
            matrix = twin(torch.eye(width, dtype=torch.float64)) - bias
            x = torch.randn(4, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            given, meant = twin(x), x @ matrix + bias
    except Exception:  # noqa: BLE001 (somebody's module: what cannot be called so is not affine)
        return None
    close = torch.allclose(given, meant, rtol=1e-9, atol=1e-9 * float(meant.abs().max()))
    return (matrix, bias[0]) if close else None


def adapted(modules: Mapping[str, a.Module]) -> dict[str, a.Module]:
    """Modules that wrap another one with an adapter, as in peft (base_layer)."""
    return {name: module for name, module in modules.items()
            if hasattr(getattr(module, "base_layer", None), "weight") and hasattr(module, "adapter_layer_names")}


def folded(modules: Mapping[str, a.Module], held: Mapping[str, a.Torch]) -> dict[str, a.Torch]:
    """Parameters by name, in which an adapted matrix is the one that its module multiplies by. An adapter that is no
    matrix stays as it is."""
    found = dict(held)
    for name, module in adapted(modules).items():
        base = f"{name}.base_layer."
        if base + "weight" not in held:
            continue
        weight = held[base + "weight"].detach()
        width = next((n for n in weight.shape[::-1] if affine(module, n) is not None), 0)
        whole, plain = affine(module, width), affine(getattr(module, "base_layer"), width)
        if not width or whole is None or plain is None:
            continue
        same = plain[0].to(weight.dtype)
        turned = same.shape != weight.shape or not bool(same.eq(weight).all())
        for own in [key for key in held if key.startswith(name + ".")]:
            rest = found.pop(own)
            if own.startswith(base):
                found[f"{name}.{own[len(base):]}"] = rest
        found[f"{name}.weight"] = (whole[0].T if turned else whole[0]).to(weight.dtype).contiguous()
    return found
