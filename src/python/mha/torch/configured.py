"""What a layer should be asked for by its model's configuration, and where a call parts from that."""
from __future__ import annotations

import ctypes
import functools
import importlib
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, cast

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.devices import host
from ..core.errors import Error
from ..core.layer import MultiHeadAttention
from ..core.library import lib
from ..core.reference import Meant
from ..models.model import ModelLayer
from . import biases
from .calls import Asked, NotChecked
from .families import Described, adapted
from .given import BEGIN, CachedRows, Entered, ModelInputs, filled
from .listening import others_of
from .outgoing import Outgoing
from .projections import Projected
from .visibility import OPEN, Rules

_PROJECTING = ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "q_norm", "k_norm")
_REGROUPED = "rope-regrouped"
TOKENS = 32  # of a call, whose queries, keys and values are compared with those of the layer
WORK = 2**26  # products of a projection of these tokens, at most: of wide layers fewer tokens
CALLS = 2    # of a layer, to which that is done: the prompt and the first decoded token


@dataclass(frozen=True)
class Parted:
    """One thing in which a call is not what it should be. kind: "config", "cache" or "type"."""

    kind: str
    sentence: str
    names: tuple[str, ...] = ()
    clues: tuple[str, ...] = ()


class Intended:
    """The attention layers of a model of transformers as mha's description of its family has them.

    why: why there is none, or "". Between open and close it notes what the model and its layers are given.
    unchecked: by the modules that were heard, parts of a layer that could not be compared, each with the reason.
    """

    def __init__(self, model: a.Module) -> None:
        self._model, self._described = model, Described(model)
        self.why, self._layers, self._modules = self._described.why, self._described.layers, self._described.modules
        self._given, self._rows = ModelInputs(self._modules, self._ended), CachedRows()
        self._apart: dict[str, bool] = {}
        self._outgoing = Outgoing(self._described, self._later)
        self._late: list[tuple[str, Parted]] = []
        self._places: dict[str, Optional[tuple[str, str]]] = {}
        self._loads: dict[str, int] = {}
        self._named: Mapping[str, a.Torch] = {}
        self._sinks: dict[str, a.Doubles] = {}
        self.projected: dict[str, int] = {}
        self.rounded: set[str] = set()
        self.unchecked: dict[str, list[str]] = {}

    def open(self) -> None:
        """Begins to note."""
        if not hasattr(getattr(self._model, "config", None), "model_type"):
            return
        self._named = self._described.parameters()
        sinks = {name: _sinks_in(module) for name, module in self._modules.items()}
        self._sinks = {name: held for name, held in sinks.items() if held is not None}
        self._given.open(lambda name: self._described.prefix_of(name) is not None)
        self._outgoing.open()

    def close(self) -> None:
        """Ends it."""
        self._given.close()
        self._outgoing.close()
        self._named = {}

    def _later(self, heard: str, sentence: str, names: tuple[str, ...], kind: str = "config") -> None:
        self._late.append((heard, Parted(kind, sentence, names)))

    def late(self) -> list[tuple[str, Parted]]:
        """What was found after calls had been compared, by the modules that were heard."""
        found, self._late = self._late, []
        return found

    # ---------------------------------------------------------------- which layer

    def _of(self, heard: str) -> Optional[tuple[str, str]]:
        """The module whose parameters are the layer's, and the prefix, of a module that was heard."""
        if heard not in self._places:
            self._places[heard] = self._described.place_of(heard)
        return self._places[heard]

    def _given_to(self, heard: str) -> Mapping[str, Any]:
        """The keywords of the module of a layer that was heard."""
        place = self._of(heard)
        entered = self._given.entered.get(heard) or self._given.entered.get(place[0] if place else heard)
        return {} if entered is None else entered[1]

    # ---------------------------------------------------------------- a call

    def held(self, heard: str) -> tuple[bool, int]:
        """Whether the configuration describes a layer, and the number of calls whose queries, keys and values were
        compared with its weights."""
        place = self._of(heard)
        return (True, self.projected.get(place[0], 0)) if place else (False, 0)

    def left(self, heard: str) -> bool:
        """Whether the heads of a call were compared with what entered the output projection."""
        return heard in self._outgoing.compared

    def describes(self, name: str) -> bool:
        """Whether a module is a layer of the configuration."""
        return self._described.prefix_of(name) is not None

    def _not(self, heard: str, reason: str) -> None:
        """Notes a part of a layer that cannot be compared, and why."""
        reasons = self.unchecked.setdefault(heard, [])
        if reason not in reasons:
            reasons.append(reason)

    def compare(self, heard: str, asked: Asked, heads: a.Torch) -> list[Parted]:
        """What parts a call, whose result are these heads, from what it should be."""
        if asked.layer is None:
            self._cache(heard, asked)
        found = self._type(heard, asked)
        place = self._of(heard)
        if place is None:
            if hasattr(getattr(self._model, "config", None), "model_type"):
                self._not(heard, f"configuration: {self.why or 'it names no such layer'}")
            return found
        _, layer, said = self._layers[place[1]]
        found += self._heads(layer, asked) + self._of_sinks(heard, self._described.facts(place[1]), asked)
        found += _number("softcap", asked.softcap, said.get("softcap", 0.0))
        if "q_segments" in said:
            self._not(heard, "mask: windows of an image")
        else:
            found += self._sees(heard, asked, said, self._given_to(heard).get(BEGIN, 0))
        if asked.layer is not None:  # with projections and a scale of its own
            return found
        self._outgoing.add(heard, place[1], heads)
        if "position_bias" in said and "q_segments" not in said:
            found += self._bias(place, heard, asked)
        meant = said.get("scale", layer.d_k ** -0.5)
        off = _number("scale", asked.scale if asked.scale is not None else asked.query.shape[-1] ** -0.5, meant)
        rows, before = self._projected(place, heard, asked, meant)
        if off and (before or rows is None and asked.scale == 1.0):
            off = []  # the queries were scaled before, or may have been
        return found + off + (rows or [])

    def _heads(self, layer: ModelLayer, asked: Asked) -> list[Parted]:
        heads, kv = asked.heads
        if heads == layer.n_heads and kv in (layer.kv_heads, layer.n_heads):
            return []
        return [Parted("config", f"{heads} heads and {kv} key/value heads in the call, {layer.n_heads} and "
                       f"{layer.kv_heads} in the configuration", ("heads",))]

    def _of_sinks(self, heard: str, facts: abi.ModelFacts, asked: Asked) -> list[Parted]:
        """The sinks of the call are those of the layer, and of no other."""
        if bool(facts.config.sinks) != (asked.sinks is not None):
            there, lacking = ("configuration", "call") if facts.config.sinks else ("call", "configuration")
            return [Parted("config", f"sinks in the {there}, none in the {lacking}",
                           ("sinks-missing" if facts.config.sinks else "case-lacks-sinks",))]
        if asked.sinks is None:
            return []
        if heard not in self._sinks:
            self._not(heard, "sinks: its module holds none")
            return []
        others = [name for name, sinks in self._sinks.items() if name != heard and np.array_equal(sinks, asked.sinks)
                  and len(set(sinks)) > 1]
        if np.array_equal(self._sinks[heard], asked.sinks) and not others:
            return []
        return [Parted("config", "the sinks of the call are " + (f"those of {others[0]}" if others else
                                                                "not those of the layer"), ("sinks-other",))]

    def _bias(self, place: tuple[str, str], heard: str, asked: Asked) -> list[Parted]:
        """What the call adds to its scores is the position bias of the layer."""
        if self._loads.get(heard, 0) >= CALLS:
            return []
        try:
            found = biases.compare(asked, self._loaded(place, 0, asked), filled(asked) - asked.T_q)
        except (Error, TypeError, ValueError, LookupError, OSError, RuntimeError) as reason:
            self._not(heard, f"position bias: {str(reason)[:200]}")
            return []
        return [] if found is None else [Parted("config", *found)]

    # ---------------------------------------------------------------- who sees whom

    def _sees(self, heard: str, asked: Asked, said: Mapping[str, Any], begin: int) -> list[Parted]:
        """Keys that the call hides, or shows, and should not. begin: the position of its first query."""
        rows = np.arange(asked.T_q)
        if asked.T_q > 4 * TOKENS:
            rows = np.unique(np.linspace(0, asked.T_q - 1, 4 * TOKENS).astype(int))
        visible = asked.visible(rows)
        if visible.shape[1] != 1:
            self._not(heard, "mask: it differs by head")
            return []
        offset, chunk = filled(asked) - asked.T_q, int(said.get("chunk", 0))
        packed = self._packed(heard, asked, visible[:, 0], rows)
        crosses = others_of(self._given_to(heard)) is not None
        meant = Rules(offset, bool(said.get("causal")), said.get("window", OPEN), chunk)
        left = self._given.left(visible[:, 0], asked.B) if chunk else np.zeros((1, 1), np.int64)
        if left is None:
            self._not(heard, "mask: chunks in a later call, whose padding is not known")
            return []
        if packed is not None:
            own_chunks = _in_chunks(packed, chunk)
            meant = Rules(offset, meant.causal, meant.window, 0, own_chunks, own_chunks)
        elif chunk and (begin > offset or left.any()):  # the first keys have left the cache, or are padding
            queries, keys = ((np.arange(n)[None] + at - left) // chunk for n, at in (
                (asked.T_q, begin), (asked.S, begin - offset)))
            meant = Rules(offset, meant.causal, meant.window, 0, queries, keys)
        padding = self._given.padding(asked, meant.causal, crosses)
        shape = (asked.B, len(rows), asked.S)
        seen, shown = (np.broadcast_to(x, shape) for x in (visible[:, 0], meant.keeps(rows, asked.S)))
        if padding is not None:
            shown = shown & padding[:, None]
        same = (seen == shown) | ~seen.any(2)[:, :, None] | ~shown.any(2)[:, :, None]
        if padding is None:  # nobody says which keys are padding: they may be those that no query sees
            same = same | ~seen.any(1)[:, None]
        hides = asked.hides
        own = None if hides is None else hides.q_segments
        mask = self._given.mask()
        if hides is not None and hides.chunk and not chunk and mask is not None and getattr(mask, "ndim", 0) != 2:
            own = (np.arange(asked.S) // hides.chunk)[None]  # sequences of one length, in a mask of the caller's
        if packed is None and own is not None and asked.T_q == asked.S:  # only the batch's own mask tells them apart
            if chunk:
                self._not(heard, "mask: chunks of packed sequences, of which no positions are given")
            same = same | (own[:, rows, None] != own[:, None])
        return [] if bool(same.all()) else [_mask(hides, meant, padding)]

    def _packed(self, heard: str, asked: Asked, seen: a.Flags, rows: a.Wholes) -> Optional[a.Wholes]:
        """(B, T) numbers of the sequences that are packed into a batch row, where positions begin again and these rows
        of the mask keep sequences apart; None: there are none, or positions do not tell."""
        numbers = self._given.packed(self._given_to(heard), asked)
        if numbers is None:
            return None
        self._apart[heard] = not (seen & (numbers[:, rows, None] != numbers[:, None])).any()
        return numbers if self._apart[heard] else None

    def _ended(self) -> None:
        """Layers of one run keep packed sequences apart, or all join them: the fewer are wrong. Some types of models
        join them whatever the positions are."""
        apart, joined = ([heard for heard, each in self._apart.items() if each is kind] for kind in (True, False))
        self._apart = {}
        for heard in min(joined, apart, key=len):
            sentence = "packed sequences are {} in the call, {} in most layers"
            name, words = (("segments-missing", ("joined", "apart")) if heard in joined else
                           ("case-lacks-segments", ("apart", "joined")))
            self._later(heard, sentence.format(*words), (name,))

    def _cache(self, heard: str, asked: Asked) -> None:
        """Keys and values of earlier calls are what they were."""
        try:
            changed = self._rows.compare(heard, asked, self._given_to(heard), self._given.runs)
        except NotChecked as reason:
            self._not(heard, str(reason))
            return
        if changed is not None:
            self._later(changed.layer, changed.sentence, changed.names, "cache")

    # ---------------------------------------------------------------- types

    def _type(self, heard: str, asked: Asked) -> list[Parted]:
        torch = importlib.import_module("torch")
        module = self._modules.get(heard)
        weights = next((p.dtype for p in module.parameters() if p.is_floating_point()), None) if module else None
        if weights is None or torch.is_autocast_enabled("cpu"):
            return []
        for what, x in (("queries", asked.query), ("keys", asked.key), ("values", asked.value)):
            if x.is_floating_point() and torch.finfo(x.dtype).eps > torch.finfo(weights).eps:
                kinds = [str(kind).replace("torch.", "") for kind in (x.dtype, weights)]
                return [Parted("type", f"{what} of {kinds[0]} in a layer whose weights are {kinds[1]}",
                               (f"{what}-{kinds[0]}",))]
        return []

    # ---------------------------------------------------------------- queries, keys and values

    def _projected(self, place: tuple[str, str], heard: str, asked: Asked,
                   meant: float) -> tuple[Optional[list[Parted]], bool]:
        """Compares queries, keys and values of some tokens with those that the layer's weights and the configuration
        give; None if this is not possible. Then whether the scale is in the queries."""
        entered = self._given.entered.pop(heard, self._given.entered.pop(place[0], None))
        self._loads[heard] = self._loads.get(heard, 0) + 1
        if self._loads[heard] > CALLS:
            return None, False
        try:
            if entered is None:
                raise ValueError("expected an input `hidden_states` of three axes, found another")
            return self._stages(heard, place, entered, asked, meant)
        except (Error, TypeError, ValueError, LookupError, NotImplementedError, OSError, AttributeError,
                RuntimeError) as reason:
            said = str(reason).rpartition(".safetensors: ")[2].partition("\n")[0] or type(reason).__name__
            self._not(heard, f"queries, keys and values: {said[:200]}")
            return None, False

    def _stages(self, heard: str, place: tuple[str, str], entered: Entered, asked: Asked,
                meant: float) -> tuple[list[Parted], bool]:
        x, kwargs = host(entered[0]), entered[1]
        others = host(others_of(kwargs))
        wide = x.shape[-1] * asked.query.shape[1] * asked.query.shape[-1]
        n, end = min(x.shape[1], TOKENS, max(WORK // wide, 1)), filled(asked) - asked.T_q
        if x.shape[1] != asked.T_q or x.shape[0] != asked.B:
            raise ValueError(f"its input has {x.shape[0]} x {x.shape[1]} rows, its queries {asked.B} x {asked.T_q}")
        positions = self._given.positions(kwargs, max(kwargs[BEGIN], 0), n, asked.B)
        layer = self._loaded(place, int(positions.max()) + 1 if others is None else 0, asked)
        said: dict[str, Any] = {"offset": positions[:, 0].copy()}
        if "rope" in layer.settings:
            said["rope_q_positions"] = positions
        told = {**said, **{name: None for name in ("causal", "window", "chunk") if name in layer.settings}}
        rows = [x[:, :n].detach()] + ([] if others is None else [others[:, :min(others.shape[1], n)].detach()])
        q, k = (name + ("_rot" if _has_stage(layer, rows, told, name + "_rot") else "") for name in "qk")
        stages = {q: _rows_of(asked.query[:, :, :n])}
        if others is not None:
            end, n = 0, min(others.shape[1], n)
        if asked.key.shape[1] == layer.config["kv_heads"]:
            stages.update({k: _rows_of(asked.key[:, :, end:end + n]), "v": _rows_of(asked.value[:, :, end:end + n])})
        else:
            self._not(heard, f"keys and values: {asked.key.shape[1]} heads, {layer.config['kv_heads']} in the "
                      "configuration")
        projected = Projected(layer, rows, told, asked.query.dtype)
        if projected.is_half:
            if any(name == place[0] or name.startswith(place[0] + ".") for name in adapted(self._modules)):
                raise ValueError("an adapter in 16 bits")
            stages = {name: x.float() for name, x in stages.items()}
        found = projected.beside(stages)
        self.projected[place[0]] = self.projected.get(place[0], 0) + 1
        scaled, before = (asked.scale or 1.0) / meant, False
        if found.first == q and abs(scaled - 1) > 1e-6:
            again = {**stages, q: stages[q] * scaled}
            found_again = projected.beside(again)
            if found_again.first != q:
                stages, found, before = again, found_again, True
        if projected.is_rounded:
            self.rounded.add(heard)
        if found.first is None:
            return [], before
        first = str(found.first)
        names, clues = projected.bugs(first, stages[first])
        if names == (_REGROUPED,) and k in stages:  # in the keys, too? then no score changes
            if projected.bugs(k, stages[k])[0] == names:
                return [], before
        word = {q: "queries", k: "keys", "v": "values"}[first]
        if not names:
            def right() -> bool:
                return projected.beside({first: stages[first]}).first is None
            weight, owner = self._borrowed(layer, place[1], asked, right)
            if owner:
                names, clues = (f"{weight}-other",), (f"they are right with {weight} of {owner}",)
        return [Parted("config", f"the {word} are not what the configuration makes of the layer's input and weights: "
                       f"{found.off:,} of {found.count:,} {found.what} differ, by {found.most:.3g}",
                       names, clues)], before

    def _borrowed(self, layer: MultiHeadAttention, prefix: str, asked: Asked,
                  right: Callable[[], bool]) -> tuple[str, str]:
        """The weight of which layer in place of this one's makes it right, or "" twice."""
        own = {name: np.array(values) for name, values in layer.weights.items() if name in _PROJECTING}
        for other in self._layers:
            if other == prefix:
                continue
            name = self._described.module_of(other)
            try:
                theirs = self._loaded((name, other), 0, asked).weights
            except (Error, ValueError):
                continue
            for weight, values in own.items():
                if weight in theirs and theirs[weight].shape == values.shape:
                    layer.set(weight, theirs[weight])
                    found = right()
                    layer.set(weight, values)
                    if found:
                        return weight, other
        return "", ""

    def _loaded(self, place: tuple[str, str], length: int, asked: Asked) -> MultiHeadAttention:
        """The layer of the live weights, with what the configuration says."""
        return self._described.layer(place, self._named, length, str(asked.query.dtype).replace("torch.", ""))


# ---------------------------------------------------------------- parts


def _has_stage(layer: MultiHeadAttention, rows: Sequence[a.Torch], said: Mapping[str, Any], name: str) -> bool:
    """Whether a call of a layer has a stage."""
    plan = Meant(rows[0], rows[1] if rows[1:] else None, None, layer, None, said).request.plan()
    shape = (ctypes.c_size_t * abi.MAX_RANK)()
    return bool(lib.mha_plan_stage(ctypes.byref(plan), abi.STAGES.index(name), shape))


def _in_chunks(packed: a.Wholes, size: int) -> a.Wholes:
    """Numbers of packed sequences, or of their chunks, which are counted from where each sequence begins."""
    if not size:
        return packed
    at = np.arange(packed.shape[1])
    begins = np.maximum.accumulate(np.where(np.diff(packed, prepend=-1), at, 0), 1)
    numbers: a.Wholes = packed * packed.shape[1] + (at - begins) // size
    return numbers


def _rows_of(heads: a.Torch) -> a.Torch:
    """(B, h, T, d) as the library's stages have it, (B, T, h*d)."""
    return heads.detach().transpose(1, 2).flatten(2)


def _number(name: str, asked: float, meant: float) -> list[Parted]:
    if abs(asked - meant) <= 1e-6 * max(abs(asked), abs(meant)):
        return []
    kind = "missing" if not asked or name == "scale" and asked == 1 else "other"
    kind = f"case-lacks-{name}" if not meant else f"{name}-{kind}"
    return [Parted("config", f"{name} {asked:.6g} in the call, {meant:.6g} in the configuration", (kind,))]


def _sinks_in(module: object) -> Optional[a.Doubles]:
    """The sinks of a module, as they are now."""
    sinks: Any = getattr(module, "sinks", None)
    return host(sinks.detach()).double().reshape(-1).numpy().copy() if hasattr(sinks, "numel") and sinks.ndim else None


def _mask(hides: Optional[Rules], meant: Rules, padding: Optional[a.Flags]) -> Parted:
    """What parts two ways to hide keys, in words and by name."""
    if hides is None:
        return Parted("config", f"a mask that follows no rule in the call, {meant.words()} in the configuration",
                      ("mask-other",))
    names = []
    if meant.causal != hides.causal:
        names.append("causal-missing" if meant.causal else "case-lacks-causal")
    if meant.causal == hides.causal and meant.causal and hides.offset != meant.offset:
        names.append({1: "causal-plus-1", -1: "causal-strict"}.get(hides.offset - meant.offset, "causal-shifted"))
    for side, mine, theirs in zip(("left", "right"), meant.window, hides.window):
        if mine != theirs and not (meant.causal and side == "right"):
            name = ("window-missing" if theirs < 0 else "case-lacks-window" if mine < 0 else
                    f"window-{side}-less" if theirs < mine else f"window-{side}-more")
            names += [name] if name not in names else []
    if meant.chunk != hides.chunk:
        names.append("chunk-missing" if not hides.chunk else "case-lacks-chunk" if not meant.chunk else "chunk-other")
    told = f"{meant.words()} in the configuration"
    if not names:
        hidden = 0 if padding is None else int((~padding).sum())
        names.append("padding-missing" if hides.keys is None and hidden else "padding-other")
        told += f", {f'padding {hidden} keys' if hidden else 'no padding'} in the model's attention mask"
    return Parted("config", f"{hides.words()} in the call, {told}", tuple(names))
