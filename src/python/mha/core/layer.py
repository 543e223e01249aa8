"""A multi-head attention layer: its sizes, its weights, and calls of it."""
from __future__ import annotations

import ctypes
import inspect
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, cast, overload

import numpy as np

from . import abi
from . import arrays as a
from .backward_call import INPUTS, Backward, further, stages_of
from .cache import Cache
from .call import Request
from .errors import NotFoundError, typed
from .fields import FIELDS
from .files import config_beside, open_file, path_of
from .library import Handle, call, create, lib
from .parameters import Parameters, Totals, new_table, parameters_of, totals_of
from .prepared import Prepared
from .semantics import Semantics, Sizes, settings_of, window_segments
from .settings import expect_settings, merged
from .shapes import Rows, run
from .trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import CallSettings, LayerFields, LayerSettings


class MultiHeadAttention:
    """softmax(Q K^T / sqrt(d_k)) V of every head, concatenated, times W_O (Vaswani et al. 2017, section 3.2).

    Q = query W_Q + b_Q, K = key W_K + b_K, V = value W_V + b_V. Matrices multiply from the right, (in, out): the weight
    of torch.nn.Linear is their transpose.

    Parameters
    ----------
    d_model, n_heads : int
        Width of the model and number of heads. PyTorch's embed_dim and num_heads work, too.
    bias : bool, default True
        bias_q, bias_k, bias_v and bias_o if they are not given; with kv_rank bias_latent and bias_o.
    dtype : str or dtype, default "float32"
        Type of the weights; matrices may also be in blocks: "q8_0", "q4_0", "q4_k", ...
    seed : int, default 0
        Seed of random weights; None: zeros.
    **settings
        Settings of every call of the layer unless the call says otherwise, see mha.SETTINGS, and the fields of the
        layer, listed as other parameters.

    Other Parameters
    ----------------
    FIELDS

    Raises
    ------
    TypeError, ValueError
        A field is wrong, or fields do not fit each other.

    Examples
    --------
    >>> layer = mha.MultiHeadAttention(32, 4, kv_heads=2, causal=True)
    >>> layer(np.ones((2, 5, 32), np.float32)).shape
    (2, 5, 32)
    """

    def __init__(self, d_model: Optional[int] = None, n_heads: Optional[int] = None, *, bias: bool = True,
                 dtype: a.Type = "float32", seed: Optional[int] = 0, **settings: Unpack[LayerFields]) -> None:
        said: dict[str, Any] = {**settings}
        word = "num_heads" if "num_heads" in said else "n_heads"
        fields: dict[str, Any] = {
            "d_model": _size("d_model", d_model, said), "n_heads": _size("n_heads", n_heads, said),
                  "dtype": dtype, **{name: value for name in FIELDS if (value := said.pop(name, None)) is not None}}
        expect_settings(said)
        config = abi.Config()
        for name, value in fields.items():
            FIELDS[name].put(value, config)
        for name in ("bias_latent", "bias_o") if config.kv_rank else ("bias_q", "bias_k", "bias_v", "bias_o"):
            FIELDS[name].put(fields.get(name, a.flag("bias", bias)), config)
        with typed({"heads": word}):
            handle = create("layer", lib.mha_layer_destroy, lib.mha_layer_create, ctypes.byref(config), None, None)
        self._begin(handle, said, "BTE")
        if seed is not None:
            self.init(seed)

    def _begin(self, handle: Handle, settings: dict[str, Any], layout: str) -> None:
        self.handle, self.settings, self.layout = handle, settings, layout
        self._lock, self._written, self._prepared = threading.Lock(), False, Prepared()
        self._calls: list[None] = []  # one for each call under way
        self._random: list[str] = []  # weights that are as they were drawn, from _seed
        self._seed = 0
        config = lib.mha_layer_config(handle.address).contents
        self.config: Mapping[str, Any] = {name: field.value(config) for name, field in FIELDS.items()}

    # ---------------------------------------------------------------- from elsewhere

    @classmethod
    def from_torch(cls, module: a.Attention, **settings: Unpack[LayerSettings]) -> MultiHeadAttention:
        """Copy a torch.nn.MultiheadAttention: its weights, its layout (batch_first) and add_zero_attn.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention
            The module.
        **settings
            Settings of every call, see mha.SETTINGS.

        Returns
        -------
        mha.MultiHeadAttention
            With copies of the weights.

        Raises
        ------
        TypeError
            The module is another one.

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        >>> layer = mha.MultiHeadAttention.from_torch(module)
        >>> layer(np.zeros((2, 5, 16), dtype=np.float32)).shape
        (2, 5, 16)
        """
        weights = dict(module.state_dict()) if hasattr(module, "state_dict") else {}
        unknown = set(weights) - {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias",
                                  "out_proj.weight", "out_proj.bias", "bias_k", "bias_v"}
        if unknown or "out_proj.weight" not in weights:
            raise TypeError(f"module: expected a torch.nn.MultiheadAttention, found {type(module).__name__}")
        biased, rows = "in_proj_bias" in weights, "bias_k" in weights
        dtype = a.floats("out_proj.weight", weights["out_proj.weight"]).dtype
        fields = cast("LayerFields", {"d_kin": module.kdim, "d_vin": module.vdim, "bias_kv": rows, **settings})
        self = cls(module.embed_dim, module.num_heads, bias=biased, dtype=a.NAMES[dtype], seed=None, **fields)
        if module.add_zero_attn:
            self.settings.setdefault("zero_row", True)
        self.layout = "BTE" if module.batch_first else "TBE"
        thirds = weights.get("in_proj_weight")
        for i, letter in enumerate("QKV"):
            third = slice(i * module.embed_dim, (i + 1) * module.embed_dim)
            matrix = thirds[third] if thirds is not None else weights[f"{letter.lower()}_proj_weight"]
            self.set(f"W_{letter}", matrix.t())
            if biased:
                self.set(f"b_{letter}", weights["in_proj_bias"][third])
        self.set("W_O", weights["out_proj.weight"].t())
        if biased:
            self.set("b_O", weights["out_proj.bias"])
        for name in ("bias_k", "bias_v") if rows else ():
            self.set(name, weights[name].reshape(-1))
        return self

    @classmethod
    def from_file(cls, path: a.Path, layer: Optional[str] = None, *, n_heads: Optional[int] = None,
                  kv_heads: Optional[int] = None, d_k: Optional[int] = None,
                  config: Optional[a.Path] = None, length: Optional[int] = None, orientation: str = "auto",
                  dtype: Optional[a.Type] = None, **settings: Unpack[LayerSettings]) -> MultiHeadAttention:
        """Read one attention layer of a checkpoint (safetensors, its index, GGUF, npz) under public names of models.

        Parameters
        ----------
        path : path_like
            The checkpoint.
        layer : str, default None
            Prefix of the names of its tensors; None: the file has only one layer.
        n_heads, kv_heads, d_k : int, default None
            Sizes; None: those of the configuration.
        config : path_like, default None
            A config.json. It gives heads, causal, rotation, scale, window and softcap. None: the metadata of a GGUF, or
            the config.json in the folder of the file unless n_heads or d_k is given.
        length : int, default None
            Positions in use, for dynamic scaling and longrope; None: those of the training.
        orientation : {"auto", "in_out", "out_in"}, default "auto"
            Axes of the matrices in the file; "auto": those of the naming scheme.
        dtype : str or dtype, default None
            Type of the weights; None: float32. "q8_0", "q4_k", "f8_e4m3_scaled", ...: blocks stay as they are in the
            file.
        **settings
            Settings of every call, see mha.SETTINGS; they override the configuration.

        Returns
        -------
        mha.MultiHeadAttention
            The layer.

        Raises
        ------
        mha.NotFoundError
            The file or the layer does not exist.
        ValueError
            mha does not know the model type, and no settings are given; or the shapes do not fit.

        Examples
        --------
        >>> layer = mha.MultiHeadAttention(32, 4, bias=False)
        >>> mha.save("layer.safetensors", {f"attn.{n.lower()}_proj.weight": layer.weights[f"W_{n}"] for n in "QKVO"})
        >>> mha.MultiHeadAttention.from_file("layer.safetensors", "attn", n_heads=4).totals.parameters
        4096
        """
        file, table, said = open_file(path), new_table(), {**settings}
        options, report = abi.LoadOptions(), abi.LoadReport()
        if layer is not None:
            options.layer = a.text("layer", layer)
        options.n_heads, options.kv_heads, options.d_k = (
            a.count(n, v) for n, v in (("n_heads", n_heads), ("kv_heads", kv_heads), ("d_k", d_k)))
        options.orientation = a.choice("orientation", orientation, abi.ORIENTATIONS)
        if dtype is not None:
            options.has_dtype, options.dtype = True, a.weight_type("dtype", dtype)
        length = a.count("length", length)
        facts = abi.ModelFacts()
        described = True
        if config is None:
            try:
                call(lib.mha_model_read_metadata, file.address, options.layer, ctypes.byref(facts))
            except NotFoundError:  # no GGUF
                config = None if n_heads or d_k else config_beside(path)
                described = config is not None
        if config is not None:
            call(lib.mha_model_read_layer, path_of("config", config), options.layer, ctypes.byref(facts))
            call(lib.mha_model_fit_file, file.address, ctypes.byref(facts))
        if described:
            call(lib.mha_model_extend_context, ctypes.byref(facts), length)
            options.facts = ctypes.pointer(facts)
            if not (facts.has_semantics or facts.not_run or settings):
                raise ValueError(f"path: expected a model that is described, found '{facts.model_type.decode()}'; give "
                                 "mask, rotation and scale by config= or by settings (causal=, rope=, ...)")
            said = merged(settings_of_facts(facts), said)
        handle = create("layer", lib.mha_layer_destroy, lib.mha_model_load_layer, file.address, ctypes.byref(options),
                        table.address, needs=(table,), after=(ctypes.byref(report),))
        self = cls.__new__(cls)
        self._begin(handle, said, "BTE")
        return self

    # ---------------------------------------------------------------- weights

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """Nobody calls the layer while its weights change."""
        with self._lock:
            self._written = True
            try:
                if self._calls:
                    raise RuntimeError("layer: expected no call while its weights change, found one")
                yield self.handle.address
            finally:
                self._written = False

    def init(self, seed: int) -> None:
        """Draw random weights, the same on every machine.

        Parameters
        ----------
        seed : int
            Seed of the generator.

        Raises
        ------
        RuntimeError
            Another thread calls the layer.
        """
        seed = a.whole_number("seed", seed, 0)
        with self._writing() as layer:
            lib.mha_layer_init(layer, seed)
            self._random, self._seed = self._names(), seed

    def set(self, name: str, values: a.ArrayLike) -> None:
        """Copy values into a weight.

        Parameters
        ----------
        name : str
            "W_Q", "b_Q", ..., a key of `weights`.
        values : array_like, shape of the weight
            Matrices are (in, out).

        Raises
        ------
        TypeError, ValueError
            The layer has no such weight, or the shape differs.
        RuntimeError
            Another thread calls the layer.

        Examples
        --------
        >>> layer = mha.MultiHeadAttention(32, 4)
        >>> layer.set("W_Q", np.eye(32))
        """
        weight, tensor = a.choice("name", name, abi.WEIGHTS), a.floats("values", values)
        with self._writing() as layer:
            call(lib.mha_layer_set, layer, weight, ctypes.byref(a.view_of(tensor)))
            self._random = [other for other in self._random if other != name]

    def _names(self) -> list[str]:
        """The names of the weights that the layer has."""
        return [name for i, name in enumerate(abi.WEIGHTS) if lib.mha_layer_weight(self.handle.address, i)]

    @property
    def weights(self) -> dict[str, a.Floats]:
        """The weights by name: "W_Q", "b_Q", ...; read-only views of the layer's memory, which `set` changes. bfloat16,
        q8_0 and q4_0 are float32 copies. Those of a packed layer are unpacked for that, and then stay next to the
        packed ones."""
        found = {}
        for index, name in enumerate(abi.WEIGHTS):
            row = lib.mha_layer_weight(self.handle.address, index)
            if row:
                found[name] = a.of_memory(lib.mha_tensor_view(row), self.handle)
                found[name].flags.writeable = False
        return found

    def head(self, name: str, head: int) -> a.Floats:
        """Get the part of a weight that belongs to one head: columns of W_Q, rows of W_O.

        Parameters
        ----------
        name : str
            "W_Q", "b_Q", ..., a key of `weights`.
        head : int
            Number of the head, from 0.

        Returns
        -------
        ndarray
            A read-only view of the layer's memory, which `set` changes.

        Raises
        ------
        ValueError
            The weight has no part for this head.

        Examples
        --------
        >>> mha.MultiHeadAttention(32, 4).head("W_Q", 0).shape
        (32, 8)
        """
        view = lib.mha_layer_head(self.handle.address, a.choice("name", name, abi.WEIGHTS),
                                  a.whole_number("head", head, 0))
        if not view.data:
            raise ValueError(f"name: expected a weight with a part for head {head}, found {name!r}")
        array = a.of_memory(view, self.handle)
        array.flags.writeable = False
        return array

    def pack(self) -> None:
        """Reorder the matrices for the kernels of the fast path.

        This frees the unpacked copy unless you hold a view of it (`weights`, `head`). Matrices of float64 or in blocks
        stay.

        Raises
        ------
        RuntimeError
            Another thread calls the layer.
        """
        with self._writing() as layer:
            call(lib.mha_layer_pack, layer)

    def parameters(self) -> Parameters:
        """Tabulate the parameters of the layer.

        Returns
        -------
        mha.Parameters
            One row for each tensor.

        Examples
        --------
        >>> mha.MultiHeadAttention(32, 4).parameters()[0].name
        'W_Q'
        """
        c = self.config
        semantics = Semantics(Rows(np.empty((1, 1, c["d_q"]), np.float32), None, None, "BTE", c["d_out"])
                              .sizes(c["n_heads"], 0), self.settings, numbers=True)
        with self._writing() as layer:
            call(lib.mha_layer_mark_inert, layer, ctypes.byref(semantics.struct))
            return parameters_of(lib.mha_layer_params(layer))

    @property
    def totals(self) -> Totals:
        """Totals over the storages that the layer allocated."""
        return totals_of(lib.mha_layer_params(self.handle.address))

    # ---------------------------------------------------------------- calls

    def cache(self, batch: int, capacity: int, *, window: Optional[int] = None, dtype: a.Type = "float32",
              absorbed: bool = False) -> Cache:
        """Make an empty key/value cache for calls of this layer.

        Parameters
        ----------
        batch : int
            Number of sequences.
        capacity : int
            Number of rows with room.
        window, dtype
            As in mha.Cache.
        absorbed : bool, default False
            The cache holds latents, for calls with absorbed=True.

        Returns
        -------
        mha.Cache
            The cache.

        Raises
        ------
        TypeError, ValueError
            A size or the type is wrong.

        Examples
        --------
        >>> mha.MultiHeadAttention(32, 4).cache(2, 8).nbytes
        4096
        """
        c = self.config
        if a.flag("absorbed", absorbed):
            return Cache(batch, 1, c["kv_rank"] + c["d_rope"], capacity, d_v=0, window=window, dtype=dtype)
        return Cache(batch, c["kv_heads"], c["d_k"], capacity, d_v=c["d_v"], window=window, dtype=dtype)

    def request(self, query: object, key: object, value: object, settings: Mapping[str, object], *,
                layout: Optional[str] = None, cache: Optional[Cache] = None, path: str = "auto",
                threads: Optional[int] = None, precision: a.Precision = None, past: int = 0,
                absorbed: bool = False) -> tuple[Rows, Request]:
        """Make a call of the layer without running it.

        Parameters
        ----------
        query, key, value, layout, cache, path, threads, precision, absorbed
            As in a call.
        settings : dict
            Settings of the call.
        past : int, default 0
            Rows of a cache that the call gets later.

        Returns
        -------
        rows, request
            The inputs, and the call.

        Raises
        ------
        TypeError, ValueError
            An argument has the wrong type, shape or value.
        """
        c = self.config
        if layout is None:
            layout = "TE" if a.given("query", query).array.ndim == 2 else self.layout
        rows = Rows(query, key, value, layout, c["d_out"], (c["d_q"], c["d_kin"], c["d_vin"]))
        semantics = Semantics(rows.sizes(c["n_heads"], len(cache) if cache is not None else past),
                              merged(self.settings, settings))
        request = Request(rows.inputs, semantics, path=path, threads=threads, precision=precision, cache=cache,
                          layer=self.handle)
        request.struct.absorbed = a.flag("absorbed", absorbed)
        return rows, request

    @overload
    def __call__(self, query: a.Kind, key: Optional[a.ArrayLike] = ..., value: Optional[a.ArrayLike] = ..., *,
                 layout: Optional[str] = ..., cache: Optional[Cache] = ..., path: str = ..., threads: int = ...,
                 precision: a.Precision = ..., out_dtype: Optional[a.Type] = ..., absorbed: bool = ...,
                 **settings: Unpack[CallSettings]) -> a.Kind: ...
    @overload
    def __call__(self, query: a.Kind, key: Optional[a.ArrayLike] = ..., value: Optional[a.ArrayLike] = ..., *,
                 layout: Optional[str] = ..., return_stages: Sequence[str], cache: Optional[Cache] = ...,
                 path: str = ..., threads: int = ..., precision: a.Precision = ..., out_dtype: Optional[a.Type] = ...,
                 absorbed: bool = ..., **settings: Unpack[CallSettings]) -> tuple[a.Kind, Trace]: ...

    def __call__(self, query: a.ArrayLike, key: Optional[a.ArrayLike] = None, value: Optional[a.ArrayLike] = None, *,
                 layout: Optional[str] = None, return_stages: Sequence[str] = (), cache: Optional[Cache] = None,
                 path: str = "auto", threads: Optional[int] = None, precision: a.Precision = None,
                 out_dtype: Optional[a.Type] = None, absorbed: bool = False, **settings: Unpack[CallSettings]
                 ) -> object:
        """Compute the layer's output.

        Parameters
        ----------
        query : array_like, shape (B, T_q, d_q)
            Rows of the queries, in any memory order.
        key : array_like, shape (B, T_k, d_kin), default None
            Rows of the keys; None: query.
        value : array_like, shape (B, T_k, d_vin), default None
            Rows of the values; None: key.
        layout : {"BTE", "TBE", "TE"}, default None
            Order of the axes; "TE" has no batch. None: that of the layer.
        return_stages : sequence of str, default ()
            Also return these intermediate results as mha.Trace.
        cache : mha.Cache, default None
            Keys and values of earlier calls; mha appends those of this call.
        path, threads, precision, out_dtype
            As in mha.scaled_dot_product_attention. precision="bfloat16" needs weights and a cache of bfloat16 unless
            path="exact".
        absorbed : bool, default False
            A layer with kv_rank attends to its latents: the same output, with a much smaller cache.
        **settings
            Settings of this call, see mha.SETTINGS.

        Returns
        -------
        output : array, shape (B, T_q, d_out)
            Of query's kind and type; mha.Trace follows with return_stages.

        Raises
        ------
        TypeError, ValueError
            An argument has the wrong type, shape or value.

        Examples
        --------
        >>> layer = mha.MultiHeadAttention(32, 4)
        >>> y, trace = layer(np.ones((2, 5, 32), np.float32), return_stages=["weights"])
        >>> trace["weights"].shape
        (2, 4, 5, 5)
        """
        def general() -> tuple[Request, object]:
            rows, request = self.request(query, key, value, {**settings}, layout=layout, cache=cache, path=path,
                                         threads=threads, precision=precision, absorbed=absorbed)
            return request, run(rows, request, return_stages=return_stages, out_dtype=out_dtype)

        _expect_cache(cache)
        self._calls.append(None)  # lists are changed as a whole, which costs less than a lock
        if self._written:
            self._calls.pop()
            with self._lock:
                self._calls.append(None)
        try:
            if cache is not None:
                cache.__enter__()
            try:
                said = (*self.settings.items(), *settings.items())
                length = None if cache is None else len(cache) if any(name == "offset" for name, _ in said) else 0
                how = layout, self.layout, length, path, threads, precision, out_dtype, absorbed, return_stages
                return self._prepared.run((query, key, value), how, said, general, cache)
            finally:
                if cache is not None:
                    cache.__exit__()
        finally:
            self._calls.pop()

    def backward(self, do: a.ArrayLike, query: a.ArrayLike, key: Optional[a.ArrayLike] = None,
                 value: Optional[a.ArrayLike] = None, *, dlse: Optional[a.ArrayLike] = None, also: Sequence[str] = (),
                 return_stages: Sequence[str] = (), layout: Optional[str] = None, cache: Optional[Cache] = None,
                 out_dtype: Optional[a.Type] = None, **settings: Unpack[CallSettings]) -> object:
        """Compute the gradients of a call by name, in float64 with the exact path.

        The gradients of the weights stay in the parameter table until the next backward, in float64: see `gradients`.

        Parameters
        ----------
        do : array_like, in the axes of the output
            Gradient of the output.
        query, key, value : array_like, default None
            As in a call. An omitted input adds its gradient to that of the input that replaces it.
        dlse : array_like, shape (B, h, T_q), default None
            Gradient of lse; None: 0.
        also : sequence of str, default ()
            Further gradients: "mask", "key_padding" (additive, in their shapes), "alibi_slopes", and "past_key",
            "past_value", of the rows in the cache, (B, kv_heads, rows, width).
        return_stages : sequence of str, default ()
            Stages of the backward, as in mha.attention_backward.
        layout : {"BTE", "TBE", "TE"}, default None
            Order of the axes; None: that of the layer.
        cache : mha.Cache, default None
            Keys and values of earlier calls, as they were before this one; it does not change.
        out_dtype : str or dtype, default None
            Type to which mha rounds gradients once; None: that of query.
        **settings
            Settings of the call, see mha.SETTINGS.

        Returns
        -------
        gradients : dict from str to array
            "query", "key", "value" as given, and every weight ("W_Q", "b_Q", ...) in its shape.
        trace : mha.Trace
            Only with return_stages.

        Raises
        ------
        TypeError, ValueError
            An argument is wrong, or the call has no such gradient. Tables of a rotation and positions have no gradient.

        Examples
        --------
        >>> layer, x = mha.MultiHeadAttention(32, 4), np.ones((2, 5, 32))
        >>> d = layer.backward(np.ones((2, 5, 32)), x, is_causal=True)
        >>> d["query"].shape, d["W_Q"].shape
        ((2, 5, 32), (32, 32))
        """
        _expect_cache(cache)
        rows, request = self.request(query, key, value, {**settings}, layout=layout, path="exact", cache=cache)
        backward = Backward(request, rows.seen(a.floats("do", do), "do"), dlse)
        inputs = [name for name, x in zip(INPUTS, (query, key, value)) if x is not None]
        kind, stages = rows.kind, stages_of("return_stages", return_stages)
        back = kind.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)
        with ExitStack() as taken:
            taken.enter_context(self._lock)
            if cache is not None:
                taken.enter_context(cache)
            layer = self.handle.address
            if not lib.mha_layer_gradient(layer, abi.WEIGHTS.index("W_O")):
                call(lib.mha_layer_add_gradients, layer, abi.F64)
            lib.mha_layer_lend_gradients(layer, ctypes.byref(backward.struct))
            weights = self.gradients
            found = backward.run([*inputs, *(name for name in further(also) if name not in weights), *stages])
            trace = Trace({name: found.pop(name) for name in stages})
            found.update((name, np.array(array)) for name, array in weights.items())

        def given(name: str) -> a.ArrayLike:
            array = np.ascontiguousarray(rows.input_back(found[name]) if name in INPUTS else found[name])
            return kind.wrap(a.narrowed(array, abi.F64, back), back)

        gradients = {name: given(name) for name in found}
        return (gradients, trace) if stages else gradients

    @property
    def gradients(self) -> dict[str, a.Floats]:
        """The gradients of the weights by name, of the last backward: read-only views of the layer's memory, float64;
        empty before the first one."""
        found = {}
        for index, name in enumerate(abi.WEIGHTS):
            row = lib.mha_layer_gradient(self.handle.address, index)
            if row:
                found[name] = a.of_memory(lib.mha_tensor_view(row), self.handle)
                found[name].flags.writeable = False
        return found

    def __repr__(self) -> str:
        c = self.config
        said = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        if self._random:
            which = "weights" if self._random == self._names() else ", ".join(self._random)
            said += f", random {which} (seed {self._seed})"
        return (f"<mha.MultiHeadAttention: d_model {c['d_model']}, {c['n_heads']} heads, {c['kv_heads']} key/value "
                f"heads of {c['d_k']}, {self.totals.parameters:,} parameters{said}>")


MultiHeadAttention.__doc__ = inspect.cleandoc(f"{MultiHeadAttention.__doc__}").replace("FIELDS", "\n".join(
    str(field) for name, field in FIELDS.items() if name not in ("d_model", "n_heads", "dtype")))

_TORCH = {"d_model": "embed_dim", "n_heads": "num_heads"}


def _expect_cache(cache: object) -> None:
    if cache is not None and type(cache) is not Cache and not isinstance(cache, Cache):
        raise TypeError(f"cache: expected mha.Cache, found {type(cache).__name__}")


def _size(name: str, value: Optional[int], settings: dict[str, Any]) -> int:
    """A size of a layer, which may be among the settings under PyTorch's word."""
    theirs = settings.pop(_TORCH[name], None)
    if (value is None) == (theirs is None):
        found = f"{value}, and {theirs} as {_TORCH[name]}" if theirs is not None else "None"
        raise TypeError(f"{name}: expected one whole number, found {found}")
    return a.whole_number(name if theirs is None else _TORCH[name], value if theirs is None else theirs, 1)


def settings_of_facts(facts: abi.ModelFacts) -> dict[str, Any]:
    """What a config.json says about the calls of its attention layers."""
    found = settings_of(lib.mha_model_semantics(ctypes.byref(facts)), Sizes(1, facts.config.n_heads, 1, 1))
    if facts.shift:  # the windows of one image; np.tile makes those of several
        found["q_segments"] = window_segments(facts.image_height, facts.image_width, facts.semantics.added.bias.height,
                                              facts.shift)
    return found
