"""The process of a sealed kernel: calls it on shared arrays. Its judge trusts nothing that this process says."""
from __future__ import annotations

import base64
import json
import os
from typing import Mapping

import numpy as np

from ..core import arrays as a
from ..core.devices import has_no_memory
from . import arena
from .command import load
from .suite import wrapper
from .worker import RefusedFunction

_WORDS = 300  # of an exception's text


class Inmate:
    """A kernel, the shared memory, and the results that it returned last."""

    def __init__(self, said: Mapping[str, a.Json]) -> None:
        self.memory = arena.mapped(int(said["memory"]))
        self.wrap, self.keep = wrapper(said["arrays"]), said["arrays"] in ("numpy", "torch")
        self.kernel = load(said["kernel"])
        self.slots: dict[int, a.Json] = {}  # of each region the last call and its arrays
        self.held: list[tuple[int, a.Json, bytes]] = []  # number of the call, array, its bytes when it was returned

    def asked(self, request: Mapping[str, a.Json]) -> a.Json:
        """The call's arguments: the same arrays as before if only their numbers are new."""
        slot, places, call = request["slot"], request["arrays"], request["call"]
        if not self.keep or self.slots.get(slot, (None,))[:2] != (places, call):
            wrap = self.wrap if self.keep else lambda array, code: self.wrap(array.copy(), code)
            arrays = [arena.Placed(x[0], x[1], tuple(x[2]), tuple(x[3])) for x in places]
            inputs = arena.rebuilt(self.memory, slot, arrays, base64.b64decode(call), wrap)
            self.slots[slot] = places, call, inputs
        return self.slots[slot][2]

    def changed(self) -> list[int]:
        """Numbers of the last calls whose results were written to after their return; each is named once."""
        found = [number for number, array, then in self.held if array.tobytes() != then]
        self.held = [x for x in self.held if x[0] not in found][-4:]
        return found

    def answer(self, request: Mapping[str, a.Json]) -> dict[str, a.Json]:
        """Call the kernel; copy its result into the shared memory."""
        inputs, settings = self.asked(request)
        results, at, outcome = list[a.Json](), arena.RESULT, "exception"
        try:
            returned = self.kernel(*inputs, **settings)
            outcome = "malformed"
            for name, part in zip(("output", "lse"), returned if isinstance(returned, (tuple, list)) else (returned,)):
                tensor = a.floats(name, part)
                data = tensor.array.tobytes()
                self.memory[at:at + len(data)] = data
                results.append([a.NAMES[tensor.dtype], list(tensor.array.shape)])
                at += len(data)
                whole = np.frombuffer(self.memory, np.uint8)
                if not np.may_share_memory(tensor.array, whole):  # else the next call's inputs change it
                    self.held.append((request["number"], tensor.array, data))
        except (Exception, SystemExit) as raised:
            outcome = "out-of-memory" if has_no_memory(raised) else outcome
            return {"outcome": outcome, "reason": f"{type(raised).__name__}: {raised}"[:_WORDS]}
        return {"results": results}


def serve() -> None:
    """Reply to requests until there are none. Prints go to standard error."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", encoding="ascii")
    with open(os.devnull, encoding="ascii") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for line in requests:
        request, reply = json.loads(line), dict[str, a.Json]()
        if "kernel" in request:
            try:
                inmate = Inmate(request)
            except (RefusedFunction, TypeError, ImportError) as reason:
                reply = {"refused": str(reason)[:_WORDS]}
        else:
            if "call" in request:
                reply = inmate.answer(request)
            reply["changed"] = inmate.changed()
        print(json.dumps({"number": request["number"], **reply}), file=replies, flush=True)
