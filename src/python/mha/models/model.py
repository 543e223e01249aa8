"""Whole models: every tensor of a public checkpoint allocated under its name, and counted."""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, Sequence

from ..core import abi
from ..core import arrays as a
from ..core.errors import InvalidError, UnsupportedError, typed
from ..core.files import open_file, path_of
from ..core.layer import settings_of_facts
from ..core.library import call, create, lib
from ..core.parameters import Parameters, Totals, new_table, parameters_of, totals_of
from ..core.tables import Table, optional

if TYPE_CHECKING:
    from ..torch.live import LiveModel


class ModelLayer(NamedTuple):
    """One attention layer of a model: the prefix of its tensors' names, its sizes, how often a forward pass runs it."""

    prefix: str
    d_model: int
    n_heads: int
    kv_heads: int
    d_k: int
    d_v: int
    causal: bool
    uses: int


class LayerLengths(NamedTuple):
    """What one attention layer attends over in each sequence: see mha_model_lengths."""

    queries: int
    keys: int
    windows: int
    cross: bool
    cached: int
    pairs: int
    visible: int


class Costs(NamedTuple):
    """Operations of a forward pass, a multiply-add being two, and elements of its key/value caches.

    mha/model.h (mha_model_costs) defines each number and what it omits.
    """

    projections: int
    scores_full: int
    scores_causal: int
    feed_forward: int
    heads: int
    patches: int
    cache_elements: int
    latent_elements: int
    cross_elements: int
    relative: int
    linear: int
    state_elements: int
    not_counted: str


def _pass(batch: int, seq: int, encoder_seq: int) -> abi.ModelPass:
    """One forward pass, as the library wants it said."""
    return abi.ModelPass(a.whole_number("batch", batch, 0), a.whole_number("seq", seq, 0),
                          a.whole_number("encoder_seq", encoder_seq, 0))


class Model:
    """A model by its configuration: mha.Model.from_preset("gpt2"), mha.Model.from_config("config.json").

    Every tensor of its public checkpoint is allocated, without values (the system commits no memory to it): tied
    weights are one storage, masks and tables are buffers, key biases that cannot change the output are inert.
    """

    def __init__(self, *, preset: Optional[str] = None, config: Any = None, class_name: Optional[str] = None,
                 n_heads: int = 0, kv_heads: int = 0, dtype: Any = "float32", architecture: Any = None) -> None:
        self._how: dict[str, Any] = {"preset": preset, "config": config, "class_name": class_name, "dtype": dtype,
                                     "architecture": architecture}
        spec = abi.ModelSpec()
        for name, text in (("preset", preset), ("class_name", class_name)):
            setattr(spec, name, None if text is None else a.text(name, text))
        spec.config = None if config is None else path_of("config", config)
        spec.architecture = None if architecture is None else path_of("architecture", architecture)
        spec.n_heads = a.whole_number("n_heads", n_heads, 0)
        spec.kv_heads = a.whole_number("kv_heads", kv_heads, 0)
        spec.dtype = a.float_type("dtype", dtype)
        self._table = new_table()
        self._model = create("model", lib.mha_model_destroy, lib.mha_model_create, ctypes.byref(spec),
                             self._table.address, needs=(self._table,))

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Model:
        """The model of a config.json: its path or that of its folder, what json.load makes of it, or a configuration
        of transformers (an object with to_dict).

        options: class_name ("BertForMaskedLM" or a part of it), n_heads and kv_heads instead of the config's, dtype,
        architecture (path of a description of a model type that is not built in).
        """
        if hasattr(type(config), "to_dict"):
            config = config.to_dict()
        if not isinstance(config, Mapping):
            return cls(config=config, **options)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                try:
                    json.dump(dict(config), file)
                except TypeError as reason:
                    raise TypeError(f"config: {reason}") from None
            model = cls(config=path, **options)
        model._how["config"] = dict(config)
        return model

    @classmethod
    def from_preset(cls, name: str, **options: Any) -> Model:
        """A model that is built in, by its name or the first letters of it: see mha.presets()."""
        with typed({"preset": "name"}):
            return cls(preset=name, **options)

    @classmethod
    def from_torch(cls, model: Any, inputs: Any = None) -> LiveModel:
        """A live torch.nn.Module: its parameter table by the storages that it has, and its attention layers.

            net = mha.Model.from_torch(model, {"input_ids": ids})
            print(net.parameters(), net.refused)
            y = net.attention["layers.0.self_attn"](x)                        # each is mha.MultiHeadAttention
            net.trace("layers.0.self_attn").picture("page.html")              # on what entered it

        Tensors that share their memory are one storage: further names are aliases, parts of a larger one are derived.
        Buffers are those of the module; what adapters (LoRA) add has the group "adapter".
        Attention layers are those that the configuration describes, with the weights as they are now (adapters
        included), and torch.nn.MultiheadAttention. With `inputs` (a tensor, a tuple of arguments, a dict of keywords)
        the model is run once, and further layers are found: those whose queries, keys and values are columns of what
        modules with a matrix and a bias made, and whose heads such a module takes. Each is held against what the model
        computed. What cannot be a layer is in `refused`, with the reason.
        """
        from ..torch.live import LiveModel

        return LiveModel(model, inputs)

    @property
    def title(self) -> str:
        """"BERT (BertForMaskedLM)"."""
        names = (lib.mha_model_title(self._model.address), lib.mha_model_class(self._model.address))
        return "{} ({})".format(*(name.decode() for name in names))

    @property
    def totals(self) -> Totals:
        """Totals over all storages."""
        return totals_of(self._table.address)

    def group_totals(self, group: str) -> Totals:
        """Totals of one group of tensors: "attention", "ffn", "embedding", ... ValueError: the model has none of it."""
        totals = totals_of(self._table.address, group)
        if totals.tensors == 0:
            groups = sorted({row.group for row in self.parameters()} - {""})
            raise ValueError(f"group: expected one of {', '.join(groups)}, found {group!r}")
        return totals

    def parameters(self) -> Parameters:
        """The parameter table."""
        return parameters_of(self._table.address)

    @property
    def layers(self) -> list[ModelLayer]:
        """The attention layers."""
        row = abi.ModelLayer()
        found: list[ModelLayer] = []
        while lib.mha_model_layer_at(self._model.address, len(found), ctypes.byref(row)):
            c = row.config
            found.append(ModelLayer(str(optional(row.prefix)), c.d_model, c.n_heads, c.kv_heads, c.d_k, c.d_v,
                                    row.causal, row.uses))
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of calls of the first attention layer: causal, rope, window, ...

        Raises UnsupportedError, with the reason, where mha counts the attention of a layer, but does not compute it.
        """
        facts = [lib.mha_model_layer_facts(self._model.address, i).contents for i in range(max(len(self.layers), 1))]
        reasons: list[str] = [each.not_run.decode() for each in facts]
        for reason in filter(None, reasons):
            raise UnsupportedError("unsupported", "settings", reason, f"settings: {reason}; counted, not computed")
        return settings_of_facts(facts[0])

    @property
    def assumptions(self) -> dict[str, int]:
        """Keys that the configuration lacks, with the defaults that were used."""
        rows = ctypes.POINTER(abi.Assumption)()
        count = lib.mha_model_assumptions(self._model.address, ctypes.byref(rows))
        return {str(optional(rows[i].key)): rows[i].value for i in range(count)}

    @property
    def unread_keys(self) -> list[str]:
        """Keys of the configuration that nothing reads and that are not known; no number depends on them."""
        names: list[str] = []
        while (name := lib.mha_model_unread_key(self._model.address, len(names))) is not None:
            names.append(str(optional(name)))
        return names

    def costs(self, batch: int, seq: int, encoder_seq: int = 0) -> Costs:
        """Operations and cache of a forward pass over `batch` sequences of `seq` tokens.

        encoder_seq: tokens that an encoder reads, whose keys and values a decoder attends to; 0: as many as the
        configuration says, or else seq. Images have the length that the configuration gives them.
        """
        costs, run = abi.ModelCosts(), _pass(batch, seq, encoder_seq)
        call(lib.mha_model_costs_of, self._model.address, ctypes.byref(run), ctypes.byref(costs))
        found: dict[str, Any] = {name: getattr(costs, name) for name in Costs._fields}
        return Costs(**{**found, "not_counted": costs.not_counted.decode()})

    def lengths(self, batch: int, seq: int, encoder_seq: int = 0) -> list[LayerLengths]:
        """What each of the attention layers attends over in such a pass."""
        row, run, found = abi.ModelLengths(), _pass(batch, seq, encoder_seq), []
        for index in range(lib.mha_model_layer_count(self._model.address)):
            call(lib.mha_model_layer_lengths, self._model.address, ctypes.byref(run), index, ctypes.byref(row))
            found.append(LayerLengths(*(getattr(row, name) for name in LayerLengths._fields)))
        return found

    def _with_heads(self, count: int) -> Model:
        how: dict[str, Any] = {**self._how, "n_heads": count}
        config = how.pop("config")
        return (Model.from_config(config, **{k: v for k, v in how.items() if k != "preset"})
                if config is not None else Model(**how))

    def heads(self, counts: Optional[Sequence[int]] = None) -> Table:
        """The same model with other numbers of heads: each allocated, and its parameters counted. Without counts its
        own number, and those of 1, 2, 3, 4, 6, 8, 12, 16, 24 and 32 that it can have."""
        rows = []
        for count in self._usual_heads() if counts is None else a.whole_numbers("counts", counts).tolist():
            model = self._with_heads(a.whole_number("counts", count, 1))
            first = model.layers[0]
            rows.append((count, first.kv_heads, first.d_k, first.d_v, model.group_totals("attention").parameters,
                         model.totals.parameters))
        return Table(("heads", "kv_heads", "d_k", "d_v", "attention", "parameters"), rows)

    def _usual_heads(self) -> list[int]:
        own = self.layers[0].n_heads
        fitting = {own}
        for count in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            try:
                self._with_heads(count)
                fitting.add(count)
            except (InvalidError, UnsupportedError):
                pass
        return sorted(fitting)

    def __repr__(self) -> str:
        totals = self.totals
        return (f"<mha.Model: {self.title}, {len(self.layers)} attention layers, {totals.parameters:,} parameters in "
                f"{totals.storages:,} storages>")

    def _repr_html_(self) -> str:
        return self.parameters()._repr_html_()


def presets() -> list[str]:
    """The models that are built in."""
    names: list[str] = []
    while True:
        name = lib.mha_preset_at(len(names), None)
        if not name:
            return names
        names.append(name.decode())


# ---------------------------------------------------------------- what one has in hand


def _place(tensor: Any) -> Any:
    """Where the numbers of a tensor lie; None where that cannot be said."""
    if hasattr(tensor, "data_ptr"):
        return tensor.data_ptr() or None
    interface = getattr(tensor, "__array_interface__", None)
    return interface["data"][0] if interface else None


def tensor_spec(name: str, dtype: Any, shape: Sequence[int], kind: str, frozen: bool = False, role: str = "",
                group: str = "") -> abi.TensorSpec:
    """A row of the parameter table that is to be added; TypeError for a type that it has not."""
    spec, word = abi.TensorSpec(), str(getattr(dtype, "name", None) or dtype).replace("torch.", "")
    if word not in a.CODES or len(shape) > abi.MAX_RANK:
        raise TypeError(f"{name}: {word} of {len(shape)} axes has no type here")
    spec.name, spec.role, spec.group = a.text("name", name), role.encode(), group.encode()
    spec.dtype, spec.rank, spec.frozen = a.CODES[word], len(shape), frozen
    spec.kind = abi.TENSOR_KINDS.index(kind)
    spec.shape[:spec.rank] = [int(n) for n in shape]
    return spec


def count(what: Any) -> Parameters:
    """The parameters of what one has in hand: a path of a checkpoint, a torch module, or a dict of arrays.

    Tensors that share their memory are one storage: the second name is an alias. In a module, what it calls buffers
    are buffers; in a dict, integers and booleans are. A checkpoint's roles and groups follow from its names.
    """
    table = new_table()
    if isinstance(what, (str, bytes, os.PathLike)):
        file, totals = open_file(what), abi.FileTotals()
        call(lib.mha_file_list_params, file.address, table.address, None, None, ctypes.byref(totals))
        return parameters_of(table.address)
    learned = None
    if hasattr(what, "named_parameters") and hasattr(what, "state_dict"):
        learned = {name: p.requires_grad for name, p in what.named_parameters()}  # the first name of a tied one
        trained = {_place(p): p.requires_grad for p in what.parameters() if _place(p)}
        what = what.state_dict()
        learned.update({name: trained[_place(t)] for name, t in what.items() if _place(t) in trained})
    if not isinstance(what, Mapping):
        raise TypeError(f"what: expected a path, a torch module or a dict of arrays, found {type(what).__name__}")
    owners: dict[Any, Any] = {}
    for name, tensor in what.items():
        if not isinstance(name, str) or not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
            raise TypeError(f"{name}: expected an array with a dtype and a shape, found {type(tensor).__name__}")
        spec = tensor_spec(name, tensor.dtype, tensor.shape, "parameter",
                           learned is not None and not learned.get(name, True))
        if spec.dtype not in a.FLOATS if learned is None else name not in learned:
            spec.kind = abi.TENSOR_KINDS.index("buffer")
        place, row = (_place(tensor), spec.dtype, tuple(spec.shape)), ctypes.c_void_p()
        owner = owners.get(place) if place[0] is not None else None
        if owner is not None:
            call(lib.mha_params_alias, table.address, ctypes.byref(spec), owner, ctypes.byref(row))
            continue
        call(lib.mha_params_add, table.address, ctypes.byref(spec), ctypes.byref(row))
        owners[place] = row.value
    return parameters_of(table.address)
