"""A part of a call of given heads as a call: a key/value head of a batch row, some queries, some keys."""
from __future__ import annotations

import re
from typing import Mapping, Optional, Union

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.call import Request
from ..core.semantics import Semantics, Sizes, rows_given
from ..core.settings import ROWS

_Some = Union[slice, a.Wholes]  # rows in order
_AXES = ("B", "h", "T_q", "T_k", "S", "rope_dim/2")  # of arrays of settings; only the last is not cut
_MASKED = abi.STAGES.index("masked")
_NORMS, _ROWS = ("q_norm", "k_norm", "q_norm_bias", "k_norm_bias"), ("bias_k", "bias_v")  # weights
_WHOLE = {"bias_rule": "grid", "relative_rule": "grid", "clip_qkv": None}  # None: whatever it says


def _axes_of(name: str) -> tuple[str, ...]:
    """The axes of an array among the settings; none where these are not all of a kind that is cut."""
    shape = ROWS[name].shape or ""
    axes = tuple(re.findall(r"[^(), ][^,)]*", shape[shape.find("("):]))
    return axes if " or " not in shape and all(axis in _AXES for axis in axes) else ()


class Cut:
    """A call of given heads that parts are taken of, in the library's axes (B, T, heads, width)."""

    def __init__(self, request: Request) -> None:
        self.request, self.given = request, [t for t in request.inputs if t is not None]
        (self.B, self.T_q, self.h, self.d_k), (_, self.S, self.h_kv, _), (*_, self.d_v) = (
            t.array.shape for t in self.given)
        self.group = self.h // max(self.h_kv, 1)
        self._values = rows_given(request.struct.semantics, Sizes(self.B, self.h, self.T_q, self.S))

    @property
    def whole(self) -> str:
        """The setting that speaks of the call as a whole, so that it cannot be cut; "" where there is none."""
        for name, value in self._values.items():
            if ROWS[name].is_array and not _axes_of(name):
                return name
            if name in _WHOLE and _WHOLE[name] in (None, value):
                return name
        for name, array in self.request.semantics.weights.items():
            if name in _ROWS or name in _NORMS and array.shape[-1] != self.d_k:
                return name
        return "past_key" if self.request.struct.cache else ""

    def heads(self, g: int) -> slice:
        """The query heads of a key/value head."""
        return slice(g * self.group, (g + 1) * self.group)

    def _shared(self, heads: slice) -> slice:
        """The key/value head of query heads."""
        return slice(heads.start // self.group, heads.start // self.group + 1)

    def _setting(self, name: str, array: a.Stored, at: Mapping[str, slice]) -> a.Stored:
        axes = _axes_of(name)[-array.ndim:] if array.ndim else ()
        return array[tuple(slice(None) if extent == 1 < self._extent(axis) else at.get(axis, slice(None))
                           for axis, extent in zip(axes, array.shape))]

    def _extent(self, axis: str) -> int:
        return {"B": self.B, "h": self.h, "T_q": self.T_q, "T_k": self.S, "S": self.S}.get(axis, 0)

    def _weight(self, name: str, array: a.Doubles, heads: slice) -> a.Doubles:
        """What a weight has for some heads, which are side by side, or one below the other in a norm of each head."""
        if name in _NORMS:
            return array if array.ndim == 1 else array[self._shared(heads) if name.startswith("k") else heads]
        width = {"sinks": 1, "bias_table": 1}.get(name, self.d_k)
        return array[..., heads.start * width:heads.stop * width] if array.shape[-1] == self.h * width else array

    def part(self, b: int, heads: slice, queries: Optional[a.Wholes] = None,
             keys: Optional[a.Wholes] = None) -> Request:
        """Query heads of a batch row that share a key/value head, with that; of the queries or of the keys some, by
        their numbers in rising order, or all. A call of some keys does not count terms other than keys."""
        rows, columns = ([slice(0, n)] if some is None else runs(some) for n, some in ((self.T_q, queries),
                                                                                       (self.S, keys)))
        if len(rows) == len(columns) == 1:
            return self._run(b, heads, rows[0], columns[0], keys is not None)
        settings = {name: x for name, x in self._values.items() if ROWS[name].group == "softmax"}
        if keys is not None:
            settings["keys_only"] = True
        if any(ROWS[name].group == "visible" for name in self._values):
            added = np.concatenate(
                [np.concatenate([self._added(b, heads, i, j) for j in columns], axis=3) for i in rows], axis=2)
            hides = bool(((added == 0) | (added == -np.inf)).all())  # and adds nothing
            settings.update(mask=added == 0 if hides else added, mask_kind="keeps" if hides else "additive")
        taken: list[_Some] = [slice(None) if some is None else some for some in (queries, keys)]
        return self._request(b, heads, taken[0], taken[1], settings)

    @property
    def scatters(self) -> bool:
        """Whether a part may have queries and keys that are no neighbours: all that goes by positions hides keys, or
        is one mask, which then replaces it."""
        return all(ROWS[name].group in ("place", "visible", "softmax") for name in self._values)

    def _run(self, b: int, heads: slice, rows: slice, columns: slice, keys_only: bool) -> Request:
        """Neighbours, with their settings."""
        at = {"B": slice(b, b + 1), "h": heads, "T_q": rows, "T_k": columns, "S": columns}
        settings = {name: self._setting(name, x, at) if ROWS[name].is_array else x for name, x in self._values.items()}
        for name, of_queries in (("rope_k_positions", "rope_q_positions"), ("k_segments", "q_segments")):
            if of_queries in settings and name not in settings:
                settings[name] = self._values[of_queries][b:b + 1, columns]
        word = "position_offset" if "position_offset" in settings else "offset"
        settings[word] = settings.get(word, 0) + rows.start
        if keys_only:
            settings.update(key_offset=settings.get("key_offset", 0) + columns.start, keys_only=True)
        return self._request(b, heads, rows, columns, settings)

    def _request(self, b: int, heads: slice, rows: _Some, columns: _Some, settings: Mapping[str, object]) -> Request:
        shared = self._shared(heads)
        taken = (rows, heads), (columns, shared), (columns, shared)
        inputs = [t.on(t.array[b:b + 1, some][:, :, of]) for t, (some, of) in zip(self.given, taken)]
        sizes = Sizes(1, heads.stop - heads.start, inputs[0].array.shape[1], inputs[1].array.shape[1])
        semantics = Semantics(sizes, settings)
        semantics.weights.update({name: self._weight(name, x, heads)
                                  for name, x in self.request.semantics.weights.items()})
        return Request(inputs, semantics, path="exact", threads=1)

    def _added(self, b: int, heads: slice, rows: slice, columns: slice) -> a.Doubles:
        """What is added to the scores of these neighbours, (1, heads, queries, keys); -inf where a key is hidden: the
        masked scores of zeros."""
        of = self._run(b, heads, rows, columns, True)
        numbers = [np.zeros((*t.array.shape[:3], 1)) for t in of.inputs if t is not None]
        of = Request([a.Tensor(x, abi.F64, a.wrap_numpy) for x in numbers], of.semantics, path="exact", threads=1)
        return of.run(np.empty((*numbers[0].shape[:3], 1)), [_MASKED])[_MASKED]

    def with_values(self, values: a.Doubles) -> Request:
        """The call with other values, (B, S, h_kv, any width)."""
        query, key, _ = self.given
        semantics = Semantics(Sizes(self.B, self.h, self.T_q, self.S), dict(self._values))
        semantics.weights.update(self.request.semantics.weights)
        return Request([query, key, a.Tensor(values, abi.F64, a.wrap_numpy)], semantics, path="exact")


def runs(chosen: a.Wholes) -> list[slice]:
    """Numbers in rising order as slices of neighbours."""
    return [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1)]
