"""Attention of a torch model found by running it: which projections feed each call, and which takes its heads."""
from __future__ import annotations

import copy
import importlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, Optional

from ..core import arrays as a
from ..core.errors import Error
from ..core.files import save
from ..core.layer import MultiHeadAttention
from ..judge.check import check
from .calls import Asked, NotChecked
from .families import affine
from .listening import Seams, others_of

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

NEXT = "mha.watch(model) checks its calls as they are"


class Refused(Exception):
    """Why a call cannot be a layer, and what would help."""


@dataclass
class Ran:
    """A module that made one tensor of one tensor."""

    name: str
    module: a.Module
    x: a.Torch
    y: a.Torch


@dataclass
class Heard:
    """A call of attention. ran: how many modules had run before it. why: why it cannot be checked."""

    name: str
    asked: Optional[Asked]
    output: a.Torch
    ran: int
    why: str = ""


class Source(NamedTuple):
    """Where queries, keys or values come from: a module, the columns of its output, its input as (B, T, width)."""

    ran: Ran
    columns: list[int]
    x: a.Torch


class Given(NamedTuple):
    """What entered a module: query rows, or query and key rows; positions of the tokens, if they were said."""

    rows: tuple[a.Torch, ...]
    positions: Optional[a.Wholes]


@dataclass
class Found:
    """A layer that was found. projections: the names of the modules that are its matrices, by weight."""

    layer: MultiHeadAttention
    rows: tuple[a.Torch, ...]
    settings: dict[str, Any]
    projections: dict[str, str] = field(default_factory=dict)


class Tracing:
    """One run of a model: what its modules made, and the attention calls that were heard."""

    def __init__(self, model: a.Module, inputs: a.Inputs) -> None:
        torch = importlib.import_module("torch")
        self.ran: list[Ran] = []
        self.heard: list[Heard] = []
        self._given: dict[str, Given] = {}
        self._known: dict[tuple[str, int], Optional[tuple[a.Torch, a.Torch]]] = {}
        args, kwargs = arguments(inputs)
        if any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters()):
            model = copy.deepcopy(model).float()  # the same values, and room to tell them apart
        seams = Seams(model, self._hear)
        seams.open()
        hooks = []
        try:
            for name, module in model.named_modules():
                hooks.append(module.register_forward_hook(self._made(name), with_kwargs=True))
                hooks.append(module.register_forward_pre_hook(self._enters(name), with_kwargs=True))
            with torch.no_grad():
                model(*args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
            seams.close()

    def _made(self, name: str) -> Callable[..., None]:
        def made(module: a.Module, args: tuple[object, ...], kwargs: Mapping[str, Any], y: object) -> None:
            given = [x for x in (*args, *kwargs.values()) if _is_floating(x)]
            if given and _is_floating(y):
                self.ran.append(Ran(name, module, given[0].detach(), y.detach()))
        return made

    def _enters(self, name: str) -> Callable[..., None]:
        def enters(_: object, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> None:
            x, others = kwargs.get("hidden_states", args[0] if args else None), others_of(kwargs)
            if getattr(x, "ndim", 0) == 3 and name not in self._given:
                at: Any = kwargs.get("position_ids")
                self._given[name] = Given((x.detach(),) if others is None else (x.detach(), others.detach()),
                                          at.numpy() if getattr(at, "ndim", 0) == 2 else None)
        return enters

    def entering(self, *names: str) -> Optional[Given]:
        """What the first of these modules that was given rows was given first."""
        return next((self._given[name] for name in names if name in self._given), None)

    def _hear(self, name: str, ask: Callable[[], Asked], output: a.Torch, _: object = None) -> None:
        asked, why = None, ""
        try:
            asked = ask()
        except (NotChecked, Error, TypeError, ValueError) as reason:
            why = str(reason)
        self.heard.append(Heard(name, asked, output, len(self.ran), why))

    # ---------------------------------------------------------------- a call as a layer

    def layer_of(self, call: Heard) -> Found:
        """The layer that a call is part of; Refused says why it is none."""
        asked = call.asked
        if asked is None:
            raise Refused(f"{call.why}: {NEXT}")
        if asked.layer is not None:
            x, y, z = (t.detach() for t in asked.inputs())
            return Found(asked.layer, (x, y, z), asked.settings())
        if asked.sinks is not None:
            raise Refused(f"sinks, which a layer that is found by tracing has none of: {NEXT}")
        sources = {letter: self._source(word, x.detach(), call.ran) for letter, word, x in zip(
            "QKV", ("queries", "keys", "values"), asked.inputs())}
        heads, kv, d_k = asked.heads[0], asked.heads[1], int(asked.query.shape[-1])
        shared = _repeats(sources["K"].columns, sources["V"].columns, kv)
        tensors: dict[str, a.Torch] = {}
        for letter, source in sources.items():
            step = 1 if letter == "Q" else shared
            wide = len(source.columns) // (heads if letter == "Q" else kv)
            chosen = [f for i, f in enumerate(source.columns) if i // wide % step == 0]
            matrix, bias = self._affine(source.ran)
            _put(tensors, f"{letter.lower()}_proj", matrix[:, chosen], bias if bias is None else bias[chosen])
        out = self._taken(call, asked)
        _put(tensors, "out_proj", *self._affine(out))
        dtype = {str(p.dtype) for p in out.module.parameters()}.pop().replace("torch.", "")
        said = {name: value for name, value in asked.settings().items() if name in ("scale", "softcap")}
        rules = asked.hides
        if rules is not None:
            said.update({name: value for name, value in rules.settings().items() if name in ("causal", "window",
                                                                                             "chunk")})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.safetensors")
            save(path, {f"self_attn.{name}": x for name, x in tensors.items()})
            try:
                layer = MultiHeadAttention.from_file(path, "self_attn", n_heads=heads, kv_heads=kv // shared, d_k=d_k,
                                                     orientation="in_out", dtype=dtype, **said)
            except (Error, ValueError) as reason:
                raise Refused(f"{reason}: {NEXT}") from None
        named = {f"W_{letter}": source.ran.name for letter, source in sources.items()}
        found = Found(layer, tuple(sources[letter].x for letter in "QKV"), _settings(asked, layer),
                      {**named, "W_O": out.name})
        self._holds(found, out, asked)
        return found

    def _affine(self, ran: Ran) -> tuple[a.Torch, Optional[a.Torch]]:
        """The matrix (in, out) and the bias of a module, or None for a bias that it has not."""
        key = (ran.name, int(ran.x.shape[-1]))
        if key not in self._known:
            self._known[key] = affine(ran.module, key[1])
        found = self._known[key]
        if found is None:
            raise Refused(f"'{ran.name}' ({type(ran.module).__name__}) is no matrix and bias: {NEXT}")
        matrix, bias = (x.to(next(ran.module.parameters()).dtype) for x in found)
        has = bool(bias.any()) or any(p.ndim == 1 and p.numel() == len(bias) for p in ran.module.parameters())
        return matrix, bias if has else None

    def _source(self, word: str, x: a.Torch, before: int) -> Source:
        """The module of whose output these heads, (B, h, T, d), are columns."""
        B, h, T, d = x.shape
        wanted = [row.tobytes() for row in x.permute(1, 3, 0, 2).reshape(h * d, B * T).numpy()]
        own = x.untyped_storage().data_ptr()
        made = [ran for ran in self.ran[:before][::-1] if next(ran.module.parameters(), None) is not None
                and ran.y.numel() % (B * T) == 0 and ran.x.numel() * ran.y.shape[-1] == ran.y.numel() * ran.x.shape[-1]]
        made.sort(key=lambda ran: bool(ran.y.untyped_storage().data_ptr() != own))  # in the same memory first
        wrong = None
        for ran in made:
            for y, entered in _in_order(ran, B, T):
                at = {row.tobytes(): i for i, row in enumerate(y.T.contiguous().numpy())}
                if not all(row in at for row in wanted):
                    continue
                try:
                    matrix, bias = self._affine(ran)
                except Refused as reason:
                    wrong = reason
                    continue
                if len(at) < len(y.T) and not _alike(y, matrix, bias):
                    raise Refused("features that differ have the same numbers here: give inputs that tell them apart, "
                                  "such as several different tokens")
                return Source(ran, [at[row] for row in wanted], entered)
        raise wrong or Refused(f"its {word} are no columns of a projection: something is computed between, such as a "
                               f"rotation or a norm. {NEXT}, and MultiHeadAttention takes weights and rope=")

    def _taken(self, call: Heard, asked: Asked) -> Ran:
        """The module that is given the heads side by side."""
        torch = importlib.import_module("torch")
        B, h, T, d = call.output.shape
        merged = [call.output.permute(order).reshape(B * T, h * d) for order in ((0, 2, 1, 3), (2, 0, 1, 3))]
        wrong = None
        for ran in self.ran[call.ran:]:
            if (ran.x.shape[-1] == h * d and ran.x.numel() == B * T * h * d
                    and next(ran.module.parameters(), None) is not None
                    and any(torch.equal(ran.x.reshape(B * T, h * d), each) for each in merged)):
                try:
                    self._affine(ran)
                    return ran
                except Refused as reason:
                    wrong = reason
        raise wrong or Refused(f"no projection takes its heads side by side: something is computed between, such as a "
                               f"gate or a norm. {NEXT}")

    def _holds(self, found: Found, out: Ran, asked: Asked) -> None:
        """The layer gives what the model computed, or is refused."""
        B, T = asked.B, asked.T_q
        layer, settings = found.layer, found.settings
        for y, _ in _in_order(out, B, T):
            verdict = check(y.reshape(B, T, -1), *found.rows, layer=layer, **settings)
            if verdict.passed:
                return
        raise Refused(f"the layer that its projections make gives other numbers than the model: {NEXT}")


def arguments(inputs: object) -> tuple[tuple[object, ...], dict[str, Any]]:
    """What a model is called with."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if hasattr(inputs, "data_ptr"):
        return (inputs,), {}
    raise TypeError("inputs: expected a tensor, a tuple of arguments or a dict of keywords of the model, found "
                    f"{type(inputs).__name__}")


def _is_floating(x: Any) -> TypeGuard[a.Torch]:
    """Whether it is a tensor of floats; a torch.dtype has an attribute `is_floating_point` as well."""
    return hasattr(x, "data_ptr") and bool(x.is_floating_point())


def _in_order(ran: Ran, B: int, T: int) -> Iterator[tuple[a.Torch, a.Torch]]:
    """The output of a module as (B * T, features) and its input as (B, T, width), in either order of its rows."""
    if ran.y.numel() != B * T * ran.y.shape[-1] or ran.x.numel() != B * T * ran.x.shape[-1]:
        return
    yield ran.y.reshape(B * T, -1), ran.x.reshape(B, T, -1)
    if B > 1 and T > 1:
        y, x = ran.y.reshape(T, B, -1), ran.x.reshape(T, B, -1)
        yield y.transpose(0, 1).reshape(B * T, -1), x.transpose(0, 1)


def _alike(y: a.Torch, matrix: a.Torch, bias: Optional[a.Torch]) -> bool:
    """Whether columns that have the same numbers are the same columns of the matrix."""
    seen: dict[bytes, int] = {}
    for i, row in enumerate(y.T.contiguous().numpy()):
        first = seen.setdefault(row.tobytes(), i)
        if bool(matrix[:, first].ne(matrix[:, i]).any()) or bias is not None and bool(bias[first].ne(bias[i])):
            return False
    return True


def _repeats(k: list[int], v: list[int], heads: int) -> int:
    """How many query heads share each key/value head, where keys and values were repeated for them."""
    def blocks(columns: list[int]) -> list[tuple[int, ...]]:
        wide = len(columns) // heads
        return [tuple(columns[i * wide:(i + 1) * wide]) for i in range(heads)]

    pairs = list(zip(blocks(k), blocks(v)))
    return next(n for n in range(heads, 0, -1) if heads % n == 0 and all(
        pairs[i] == pairs[i - i % n] for i in range(heads)))


def _put(tensors: dict[str, a.Torch], name: str, matrix: a.Torch, bias: Optional[a.Torch]) -> None:
    tensors[name + ".weight"] = matrix.contiguous()
    if bias is not None:
        tensors[name + ".bias"] = bias.contiguous()


def _settings(asked: Asked, layer: MultiHeadAttention) -> dict[str, Any]:
    """The settings of a call that the layer does not have, as keywords of a layer's call."""
    said = replace(asked, layer=layer).settings()
    return {name: value for name, value in said.items() if name not in layer.settings}
