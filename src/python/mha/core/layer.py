"""A multi-head attention layer: its sizes, its weights, and calls of it."""
from __future__ import annotations

import ctypes
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

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
    """softmax(Q K^T / sqrt(d_k)) V of every head, side by side, times W_O (Vaswani et al. 2017, section 3.2).

    layer(query, key, value) computes it. Q = query W_Q + b_Q, K = key W_K + b_K, V = value W_V + b_V; matrices multiply
    from the right, (in, out), so that the weight of torch.nn.Linear is their transpose.

    d_model, n_heads: width of the model; number of heads. PyTorch's words for them, embed_dim and num_heads, will do.
    bias: bias_q, bias_k, bias_v and bias_o where they are not given; of a layer with kv_rank, bias_latent and bias_o.
    dtype: of the weights; for the matrices also "q8_0", "q4_0", "q4_k", ..., in blocks.
    seed: of random weights; None: zeros.
    settings: what every call of the layer takes unless it says otherwise, see mha.SETTINGS; and what the layer has:

    """

    def __init__(self, d_model: Optional[int] = None, n_heads: Optional[int] = None, *, bias: bool = True,
                 dtype: Any = "float32", seed: Optional[int] = 0, **settings: Unpack[LayerFields]) -> None:
        said: dict[str, Any] = {**settings}
        fields = {"d_model": _size("d_model", d_model, said), "n_heads": _size("n_heads", n_heads, said),
                  "dtype": dtype, **{name: value for name in FIELDS if (value := said.pop(name, None)) is not None}}
        expect_settings(said)
        config = abi.Config()
        for name, value in fields.items():
            FIELDS[name].put(value, config)
        for name in ("bias_latent", "bias_o") if config.kv_rank else ("bias_q", "bias_k", "bias_v", "bias_o"):
            FIELDS[name].put(fields.get(name, a.flag("bias", bias)), config)
        with typed({"heads": "n_heads"}):
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
        self.config = {name: field.value(config) for name, field in FIELDS.items()}

    # ---------------------------------------------------------------- from elsewhere

    @classmethod
    def from_torch(cls, module: Any, **settings: Unpack[LayerSettings]) -> MultiHeadAttention:
        """A copy of a torch.nn.MultiheadAttention: its weights, its layout (batch_first), add_zero_attn."""
        weights = dict(module.state_dict()) if hasattr(module, "state_dict") else {}
        unknown = set(weights) - {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias",
                                  "out_proj.weight", "out_proj.bias", "bias_k", "bias_v"}
        if unknown or "out_proj.weight" not in weights:
            raise TypeError(f"module: expected a torch.nn.MultiheadAttention, found {type(module).__name__}")
        biased, rows = "in_proj_bias" in weights, "bias_k" in weights
        dtype = a.floats("out_proj.weight", weights["out_proj.weight"]).dtype
        self = cls(module.embed_dim, module.num_heads, d_kin=module.kdim, d_vin=module.vdim, bias=biased, bias_kv=rows,
                   dtype=a.NAMES[dtype], seed=None, **settings)
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
    def from_file(cls, path: Any, layer: Optional[str] = None, *, n_heads: int = 0, kv_heads: int = 0, d_k: int = 0,
                  config: Any = None, length: int = 0, orientation: str = "auto", dtype: Any = None,
                  **settings: Unpack[LayerSettings]) -> MultiHeadAttention:
        """One attention layer of a checkpoint (safetensors, its index, GGUF, npz), under public names of many models.

        layer: prefix of its tensors' names; None when the file has only one.
        config: path of a config.json, which says the heads, and from which causal, rotation, scale, window and softcap
            become the layer's settings. Without it the metadata of a GGUF say all that; for other files the config.json
            beside them does, unless n_heads or d_k is given. A model type or an architecture that is not described is
            refused, unless settings are given.
        length: positions in use, on which frequencies of dynamic scaling and of longrope depend.
        orientation: "in_out" or "out_in" of the matrices in the file; "auto": that of the naming scheme.
        dtype: of the weights; float32 when None. "q8_0", "q4_k", "f8_e4m3_scaled", ...: blocks stay as the
            file has them.
        """
        file, table, said = open_file(path), new_table(), {**settings}
        options, report = abi.LoadOptions(), abi.LoadReport()
        options.layer = None if layer is None else a.text("layer", layer)
        options.n_heads, options.kv_heads, options.d_k = (
            a.whole_number(n, v, 0) for n, v in (("n_heads", n_heads), ("kv_heads", kv_heads), ("d_k", d_k)))
        options.orientation = a.choice("orientation", orientation, abi.ORIENTATIONS)
        if dtype is not None:
            options.has_dtype, options.dtype = True, a.weight_type("dtype", dtype)
        length = a.whole_number("length", length, 0)
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
                raise ValueError(f"{path}: expected a model that is described, found '{facts.model_type.decode()}': "
                                 "mask, rotation and scale are not known; config= says them, or settings do (causal=, "
                                 "rope=, ...)")
            said = merged(settings_of_facts(facts), said)
        handle = create("layer", lib.mha_layer_destroy, lib.mha_model_load_layer, file.address, ctypes.byref(options),
                        table.address, needs=(table,), after=(ctypes.byref(report),))
        self = cls.__new__(cls)
        self._begin(handle, said, "BTE")
        return self

    # ---------------------------------------------------------------- weights

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Nobody calls the layer while its weights change."""
        with self._lock:
            self._written = True
            try:
                if self._calls:
                    raise RuntimeError("the weights of a layer cannot change during a call of it")
                yield self.handle.address
            finally:
                self._written = False

    def init(self, seed: int) -> None:
        """Random weights, the same on every machine."""
        seed = a.whole_number("seed", seed, 0)
        with self._writing() as layer:
            lib.mha_layer_init(layer, seed)
            self._random, self._seed = self._names(), seed

    def set(self, name: str, values: a.Array) -> None:
        """Copies values into a weight: layer.set("W_Q", array), (in, out)."""
        weight, tensor = a.choice("name", name, abi.WEIGHTS), a.floats("values", values)
        with self._writing() as layer:
            call(lib.mha_layer_set, layer, weight, ctypes.byref(a.view_of(tensor)))
            self._random = [other for other in self._random if other != name]

    def _names(self) -> list[str]:
        """The names of the weights that the layer has."""
        return [name for i, name in enumerate(abi.WEIGHTS) if lib.mha_layer_weight(self.handle.address, i)]

    @property
    def weights(self) -> dict[str, Any]:
        """The weights by name: "W_Q", "b_Q", ...; read-only views of the layer's memory (bfloat16, q8_0 and q4_0:
        float32 copies). Those of a packed layer are unpacked for that, and then stay next to the packed ones."""
        found = {}
        for index, name in enumerate(abi.WEIGHTS):
            row = lib.mha_layer_weight(self.handle.address, index)
            if row:
                found[name] = a.of_memory(lib.mha_tensor_view(row), self.handle)
                found[name].flags.writeable = False
        return found

    def head(self, name: str, head: int) -> Any:
        """The part of a weight that belongs to one head: columns of W_Q, rows of W_O, ...; read-only."""
        view = lib.mha_layer_head(self.handle.address, a.choice("name", name, abi.WEIGHTS),
                                  a.whole_number("head", head, 0))
        if not view.data:
            raise ValueError(f"{name}: the layer has no such weight of head {head}")
        array = a.of_memory(view, self.handle)
        array.flags.writeable = False
        return array

    def pack(self) -> None:
        """Puts the matrices into the order of the fast path's kernels. Each is then there once, unless somebody has
        asked for `weights` or `head`, or it is float64 or quantised."""
        with self._writing() as layer:
            call(lib.mha_layer_pack, layer)

    def parameters(self) -> Parameters:
        """The parameter table: a list of rows that prints, turns into dicts and shows itself in a notebook."""
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

    def cache(self, batch: int, capacity: int, *, window: int = 0, dtype: Any = "float32",
              absorbed: bool = False) -> Cache:
        """An empty key/value cache for calls of this layer; absorbed: of latents, for calls that are."""
        c = self.config
        if a.flag("absorbed", absorbed):
            return Cache(batch, 1, c["kv_rank"] + c["d_rope"], capacity, d_v=0, window=window, dtype=dtype)
        return Cache(batch, c["kv_heads"], c["d_k"], capacity, d_v=c["d_v"], window=window, dtype=dtype)

    def request(self, query: a.Array, key: Optional[a.Array], value: Optional[a.Array], settings: dict[str, Any], *,
                layout: Optional[str] = None, cache: Optional[Cache] = None, path: str = "auto",
                threads: int = 0, precision: Any = None, past: int = 0,
                absorbed: bool = False) -> tuple[Rows, Request]:
        """A call of the layer that is not run yet. past: rows of a cache that is given to it later."""
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

    def __call__(self, query: a.Array, key: Optional[a.Array] = None, value: Optional[a.Array] = None, *,
                 layout: Optional[str] = None, return_stages: Sequence[str] = (), cache: Optional[Cache] = None,
                 path: str = "auto", threads: int = 0, precision: Any = None, out_dtype: Any = None,
                 absorbed: bool = False, **settings: Unpack[CallSettings]) -> Any:
        """The layer's output, of query's kind; with `return_stages` also mha.Trace with the named stages.

        query: (B, T_q, d_q), key: (B, T_k, d_kin), value: (B, T_k, d_vin); key is query and value is key when None.
        layout: "BTE", "TBE" or "TE", which has no batch; the layer's own when None.
        cache: keys and values of earlier calls, to which those of this call are appended.
        absorbed: a layer with kv_rank attends to its latents: the same output, and a cache that is many times smaller.
        path, threads, precision, out_dtype: as in scaled_dot_product_attention; the precision "bfloat16" asks for
            weights and a cache of bfloat16 unless path="exact". settings: see mha.SETTINGS.
        """
        def general() -> tuple[Request, Any]:
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

    def backward(self, do: a.Array, query: a.Array, key: Optional[a.Array] = None, value: Optional[a.Array] = None, *,
                 dlse: Optional[a.Array] = None, also: Sequence[str] = (), return_stages: Sequence[str] = (),
                 layout: Optional[str] = None, cache: Optional[Cache] = None, out_dtype: Any = None,
                 **settings: Unpack[CallSettings]) -> Any:
        """The gradients of a call by name, computed in float64 by the exact path: a dict of those of the inputs that
        are given ("query", "key", "value"), and of every weight ("W_Q", "b_Q", ...) in its shape.

            y = layer(x, is_causal=True)
            d = layer.backward(dy, x, is_causal=True)    # d["query"], d["W_Q"], d["b_O"], ...

        do: the gradient of the output, in its axes. dlse: that of the lse, (B, h, T_q); None: 0.
        query, key, value, layout, settings: as in a call. An input that is left out adds its gradient to the one that
            it is.
        cache: keys and values of earlier calls, as they were before this one; it stays as it is.
        also: names of further gradients: "mask", "key_padding" (additive ones, in their own shapes), "alibi_slopes",
            and of the rows in the cache "past_key" and "past_value", (B, kv_heads, rows, width).
        return_stages: names of stages of the backward, as in mha.attention_backward; they follow as an mha.Trace.
        out_dtype: of the gradients, to which they are rounded once; None: that of query.

        The gradients of the weights are in the parameter table with them, in float64, until the next backward: see
        parameters() and gradients. What has no gradient here is refused: see mha/backward.h.
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

        def given(name: str) -> Any:
            array = np.ascontiguousarray(rows.input_back(found[name]) if name in INPUTS else found[name])
            return kind.wrap(a.narrowed(array, abi.F64, back), back)

        gradients = {name: given(name) for name in found}
        return (gradients, trace) if stages else gradients

    @property
    def gradients(self) -> dict[str, Any]:
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


MultiHeadAttention.__doc__ = f"{MultiHeadAttention.__doc__}" + "\n    ".join(map(str, FIELDS.values()))

_TORCH = {"d_model": "embed_dim", "n_heads": "num_heads"}


def _expect_cache(cache: Any) -> None:
    if cache is not None and type(cache) is not Cache and not isinstance(cache, Cache):
        raise TypeError(f"cache: expected mha.Cache, found {type(cache).__name__}")


def _size(name: str, value: Optional[int], settings: dict[str, Any]) -> int:
    """A size of a layer, which may be among the settings under PyTorch's word."""
    theirs = settings.pop(_TORCH[name], None)
    if (value is None) == (theirs is None):
        raise TypeError(f"{name}: {'needed' if value is None else f'given, and as {_TORCH[name]}, too'}")
    return a.whole_number(name if theirs is None else _TORCH[name], value if theirs is None else theirs, 1)


def settings_of_facts(facts: abi.ModelFacts) -> dict[str, Any]:
    """What a config.json says about the calls of its attention layers."""
    found = settings_of(lib.mha_model_semantics(ctypes.byref(facts)), Sizes(1, facts.config.n_heads, 1, 1))
    if facts.shift:  # the windows of one image; np.tile makes those of several
        found["q_segments"] = window_segments(facts.image_height, facts.image_width, facts.semantics.added.bias.height,
                                              facts.shift)
    return found
