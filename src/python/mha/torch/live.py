"""A live model of torch as a Model: the parameter table of its storages, and its attention layers as layers of ours."""
from __future__ import annotations

import ctypes
import importlib
from dataclasses import replace
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from ..core import arrays as a
from ..core.errors import Error
from ..core.layer import MultiHeadAttention
from ..core.library import call, lib
from ..core.parameters import new_table
from ..core.trace import Trace
from ..judge.check import check
from ..models.model import ConfiguredModel, ModelLayer, tensor_spec
from .call_check import of_seeing
from .calls import Asked
from .discovery import NEXT, Given, Heard, Refused, Tracing, arguments
from .families import Described, adapted
from .listening import related, torch_2

ADAPTER = "adapter"  # the group of rows that adapters such as LoRA add
_HOW = "inputs= finds the layers of such a module by running the model"
_SILENT = "no call of attention was heard in it: it did not run, or computes attention by itself"


class StoredTensor(NamedTuple):
    """A tensor of a module.

    Attributes
    ----------
    name : str
        Its name.
    tensor : torch.Tensor
        The tensor.
    learned : bool
        Whether it is a parameter, not a buffer.
    """

    name: str
    tensor: a.Torch
    learned: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in memory: an axis along which it repeats its numbers has one place."""
        return tuple(1 if not step and n else int(n) for n, step in zip(self.tensor.shape, self.tensor.stride()))

    @property
    def place(self) -> tuple[int, int, int]:
        """Its storage, and the begin and end of its bytes in it."""
        x = self.tensor
        size = x.element_size()
        reach = sum((n - 1) * step for n, step in zip(x.shape, x.stride())) + 1 if x.numel() else 0
        if x.is_meta or not x.data_ptr():
            return id(x), 0, reach * size
        return x.untyped_storage().data_ptr(), x.data_ptr(), x.data_ptr() + reach * size


class Model(ConfiguredModel):
    """A model by its configuration, with every tensor of its public checkpoint.

    mha allocates tensors without values, so the system commits no memory. Tied weights are one storage, masks and
    tables are buffers, and key biases that cannot change the output are inert.

    Parameters
    ----------
    preset : str, default None
        Name of a built-in model.
    config : path_like, default None
        A config.json or its folder. Use from_config for a dict.
    class_name : str, default None
        Class, or a part of its name; None: that of the configuration.
    n_heads, kv_heads : int, default None
        Numbers of heads; None: those of the configuration.
    dtype : str or dtype, default "float32"
        Type of the parameters.
    architecture : path_like, default None
        Description of a model type that is not built in.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or the model type is unknown.

    Examples
    --------
    >>> mha.Model.from_preset("gpt2").totals.parameters
    124439808
    """

    @classmethod
    def from_torch(cls, model: a.Module, inputs: a.Inputs = None) -> LiveModel:
        """Make the parameter table and the attention layers of a live torch.nn.Module.

        Tensors that share memory are one storage: further names are aliases, parts of a larger one are derived. Buffers
        are those of the module; adapters (LoRA) have the group "adapter". Attention layers are those that the
        configuration describes, with the current weights, and torch.nn.MultiheadAttention. mha compares each with the
        output of the model. `refused` has the reasons for other modules.

        Parameters
        ----------
        model : torch.nn.Module
            The module, on the CPU.
        inputs : tensor, sequence or dict, default None
            A tensor, positional arguments or keywords. mha runs the model on them once and finds further layers: those
            whose queries, keys and values are columns of the outputs of modules with a matrix and a bias, and whose
            heads such a module reads.

        Returns
        -------
        mha.LiveModel
            The model.

        Raises
        ------
        TypeError
            The model or the inputs are of another type.
        ImportError
            PyTorch is older than 2.0.

        Examples
        --------
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
        >>> x = torch.randn(2, 5, 16)
        >>> net = mha.Model.from_torch(model, x)
        >>> list(net.attention), net.totals.parameters, net.refused
        (['layers.0.self_attn'], 2224, {})
        >>> net.attention["layers.0.self_attn"](x.numpy()).shape
        (2, 5, 16)
        """
        return LiveModel(model, inputs)


class LiveModel(Model):
    """An mha.Model of a live torch.nn.Module, see mha.Model.from_torch.

    parameters(), totals and group_totals read the storages of the module. costs(), lengths(), heads() and settings
    need a configuration of transformers that mha describes.

    Parameters
    ----------
    model, inputs
        As in mha.Model.from_torch.

    Attributes
    ----------
    attention : dict from str to mha.MultiHeadAttention
        Attention layers by the names of their modules, with copies of their weights.
    refused : dict from str to str
        Reason for each module that is not recognised as attention.
    unchecked : dict from str to str
        Reason for each layer that mha did not compare with a call, although the model ran.
    undescribed : str
        Reason for which the configuration says no more; else "".

    Raises
    ------
    TypeError, ImportError
        As in mha.Model.from_torch.

    Examples
    --------
    >>> import torch
    >>> net = mha.LiveModel(torch.nn.MultiheadAttention(16, 4))
    >>> list(net.attention), net.totals.parameters
    (['MultiheadAttention'], 1088)
    """

    def __init__(self, model: a.Module, inputs: a.Inputs = None) -> None:
        if inputs is not None:
            arguments(inputs)
        if not callable(getattr(model, "named_modules", None)):
            raise TypeError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
        torch_2()
        self.attention: dict[str, MultiHeadAttention] = {}
        self.refused: dict[str, str] = {}
        self.unchecked: dict[str, str] = {}
        self._module, self._entered = model, dict[str, tuple[tuple[a.ArrayLike, ...], dict[str, Any]]]()
        self._roles: dict[str, str] = {}
        self._described = Described(model)
        self.undescribed = self._described.why
        tracing = None if inputs is None else Tracing(model, inputs)
        self._read(tracing)
        self._ready = set(self.attention)
        if tracing is not None:
            self._trace(tracing)
        self._look()
        self._table = new_table()
        self._count()

    def _configured(self) -> ConfiguredModel:
        if self._described.model is None:
            raise ValueError(f"model: expected a configuration that is described, found none: {self.undescribed}")
        return self._described.model

    @property
    def _model(self) -> Any:  # type: ignore[override]
        """The library's model of the configuration."""
        return self._configured()._model

    @property
    def _how(self) -> Any:  # type: ignore[override]
        """The way to make that model again."""
        return self._configured()._how

    # ---------------------------------------------------------------- its attention layers

    def _read(self, tracing: Optional[Tracing]) -> None:
        """Layers that the configuration describes, and those of PyTorch's own module."""
        named = self._described.parameters() if self._described.layers else {}
        for prefix in self._described.layers:
            name = self._described.module_of(prefix)
            if not name:
                self.refused[prefix] = "the configuration names it, and no module of the model has its name"
                continue
            weights = {str(p.dtype).replace("torch.", "") for p in self._described.modules[name].parameters()
                       if p.is_floating_point()}
            given = None if tracing is None else tracing.entering(name)
            length = 0 if given is None else int(given.rows[0].shape[1])
            try:
                self.attention[name] = self._described.layer((name, prefix), named, length, weights.pop())
            except (Error, TypeError, ValueError, KeyError) as reason:
                self.refused[name] = str(reason).rpartition(".safetensors: ")[2]  # of the file through which it went
        whole = importlib.import_module("torch").nn.MultiheadAttention
        self._own = [name for name, module in self._described.modules.items() if name and isinstance(module, whole)]
        for name, module in self._described.modules.items():
            if isinstance(module, whole):
                name = name or type(module).__name__
                try:
                    self.attention[name] = MultiHeadAttention.from_torch(module)
                    self.attention[name].layout = "BTE"
                except (Error, TypeError, ValueError) as reason:
                    self.refused[name] = str(reason)

    def _trace(self, tracing: Tracing) -> None:
        """Layers whose calls were heard."""
        for heard in tracing.heard:
            place = self._described.place_of(heard.name)
            known = heard.name if place is None else place[0]
            if known in self._ready:
                if known in self.attention and known not in self._entered:
                    self._enter(tracing, known, heard)
                    if known in self._entered:
                        self.unchecked.pop(known, None)
                continue
            try:
                found = tracing.layer_of(heard)
            except Refused as reason:
                self.refused.setdefault(heard.name, str(reason))
                continue
            name = heard.name
            if name in self.attention:  # a module that calls attention for several layers
                name += f" ({found.projections.get('W_Q', len(self.attention))})"
            if name in self.attention:
                continue
            self.refused.pop(heard.name, None)
            self.attention[name], self._entered[name] = found.layer, (found.rows, found.settings)
            for weight, projection in found.projections.items():
                old = self._roles.get(projection)
                self._roles[projection] = weight if old is None else old + weight[-1]
        for name in self.attention.keys() - self._entered.keys() - self.unchecked.keys():
            self.unchecked[name] = _SILENT

    def _enter(self, tracing: Tracing, name: str, heard: Heard) -> None:
        """Compares a call with a layer that is known already, and notes what it was given."""
        layer, asked = self.attention[name], heard.asked
        given = tracing.entering(heard.name, name)
        if asked is None:
            self.unchecked[name] = heard.why
            return
        if asked.layer is not None:
            rows, said = tuple(x.detach() for x in asked.inputs()), asked.settings()
        elif given is None:
            self.unchecked[name] = "its input is no tensor of three axes"
            return
        else:
            rows, said = given.rows, self._said(layer, asked, given)
        whose, what = ("its weights give", "rows") if asked.layer is not None else (
            "what the configuration says of it gives", "heads")
        try:
            heads = of_seeing(asked, heard.output)
            verdict = (check(heads, *rows, layer=layer, **said) if asked.layer is not None else
                       check(None, *rows, layer=layer, stages={"heads": heads.transpose(1, 2).flatten(2)}, **said))
            failed = f"other {what} than the model computed" if verdict.failed else ""
        except (Error, TypeError, ValueError) as reason:
            failed = f"nothing on its inputs ({reason})"
        if failed:
            del self.attention[name]
            self.unchecked.pop(name, None)
            self.refused[name] = f"{whose} {failed}: {NEXT}"
        elif verdict.skipped:
            self.unchecked[name] = verdict.reason
        else:
            self._entered[name] = rows, said

    def _said(self, layer: MultiHeadAttention, asked: Asked, given: Given) -> dict[str, Any]:
        """The settings of a call that the layer does not have."""
        said = replace(asked, layer=layer, added=None, scale=None, softcap=0.0, sinks=None).settings()
        said = {word: value for word, value in said.items() if word not in layer.settings and word != "offset"}
        if "rope" in layer.settings and given.positions is not None:
            said["rope_q_positions"] = given.positions
        if "q_segments" in layer.settings:  # the windows of one image
            windows = layer.settings["q_segments"]
            said["q_segments"] = np.tile(windows, (len(given.rows[0]) // len(windows), 1))
        return said

    def _look(self) -> None:
        """Modules that look like attention, and are part of no layer."""
        known = [*self.attention, *self.refused]
        for name, module in self._described.modules.items():
            looks = "attention" in type(module).__name__.lower()
            if looks and not any(related(name, other) for other in known):
                why = _SILENT if self._entered else _HOW
                self.refused[name] = f"{type(module).__name__}: {why}"

    # ---------------------------------------------------------------- its tensors

    def tensors(self) -> Iterator[StoredTensor]:
        """Yield all parameters and buffers of the module, under each of their names.

        Yields
        ------
        StoredTensor
            Name, tensor, and whether it is learned.

        Examples
        --------
        >>> import torch
        >>> net = mha.Model.from_torch(torch.nn.Linear(3, 2))
        >>> [(x.name, x.shape, x.learned) for x in net.tensors()]
        [('weight', (2, 3), True), ('bias', (2,), True)]
        """
        for name, x in self._module.named_parameters(remove_duplicate=False):
            yield StoredTensor(name, x, True)
        for name, x in self._module.named_buffers(remove_duplicate=False):
            yield StoredTensor(name, x, False)

    def _count(self) -> None:
        """A row for each name: an alias of what has the same memory, derived where it is part of a larger one."""
        held, rows = list(self.tensors()), self._rows()
        spaces: dict[int, list[StoredTensor]] = {}
        for each in held:
            spaces.setdefault(each.place[0], []).append(each)
        owners: dict[object, object] = {}
        for each in held:
            space, begin, end = each.place
            inside = any(other.place[1] <= begin and end <= other.place[2] and other.place[1:] != (begin, end)
                         for other in spaces[space])
            role, group = self._role(each.name, rows)
            spec = tensor_spec(each.name, each.tensor.dtype, each.shape,
                               "derived" if inside else "parameter" if each.learned else "buffer",
                               each.learned and not each.tensor.requires_grad, role, group)
            row, place = ctypes.c_void_p(), (*each.place, int(np.prod(each.shape)), str(each.tensor.dtype))
            if place in owners:
                call(lib.mha_params_alias, self._table.address, ctypes.byref(spec), owners[place], ctypes.byref(row))
            else:
                call(lib.mha_params_add, self._table.address, ctypes.byref(spec), ctypes.byref(row))
                owners[place] = row.value

    def _rows(self) -> dict[str, tuple[str, str]]:
        """Role and group of the tensors of the configuration, by their names in the model's files."""
        described = self._described.model
        return {} if described is None else {row.name: (row.role, row.group) for row in described.parameters()}

    def _role(self, name: str, rows: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
        """What a tensor is for, and the part of the model that it belongs to."""
        for owner, module in adapted(self._described.modules).items():
            word = name.removeprefix(owner + ".").partition(".")[0]
            if name.startswith(owner + ".") and word in getattr(module, "adapter_layer_names"):
                return word, ADAPTER
        plain = name.replace(".base_layer.", ".")
        parts = plain.split(".")
        ends = [".".join(parts[i:]) for i in range(len(parts) - 1)]
        known = next((rows[end] for end in ends if end in rows), None) or next(
            (row for full, row in rows.items() if full.endswith("." + plain)), None)
        if known is not None:
            return known
        owner, _, what = plain.rpartition(".")
        if owner in self._roles:
            word = self._roles[owner]
            return (word.replace("W", "b", 1) if what == "bias" else word), "attention"
        inside = any(plain.startswith(layer + ".") for layer in self._own)
        return "", "attention" if inside else ""

    # ---------------------------------------------------------------- as a Model

    @property
    def title(self) -> str:
        """"BERT (BertModel)"; of a module without a description its class."""
        own = type(self._module).__name__
        return own if self._described.model is None else f"{self._described.model.title.partition(' (')[0]} ({own})"

    @property
    def layers(self) -> list[ModelLayer]:
        """The attention layers that were found; uses: how often the configuration, if there is one, runs each."""
        found = []
        for name, layer in self.attention.items():
            c, place = layer.config, self._described.place_of(name)
            uses = 1 if place is None else self._described.layers[place[1]][1].uses
            found.append(ModelLayer(name, c["d_model"], c["n_heads"], c["kv_heads"], c["d_k"], c["d_v"],
                                    bool(layer.settings.get("causal", False)), uses))
        return found

    def trace(self, layer: str, *, return_stages: Sequence[str] = ("weights", "lse", "output"),
              path: str = "exact") -> Trace:
        """Compute the stages of an attention layer on its inputs in the model's run.

        Parameters
        ----------
        layer : str
            A key of `attention`, or the end of one.
        return_stages : sequence of str, default ("weights", "lse", "output")
            Names of stages.
        path : str, default "exact"
            As in mha.scaled_dot_product_attention.

        Returns
        -------
        mha.Trace
            Stages by name.

        Raises
        ------
        ValueError
            No layer, or more than one, has this name; or mha did not compare it with a call of the model.

        Examples
        --------
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
        >>> x = torch.randn(2, 5, 16)
        >>> trace = mha.Model.from_torch(model, x).trace("self_attn")
        >>> trace["weights"].shape
        torch.Size([2, 4, 5, 5])
        """
        fits = [name for name in self.attention if name == layer] or [
            name for name in self.attention if name.endswith("." + layer)]
        if len(fits) != 1:
            raise ValueError(f"layer: expected one of {', '.join(self.attention)}, found {layer!r}")
        if fits[0] not in self._entered:
            why = self.unchecked.get(fits[0], "from_torch(model, inputs) runs the model")
            raise ValueError("layer: expected one that was compared with a call of the model, found "
                             f"{fits[0]!r}: {why}")
        rows, settings = self._entered[fits[0]]
        return Trace(self.attention[fits[0]](*rows, return_stages=return_stages, path=path, **settings)[1])

    def __repr__(self) -> str:
        totals = self.totals
        said = "".join(f", {len(those)} {word}" for those, word in (
            (self.refused, "refused"), (self.unchecked, "not checked")) if those)
        return (f"<mha.Model: {self.title}, {len(self.attention)} attention layers{said}, {totals.parameters:,} "
                f"parameters in {totals.storages:,} storages>")
