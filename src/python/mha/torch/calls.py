"""An attention call as a model asked for it: its inputs, what it hides and adds, and the words of whoever was asked."""
from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Protocol, TypedDict, Union

import numpy as np

from ..core import arrays as a
from ..core.layer import MultiHeadAttention
from ..transformers import PATHS, sinks_of
from .visibility import OPEN, Rules, read

FLASH = "flash_attention"


# What a module is that one names: its arguments for of_sdpa, a function that makes them of its own, or nothing.
Said = Union[Mapping[str, Any], Callable[..., Mapping[str, Any]], None]


class BlockMask(Protocol):
    """A mask of FlexAttention."""

    mask_mod: Callable[..., a.Torch]
    shape: tuple[int, ...]


class _Parts(TypedDict, total=False):
    """What a mask hides and adds, by the fields of Asked."""

    rules: Rules
    keeps: Optional[a.Torch]
    added: Optional[a.Torch]


class NotChecked(Exception):
    """Why a call cannot be checked."""


@dataclass
class Asked:
    """query (B, h, T_q, d), key and value (B, h_kv, S, d), or with `layer` rows (B, T, width), as tensors of PyTorch.

    keeps: booleans that broadcast to (B, h, T_q, S), True takes part; None: what `rules` say. added: numbers that are
    added to the scores. rounds: the points at which whoever computes this rounds, beyond those of a fused kernel.
    same: of query, key and value the first that is the same tensor, by number.
    """

    query: a.Torch
    key: a.Torch
    value: a.Torch
    rules: Optional[Rules] = None
    keeps: Optional[a.Torch] = None
    added: Optional[a.Torch] = None
    scale: Optional[float] = None
    softcap: float = 0.0
    sinks: Optional[a.Doubles] = None
    layer: Optional[MultiHeadAttention] = None
    rounds: tuple[str, ...] = ()
    same: tuple[int, ...] = (0, 1, 2)

    @property
    def T_q(self) -> int:
        """Queries."""
        return int(self.query.shape[-2])

    @property
    def S(self) -> int:
        """Keys."""
        return int(self.key.shape[-2])

    @property
    def B(self) -> int:
        """Batch rows."""
        return int(self.query.shape[0])

    @property
    def heads(self) -> tuple[int, int]:
        """Query heads, and key/value heads."""
        if self.layer is not None:
            return int(self.layer.config["n_heads"]), int(self.layer.config["kv_heads"])
        return int(self.query.shape[1]), int(self.key.shape[1])

    @functools.cached_property
    def hides(self) -> Optional[Rules]:
        """What the call hides, as rules; None for a mask that follows none."""
        if self.rules is not None or self.keeps is None:
            return self.rules or Rules()
        keeps = self.keeps.numpy()
        if keeps.shape[1] != 1:
            return None
        return read(np.broadcast_to(keeps[:, 0], (keeps.shape[0], self.T_q, self.S)), np.arange(self.T_q), self.T_q)

    def visible(self, rows: a.Wholes) -> a.Flags:
        """(B or 1, h or 1, len(rows), S) booleans: which keys these queries see."""
        if self.keeps is None:
            return (self.rules or Rules()).keeps(rows, self.S)[:, None]
        return self.keeps.expand(-1, -1, self.T_q, self.S)[:, :, rows].numpy()

    def inputs(self, rows: Optional[a.Wholes] = None) -> tuple[a.Torch, a.Torch, a.Torch]:
        """Query, key and value; of the queries these rows."""
        return (self.query if rows is None else self.query[..., rows, :]), self.key, self.value

    def settings(self, rows: Optional[a.Wholes] = None) -> dict[str, Any]:
        """The call in the words of mha.diagnose, of all queries or of some rows."""
        said: dict[str, Any] = {"scale": self.scale, "softcap": self.softcap or None, "sinks": self.sinks}
        if self.layer is None:
            said["enable_gqa"] = True
        mask, kind = ("mask", "mask_kind") if self.layer is not None else ("attn_mask", "")
        if rows is None and self.hides is not None and self.added is None:
            said.update(self.hides.settings())
        else:
            seen = self.visible(np.arange(self.T_q) if rows is None else rows)
            if self.added is not None:
                added = self.added.expand(-1, -1, self.T_q, self.S)
                numbers = (added if rows is None else added[:, :, rows]).double().numpy()
                said[mask], kind = np.where(seen, numbers, -np.inf), ""
            elif not seen.all():
                said[mask] = seen
            if kind and mask in said:
                said[kind] = "keeps"
        return {name: value for name, value in said.items() if value is not None}

    def words(self) -> str:
        """What the call was, in words."""
        said = ["a mask" if self.hides is None else self.hides.words()]
        if self.added is not None:
            said.append("a bias")
        if self.scale is not None:
            said.append(f"scale {self.scale:.4g}")
        if self.softcap:
            said.append(f"softcap {self.softcap:.4g}")
        return ", ".join(said + (["sinks"] if self.sinks is not None else []))


# ---------------------------------------------------------------- masks of others


def _of_mask(mask: a.Torch, S: int) -> _Parts:
    """A mask of 4 axes as the keys it keeps and the numbers it adds: True keeps; numbers that mean minus infinity
    hide."""
    torch = importlib.import_module("torch")
    mask = mask.detach()[..., :S]
    if mask.dtype == torch.bool:
        return {"keeps": mask}
    if not mask.is_floating_point():
        raise NotChecked(f"a mask of {mask.dtype}")
    keeps = mask > torch.finfo(mask.dtype).min / 2
    added = torch.where(keeps, mask, torch.zeros_like(mask))
    return {"keeps": None if bool(keeps.all()) else keeps, "added": added if bool(added.any()) else None}


def _of_block_mask(mask: BlockMask, query: a.Torch, key: a.Torch) -> _Parts:
    """A mask of FlexAttention, number by number."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    B, h = mask.shape[0], mask.shape[1]
    return {"keeps": flex.create_mask(mask.mask_mod, B, h, query.shape[2], key.shape[2], device="cpu")}


def _added(found: _Parts, bias: Optional[a.Torch]) -> _Parts:
    """What else is added."""
    if bias is not None:
        own = found.get("added")
        found["added"] = bias.detach() if own is None else own + bias.detach()
    return found


# ---------------------------------------------------------------- transformers' interface


def of_interface(name: str, module: object, query: a.Torch, key: a.Torch, value: a.Torch, attention_mask: Any,
                 kwargs: Mapping[str, Any]) -> Asked:
    """What an attention function of transformers is asked for, which is called by this name in the model's config.

    Without a mask "eager" and our own hide nothing; others go by is_causal, as "sdpa" does, aligned top-left.
    """
    if kwargs.get("dropout"):
        raise NotChecked(f"dropout {kwargs['dropout']}: model.eval() turns it off")
    if kwargs.get("sinks") is not None:
        raise NotChecked("sinks that differ by query")
    if query.shape[0] == 1 != key.shape[0]:
        query = query.expand(key.shape[0], -1, -1, -1)
    found: _Parts = {}
    flash, T_q, S = FLASH in name, query.shape[2], key.shape[2]
    if hasattr(attention_mask, "rules"):
        found["rules"] = attention_mask.rules
    elif hasattr(attention_mask, "mask_mod"):
        found = _of_block_mask(attention_mask, query, key)
    elif attention_mask is not None and attention_mask.ndim == 4:
        found = _of_mask(attention_mask, S)
    elif attention_mask is not None and not (flash and attention_mask.ndim == 2):
        raise NotChecked(f"a mask of shape {tuple(attention_mask.shape)}")
    elif name != "eager" and name not in PATHS:
        causal = kwargs.get("is_causal")
        causal = T_q > 1 and bool(getattr(module, "is_causal", True) if causal is None else causal)
        left = (kwargs.get("sliding_window") or 0) - 1 if flash else -1
        keys = None if attention_mask is None else attention_mask[:, -S:].bool().numpy()
        found["rules"] = Rules(S - T_q if flash else 0, causal, (left, -1), keys=keys)
    scale = kwargs.get("scaling")
    if scale is None:
        scale = getattr(module, "head_dim", query.shape[-1]) ** -0.5
    return Asked(query, key, value, scale=float(scale), softcap=float(kwargs.get("softcap") or 0.0),
                 sinks=_numbers(sinks_of(module, kwargs.get("s_aux"), query.shape[1])),
                 rounds=("scores", "probabilities") if name == "eager" else (),
                 **_added(found, kwargs.get("position_bias")))


def _numbers(sinks: Optional[a.Torch]) -> Optional[a.Doubles]:
    return None if sinks is None else sinks.double().numpy()


# ---------------------------------------------------------------- PyTorch


def of_sdpa(query: a.Torch, key: a.Torch, value: a.Torch, attn_mask: Optional[a.Torch] = None, dropout_p: float = 0.0,
            is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False) -> Asked:
    """What torch.nn.functional.scaled_dot_product_attention is asked for."""
    if dropout_p:
        raise NotChecked(f"dropout {dropout_p}: model.eval() turns it off")
    if query.ndim < 2 or query.ndim > 4:
        raise NotChecked(f"a query of {query.ndim} axes")
    lead = 4 - query.ndim
    query, key, value = (x[(None,) * lead] for x in (query, key, value))
    found: _Parts = {"rules": Rules(causal=True)} if is_causal else {}
    if attn_mask is not None:
        found.update(_of_mask(attn_mask[(None,) * (4 - attn_mask.ndim)], key.shape[2]))
        if is_causal:
            raise NotChecked("is_causal with a mask")
    return Asked(query, key, value, scale=None if scale is None else float(scale), **found)


def of_named(args: tuple[object, ...], kwargs: Mapping[str, Any], said: Said) -> Asked:
    """What a module is asked for that one names: the arguments of of_sdpa, by a function of its own arguments, or its
    own arguments and further ones by name."""
    if callable(said):
        args, kwargs = (), said(*args, **kwargs)
        if not isinstance(kwargs, Mapping):
            raise TypeError("modules: expected the function of a module to return a dict of arguments of "
                            f"scaled_dot_product_attention, found {type(kwargs).__name__}")
    else:
        kwargs = {**kwargs, **(said or {})}
    try:
        given = inspect.signature(of_sdpa).bind(*args, **kwargs).arguments
    except TypeError as reason:
        raise NotChecked(f"{reason}: not the arguments of scaled_dot_product_attention; a function in modules={{...}} "
                        "makes these of the module's") from None
    return of_sdpa(**{name: x.detach() if hasattr(x, "detach") else x for name, x in given.items()})


def of_flex(query: a.Torch, key: a.Torch, value: a.Torch, score_mod: object = None,
            block_mask: Optional[BlockMask] = None, scale: Optional[float] = None, **_: object) -> Asked:
    """What FlexAttention is asked for."""
    if score_mod is not None:
        raise NotChecked("score_mod: scores from a function of the caller")
    found = {} if block_mask is None else _of_block_mask(block_mask, query, key)
    return Asked(query, key, value, scale=None if scale is None else float(scale), **found)


def of_flash(q: a.Torch, k: a.Torch, v: a.Torch, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
             causal: bool = False, window_size: tuple[int, int] = OPEN, softcap: float = 0.0,
             alibi_slopes: object = None, **_: object) -> Asked:
    """What flash_attn's flash_attn_func is asked for: (B, T, h, d), aligned bottom-right."""
    if dropout_p:
        raise NotChecked(f"dropout {dropout_p}: model.eval() turns it off")
    if alibi_slopes is not None:
        raise NotChecked("alibi_slopes of flash_attn")
    query, key, value = (x.detach().transpose(1, 2) for x in (q, k, v))
    rules = Rules(key.shape[2] - query.shape[2], bool(causal), (int(window_size[0]), int(window_size[1])))
    return Asked(query, key, value, rules, scale=None if softmax_scale is None else float(softmax_scale),
                 softcap=float(softcap))


def of_module(module: a.Attention, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> Asked:
    """What a torch.nn.MultiheadAttention is asked for: the whole layer, with its projections."""
    if module.training and module.dropout:
        raise NotChecked(f"dropout {module.dropout}: model.eval() turns it off")
    said = _signature().bind(module, *args, **kwargs)
    said.apply_defaults()
    given = said.arguments
    inputs = [given[name] for name in ("query", "key", "value")]
    same = tuple(next(i for i, y in enumerate(inputs) if x is y) for x in inputs)
    rows = [x.detach() for x in inputs]
    if rows[0].ndim == 2:
        rows = [x[None] for x in rows]
    elif not module.batch_first:
        rows = [x.transpose(0, 1) for x in rows]
    layer = MultiHeadAttention.from_torch(module)
    layer.layout = "BTE"
    found = Asked(rows[0], rows[1], rows[2], layer=layer, same=same)
    mask, padding, S = given["attn_mask"], given["key_padding_mask"], rows[1].shape[1]
    if mask is not None:
        mask = mask.reshape(-1, module.num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask[None, None]
        parts = _of_mask(~mask if mask.dtype == _bool() else mask, S)
        found.keeps, found.added = parts.get("keeps"), parts.get("added")
    if padding is not None:
        padding = padding.reshape(-1, S)[:, None, None]
        parts = _of_mask(~padding if padding.dtype == _bool() else padding, S)
        own = parts.get("keeps")
        found.keeps = own if found.keeps is None or own is None else found.keeps & own
        if parts.get("added") is not None:
            found.added = parts["added"] if found.added is None else found.added + parts["added"]
    return found


def _bool() -> object:
    return importlib.import_module("torch").bool


@functools.cache
def _signature() -> inspect.Signature:
    """Of the forward of nn.MultiheadAttention, also if a wrapper replaces it."""
    forward = importlib.import_module("torch").nn.MultiheadAttention.forward
    return inspect.signature(inspect.unwrap(forward))
