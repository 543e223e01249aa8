"""The backward of one attention call of a model, judged on what it got: the error of each gradient over its bound."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping

import numpy as np

from . import _abi
from . import arrays as a
from .asked import Asked, NotJudged
from .backward import MeantBackward
from .gradients import Computed, Verdict, explained, verdict_of
from .judged import LARGE, rows_of
from .meant import Meant

_LARGEST = 4 * LARGE  # scores of one key/value head of a batch row, above which dq alone is judged, of some rows
_ROUNDED = ("scores", "weights", "probabilities", "d_weights", "d_scores")  # by an implementation of single operations


@dataclass(frozen=True)
class JudgedBackward:
    """ratios: the largest error over allowed of dq, dk and dv; at most 1 is right. share: which part was judged, in
    words; "" for all. sentence, clue, names: of the worst gradient, and which mistakes explain all of them."""

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
    """Some batch rows and key/value heads of a call, some batch rows of a layer, or some queries, with what came in and
    back."""

    meant: Meant
    do: Any
    found: dict[str, Any]
    blind: Any  # (B or 1, h or 1, queries), of a layer (B or 1, queries): which queries see no key
    first: tuple[int, int] = (0, 0)  # batch row and key/value head of the first element
    rows: Any = None  # queries
    batch: Any = None  # batch rows of a layer
    one: bool = False  # keys and values are made of the queries' input, of which the gradient is their sum

    def judged(self, name: str, allowed: Any) -> Any:
        """What is allowed; infinite where nothing can be said: of a query that sees no key the output is nobody's, and
        neither is what it passes on to keys and values."""
        if name == "query":
            allowed = np.where(self.blind[..., None], np.inf, allowed)
        if name == "query" and not self.one:
            return allowed
        return np.where(self.passed_on.reshape(-1, *(1 for _ in allowed.shape[1:])), np.inf, allowed)

    @property
    def passed_on(self) -> Any:
        """(B) booleans: whether queries that see no key pass gradients on."""
        passed = (a.widened(a.floats("do", self.do), _abi.F64).array != 0).any(-1) & self.blind
        return passed.reshape(len(passed), -1).any(1)


def _whole(asked: Asked, do: Any, found: dict[str, Any]) -> _Part:
    return _Part(Meant(*_plain(asked.inputs()), None, None, asked.settings()), do, found, _blind(asked))


def _blind(asked: Asked, rows: Any = None) -> Any:
    return ~asked.visible(np.arange(asked.T_q) if rows is None else rows).any(3)


def _plain(inputs: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    query, key, value = (x.detach() for x in inputs)
    return query, key, value


def _head(asked: Asked, do: Any, found: dict[str, Any], b: int, head: int) -> _Part:
    """One key/value head of one batch row, with the queries that share it."""
    group = asked.heads[0] // asked.heads[1]
    of_q, of_k = slice(head * group, (head + 1) * group), slice(head, head + 1)

    def part(x: Any, heads: slice) -> Any:
        rows = x[b:b + 1] if x.shape[0] > 1 else x
        return rows[:, heads] if x.shape[1] > 1 or heads is of_k else rows

    q, k, v = _plain(asked.inputs())
    said: dict[str, Any] = {"scale": asked.scale, "softcap": asked.softcap or None, "enable_gqa": True,
                            "sinks": None if asked.sinks is None else asked.sinks[of_q]}
    seen = part(asked.visible(np.arange(asked.T_q)), of_q)
    if asked.added is not None:
        added = part(asked.added.expand(-1, -1, asked.T_q, asked.S), of_q).double().numpy()
        said["attn_mask"] = np.where(seen, added, -np.inf)
    elif not seen.all():
        said["attn_mask"] = seen
    meant = Meant(part(q, of_q), part(k, of_k), part(v, of_k), None, None,
                  {name: value for name, value in said.items() if value is not None})
    back = {name: part(x, of_q if name == "query" else of_k) for name, x in found.items()}
    return _Part(meant, part(do, of_q), back, ~seen.any(3), (b, head))


def _parts(asked: Asked, do: Any, found: dict[str, Any], seed: int) -> tuple[Iterator[_Part], str]:
    """What is judged of a call, and which part that is, in words: all of a call of at most LARGE scores; of a larger
    one some key/value heads of some batch rows; of one whose heads are too large some queries, and dq alone."""
    (heads, kv), B, T_q = asked.heads, asked.B, asked.T_q
    each = heads // kv * T_q * asked.S
    if B * kv * each <= LARGE:
        return iter([_whole(asked, do, found)]), ""
    if each > _LARGEST:
        rows = rows_of(asked, 0, seed)
        some = Meant(*_plain(asked.inputs(rows)), None, None, asked.settings(rows))
        back = {"query": found["query"][..., rows, :]} if "query" in found else {}
        if not back:
            raise NotJudged(f"a backward of {each:,} scores a head, of which no gradient of queries came back")
        part = _Part(some, do[..., rows, :], back, _blind(asked, rows), rows=rows)
        return iter([part]), f"dq of {len(rows)} of {T_q:,} queries"
    count = max(1, LARGE // each)
    chosen = np.sort(np.random.default_rng(seed).permutation(B * kv)[:count])
    return ((_head(asked, do, found, int(i) // kv, int(i) % kv) for i in chosen),
            f"{len(chosen)} of {B * kv} key/value heads of all batch rows")


# Of inputs of a layer that are one tensor, by Asked.same: those that are left out.
_LEFT_OUT: dict[tuple[int, ...], tuple[str, ...]] = {(0, 1, 2): (), (0, 1, 1): ("value",), (0, 0, 0): ("key", "value")}


def _of_layer(asked: Asked, do: Any, found: dict[str, Any], seed: int) -> tuple[Iterator[_Part], str]:
    """What is judged of a whole layer: all batch rows, or some of a call of more than LARGE scores."""
    left_out, each = _LEFT_OUT.get(asked.same), asked.heads[0] * asked.T_q * asked.S
    if left_out is None:
        raise NotJudged("the backward of a layer of which query and one of key and value alone are one tensor")
    if each > _LARGEST:
        raise NotJudged(f"the backward of a layer of {each:,} scores a batch row")
    count = max(1, min(asked.B, LARGE // each))
    batch = np.sort(np.random.default_rng(seed).permutation(asked.B)[:count])

    def part(x: Any) -> Any:
        return x if x is None or len(x) == 1 else x[batch]

    some = replace(asked, query=asked.query[batch], key=asked.key[batch], value=asked.value[batch],
                   keeps=part(asked.keeps), added=part(asked.added))
    inputs: list[Any] = [None if name in left_out else x for name, x in zip(("query", "key", "value"),
                                                                            _plain(some.inputs()))]
    meant = Meant(inputs[0], inputs[1], inputs[2], asked.layer, None, some.settings())
    judged = _Part(meant, do[batch], {name: x[batch] for name, x in found.items()}, _blind(some).any(1), batch=batch,
                   one="key" in left_out)
    return iter([judged]), "" if count == asked.B else f"{count} of {asked.B} batch rows"


def _computed(asked: Asked, found: Mapping[str, Any], dtype: Any) -> Computed:
    """How the backward rounds: as a fused kernel of the type, or after each operation."""
    first = a.floats("gradient", next(iter(found.values())))
    plain = Computed(dtype, None, first)
    if plain.code not in a.HALVES or not asked.rounds:
        return plain
    return Computed(dtype, dict.fromkeys(_ROUNDED, a.NAMES[plain.code]), first)


def judge(asked: Asked, do: Any, found: dict[str, Any], seed: int, dtype: Any = None) -> JudgedBackward:
    """Judges what came back of a call: dq, dk and dv of its inputs from do, tensors of PyTorch in the axes of these."""
    for name, x in found.items():
        if x.shape != getattr(asked, name).shape:
            raise NotJudged(f"a gradient of {name} of shape {tuple(x.shape)}")
    computed = _computed(asked, found, dtype)
    if asked.layer is not None and computed.code in a.HALVES:
        raise NotJudged(f"the backward of a whole layer in {computed.words}")
    parts, share = (_parts if asked.layer is None else _of_layer)(asked, do, found, seed)
    ratios: dict[str, float] = {}
    names: tuple[str, ...] = ()
    sentence, clue, most, unsaid = "", "", 1.0, 0
    for part in parts:
        backward = MeantBackward(part.meant, part.do, None)
        yours = {name: part.meant.shape.inside(a.widened(a.floats(name, x), _abi.F64).array)
                 for name, x in part.found.items()}
        exact = backward.run(list(yours))
        allowed = backward.bound(list(yours), computed.unit, computed.precision)
        verdicts = {}
        for name in yours:
            theirs, right, limit = (backward.turned(name, x[name]) for x in (yours, exact, allowed))
            verdicts[name] = verdict_of(name, theirs, right, part.judged(name, limit))
        unsaid += int(part.passed_on.sum())
        for name, verdict in verdicts.items():
            word = f"d{name[0]}"
            ratios[word] = max(ratios.get(word, 0.0), verdict.ratio)
            if verdict.ratio > most:
                most, sentence = verdict.ratio, _sentence(word, verdict, part, computed)
        if not names and any(verdict.wrong for verdict in verdicts.values()):
            names, clue = explained(backward, yours, computed)
    if unsaid:
        share += (f"{'; ' if share else ''}dk and dv of {unsaid} batch rows not, in which queries that see no key pass "
                  "gradients on")
    return JudgedBackward(ratios, share, sentence, clue, names)


def _sentence(word: str, verdict: Verdict, part: _Part, computed: Computed) -> str:
    """The element that decides it."""
    row, feature = verdict.worst[-2:]
    row = int(part.rows[row]) if part.rows is not None else row
    if part.batch is not None:
        where = f"batch row {part.batch[verdict.worst[0]]}"
    else:
        b, head = verdict.worst[:2]
        shape: Any = part.meant.shape
        head += part.first[1] * (shape.h // shape.h_kv if word == "dq" else 1)
        where = f"batch row {b + part.first[0]}, {'head' if word == 'dq' else 'key/value head'} {head}"
    return (f"{word} is off by {abs(verdict.yours - verdict.exact):.3g} ({where}, "
            f"{'query' if word == 'dq' else 'key'} {row}, feature {feature}: {verdict.yours:.6g}, "
            f"exact {verdict.exact:.6g}), allowed {verdict.allowed:.3g} ({computed.words})")
