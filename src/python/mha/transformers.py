"""attn_implementation="mha" of transformers: whole models on the paths of this library.

    mha.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="mha-exact")
"""
from __future__ import annotations

import functools
import importlib
import operator
from typing import Any, Callable, Mapping, Optional

import numpy as np

from .core.functional import scaled_dot_product_attention
from .torch.visibility import Rules

__all__ = ["register"]
PATHS = {"mha": "auto", "mha-exact": "exact", "mha-fast": "fast"}


def register() -> None:
    """Makes "mha", "mha-exact" and "mha-fast" values of attn_implementation, for models of float32, float16, bfloat16.

    "mha-exact" computes in float64 and rounds once, "mha-fast" in float32; "mha" takes the fast path for float32, the
    exact one for other types. Masks are what eager attention gets; where they are rules (causal, window, chunk, packed
    sequences, padding) they stay rules, and no (T_q, S) mask is made. A query that sees no key gives zeros.
    Heads in groups, sinks, softcap, scale, a bias by position, caches and output_attentions are obeyed. Refused by name
    are dropout, tensors that are not on the CPU, sinks that differ by query, and a backward pass.

    ImportError where transformers, or its AttentionMaskInterface (4.53), is missing.
    """
    attention, masks = interfaces()
    for name, path in PATHS.items():
        attention.register(name, functools.partial(attend, path))
        masks.register(name, rule_mask)


def interfaces() -> tuple[Any, Any]:
    """transformers' AttentionInterface and AttentionMaskInterface."""
    try:
        utils = importlib.import_module("transformers.modeling_utils")
        masking = importlib.import_module("transformers.masking_utils")
        return utils.AttentionInterface, masking.AttentionMaskInterface
    except (ImportError, AttributeError) as reason:
        raise ImportError(f"transformers 4.53 or later, whose attention is an interface, is needed: {reason}") from None


# ---------------------------------------------------------------- masks


def _free(function: Any) -> Mapping[str, Any]:
    """The variables that a function closes over."""
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}


def _parts(function: Any) -> Optional[dict[str, Any]]:
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


def rules_of(function: Any, q_length: int, kv_length: int, q_offset: int, kv_offset: int,
             padding: Any) -> Optional[Rules]:
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
    q_segments: Any = None
    k_segments: Any = None
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
def _rule_mask_class() -> Any:
    """The class of masks that are rules, and become numbers when somebody computes with them."""
    torch = importlib.import_module("torch")
    tree_map = importlib.import_module("torch.utils._pytree").tree_map

    class RuleMask(torch.Tensor):  # type: ignore[misc,name-defined]
        """The mask that eager attention would get, not made yet. rules: what it hides."""

        rules: Rules
        make: Callable[[], Any]

        @staticmethod
        def __new__(cls: Any, rules: Rules, make: Callable[[], Any], shape: Any, dtype: Any) -> Any:
            """A tensor of this shape without memory."""
            mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device="cpu")
            mask.rules, mask.make = rules, functools.cache(make)
            return mask

        def __init__(self, *_: Any) -> None:
            """All is said in __new__."""

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Whoever computes with it gets the numbers."""
            args, kwargs = tree_map(lambda x: x.make() if isinstance(x, cls) else x, (args, kwargs or {}))
            return function(*args, **kwargs)

        def __repr__(self, **_: Any) -> str:
            return f"RuleMask({self.rules.words()}, shape={tuple(self.shape)})"

    return RuleMask


def rule_mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
              mask_function: Any = None, attention_mask: Any = None, dtype: Any = None,
              allow_is_bidirectional_skip: bool = False, **more: Any) -> Any:
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


def sinks_of(module: Any, s_aux: Any, heads: int) -> Any:
    """The sinks of a call: one for each head, which some modules keep to themselves; None: there are none."""
    sinks = s_aux if s_aux is not None else getattr(module, "sinks", None)
    if s_aux is not None and getattr(s_aux, "numel", lambda: 0)() != heads:
        raise ValueError(f"s_aux: expected one sink for each of {heads} heads, found "
                         f"{tuple(getattr(s_aux, 'shape', ())) or type(s_aux).__name__}")
    return sinks.detach().reshape(-1) if getattr(sinks, "numel", lambda: 0)() == heads else None


def _settings(module: Any, query: Any, mask: Any, said: dict[str, Any]) -> dict[str, Any]:
    """The words of transformers' attention functions as settings of a call."""
    found: dict[str, Any] = {"scale": said["scaling"], "softcap": said["softcap"] or 0.0,
                             "sinks": sinks_of(module, said["s_aux"], query.shape[1])}
    if hasattr(mask, "rules"):
        found.update(mask.rules.settings())
        mask = None
    added = [x.detach() for x in (said["position_bias"], mask) if x is not None]
    if added:
        found["attn_mask"] = functools.reduce(operator.add, (x[..., :said["keys"]] for x in added))
    return found


def _wants_weights(kwargs: Mapping[str, Any]) -> bool:
    """Whether somebody asked for the weights of attention: by keyword, or through the hooks of transformers."""
    if kwargs.get("output_attentions"):
        return True
    try:
        capturing = importlib.import_module("transformers.utils.output_capturing")
        return any("attentions" in key for key in capturing._active_collector.get() or ())
    except (ImportError, AttributeError):
        return False


def attend(path: str, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None,
           dropout: float = 0.0, softcap: Any = None, s_aux: Any = None, position_bias: Any = None,
           sinks: Any = None, **kwargs: Any) -> tuple[Any, Any]:
    """An attention function of transformers on one of our paths: output (B, T_q, heads, width), weights or None."""
    if dropout:
        raise ValueError(f"attn_implementation 'mha': dropout {dropout}: a reference drops nothing: model.eval()")
    if sinks is not None:
        raise ValueError("attn_implementation 'mha': sinks: those that differ by query have no setting here")
    if attention_mask is not None and getattr(attention_mask, "ndim", 0) != 4:
        raise ValueError("attn_implementation 'mha': attention_mask: expected rules or a mask of 4 axes, found "
                         f"{getattr(attention_mask, 'shape', type(attention_mask).__name__)}")
    if query.shape[0] == 1 != key.shape[0]:  # learned queries of a whole batch
        query = query.expand(key.shape[0], -1, -1, -1)
    said = _settings(module, query, attention_mask, {"scaling": scaling, "softcap": softcap, "s_aux": s_aux,
                                                     "position_bias": position_bias, "keys": key.shape[2]})
    stages = ("weights",) if _wants_weights(kwargs) else ()
    result = scaled_dot_product_attention(query, key, value, enable_gqa=True, path=path, return_stages=stages, **said)
    output, weights = (result[0], result[1]["weights"].to(query.dtype)) if stages else (result, None)
    torch = importlib.import_module("torch")
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        output = _forward_only().apply(output, query, key, value)
    return output.transpose(1, 2).contiguous(), weights


@functools.cache
def _forward_only() -> Any:
    """Marks a result as made of tensors that want gradients, which it does not give."""
    torch = importlib.import_module("torch")

    class ForwardOnly(torch.autograd.Function):  # type: ignore[misc,name-defined]
        """The first tensor as it is."""

        @staticmethod
        def forward(_: Any, output: Any, *__: Any) -> Any:
            """The output."""
            return output

        @staticmethod
        def backward(*_: Any) -> Any:
            """Refused."""
            raise RuntimeError("attn_implementation 'mha' has no backward pass: train with another one")

    return ForwardOnly
