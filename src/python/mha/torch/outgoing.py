"""What becomes of the heads of a call: side by side and unchanged they enter the output projection of their layer."""
from __future__ import annotations

import functools
from typing import Callable, Mapping, Optional, Sequence

from ..core import arrays as a
from ..core.devices import host
from .families import Described, below

Merge = Callable[[a.Torch], a.Torch]  # heads (B, h, T, d) as rows (B, T, h d)
Report = Callable[[str, str, tuple[str, ...]], None]  # called with a layer, a sentence and names of bugs

_WRONG: Mapping[str, Merge] = {
    "merge-untransposed": lambda x: x.reshape(x.shape[0], x.shape[2], -1),
    "merge-reversed": lambda x: x[:, list(range(x.shape[1]))[::-1]].transpose(1, 2).flatten(2),
    "merge-interleaved": lambda x: x.permute(0, 2, 3, 1).flatten(2),
    "merge-features-first": lambda x: x.transpose(2, 3).reshape(x.shape[0], x.shape[2], -1),
}


class Outgoing:
    """The heads that wait for their output projection, by the module that was heard."""

    def __init__(self, described: Described, report: Report) -> None:
        self._described, self._report = described, report
        self._projections = dict[str, str]()  # module of W_O by the prefix of a layer
        self._waiting = dict[str, tuple[str, list[a.Torch]]]()  # module that was heard, and heads, by prefix
        self._ran, self._heard = set[str](), dict[str, str]()
        self.compared = set[str]()
        self._hooks: list[a.Hook] = []

    def open(self) -> None:
        """Begins to listen to output projections."""
        for prefix, module in self._described.modules_of("W_O").items():
            self._projections[prefix] = module
            hook = functools.partial(self._enters, prefix)
            self._hooks.append(self._described.modules[module].register_forward_pre_hook(hook))

    def close(self) -> None:
        """Ends it: a projection that ran for no call of its layer, where those of other layers ran, is left out."""
        while self._hooks:
            self._hooks.pop().remove()
        lacking = {prefix: heard for prefix, heard in self._heard.items() if prefix not in self._ran}
        if len(self._ran) > len(lacking):
            for heard in lacking.values():
                self._report(heard, "the output projection did not run", ("output-unprojected",))
        self._waiting.clear()
        self._heard.clear()

    def add(self, heard: str, prefix: str, heads: a.Torch) -> None:
        """A call has given heads, (B, h, T, d)."""
        if prefix in self._projections and heads.ndim == 4:
            self._waiting.setdefault(prefix, (heard, []))[1].append(heads)
            self._heard.setdefault(prefix, heard)

    def _enters(self, prefix: str, _: object, args: Sequence[a.Torch]) -> None:
        heard, waiting = self._waiting.pop(prefix, ("", []))
        x = host(args[0].detach()) if args else None
        if x is None:
            return
        if not waiting:
            self._borrowed(prefix, x)
            return
        self._ran.add(prefix)
        joined = [merged(heads) for heads in waiting]
        whole = joined[0] if len(joined) == 1 else None
        if whole is not None and whole.numel() == x.numel():
            if same(x, whole):
                self.compared.add(heard)
            elif found := _wrong(x, waiting[0]):
                self._report(heard, *found)

    def _borrowed(self, prefix: str, x: a.Torch) -> None:
        """Heads of another layer enter this projection."""
        for other, (heard, waiting) in list(self._waiting.items()):
            if len(waiting) == 1 and same(x, merged(waiting[0])):
                del self._waiting[other]
                self._ran.add(other)
                self._report(heard, f"the heads enter the output projection of {self._projections[prefix]}",
                             ("W_O-other",))
                return


def merged(heads: a.Torch) -> a.Torch:
    """Heads side by side: (B, h, T, d) as (B, T, h d)."""
    return heads.transpose(1, 2).flatten(2)


def same(x: a.Torch, rows: a.Torch) -> bool:
    """Whether they are the same numbers, in whatever axes, where x is a number."""
    x, rows = x.reshape(-1), rows.reshape(-1)
    return x.shape == rows.shape and x.dtype == rows.dtype and bool(x[x.eq(x)].eq(rows[x.eq(x)]).all())


def _wrong(x: a.Torch, heads: a.Torch) -> Optional[tuple[str, tuple[str, ...]]]:
    """How heads were merged in another way, in words and by name; None: they became something else on their way."""
    for name, merge in _WRONG.items():
        if same(x, merge(heads)):
            return f"the heads enter the output projection merged in another way ({name})", (name,)
    B, h, T, d = heads.shape
    if x.numel() != heads.numel():
        return None
    places = [x.reshape(B, T, h, d)[:, :, i] for i in range(h)]
    order = [next((i for i in range(h) if same(place, heads[:, i])), -1) for place in places]
    if -1 not in order and order != list(range(h)):
        return f"the heads enter the output projection in another order: {order}", ("merge-permuted",)
    rows = x.reshape(B, T, h, d).transpose(1, 2)
    batch = [next((i for i in range(B) if same(row, heads[i])), -1) for row in rows]
    if -1 not in batch:
        return f"batch rows enter the output projection in another order: {batch}", ("batch-permuted",)
    zeros = [i for i, place in enumerate(places) if bool(place.eq(0).all()) and not bool(heads[:, i].eq(0).all())]
    if zeros and all(i in zeros or same(place, heads[:, i]) for i, place in enumerate(places)):
        return f"heads {zeros} enter the output projection as zeros", ("output-lacks-heads",)
    return None
