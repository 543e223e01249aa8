"""The backward of one attention call of a model, checked on what it got: the error of each gradient over its bound."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, Mapping, Optional, cast

import numpy as np

from ..core import arrays as a
from ..core.backward import MeantBackward
from ..core.backward_call import Backward
from ..core.reference import Meant
from ..judge.gradients import ComputedGradients, GradientVerdict, explained, verdict_of
from ..judge.part import Cut
from .call_check import LARGE, rows_of
from .calls import Asked, NotChecked

_LARGEST = 4 * LARGE  # scores of one key/value head of a batch row, above which only dq is checked, of some rows
_ROUNDED = ("scores", "weights", "probabilities", "d_weights", "d_scores")  # by an implementation of single operations


@dataclass(frozen=True)
class CheckedBackward:
    """ratios: the largest error over allowed of dq, dk and dv; at most 1 is right. share: which part was checked, in
    words; "" for all. sentence, clue, names: of the worst gradient, and which bugs explain all of them."""

    ratios: Mapping[str, float]
    share: str = ""
    sentence: str = ""
    clue: str = ""
    names: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """The largest of all gradients."""
        return max(self.ratios.values())


@dataclass
class _Part:
    """Some batch rows and key/value heads of a call, some batch rows of a layer, or some queries, with what came back,
    in the library's axes: (B, T, heads, width), of a layer (B, T, width)."""

    backward: Backward
    found: dict[str, a.Doubles]
    blind: a.Flags  # (B or 1, h or 1, queries), of a layer (B or 1, queries): which queries see no key
    first: tuple[int, int] = (0, 0)  # batch row and key/value head of the first element
    rows: Optional[a.Wholes] = None  # queries
    batch: Optional[a.Wholes] = None  # batch rows of a layer
    one: bool = False  # keys and values are made of the queries' input, of which the gradient is their sum

    def checked(self, name: str, allowed: a.Doubles) -> a.Doubles:
        """What is allowed; infinite where nothing can be said: of a query that sees no key the output is nobody's, and
        neither is what it passes on to keys and values."""
        if name == "query":
            allowed = np.where(self._blind_rows[..., None], np.inf, allowed)
        if name == "query" and not self.one:
            return allowed
        return np.where(self.passed_on.reshape(-1, *(1 for _ in allowed.shape[1:])), np.inf, allowed)

    @property
    def _blind_rows(self) -> a.Flags:
        """Which queries see no key, in the axes of these: (B or 1, queries, h or 1), of a layer (B or 1, queries)."""
        return self.blind.swapaxes(1, -1)

    @property
    def passed_on(self) -> a.Flags:
        """(B) booleans: whether queries that see no key pass gradients on."""
        do = a.doubles(self.backward.do)
        passed = (do != 0).any(-1) & self._blind_rows
        some: a.Flags = passed.reshape(len(passed), -1).any(1)
        return some


def _some(asked: Asked, do: a.Torch, found: Mapping[str, a.Torch],
          rows: Optional[a.Wholes] = None) -> tuple[MeantBackward, dict[str, a.Doubles]]:
    """The backward of all queries or of some rows, and what came back."""
    query, key, value = (x.detach() for x in asked.inputs(rows))
    meant = Meant(query, key, value, None, None, asked.settings(rows))
    return MeantBackward(meant, do, None), _inside(meant, found)


def _inside(meant: Meant, found: Mapping[str, a.Torch]) -> dict[str, a.Doubles]:
    """What came back, in the library's axes."""
    return {name: cast("a.Doubles", meant.shape.inside(a.doubles(a.floats(name, x)))) for name, x in found.items()}


def _blind(asked: Asked, rows: Optional[a.Wholes] = None) -> a.Flags:
    sees: a.Flags = asked.visible(np.arange(asked.T_q) if rows is None else rows).any(3)
    return ~sees


def _heads_chosen(cut: Cut, found: Mapping[str, a.Doubles], count: int, seed: int) -> list[tuple[int, int]]:
    """`count` batch rows with a key/value head: half of them those with an unusual norm of a gradient, the rest at
    random."""
    odd = np.zeros((cut.B, cut.h_kv))
    for x in found.values():
        by_head = x.reshape(cut.B, x.shape[1], cut.h_kv, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.square(by_head).sum((1, 3)))
        finite = np.isfinite(norms)
        logs = np.log(np.maximum(np.where(finite, norms, 0.0), 1e-300))
        odd = np.maximum(odd, np.where(finite, np.abs(logs - np.median(logs)), np.inf))
    first = np.argsort(-odd.ravel(), kind="stable")[:(count + 1) // 2]
    others = np.setdiff1d(np.random.default_rng(seed).permutation(odd.size), first, assume_unique=True)
    return [(int(i) // cut.h_kv, int(i) % cut.h_kv) for i in np.sort([*first, *others[:count - len(first)]])]


def _parts(asked: Asked, do: a.Torch, found: Mapping[str, a.Torch], seed: int) -> tuple[Iterator[_Part], str]:
    """The checked part of a call, and its description: all of a call of at most LARGE scores; of a larger one some
    key/value heads of some batch rows; of one whose heads are too large only dq of some queries."""
    (heads, kv), B, T_q = asked.heads, asked.B, asked.T_q
    each = heads // kv * T_q * asked.S
    if each > _LARGEST:
        rows = rows_of(asked, 0, seed)
        if "query" not in found:
            raise NotChecked(f"a backward of {each:,} scores a head, of which no gradient of queries came back")
        backward, back = _some(asked, do[..., rows, :], {"query": found["query"][..., rows, :]}, rows)
        return iter([_Part(backward, back, _blind(asked, rows), rows=rows)]), f"dq of {len(rows)} of {T_q:,} queries"
    whole, back = _some(asked, do, found)
    blind = _blind(asked)
    if B * kv * each <= LARGE:
        return iter([_Part(whole, back, blind)]), ""
    cut = Cut(whole.request)
    chosen = _heads_chosen(cut, back, max(1, LARGE // each), seed)

    def part(b: int, g: int) -> _Part:
        of_q, own = cut.heads(g), slice(b, b + 1)
        seen = blind[own] if blind.shape[0] > 1 else blind
        return _Part(Backward(cut.part(b, of_q), whole.do.on(whole.do.array[own, :, of_q]), None),
                     {name: x[own, :, of_q if name == "query" else slice(g, g + 1)] for name, x in back.items()},
                     seen[:, of_q] if seen.shape[1] > 1 else seen, (b, g))

    return ((part(b, g) for b, g in chosen), f"{len(chosen)} of {B * kv} key/value heads of all batch rows")


# Of inputs of a layer that are one tensor, by Asked.same: those that are left out.
_LEFT_OUT: dict[tuple[int, ...], tuple[str, ...]] = {(0, 1, 2): (), (0, 1, 1): ("value",), (0, 0, 0): ("key", "value")}


def _of_layer(asked: Asked, do: a.Torch, found: Mapping[str, a.Torch], seed: int) -> tuple[Iterator[_Part], str]:
    """What is checked of a whole layer: all batch rows, or some of a call of more than LARGE scores."""
    left_out, each = _LEFT_OUT.get(asked.same), asked.heads[0] * asked.T_q * asked.S
    if left_out is None:
        raise NotChecked("the backward of a layer whose query is also key or value, but not both")
    if each > _LARGEST:
        raise NotChecked(f"the backward of a layer of {each:,} scores a batch row")
    count = max(1, min(asked.B, LARGE // each))
    batch = np.sort(np.random.default_rng(seed).permutation(asked.B)[:count])

    def part(x: Optional[a.Torch]) -> Optional[a.Torch]:
        return x if x is None or len(x) == 1 else x[batch]

    some = replace(asked, query=asked.query[batch], key=asked.key[batch], value=asked.value[batch],
                   keeps=part(asked.keeps), added=part(asked.added))
    query, key, value = (None if name in left_out else x.detach()
                         for name, x in zip(("query", "key", "value"), some.inputs()))
    meant = Meant(query, key, value, asked.layer, None, some.settings())
    checked = _Part(MeantBackward(meant, do[batch], None),
                    _inside(meant, {name: x[batch] for name, x in found.items()}), _blind(some).any(1), batch=batch,
                    one="key" in left_out)
    return iter([checked]), "" if count == asked.B else f"{count} of {asked.B} batch rows"


def _computed(asked: Asked, found: Mapping[str, a.Torch], dtype: Optional[a.Type]) -> ComputedGradients:
    """How the backward rounds: as a fused kernel of the type, or after each operation."""
    first = a.floats("gradient", next(iter(found.values())))
    plain = ComputedGradients(dtype, None, first)
    if plain.code not in a.HALVES or not asked.rounds:
        return plain
    return ComputedGradients(dtype, dict.fromkeys(_ROUNDED, a.NAMES[plain.code]), first)


def check(asked: Asked, do: a.Torch, found: Mapping[str, a.Torch], seed: int, dtype: Optional[a.Type] = None
          ) -> CheckedBackward:
    """Checks what came back of a call: dq, dk and dv of its inputs from do, tensors of PyTorch in the axes of these."""
    for name, x in found.items():
        if x.shape != getattr(asked, name).shape:
            raise NotChecked(f"a gradient of {name} of shape {tuple(x.shape)}")
    computed = _computed(asked, found, dtype)
    if asked.layer is not None and computed.code in a.HALVES:
        raise NotChecked(f"the backward of a whole layer in {computed.words}")
    parts, share = (_parts if asked.layer is None else _of_layer)(asked, do, found, seed)
    group = asked.heads[0] // asked.heads[1]
    ratios: dict[str, float] = {}
    names: tuple[str, ...] = ()
    sentence, clue, most, unsaid = "", "", 1.0, 0
    for part in parts:
        exact = part.backward.run(list(part.found))
        allowed = part.backward.bound(list(part.found), computed.unit, computed.precision)
        verdicts = {name: verdict_of(name, yours, exact[name], part.checked(name, allowed[name]))
                    for name, yours in part.found.items()}
        unsaid += int(part.passed_on.sum())
        for name, verdict in verdicts.items():
            word = f"d{name[0]}"
            ratios[word] = max(ratios.get(word, 0.0), verdict.ratio)
            if verdict.ratio > most:
                most, sentence = verdict.ratio, _sentence(word, verdict, part, group, computed)
        if not names and any(verdict.wrong for verdict in verdicts.values()):
            bugs, clue = explained(part.backward, part.found, computed)
            names = tuple(bug.name for bug in bugs)
    if unsaid:
        share += (f"{'; ' if share else ''}dk and dv of {unsaid} batch rows not, in which queries that see no key pass "
                  "gradients on")
    return CheckedBackward(ratios, share, sentence, clue, names)


def _sentence(word: str, verdict: GradientVerdict, part: _Part, group: int, computed: ComputedGradients) -> str:
    """The element that decides it."""
    b, row, *head, feature = verdict.worst
    row = int(part.rows[row]) if part.rows is not None else row
    if part.batch is not None:
        where = f"batch row {part.batch[b]}"
    else:
        first, head_of = part.first, "head" if word == "dq" else "key/value head"
        where = f"batch row {b + first[0]}, {head_of} {head[0] + first[1] * (group if word == 'dq' else 1)}"
    return (f"{word} is off by {abs(verdict.yours - verdict.exact):.3g} ({where}, "
            f"{'query' if word == 'dq' else 'key'} {row}, feature {feature}: {verdict.yours:.6g}, "
            f"exact {verdict.exact:.6g}), allowed {verdict.allowed:.3g} ({computed.words})")
