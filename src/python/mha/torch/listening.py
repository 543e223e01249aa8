"""The places where models call attention, and how to listen there: nothing that is computed changes."""
from __future__ import annotations

import functools
import importlib
import sys
import threading
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional

from ..core import arrays as a
from ..core.devices import host
from . import calls
from .hooks import Returned

Attend = Callable[..., tuple[a.Torch, object]]  # an attention function of transformers
# Called with the name of a layer, how to find what it was asked for, the output (B, h, T_q, d) or rows of a layer, and
# the gradients that will come back, where these are followed.
Hears = Callable[[str, Callable[[], calls.Asked], a.Torch, Optional["BackwardRun"]], None]


def _whole(output: a.Torch) -> a.Torch:
    """An output of fewer axes as (B, h, T_q, d)."""
    return output[(None,) * (4 - output.ndim)]


class BackwardRun(NamedTuple):
    """The gradients of a call, how an array of the output's axes becomes (B, h, T_q, d), or rows of a layer, and how
    one of an input's axes does."""

    returned: Returned
    heads: Callable[[a.Torch], a.Torch]
    inputs: Callable[[a.Torch], a.Torch] = _whole


def torch_2() -> ModuleType:
    """The module torch; ImportError where it is older than 2.0."""
    torch = importlib.import_module("torch")
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise ImportError(f"torch: expected 2.0 or newer, found {torch.__version__}")
    return torch


_watching = threading.Lock()


class Seams:
    """The functions through which attention of a model is computed, for as long as it is watched.

    names: of the model's modules by their id. hears: is called after each call, in the thread that opened this.
    backward: whether gradients are followed. modules: further modules that are calls themselves, by name, with what
    they are asked for, see calls.of_named.
    """

    def __init__(self, model: a.Module, hears: Hears, backward: bool = False,
                 modules: Optional[Mapping[str, calls.Said]] = None) -> None:
        self._backward, self._modules = backward, modules or {}
        self.names = {id(module): name for name, module in model.named_modules()}
        self._model, self._hears, self._thread, self._inside = model, hears, threading.get_ident(), False
        self._undo: list[Callable[[], None]] = []

    def open(self) -> None:
        """Begins to listen; RuntimeError where somebody does already."""
        if not _watching.acquire(blocking=False):
            raise RuntimeError("model: expected one watched model at a time, found two")
        try:
            self._open_torch()
            self._open_transformers()
            for name, said in self._modules.items():
                self._open_module(name, self._model.get_submodule(name), said)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Puts everything back."""
        while self._undo:
            self._undo.pop()()
        _watching.release()

    # ---------------------------------------------------------------- listening

    @property
    def listens(self) -> bool:
        """Whether a call is one of ours, and not part of one that is heard already."""
        return not self._inside and threading.get_ident() == self._thread

    @contextmanager
    def _within(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _put(self, place: object, name: str, value: object) -> None:
        held = vars(place)[name] if isinstance(place, type) else getattr(place, name)
        setattr(place, name, value)
        self._undo.append(lambda: setattr(place, name, held))

    def _layer(self) -> Optional[str]:
        """The module of the model that is running, by the frames of its callers; None: another model's."""
        frame = sys._getframe(2)
        while frame is not None:
            name = self.names.get(id(frame.f_locals.get("self")))
            if name is not None:
                return name or type(self._model).__name__
            frame = frame.f_back  # type: ignore[assignment]
        return None

    # ---------------------------------------------------------------- PyTorch

    def _open_torch(self) -> None:
        torch = torch_2()
        functional, module = torch.nn.functional, torch.nn.MultiheadAttention
        self._stand_in(functional, "scaled_dot_product_attention", calls.of_sdpa)
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:
            self._stand_in(flex, "flex_attention", calls.of_flex)
        flash = sys.modules.get("flash_attn")
        if hasattr(flash, "flash_attn_func"):
            self._stand_in(flash, "flash_attn_func", calls.of_flash, _turned, "the backward of flash_attn_func")
        forward = module.forward

        @functools.wraps(forward)
        def heard(layer: a.Attention, *args: object, **kwargs: object) -> object:
            name = self.names.get(id(layer))
            if name is None or not self.listens:
                return forward(layer, *args, **kwargs)
            returned = Returned() if self._backward else None
            given, named = (args, kwargs) if returned is None else returned.follow(args, kwargs, shared=True)
            with self._within():
                result = forward(layer, *given, **named)
                result = result if returned is None else returned.begins(result)
                rows, back = functools.partial(_rows, layer=layer), None
                if returned is not None and result[0].requires_grad:
                    alone = "gradients of the weights of torch.nn.MultiheadAttention alone"
                    back = BackwardRun(returned if returned.wanted else Returned(alone), rows, rows)
                self._hears(name, lambda: calls.of_module(layer, host(args), host(kwargs)),
                            host(rows(result[0].detach())), back)
            return result

        self._put(module, "forward", heard)

    def _stand_in(self, place: object, name: str, ask: Callable[..., calls.Asked],
                  turned: Optional[Callable[[a.Torch], a.Torch]] = None, uncompared: str = "") -> None:
        """Listens to a function, also where the modules of the model have it under a name of their own. turned: makes
        (B, h, T_q, d) of its output. uncompared: what of it is not compared, where gradients are followed."""
        heads = turned or _whole
        function = getattr(place, name)

        @functools.wraps(function)
        def heard(*args: object, **kwargs: object) -> object:
            layer = self._layer() if self.listens else None
            if layer is None:
                return function(*args, **kwargs)
            returned = Returned(uncompared) if self._backward else None
            followed = returned if not uncompared else None
            given, named = (args, kwargs) if followed is None else followed.follow(args, kwargs)
            with self._within():
                result = function(*given, **named)
                result = result if followed is None else followed.begins(result)
                output = result[0] if isinstance(result, tuple) else result
                heard_back = returned if not uncompared or output.requires_grad else None
                self._hears(layer, lambda: ask(*host(args), **host(kwargs)), host(heads(output.detach())),
                            None if heard_back is None else BackwardRun(heard_back, heads))
            return result

        self._put(place, name, heard)
        spaces = {type(module).__module__ for module in self._model.modules()}
        for space in (sys.modules[each] for each in spaces if each in sys.modules):
            for own in [own for own, value in vars(space).items() if value is function]:
                self._put(space, own, heard)

    # ---------------------------------------------------------------- a module of a name

    def _open_module(self, name: str, module: a.Module, said: calls.Said) -> None:
        """Listens to a module that is a call itself; what it calls is part of it."""
        begun: list[bool] = []

        def enters(*_: object) -> None:
            begun.append(self.listens)
            self._inside |= begun[-1]

        def leaves(_: object, args: tuple[object, ...], kwargs: Mapping[str, Any], result: object) -> None:
            if not begun or not begun.pop():
                return
            if result is not None:  # None: it raised an exception
                output = result[0] if isinstance(result, tuple) else result
                returned = Returned("the backward of a module that was named")
                self._hears(name, lambda: calls.of_named(host(args), host(kwargs), said), host(_whole(output.detach())),
                            BackwardRun(returned, _whole) if self._backward and output.requires_grad else None)
            self._inside = False

        for handle in (module.register_forward_pre_hook(enters),
                       module.register_forward_hook(leaves, with_kwargs=True, always_call=True)):
            self._undo.append(handle.remove)

    # ---------------------------------------------------------------- transformers

    def _open_transformers(self) -> None:
        utils = sys.modules.get("transformers.modeling_utils")
        interface = getattr(utils, "AttentionInterface", None)
        if interface is None:
            return
        find, get = interface.get_interface, interface.__getitem__

        def found(self_: object, name: str, default: Attend) -> Attend:
            function = find(self_, name, default)
            return self._listening("eager" if function is default else str(name), function)

        def gotten(self_: object, name: str) -> Attend:
            return self._listening(str(name), get(self_, name))

        for own, value in (("get_interface", found), ("__getitem__", gotten)):
            held = vars(interface).get(own)
            setattr(interface, own, value)
            self._undo.append(functools.partial(setattr, interface, own, held) if held is not None
                              else functools.partial(delattr, interface, own))

    def _listening(self, name: str, function: Attend) -> Attend:
        """An attention function of transformers that is heard."""
        if hasattr(function, "_heard_by_mha"):
            return function

        @functools.wraps(function)
        def heard(module: object, *args: object, **kwargs: object) -> tuple[a.Torch, object]:
            layer = self.names.get(id(module))
            if layer is None or not self.listens:
                return function(module, *args, **kwargs)
            returned = Returned() if self._backward else None
            given, named = (args, kwargs) if returned is None else returned.follow(args, kwargs)
            with self._within():
                result = function(module, *given, **named)
                result = result if returned is None else returned.begins(result)
                heads = functools.partial(_heads, args=args, kwargs=kwargs)
                self._hears(layer, lambda: _interface(name, module, host(args), host(kwargs)), host(heads(result[0])),
                            None if returned is None else BackwardRun(returned, heads))
            return result

        setattr(heard, "_heard_by_mha", True)
        return heard


def _rows(array: a.Torch, layer: a.Attention) -> a.Torch:
    """An input or output of torch.nn.MultiheadAttention as (B, T, width)."""
    return array[None] if array.ndim == 2 else array if layer.batch_first else array.transpose(0, 1)


def _turned(output: a.Torch) -> a.Torch:
    """An output of (B, T_q, h, d) as (B, h, T_q, d)."""
    return output.transpose(1, 2)


_ARGUMENTS = ("query", "key", "value", "attention_mask")


def _named(args: tuple[object, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an attention function by name."""
    names = (*_ARGUMENTS, "scaling", "dropout")
    return {"attention_mask": None, **dict(zip(names, args)), **kwargs}


def _interface(name: str, module: object, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> calls.Asked:
    said = _named(args, kwargs)
    query, key, value, mask = (said.pop(each) for each in _ARGUMENTS)
    return calls.of_interface(name, module, query, key, value, mask, said)


def _heads(output: a.Torch, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> a.Torch:
    """The output of an attention function, (B, T_q, h, d) or with heads side by side, as (B, h, T_q, d)."""
    query = _named(args, kwargs)["query"]
    return output.detach().reshape(output.shape[0], query.shape[2], query.shape[1], -1).transpose(1, 2)


def related(name: str, other: str) -> bool:
    """Whether a module is the other, contains it or is inside it."""
    return name == other or not name or name.startswith(other + ".") or other.startswith(name + ".")


def others_of(kwargs: Mapping[str, Any]) -> Optional[a.Torch]:
    """What the keys and values of a layer are made of, where that is not what its queries are made of."""
    states = kwargs.get("key_value_states")
    return kwargs.get("encoder_hidden_states") if states is None else states
