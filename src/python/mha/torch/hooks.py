"""The gradients of one call of a running model, caught by hooks as they come back: nothing that is computed changes."""
from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from ..core import arrays as a

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

NAMES = ("query", "key", "value")


def _is_followed(x: object) -> TypeGuard[a.Torch]:
    """Whether autograd follows a tensor."""
    return bool(getattr(x, "requires_grad", False))


class Returned:
    """Follows the inputs of a call through aliases of their own, so that only gradients of this call come back, and its
    output. check: is called with do and the gradients by name when all have come, once for each backward pass."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason  # why nothing is followed
        self.check: Optional[Callable[[a.Torch, "dict[str, a.Torch]"], None]] = None
        self.output: Optional[a.Torch] = None
        self.wanted: list[str] = []
        self.found: dict[str, a.Torch] = {}
        self.others = False
        self.again = _in_backward()  # a forward that is computed again during the backward
        self.rounds = 0
        self._hooks: list[a.Hook] = []

    def follow(self, args: tuple[object, ...], kwargs: Mapping[str, Any],
               shared: bool = False) -> tuple[list[object], dict[str, Any]]:
        """The arguments of the call, with an alias of each input that autograd follows. shared: inputs that are one
        tensor stay one, of which the gradient is that of the first of them."""
        given, named = list(args), dict(kwargs)
        known: dict[int, a.Torch] = {}
        for i, name in enumerate(NAMES):
            x = named[name] if name in named else given[i] if i < len(given) else None
            if not _is_followed(x):
                continue
            alias = known.get(id(x)) if shared else None
            if alias is None:
                alias = known[id(x)] = x.view_as(x)
                self.wanted.append(name)
                self._hooks.append(alias.register_hook(functools.partial(self._comes, name)))
            if name in named:
                named[name] = alias
            else:
                given[i] = alias
        return given, named

    def begins(self, result: Any) -> Any:
        """Listens to what comes back to the output; of other results, which the output may be made of, aliases are
        handed on, to hear whether anything comes back to them. Returns the result."""
        output, *others = result if isinstance(result, tuple) else (result,)
        if not self.wanted or not _is_followed(output):
            return result
        self._hooks.append(output.register_hook(self._enters))
        for i, other in enumerate(others):
            if _is_followed(other):
                others[i] = other.view_as(other)
                self._hooks.append(others[i].register_hook(self._disturbs))
        return (output, *others) if type(result) is tuple else result

    @property
    def is_followed(self) -> bool:
        """Whether gradients can come back."""
        return len(self._hooks) > len(self.wanted)

    def close(self) -> None:
        """Ends it."""
        while self._hooks:
            self._hooks.pop().remove()
        self.check, self.output, self.found = None, None, {}

    def _disturbs(self, _: a.Torch) -> None:
        self.others = True

    def _enters(self, gradient: a.Torch) -> None:
        self.output, self.found = gradient.detach(), {}

    def _comes(self, name: str, gradient: a.Torch) -> None:
        if self.output is None:
            return
        self.found[name] = gradient.detach()
        if len(self.found) == len(self.wanted):
            output, found, self.output, self.found = self.output, self.found, None, {}
            self.rounds += 1
            if self.check is not None:
                self.check(output, found)


def _in_backward() -> bool:
    """Whether autograd is at work in this thread."""
    current = getattr(importlib.import_module("torch")._C, "_current_graph_task_id", None)
    return current is not None and current() != -1
