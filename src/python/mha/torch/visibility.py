"""Which keys each query sees, as rules: causal, window, chunk, packed sequences, padding; rules read from a mask."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Optional

import numpy as np

from ..core.kinds import Flags, Wholes

OPEN = (-1, -1)


@dataclass(frozen=True)
class Rules:
    """Query i is at position offset + i, key j at position j.

    causal: a query sees keys up to its own position. window: (left, right), keys farther away are hidden, -1 is open.
    chunk: it sees only keys of its own chunk of so many positions. q_segments, k_segments: (B, T_q), (B, S) numbers of
    the packed sequences, of which it sees its own. keys: (B, S) booleans, False for padding.
    """

    offset: int = 0
    causal: bool = False
    window: tuple[int, int] = OPEN
    chunk: int = 0
    q_segments: Optional[Wholes] = None
    k_segments: Optional[Wholes] = None
    keys: Optional[Flags] = None

    def settings(self) -> dict[str, Any]:
        """The same as settings of a call."""
        found: dict[str, Any] = {}
        if self.causal or self.chunk or self.window != OPEN:
            found["offset"] = self.offset
        if self.causal:
            found["causal"] = True
        if self.window != OPEN:
            found["window"] = self.window
        if self.chunk:
            found["chunk"] = self.chunk
        if self.q_segments is not None:
            found.update(q_segments=self.q_segments, k_segments=self.k_segments)
        if self.keys is not None:
            found.update(key_padding=self.keys, key_padding_kind="keeps")
        return found

    def keeps(self, rows: Wholes, S: int) -> Flags:
        """(B or 1, len(rows), S) booleans: which keys the queries of these rows see."""
        at, key = (np.asarray(rows) + self.offset)[:, None], np.arange(S)[None]
        seen = np.ones((len(rows), S), bool)
        if self.causal:
            seen &= key <= at
        for side, ahead in zip(self.window, (at - key, key - at)):
            if side >= 0:
                seen &= ahead <= side
        if self.chunk:
            seen &= at // self.chunk == key // self.chunk
        whole: Flags = seen[None]
        if self.q_segments is not None and self.k_segments is not None:
            whole = whole & (self.q_segments[:, rows, None] == self.k_segments[:, None])
        whole = whole if self.keys is None else whole & self.keys[:, None]
        return whole

    @property
    def hides_nothing(self) -> bool:
        """Whether every query sees every key."""
        return not self.settings()

    def words(self) -> str:
        """In words: "causal, window 3, padding 4 of 14 keys"."""
        said = ["causal"] if self.causal else []
        left, right = self.window
        if self.window != OPEN:
            said.append(f"window {left + 1}" if self.causal and right < 0 else f"window -{left}..+{right}")
        if self.chunk:
            said.append(f"chunk {self.chunk}")
        if self.q_segments is not None:
            said.append("packed")
        if self.keys is not None:
            said.append(f"padding {int((~self.keys).sum())} of {self.keys.size} keys")
        return ", ".join(said) or "full"


# ---------------------------------------------------------------- rules out of a mask


def read(keeps: Flags, rows: Wholes, T_q: int) -> Optional[Rules]:
    """The rules that hide the same keys of these rows as a mask does, (B, len(rows), S) booleans; None: there are none
    of this kind. Rows that see no key fit every rule."""
    seen = keeps.any(2)
    if not seen.any():
        return None
    for rules in _candidates(keeps, seen, rows, T_q):
        shown = rules.keeps(rows, keeps.shape[2])
        padded = shown.any(1) & ~keeps.any(1)
        if bool(((keeps == (shown & ~padded[:, None])) | ~seen[:, :, None]).all()):
            return replace(rules, keys=~padded) if padded.any() else rules
    return None


def _candidates(keeps: Flags, seen: Flags, rows: Wholes, T_q: int) -> Iterator[Rules]:
    """Rules that a mask may follow, the plainest first."""
    S = keeps.shape[2]
    first, last = keeps.argmax(2), S - 1 - keeps[:, :, ::-1].argmax(2)
    yield Rules()
    ahead = int((last - np.asarray(rows))[seen].max())
    offsets = tuple(dict.fromkeys((S - T_q, 0, ahead)))
    for offset in offsets:
        yield Rules(offset, causal=True)
    for offset in offsets:
        at = np.broadcast_to(np.asarray(rows) + offset, seen.shape)
        left = int((at - first)[seen].max())
        if left >= 0:
            yield Rules(offset, causal=True, window=(left, -1))
            yield Rules(offset, window=(left, max(int((last - at)[seen].max()), 0)))
        begins = np.unique(first[seen])
        for size in np.unique(np.diff(begins)):
            yield Rules(offset, causal=True, chunk=int(size))
            yield Rules(offset, chunk=int(size))
        if len(rows) == T_q == S and offset == 0:
            # Packed sequences: a new one begins where a token and the token before it do not see each other.
            near = np.arange(1, S)
            apart = ~(keeps[:, near, near - 1] | keeps[:, near - 1, near])
            segments = np.pad(apart.cumsum(1), ((0, 0), (1, 0)))
            packed = Rules(q_segments=segments, k_segments=segments)
            yield replace(packed, causal=True)
            yield packed
            if left >= 0:
                yield replace(packed, causal=True, window=(left, -1))
                yield replace(packed, window=(left, max(int((last - at)[seen].max()), 0)))
