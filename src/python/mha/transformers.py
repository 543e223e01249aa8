"""attn_implementation="mha" of transformers: whole models on the paths of this library.

    mha.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="mha-exact")
"""
from __future__ import annotations

import functools
import importlib
import operator
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Protocol, SupportsInt, cast

import numpy as np

from .core import arrays as a
from .core.functional import scaled_dot_product_attention
from .torch.visibility import Rules

if TYPE_CHECKING:
    from .core.typed import TorchSettings

__all__ = ["register"]
PATHS = {"mha": "auto", "mha-exact": "exact", "mha-fast": "fast"}


class Interface(Protocol):
    """transformers' AttentionInterface, or AttentionMaskInterface."""

    def register(self, key: str, value: Callable[..., object]) -> None:
        """Makes a function the one of this name."""


def register() -> None:
    """Register "mha", "mha-exact" and "mha-fast" as values of attn_implementation in transformers.

    "mha-exact" computes in float64 and rounds once, "mha-fast" in float32. "mha" uses the fast path for float32 and the
    exact one for float16 and bfloat16. Masks that are rules (causal, window, chunk, packed sequences, padding) stay
    rules: mha makes no (T_q, S) mask. A fully masked row is 0. GQA groups, sinks, softcap, scale, a bias by position,
    caches and output_attentions work. mha refuses dropout, tensors that are not on the CPU, sinks that differ by query,
    and a backward.

    Raises
    ------
    ImportError
        transformers is older than 4.53 or not installed.

    Examples
    --------
    >>> import torch, transformers
    >>> mha.transformers.register()
    >>> config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=1,
    ...                                   intermediate_size=16, vocab_size=50)
    >>> model = transformers.AutoModel.from_config(config, attn_implementation="mha").eval()
    >>> with torch.no_grad():
    ...     model(torch.arange(6)[None]).last_hidden_state.shape
    torch.Size([1, 6, 32])
    """
    attention, masks = interfaces()
    for name, path in PATHS.items():
        attention.register(name, functools.partial(attend, path))
        masks.register(name, rule_mask)


def interfaces() -> tuple[Interface, Interface]:
    """transformers' AttentionInterface and AttentionMaskInterface."""
    try:
        utils = importlib.import_module("transformers.modeling_utils")
        masking = importlib.import_module("transformers.masking_utils")
        return utils.AttentionInterface, masking.AttentionMaskInterface
    except (ImportError, AttributeError) as reason:
        raise ImportError(f"transformers: expected 4.53 or newer, with AttentionInterface, found {reason}") from None


# ---------------------------------------------------------------- masks


def _free(function: Callable[..., object]) -> Mapping[str, Any]:
    """The variables that a function closes over."""
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}


def _parts(function: Callable[..., object]) -> Optional[dict[str, Any]]:
    """What a mask function of transformers hides, part by part; None for a function that is not known."""
    if getattr(function, "__module__", "") != "transformers.masking_utils":
        return None
    name, free = function.__qualname__.partition(".")[0], _free(function)
    if name == "causal_mask_function":
        return {"causal": True}
    if name == "bidirectional_mask_function":
        return {}
    if name == "sliding_window_overlay":
        return {"left": int(free["sliding_window"]) - 1}
    if name == "sliding_window_bidirectional_overlay":
        return {"left": int(free["sliding_window"]), "right": int(free["sliding_window"])}
    if name == "chunked_overlay":
        return {"chunk": int(free["chunk_size"]), "begin": free["left_padding"]}
    if name == "packed_sequence_mask_function":
        return {"packed": free["packed_sequence_mask"]}
    if name == "remap_positions_for_packed_sequence":  # distances inside a sequence stay what they are, chunks do not
        inner = _parts(free["mask_function"])
        return None if inner is None or "chunk" in inner else {**inner, "remapped": True}
    if name == "and_masks":
        found: dict[str, Any] = {}
        for part in map(_parts, free["mask_functions"]):
            if part is None or set(part) & set(found) - {"causal"}:
                return None
            found.update(part)
        return found
    return None


def rules_of(function: Callable[..., object], q_length: int, kv_length: int, q_offset: int, kv_offset: int,
             padding: Optional[a.Torch]) -> Optional[Rules]:
    """A mask function of transformers as rules; None where it is none that can be one.

    padding: (B, n) booleans by position, False hides; what it lacks at the end is hidden; None: no padding.
    """
    parts = _parts(function)
    if parts is None or ("remapped" in parts and "packed" not in parts):
        return None
    keys = None
    if padding is not None:
        keys = np.zeros((len(padding), kv_length), bool)
        given = padding[:, kv_offset:kv_offset + kv_length].numpy().astype(bool)
        keys[:, :given.shape[1]] = given
        keys = None if keys.all() else keys
    q_segments: Optional[a.Wholes] = None
    k_segments: Optional[a.Wholes] = None
    chunk, begin = int(parts.get("chunk", 0)), np.zeros((1, 1), np.int64)
    if chunk:
        begin = parts["begin"].numpy()[:, None]
    if chunk and (kv_offset or begin.any()):  # positions that begin elsewhere are numbered chunk by chunk
        q_segments = (np.arange(q_length)[None] + q_offset - begin) // chunk
        k_segments = (np.arange(kv_length)[None] + kv_offset - begin) // chunk
        chunk = 0
    if "packed" in parts:
        if q_segments is not None or q_length != kv_length:
            return None
        q_segments = k_segments = parts["packed"].numpy().astype(np.int64)
    window = (parts.get("left", -1), parts.get("right", -1))
    return Rules(q_offset - kv_offset, parts.get("causal", False), window, chunk, q_segments, k_segments, keys)


@functools.cache
def _rule_mask_class() -> Callable[..., object]:
    """The class of masks that are rules, and become numbers when somebody computes with them."""
    torch = importlib.import_module("torch")
    tree_map = importlib.import_module("torch.utils._pytree").tree_map

    class RuleMask(torch.Tensor):  # type: ignore[misc,name-defined]
        """The mask that eager attention would get, not made yet. rules: what it hides."""

        rules: Rules
        make: Callable[[], object]

        @staticmethod
        def __new__(cls: type, rules: Rules, make: Callable[[], object], shape: tuple[int, ...], dtype: object) -> Any:
            """A tensor of this shape without memory."""
            mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device="cpu")
            mask.rules, mask.make = rules, functools.cache(make)
            return mask

        def __init__(self, *_: object) -> None:
            """All is said in __new__."""

        @classmethod
        def __torch_dispatch__(cls, function: Callable[..., object], types: object, args: tuple[object, ...] = (),
                               kwargs: Optional[Mapping[str, object]] = None) -> object:
            """Whoever computes with it gets the numbers."""
            given, named = tree_map(lambda x: x.make() if isinstance(x, cls) else x, (args, kwargs or {}))
            return function(*given, **named)

        def __repr__(self, **_: object) -> str:
            return f"RuleMask({self.rules.words()}, shape={tuple(self.shape)})"

    return RuleMask


def rule_mask(batch_size: int, q_length: int, kv_length: int, q_offset: SupportsInt = 0, kv_offset: SupportsInt = 0,
              mask_function: Optional[Callable[..., object]] = None, attention_mask: Optional[a.Torch] = None,
              dtype: object = None, allow_is_bidirectional_skip: bool = False, **more: object) -> object:
    """The mask of a model on our paths, with the arguments of transformers' mask functions: rules where it is made of
    rules, else the numbers that eager attention adds."""
    masking, torch = importlib.import_module("transformers.masking_utils"), importlib.import_module("torch")
    dtype = torch.float32 if dtype is None else dtype
    said = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset,
            "kv_offset": kv_offset, "attention_mask": attention_mask, "dtype": dtype, **more,
            "mask_function": masking.causal_mask_function if mask_function is None else mask_function}
    rules = rules_of(said["mask_function"], q_length, kv_length, int(q_offset), int(kv_offset), attention_mask)
    if rules is None:
        return masking.eager_mask(**said, allow_is_bidirectional_skip=allow_is_bidirectional_skip)
    if allow_is_bidirectional_skip and rules.hides_nothing:
        return None
    return _rule_mask_class()(rules, lambda: masking.eager_mask(**said), (batch_size, 1, q_length, kv_length), dtype)


# ---------------------------------------------------------------- attention


def sinks_of(module: object, s_aux: Optional[a.Torch], heads: int) -> Optional[a.Torch]:
    """The sinks of a call: one for each head, which some modules keep to themselves; None: there are none."""
    sinks = s_aux if s_aux is not None else getattr(module, "sinks", None)
    if s_aux is not None and getattr(s_aux, "numel", lambda: 0)() != heads:
        raise ValueError(f"s_aux: expected one sink for each of {heads} heads, found "
                         f"{tuple(getattr(s_aux, 'shape', ())) or type(s_aux).__name__}")
    fits = sinks is not None and getattr(sinks, "numel", lambda: 0)() == heads
    return cast(a.Torch, sinks).detach().reshape(-1) if fits else None


def _settings(module: object, query: a.Torch, mask: Optional[a.Torch], said: Mapping[str, Any]) -> dict[str, object]:
    """The words of transformers' attention functions as settings of a call."""
    found: dict[str, object] = {"scale": said["scaling"], "softcap": said["softcap"] or 0.0,
                             "sinks": sinks_of(module, said["s_aux"], query.shape[1])}
    rules = getattr(mask, "rules", None)
    if rules is not None:
        found.update(rules.settings())
        mask = None
    added = [x.detach() for x in (said["position_bias"], mask) if x is not None]
    if added:
        found["attn_mask"] = functools.reduce(operator.add, (x[..., :said["keys"]] for x in added))
    return found


def _wants_weights(kwargs: Mapping[str, object]) -> bool:
    """Whether somebody asked for the weights of attention: by keyword, or through the hooks of transformers."""
    if kwargs.get("output_attentions"):
        return True
    try:
        capturing = importlib.import_module("transformers.utils.output_capturing")
        return any("attentions" in key for key in capturing._active_collector.get() or ())
    except (ImportError, AttributeError):
        return False


def attend(path: str, module: object, query: a.Torch, key: a.Torch, value: a.Torch, attention_mask: Optional[a.Torch],
           scaling: Optional[float] = None, dropout: float = 0.0, softcap: Optional[float] = None,
           s_aux: Optional[a.Torch] = None, position_bias: Optional[a.Torch] = None, sinks: object = None,
           **kwargs: object) -> tuple[a.Torch, Optional[a.Torch]]:
    """An attention function of transformers on one of our paths: output (B, T_q, heads, width), weights or None."""
    if dropout:
        raise ValueError(f"attn_implementation 'mha': dropout: expected 0, found {dropout}; call model.eval()")
    if sinks is not None:
        raise ValueError("attn_implementation 'mha': sinks: expected one for each head, found some by query")
    if attention_mask is not None and getattr(attention_mask, "ndim", 0) != 4:
        raise ValueError("attn_implementation 'mha': attention_mask: expected rules or a mask of 4 axes, found "
                         f"{getattr(attention_mask, 'shape', type(attention_mask).__name__)}")
    if query.shape[0] == 1 != key.shape[0]:  # learned queries of a whole batch
        query = query.expand(key.shape[0], -1, -1, -1)
    said = _settings(module, query, attention_mask, {"scaling": scaling, "softcap": softcap, "s_aux": s_aux,
                                                     "position_bias": position_bias, "keys": key.shape[2]})
    stages = ("weights",) if _wants_weights(kwargs) else ()
    result = scaled_dot_product_attention(query, key, value, enable_gqa=True, path=path, return_stages=stages,
                                          **cast("TorchSettings", said))
    output, weights = (result[0], result[1]["weights"].to(query.dtype)) if isinstance(result, tuple) else (result, None)
    torch = importlib.import_module("torch")
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        output = cast(a.Torch, _forward_only().apply(output, query, key, value))
    return output.transpose(1, 2).contiguous(), weights


@functools.cache
def _forward_only() -> Any:
    """Marks a result as made of tensors that want gradients, which it does not give."""
    torch = importlib.import_module("torch")

    class ForwardOnly(torch.autograd.Function):  # type: ignore[misc,name-defined]
        """The first tensor as it is."""

        @staticmethod
        def forward(_: object, output: a.Torch, *__: object) -> a.Torch:
            """The output."""
            return output

        @staticmethod
        def backward(*_: object) -> object:
            """Refused."""
            raise RuntimeError("attn_implementation: expected one with a backward pass, found 'mha'")

    return ForwardOnly
