"""What a running model and its attention layers are given: masks, positions and caches, by the names of arguments."""
from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, cast

import numpy as np

from ..core import arrays as a
from ..core.devices import host
from .calls import Asked, NotChecked
from .listening import others_of

Keywords = Mapping[str, Any]
Entered = tuple[a.Torch, Keywords]  # what entered a layer, and its keywords
CACHE, BEGIN = "(cache)", "(begin)"  # of what a layer was given: its cache, and the position of the first query


class ModelInputs:
    """Between open and close it notes the arguments of the outermost model that runs, and what enters each layer.

    The outermost model is the one that is watched, or one of its parts with a mask of its own that somebody calls by
    itself, as `generate` calls an encoder.
    """

    def __init__(self, modules: Mapping[str, a.Module], ended: Callable[[], None]) -> None:
        """ended: is called when the outermost model has run."""
        self._modules, self._ended = modules, ended
        self._hooks: list[a.Hook] = []
        self._running: list[object] = []
        self._arguments: dict[str, Any] = {}
        self.entered: dict[str, Entered] = {}
        self.runs = 0

    def open(self, is_layer: Callable[[str], bool]) -> None:
        """Begins to note. is_layer: whether a module of this name is an attention layer of the configuration."""
        whole = importlib.import_module("torch").nn.MultiheadAttention  # whose fast path hooks would end
        for name, module in self._modules.items():
            parameters = _parameters_of(module)
            if not name or "attention_mask" in parameters and {"input_ids", "inputs_embeds"} & set(parameters):
                self._hooks += [
                    module.register_forward_pre_hook(functools.partial(self._begins, parameters), with_kwargs=True),
                    module.register_forward_hook(self._ends, always_call=True)]
            looks = "attention" in type(module).__name__.lower() and not isinstance(module, whole)
            if name and (looks or is_layer(name)):
                hook = functools.partial(self._enters, name)
                self._hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def close(self) -> None:
        """Ends it."""
        while self._hooks:
            self._hooks.pop().remove()
        self.entered.clear()
        self._arguments = {}
        self._running.clear()

    def _begins(self, parameters: Sequence[str], module: object, args: Sequence[object],
                kwargs: Keywords) -> None:
        if not self._running:
            self.runs += 1
            self._arguments = host({**dict.fromkeys(parameters), **dict(zip(parameters, args)), **kwargs})
        self._running.append(module)

    def _ends(self, module: object, *_: object) -> None:
        if self._running and self._running[-1] is module:
            self._running.pop()
            if not self._running:
                self._ended()

    def _enters(self, name: str, _: object, args: Sequence[object], kwargs: Keywords) -> None:
        x: Any = kwargs.get("hidden_states", args[0] if args else None)
        if getattr(x, "ndim", 0) == 3:
            cache = next((x for x in kwargs.values() if hasattr(x, "get_seq_length")), None)
            index = getattr(self._modules[name], "layer_idx", None)
            self.entered[name] = (x, {**kwargs, CACHE: cache, BEGIN: 0 if cache is None or index is None else
                                      int(cache.get_seq_length(index))})

    # ---------------------------------------------------------------- masks

    def mask(self) -> Any:
        """The attention_mask of the outermost model, of any shape."""
        return self._arguments.get("attention_mask")

    def padding(self, asked: Asked, causal: bool, crosses: bool) -> Optional[a.Flags]:
        """(B, S) booleans, False for keys that the model's own mask hides; None where it says nothing. crosses: whether
        keys are those of an encoder."""
        two = "decoder_input_ids" in self._arguments  # an encoder and a decoder, of which attention_mask is the first's
        name = ("encoder_attention_mask" if crosses and not two else
                "decoder_attention_mask" if causal and two and not crosses else "attention_mask")
        mask: Any = self._arguments.get(name)
        S = asked.S
        if (getattr(mask, "ndim", 0) != 2 or mask.is_floating_point() or mask.shape[0] != asked.B
                or mask.shape[1] != S and not causal):
            return None
        padding: a.Flags = np.pad(mask.bool().numpy(), ((0, 0), (0, max(S - mask.shape[1], 0))))[:, -S:]
        return padding

    def left(self, seen: a.Flags, B: int) -> Optional[a.Wholes]:
        """(B, 1): number of padding keys at the begin of each batch row; chunks begin after them. None: a later call
        does not have it."""
        mask = self.mask()
        if mask is None:
            return np.zeros((B, 1), np.int64)
        if getattr(mask, "ndim", 0) == 2 and mask.shape[0] == B:
            padding: a.Wholes = mask.bool().cumsum(1).eq(0).sum(1, keepdim=True).numpy()
            return padding
        return np.broadcast_to(seen.any(1).argmax(1)[:, None], (B, 1)) if seen.shape[1] > 1 else None

    # ---------------------------------------------------------------- positions

    def said_positions(self, kwargs: Keywords) -> Optional[a.Torch]:
        """The positions that a layer, or else the model, was given."""
        own = host(kwargs.get("position_ids"))
        return cast(Optional[a.Torch], self._arguments.get("position_ids") if own is None else own)

    def positions(self, kwargs: Keywords, begin: int, n: int, B: int) -> a.Wholes:
        """(B, n) positions of the first tokens."""
        given = self.said_positions(kwargs)
        if given is None:
            return np.tile(np.arange(begin, begin + n), (B, 1))
        if given.ndim == 3:
            if not bool(given.eq(given[:1]).all()):
                raise ValueError("positions on several axes")
            given = given[0]
        return np.broadcast_to(given[:, :n].numpy(), (B, n)).astype(np.int64)

    def packed(self, kwargs: Keywords, asked: Asked) -> Optional[a.Wholes]:
        """(B, T) numbers of the sequences that are packed into a batch row, where positions begin again; None: there
        are none, or positions do not tell."""
        given: Any = self.said_positions(kwargs)
        if getattr(given, "ndim", 0) != 2 or given.shape[1] != asked.S or asked.T_q != asked.S:
            return None
        begins = np.diff(np.broadcast_to(given.numpy(), (asked.B, asked.S))) != 1
        return np.pad(begins.cumsum(1), ((0, 0), (1, 0))) if begins.any() else None


def _parameters_of(module: a.Module) -> tuple[str, ...]:
    """Names of the arguments of a module."""
    try:
        return tuple(inspect.signature(getattr(module, "forward")).parameters)
    except (TypeError, ValueError):
        return ()


# ---------------------------------------------------------------- caches


def filled(asked: Asked) -> int:
    """How many keys there are: a cache of fixed size ends in rows of zeros that nobody has written yet."""
    if asked.S == asked.T_q or asked.layer is not None:
        return asked.S
    used = asked.key.ne(0).any(3).any(1).any(0).nonzero()
    return max(int(used[-1]) + 1 if len(used) else asked.S, asked.T_q)


@dataclass(frozen=True)
class Changed:
    """layer: which cache it is; sentence and names: what changed there."""

    layer: str
    sentence: str
    names: tuple[str, ...]


class CachedRows:
    """The cached rows of each layer, as its calls left them."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[tuple[a.Wholes, a.Wholes], int]] = {}
        self._order: dict[tuple[int, int], tuple[str, a.Flags]] = {}

    def compare(self, heard: str, asked: Asked, kwargs: Keywords, run: int) -> Optional[Changed]:
        """What changed in the rows of earlier calls; NotChecked where they cannot be compared. run: the number of the
        model's run. A cache may have lost its first rows, or its last ones, before it."""
        cache = kwargs.get(CACHE)
        if cache is None or others_of(kwargs) is not None:
            return None
        end, past = filled(asked), filled(asked) - asked.T_q
        now = _digest(asked.key[:, :, :end]), _digest(asked.value[:, :, :end])
        before, earlier = self._left.get(heard, (now, None))
        self._left[heard] = now, id(cache)
        if past <= 0 or earlier != id(cache):
            return None
        if before[0].shape[:2] != now[0].shape[:2]:
            raise NotChecked("cache: another number of batch rows than in the call before")
        order = np.ones((asked.B, asked.B), bool)  # which earlier batch row each may be
        for what, old, new in zip(("key", "value"), before, now):
            new = new[:, :, :past]
            fits = [old[:, :, begin:begin + past] for begin in range(old.shape[2] - past + 1)]
            if not fits:
                raise NotChecked(f"cache: {past} rows, {old.shape[2]} after the call before")
            order &= np.any([(new[:, None] == each[None]).all((2, 3)) for each in fits], 0)
            if not order.any(1).all():
                wrong = np.argwhere(fits[-1] != new)[0]
                return Changed(heard, f"row {wrong[2]} of the cached {what}s (batch row {wrong[0]}, head {wrong[1]}) "
                               "is not what an earlier call left there", ("cache-row-changed",))
        return self._moved(heard, order, (id(cache), run))

    def _moved(self, heard: str, order: a.Flags, step: tuple[int, int]) -> Optional[Changed]:
        """The layer whose batch rows changed places where those of another did not: a search with beams moves them in
        all layers alike."""
        first, common = self._order.setdefault(step, (heard, order))
        if (common & order).any(1).all():
            self._order[step] = first, common & order
            return None
        stays = bool(order.diagonal().all())
        if stays:
            self._order[step] = heard, order
        return Changed(first if stays else heard, "batch rows of the cache are in another order than in other layers",
                       ("cache-batch-permuted",))


def _digest(x: a.Torch) -> a.Wholes:
    """(B, h, rows) whole numbers that follow from the bits of each row."""
    torch = importlib.import_module("torch")
    bits = x.detach().contiguous().view(torch.uint8).long()
    weights = torch.arange(1, bits.shape[-1] + 1) * 2654435761 % 2**31
    digest: a.Wholes = (bits * weights).sum(-1).numpy()
    return digest
