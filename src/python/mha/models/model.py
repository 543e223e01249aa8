"""Whole models: every tensor of a public checkpoint allocated under its name, and counted."""
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional, Protocol, Sequence, TypedDict, Union, runtime_checkable

from ..core import abi
from ..core import arrays as a
from ..core.errors import InvalidError, UnsupportedError, typed
from ..core.files import open_file, path_of
from ..core.layer import settings_of_facts
from ..core.library import call, create, lib
from ..core.parameters import Parameters, Totals, new_table, parameters_of, totals_of
from ..core.tables import Table, optional
from .caches import Caches, caches_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


@runtime_checkable
class HasConfig(Protocol):
    """A configuration of transformers."""

    def to_dict(self) -> Mapping[str, object]:
        """The contents of config.json."""


class ModelOptions(TypedDict, total=False):
    """The options of Model.from_config and Model.from_preset."""

    class_name: Optional[str]
    n_heads: Optional[int]
    kv_heads: Optional[int]
    dtype: a.Type
    architecture: Optional[a.Path]


_How = tuple[Optional[str], Union[a.Path, Mapping[str, object], None], ModelOptions]  # preset, configuration, options


class ModelLayer(NamedTuple):
    """One attention layer of a model.

    Attributes
    ----------
    prefix : str
        Beginning of its tensors' names.
    d_model, n_heads, kv_heads, d_k, d_v : int
        Sizes.
    causal : bool
        Whether later keys are hidden.
    uses : int
        How often a forward pass runs it.
    """

    prefix: str
    d_model: int
    n_heads: int
    kv_heads: int
    d_k: int
    d_v: int
    causal: bool
    uses: int


class LayerLengths(NamedTuple):
    """The lengths of one attention layer in each sequence.

    Attributes
    ----------
    queries, keys, windows : int
        Tokens of a sequence, or of each of its windows, and the number of windows.
    cross : bool
        Whether keys come from an encoder.
    cached : int
        Rows that a cache keeps for decoding.
    pairs, visible : int
        Pairs of a query and a key in all windows, and those that causality, window and chunk leave.
    """

    queries: int
    keys: int
    windows: int
    cross: bool
    cached: int
    pairs: int
    visible: int


class Costs(NamedTuple):
    """Operations of a forward pass, a multiply-add being two, and elements of its key/value caches.

    Norms, softmax, activations, additions and rotations never count.

    Attributes
    ----------
    projections : int
        Operations with W_Q, W_K, W_V, W_O, latents and gates of all layers.
    scores_full, scores_causal : int
        Operations of Q K^T and A V over all pairs, and over visible pairs.
    feed_forward, heads, patches : int
        Operations of the parts of these names.
    relative, linear : int
        Operations with tables of relative positions, and of layers of linear attention.
    cache_elements, latent_elements, cross_elements, state_elements : int
        Elements of caches: keys and values; latents instead of them; keys and values of cross-attention; states of
        linear attention.
    not_counted : str
        Sentence about a part that is not counted; else "".
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


def _pass(batch: int, seq: int, encoder_seq: Optional[int]) -> abi.ModelPass:
    """One forward pass, as the library wants it said."""
    return abi.ModelPass(a.whole_number("batch", batch, 0), a.whole_number("seq", seq, 0),
                          a.count("encoder_seq", encoder_seq))


class ConfiguredModel:
    """A model by its configuration, see mha.Model.

    Every tensor of its public checkpoint is allocated, without values (the system commits no memory to it): tied
    weights are one storage, masks and tables are buffers, key biases that cannot change the output are inert.
    """

    def __init__(self, *, preset: Optional[str] = None, config: Optional[a.Path] = None,
                 class_name: Optional[str] = None, n_heads: Optional[int] = None, kv_heads: Optional[int] = None,
                 dtype: a.Type = "float32", architecture: Optional[a.Path] = None) -> None:
        options: ModelOptions = {"class_name": class_name, "dtype": dtype, "architecture": architecture}
        self._how: _How = preset, config, options
        spec = abi.ModelSpec()
        for name, text in (("preset", preset), ("class_name", class_name)):
            setattr(spec, name, None if text is None else a.text(name, text))
        if config is not None:
            spec.config = path_of("config", config)
        if architecture is not None:
            spec.architecture = path_of("architecture", architecture)
        spec.n_heads = a.count("n_heads", n_heads)
        spec.kv_heads = a.count("kv_heads", kv_heads)
        spec.dtype = a.float_type("dtype", dtype)
        self._table = new_table()
        self._model = create("model", lib.mha_model_destroy, lib.mha_model_create, ctypes.byref(spec),
                             self._table.address, needs=(self._table,))

    @classmethod
    def from_config(cls, config: Union[a.Path, Mapping[str, object], HasConfig], **options: Unpack[ModelOptions]
                    ) -> Self:
        """Make the model of a config.json. mha allocates its tensors without values.

        Parameters
        ----------
        config : path_like, dict or configuration of transformers
            The file or its folder, the parsed JSON, or an object with to_dict.
        **options
            class_name ("BertForMaskedLM" or a part of it), n_heads and kv_heads instead of those of the configuration,
            dtype, architecture (path of a description of a model type that is not built in).

        Returns
        -------
        mha.Model
            The model.

        Raises
        ------
        TypeError, ValueError
            The configuration or an option is wrong, or the model type is unknown.

        Examples
        --------
        >>> mha.Model.from_config({"model_type": "gpt2"}).totals.parameters
        124439808
        """
        if isinstance(config, HasConfig):
            config = config.to_dict()
        if not isinstance(config, Mapping):
            return cls(config=config, **options)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                try:
                    json.dump(dict(config), file)
                except TypeError as reason:
                    raise TypeError(f"config: expected what JSON can hold, found {reason}") from None
            model = cls(config=path, **options)
        model._how = None, dict(config), model._how[2]
        return model

    @classmethod
    def from_gguf(cls, path: a.Path) -> Self:
        """Make the model of the metadata in a GGUF file: attention layers and caches, no tensors.

        Parameters
        ----------
        path : path_like
            GGUF file.

        Returns
        -------
        mha.Model
            The model.

        Raises
        ------
        ValueError
            The file is no GGUF, or its architecture is unknown.
        FileNotFoundError, mha.Error
            mha cannot read the file.

        Examples
        --------
        >>> mha.Model.from_gguf("model.gguf").caches(1, 4096).bytes  # doctest: +SKIP
        """
        model, file = cls.__new__(cls), open_file(path)
        model._how, model._table = (None, path, {}), new_table()
        model._model = create("model", lib.mha_model_destroy, lib.mha_model_of_metadata, file.address,
                              model._table.address, needs=(model._table,))
        return model

    @classmethod
    def from_preset(cls, name: str, **options: Unpack[ModelOptions]) -> Self:
        """Make a built-in model.

        Parameters
        ----------
        name : str
            Name or its first letters, see mha.presets.
        **options
            As in from_config.

        Returns
        -------
        mha.Model
            The model.

        Raises
        ------
        ValueError
            No preset, or more than one, has this name.

        Examples
        --------
        >>> mha.Model.from_preset("gpt2").title
        'GPT-2 (GPT2LMHeadModel)'
        """
        with typed({"preset": "name"}):
            return cls(preset=name, **options)

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
        """Sum over one group of tensors.

        Parameters
        ----------
        group : str
            "attention", "ffn", "embedding", ...

        Returns
        -------
        mha.Totals
            Sums over the storages of the group.

        Raises
        ------
        ValueError
            The model has no tensor of this group.

        Examples
        --------
        >>> mha.Model.from_preset("gpt2").group_totals("attention").parameters
        28348416
        """
        totals = totals_of(self._table.address, group)
        if totals.tensors == 0:
            groups = sorted({row.group for row in self.parameters()} - {""})
            raise ValueError(f"group: expected one of {', '.join(groups)}, found {group!r}")
        return totals

    def parameters(self) -> Parameters:
        """Tabulate all tensors.

        Returns
        -------
        mha.Parameters
            One row for each tensor.
        """
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
    def settings(self) -> dict[str, object]:
        """The settings of calls of the first attention layer: causal, rope, window, ...

        Raises UnsupportedError, with the reason, where mha counts the attention of a layer, but does not compute it.
        """
        facts = [lib.mha_model_layer_facts(self._model.address, i).contents for i in range(max(len(self.layers), 1))]
        reasons: list[str] = [each.not_run.decode() for each in facts]
        for reason in filter(None, reasons):
            raise UnsupportedError("unsupported", "settings", reason, "settings: expected layers that mha computes, "
                                   f"found one that it only counts; {reason}")
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

    def costs(self, batch: int, seq: int, encoder_seq: Optional[int] = None) -> Costs:
        """Count the operations of a forward pass and the elements of its caches.

        Parameters
        ----------
        batch : int
            Number of sequences.
        seq : int
            Tokens of each sequence. Images have the length that the configuration gives.
        encoder_seq : int, default None
            Tokens that an encoder reads; None: as many as the configuration says, or else seq.

        Returns
        -------
        Costs
            A multiply-add is two operations.

        Raises
        ------
        TypeError, ValueError
            A number is wrong, or the model has no encoder and decoder.

        Examples
        --------
        >>> mha.Model.from_preset("gpt2").costs(1, 1024).projections
        57982058496
        """
        costs, run = abi.ModelCosts(), _pass(batch, seq, encoder_seq)
        call(lib.mha_model_costs_of, self._model.address, ctypes.byref(run), ctypes.byref(costs))
        found = Costs(*(getattr(costs, name) for name in Costs._fields))
        return found._replace(not_counted=costs.not_counted.decode())

    def lengths(self, batch: int, seq: int, encoder_seq: Optional[int] = None) -> list[LayerLengths]:
        """List the lengths of each attention layer in a forward pass.

        Parameters
        ----------
        batch, seq, encoder_seq
            As in costs.

        Returns
        -------
        list of LayerLengths
            One for each attention layer.

        Raises
        ------
        TypeError, ValueError
            A number is wrong, or the model has no encoder and decoder.

        Examples
        --------
        >>> mha.Model.from_preset("gpt2").lengths(1, 1024)[0].visible
        524800
        """
        row, run, found = abi.ModelLengths(), _pass(batch, seq, encoder_seq), []
        for index in range(lib.mha_model_layer_count(self._model.address)):
            call(lib.mha_model_layer_lengths, self._model.address, ctypes.byref(run), index, ctypes.byref(row))
            found.append(LayerLengths(*(getattr(row, name) for name in LayerLengths._fields)))
        return found

    def caches(self, batch: int, seq: Optional[int] = None, encoder_seq: Optional[int] = None, *,
               dtype: a.Type = "float16", log: Optional[a.Path] = None) -> Caches:
        """Count the bytes of the caches that decoding needs after a forward pass.

        Parameters
        ----------
        batch : int
            Number of sequences.
        seq : int, default None
            Tokens of each sequence; None: as many as the log states.
        encoder_seq : int, default None
            As in costs.
        dtype : str or dtype, default "float16"
            Type of keys, values and latents, quantised ones included; states are float32.
        log : path_like, default None
            Log of llama.cpp or vLLM, whose bytes are split into those that are needed, and the rest.

        Returns
        -------
        Caches
            Bytes by kind of cache, as needed, in pages and as llama.cpp allocates them.

        Raises
        ------
        TypeError, ValueError
            An argument is wrong, or the log has no line about a cache.
        FileNotFoundError, mha.Error
            mha cannot read the log.

        Examples
        --------
        >>> mha.Model.from_preset("gpt-oss-20b").caches(1, 131072).bytes
        3224371200
        """
        if seq is None and log is None:
            raise TypeError("seq: expected a number of tokens, found None; or give a log")
        return caches_of(self._model, _pass(batch, seq or 0, encoder_seq), dtype, log)

    def _with_heads(self, count: int) -> ConfiguredModel:
        preset, config, options = self._how[0], self._how[1], self._how[2].copy()
        options["n_heads"] = count
        return (ConfiguredModel.from_config(config, **options) if config is not None
                else ConfiguredModel(preset=preset, **options))

    def heads(self, counts: Optional[Sequence[int]] = None) -> Table:
        """Make the same model with other numbers of heads, and count the parameters of each.

        Parameters
        ----------
        counts : sequence of int, default None
            Numbers of heads; None: its own, and those of 1, 2, 3, 4, 6, 8, 12, 16, 24 and 32 that it can have.

        Returns
        -------
        mha.Table
            One row for each number.

        Raises
        ------
        TypeError, ValueError
            A number is wrong, or the model cannot have it.

        Examples
        --------
        >>> mha.Model.from_preset("gpt2").heads([6, 12]).column("attention")
        [28348416, 28348416]
        """
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
    """List the built-in models.

    Returns
    -------
    list of str
        Names for mha.Model.from_preset.

    Examples
    --------
    >>> "gpt2" in mha.presets()
    True
    """
    names: list[str] = []
    while True:
        name = lib.mha_preset_at(len(names), None)
        if not name:
            return names
        names.append(name.decode())


# ---------------------------------------------------------------- what one has in hand


def _place(tensor: object) -> Optional[int]:
    """The address of the numbers of a tensor; None if it has none."""
    if hasattr(tensor, "data_ptr"):
        return tensor.data_ptr() or None
    interface = getattr(tensor, "__array_interface__", None)
    return interface["data"][0] if interface else None


def tensor_spec(name: str, dtype: object, shape: Sequence[int], kind: str, frozen: bool = False, role: str = "",
                group: str = "") -> abi.TensorSpec:
    """A row of the parameter table that is to be added; TypeError for a type that it has not."""
    spec, word = abi.TensorSpec(), str(getattr(dtype, "name", None) or dtype).replace("torch.", "")
    if word not in a.CODES or len(shape) > abi.MAX_RANK:
        raise TypeError(f"{name}: expected a known type, at most {abi.MAX_RANK} axes, found {word}, {len(shape)} axes")
    spec.name, spec.role, spec.group = a.text("name", name), role.encode(), group.encode()
    spec.dtype, spec.rank, spec.frozen = a.CODES[word], len(shape), frozen
    spec.kind = abi.TENSOR_KINDS.index(kind)
    spec.shape[:spec.rank] = [int(n) for n in shape]
    return spec


def count(what: Union[a.Path, a.Module, Mapping[str, a.ArrayLike]]) -> Parameters:
    """Count the parameters of a checkpoint, a torch module or a dict of arrays.

    Tensors that share memory are one storage; the second name is an alias. Buffers are those of the module; in a dict,
    integers and booleans. Roles and groups of a checkpoint follow from its names.

    Parameters
    ----------
    what : path_like, torch.nn.Module or dict from str to array_like
        The tensors.

    Returns
    -------
    mha.Parameters
        One row for each tensor.

    Raises
    ------
    TypeError, ValueError
        `what` is something else, or a tensor has an unknown type.
    mha.Error
        mha cannot read the file.

    Examples
    --------
    >>> mha.count({"weight": np.zeros((3, 4), np.float32)}).totals.parameters
    12
    """
    table = new_table()
    if isinstance(what, (str, bytes, os.PathLike)):
        file, totals = open_file(what), abi.FileTotals()
        call(lib.mha_file_list_params, file.address, table.address, None, None, ctypes.byref(totals))
        return parameters_of(table.address)
    learned = None
    if not isinstance(what, Mapping) and hasattr(what, "named_parameters") and hasattr(what, "state_dict"):
        learned = {name: p.requires_grad for name, p in what.named_parameters()}  # the first name of a tied one
        trained = {_place(p): p.requires_grad for p in what.parameters() if _place(p)}
        what = what.state_dict()
        learned.update({name: trained[_place(t)] for name, t in what.items() if _place(t) in trained})
    if not isinstance(what, Mapping):
        raise TypeError(f"what: expected a path, a torch module or a dict of arrays, found {type(what).__name__}")
    owners: dict[object, object] = {}
    for name, tensor in what.items():
        if not isinstance(name, str) or not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
            raise TypeError(f"{name}: expected an array with a dtype and a shape, found {type(tensor).__name__}")
        spec = tensor_spec(name, tensor.dtype, tensor.shape or (), "parameter",
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
