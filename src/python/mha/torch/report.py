"""The report of a watched model: findings, a row for each layer, tables, and one HTML page that needs no network."""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Mapping, Optional

from .._renamed import Renamed
from ..core import arrays as a
from ..core.html import STYLE, document, text
from ..core.pictures import framed, heat_map
from ..core.tables import Table
from . import backward_check
from .call_check import Checked
from .calls import Asked
from .configured import Intended
from .listening import related

_FAINTEST = 1e-4  # of what is allowed: from here on a cell is coloured


@dataclass(frozen=True)
class Finding:
    """A fault of one layer.

    Attributes
    ----------
    layer, call : str, int
        Name of the module, and number of its call.
    kind : str
        "output" or "backward": results beyond the error bound of rounding; "config": a call that differs from the
        configuration; "cache": cached rows that changed; "type": another type than that of the weights.
    sentence : str
        The fault.
    names : tuple of str
        Known bugs that explain it.
    clues : tuple of str
        Further sentences.
    """

    layer: str
    call: int
    kind: str
    sentence: str
    names: tuple[str, ...] = ()
    clues: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = " ".join((self.sentence, *self.clues))
        names = ", ".join(name for name in self.names if name not in said)
        names = f" ({names})" if names else ""
        return "\n".join([f"{self.layer}, call {self.call}: {self.sentence}{names}",
                          *(f"  {clue}" for clue in self.clues)])


@dataclass
class Watched(Renamed):
    """One layer of a watched model.

    Attributes
    ----------
    layer : str
        Name of its module.
    calls, checked : int
        Number of calls, and of those that mha checked.
    heads : list of float
        Largest error over the allowed error, by head.
    queries, keys, n_heads, kv_heads : int
        Largest sizes of its calls.
    rows_checked, rows : int
        Compared query rows, and their number.
    asked : list of str
        Settings of its calls.
    uncompared, unchecked : list of str
        Reasons for outputs or gradients, and for everything else, that mha could not compare.
    described, rounded : bool
        Whether mha compared the settings with the configuration; whether queries or keys are right only with rotation
        frequencies rounded to the type of the model, as model.to(dtype) rounds them.
    projected : int
        Number of calls whose queries, keys and values mha compared with the layer's own weights.
    merged : bool
        Whether mha compared the heads with what entered the output projection.
    backward, gradients : int, dict from str to float
        Number of checked backwards; the largest error over the allowed error of dq, dk and dv.
    in_part : list of str
        Compared parts of large gradients.
    maps : tuple of ndarray
        Right weights of each head of batch row 0 in the first call, pooled; empty without maps=True.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"judged": "checked", "rows_judged": "rows_checked",
                                             "unjudged": "uncompared"}

    layer: str
    calls: int = 0
    checked: int = 0
    heads: list[float] = field(default_factory=list)
    queries: int = 0
    keys: int = 0
    n_heads: int = 0
    kv_heads: int = 0
    rows_checked: int = 0
    rows: int = 0
    asked: list[str] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    described: bool = False
    projected: int = 0
    rounded: bool = False
    merged: bool = False
    backward: int = 0
    gradients: dict[str, float] = field(default_factory=dict)
    in_part: list[str] = field(default_factory=list)
    maps: tuple[a.Floats, ...] = ()

    @property
    def ratio(self) -> Optional[float]:
        """The largest error over allowed of all heads; None: nothing was checked."""
        return max(self.heads, default=None)

    @property
    def gradient_ratio(self) -> Optional[float]:
        """The largest error over allowed of all gradients; None: no backward was checked."""
        return max(self.gradients.values(), default=None)

    @property
    def compared(self) -> list[str]:
        """Names of the results that were compared; the output of a whole layer covers its projections."""
        return [name for name, seen in (("output", self.heads), ("settings", self.described),
                                        ("queries, keys and values", self.projected and not self.rounded),
                                        ("queries, keys and values with rounded frequencies", self.rounded),
                                        ("merged heads", self.merged), ("gradients", self.backward))
                if seen]

    def _add_backward(self, checked: backward_check.CheckedBackward) -> None:
        """Counts a backward."""
        self.backward += 1
        for name, ratio in checked.ratios.items():
            self.gradients[name] = max(ratio, self.gradients.get(name, 0.0))
        if checked.share and checked.share not in self.in_part:
            self.in_part.append(checked.share)

    def _add(self, asked: Asked, checked: Optional[Checked]) -> None:
        """Counts a call."""
        words = asked.words()
        if words not in self.asked:
            self.asked.append(words)
        self.queries, self.keys = max(self.queries, asked.T_q), max(self.keys, asked.S)
        (self.n_heads, self.kv_heads), self.checked = asked.heads, self.checked + 1
        self.rows += asked.B * asked.T_q
        if checked is not None:
            self.rows_checked += checked.rows_checked
            self.maps = self.maps or checked.maps
            known = self.heads or [0.0] * len(checked.heads)
            self.heads = [max(pair) for pair in zip(known, checked.heads)]


class WatchReport(Renamed):
    """Layers by the names of their modules, in the order of their first calls; findings in the order in which they
    came."""

    _RENAMED: ClassVar[Mapping[str, str]] = {"unjudged": "uncompared"}

    def __init__(self, model: a.Module, intended: Optional[Intended], follows: bool) -> None:
        self._model, self._intended, self._follows = model, intended, follows
        self.layers: dict[str, Watched] = {}
        self.findings: list[Finding] = []
        self.saved: Optional[str] = None
        self.seconds, self.checking = 0.0, 0.0
        self._ran: set[str] = set()

    @property
    def first(self) -> Optional[Finding]:
        """What is wrong first, in the order in which the model ran; what comes after it may follow from it, but is
        checked on the inputs that it got."""
        return self.findings[0] if self.findings else None

    @property
    def uncompared(self) -> dict[str, list[str]]:
        """Layers with calls that could not be checked, and the reasons."""
        return {name: row.uncompared for name, row in self.layers.items() if row.uncompared}

    @property
    def unchecked(self) -> dict[str, list[str]]:
        """Layers that were not checked, or not in every respect, each with the reasons: those of `uncompared`, parts
        that were not compared with the configuration, and modules of `unheard` that ran."""
        found = {name: [*row.uncompared, *row.unchecked,
                        *([] if row.heads or row.uncompared else ["no query sees a key"])]
                 for name, row in self.layers.items()}
        found.update({name: ["it computes attention by itself"] for name in self.unheard if name in self._ran})
        return {name: reasons for name, reasons in found.items() if reasons}

    @property
    def undescribed(self) -> str:
        """The reason for calls that were not compared with the configuration; "" if all were compared."""
        return "not asked for" if self._intended is None else self._intended.why

    @property
    def unheard(self) -> list[str]:
        """Modules that look like attention, without an intercepted call: they did not run, or compute it themselves."""
        heard, looks = tuple(self.layers), [name for name, _ in self._looks()]
        return [name for name in looks if not any(related(name, other) for other in (*heard, *(
            x for x in looks if x != name and x.startswith(name + "."))))]

    def _looks(self) -> list[tuple[str, a.Module]]:
        """Modules that look like attention, or are layers of the configuration, by name."""
        return [(name, x) for name, x in self._model.named_modules() if "attention" in type(x).__name__.lower()
                or self._intended is not None and name and self._intended.describes(name)]

    @property
    def status(self) -> str:
        """"failed": there are findings; "not checked": there are none, but some layer was not checked, or no call was
        heard; else "passed"."""
        return "failed" if self.findings else "passed" if self.layers and not self.unchecked else "not checked"

    @property
    def passed(self) -> bool:
        """Whether calls were heard, all layers were checked, and all are right."""
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def table(self) -> Table:
        """Tabulate the layers.

        Returns
        -------
        mha.Table
            One row for each layer.
        """
        rows: list[tuple[object, ...]] = []
        unchecked = self.unchecked
        for row in self.layers.values():
            wrong = [f for f in self.findings if f.layer == row.layer]
            said = ("FIRST" if wrong and wrong[0] is self.first else "wrong" if wrong else
                    "not compared" if row.ratio is None else "not checked" if row.layer in unchecked else "ok")
            worst = None if row.ratio is None or len(row.heads) == 1 else row.heads.index(row.ratio)
            heads = f"{row.n_heads}/{row.kv_heads}" if row.kv_heads != row.n_heads else str(row.n_heads)
            asked = row.asked[0] if row.asked else "; ".join(row.uncompared)
            if len(row.asked) > 1:
                asked += f"; {len(row.asked) - 1} other"
            rows.append((row.layer, row.calls, row.queries, row.keys, heads, asked,
                         f"{row.rows_checked:,} of {row.rows:,}", row.ratio, worst,
                         *([row.gradient_ratio] if self._follows else []), said))
        return Table(("layer", "calls", "queries", "keys", "heads", "asked for", "rows checked", "error/allowed",
                      "worst head", *(["backward"] if self._follows else []), ""), rows)

    def heads(self) -> Table:
        """Tabulate the largest error over the allowed error.

        Returns
        -------
        mha.Table
            Layers down, heads across.
        """
        most = max((len(row.heads) for row in self.layers.values()), default=0)
        return Table(("layer", *(f"head {i}" for i in range(most))),
                     [(row.layer, *row.heads, *[None] * (most - len(row.heads))) for row in self.layers.values()])

    def to_dict(self) -> dict[str, object]:
        """Convert everything to types that json.dumps takes.

        Returns
        -------
        dict
            Layers, findings, reasons and cost.
        """
        return {"passed": self.passed, "status": self.status, "first": None if self.first is None else self.first.layer,
                "layers": [{**{name: value for name, value in vars(row).items() if name != "maps"},
                            "error_over_allowed": row.ratio, "compared": row.compared} for row in self.layers.values()],
                "findings": [{**vars(found), "names": list(found.names), "clues": list(found.clues)}
                             for found in self.findings],
                "unchecked": self.unchecked, "uncompared": self.uncompared, "unheard": self.unheard,
                "undescribed": self.undescribed, "saved": self.saved,
                "cost": {"seconds": self.seconds, "checking": self.checking}}

    @property
    def summary(self) -> str:
        """How much was checked, and what it cost."""
        calls, checked = (sum(getattr(row, name) for row in self.layers.values()) for name in ("calls", "checked"))
        rest = self.seconds - self.checking
        cost = f", checking took {self.checking:.2g} s, the model {rest:.2g} s" if self.seconds else ""
        said = f"{checked:,} of {calls:,} calls checked in {len(self.layers):,} layers{cost}"
        if not self.layers:
            said = "no attention call was heard"
        if self.unheard:
            some = ", ".join(self.unheard[:3]) + (", ..." if len(self.unheard) > 3 else "")
            said += f"; not heard, because it did not run or computes attention by itself: {some}"
        counts = Counter(what for row in self.layers.values() for what in row.compared)
        if counts:
            said += "; compared: " + ", ".join(f"{what} in {count}{' layers' * (i == 0)}"
                                               for i, (what, count) in enumerate(counts.items()))
        return said + (f"; not compared with a configuration ({self.undescribed})" if self.undescribed else "")

    def __str__(self) -> str:
        lines = [str(self.table()), ""] if self.layers else []
        if self.first is not None:
            lines += [f"FIRST: {self.first}", ""]
            lines += [str(found).split("\n", maxsplit=1)[0] for found in self.findings[1:]]
        lines += [f"not checked: {name}: {'; '.join(reasons)}" for name, reasons in self.unchecked.items()]
        return "\n".join([*lines, f"{self.summary}: {self.status}"])

    __repr__ = __str__

    def to_html(self) -> str:
        """Make one HTML page that needs no network.

        Returns
        -------
        str
            The page: findings, layers down and heads across with the error over the allowed error, and the calls of
            each layer.
        """
        return _page(self)

    def _repr_html_(self) -> str:
        return _notebook(self)


# ---------------------------------------------------------------- pages


def _cell(ratio: Optional[float]) -> str:
    """A head of a layer: the error over what is allowed, the darker the nearer to it; red beyond it."""
    if ratio is None:
        return "<td></td>"
    if not ratio <= 1:
        return f"<td class=wrong>{ratio:.2g}</td>"
    depth = max(0.0, 1 - math.log10(max(ratio, _FAINTEST)) / math.log10(_FAINTEST))
    return f'<td style="background:rgba(24,106,59,{0.75 * depth:.2f})">{ratio:.2g}</td>'


def _row(w: WatchReport, row: Watched, most: int) -> str:
    """A layer: what it was asked for, its heads, and whether it is the first that is wrong."""
    wrong = [found for found in w.findings if found.layer == row.layer]
    said = ("FIRST" if wrong and wrong[0] is w.first else "wrong" if wrong else "not compared" if row.ratio is None else
            "ok")
    cells = "".join(map(_cell, [*row.heads, *[None] * (most - len(row.heads))]))
    asked = text("; ".join(row.asked) or "; ".join(row.uncompared))
    return f"<tr><th>{text(row.layer)}</th><td>{said}</td>{cells}<td class=long>{asked}</td></tr>"


def _map(w: WatchReport) -> str:
    """Layers down, heads across."""
    most = max((len(row.heads) for row in w.layers.values()), default=0)
    heads = "".join(f"<th>head {i}</th>" for i in range(most))
    rows = "".join(_row(w, row, most) for row in w.layers.values())
    return ("<h2>Layers and heads</h2><p>The largest error of each head over the allowed rounding error. At most 1 is "
            "right; larger numbers are red. A layer that is checked as a whole has one number.</p><table "
            f"class=map><tr><th>layer</th><th>status</th>{heads}<th>asked for</th></tr>{rows}</table>") if rows else ""


def _looks(w: WatchReport) -> str:
    """What the heads look at, layer by layer, folded away."""
    parts = [f"<details><summary>{text(row.layer)}</summary>{''.join(drawn)}</details>" for row, drawn in (
        (row, [heat_map(head, f"head {i}") for i, head in enumerate(row.maps)]) for row in w.layers.values()) if drawn]
    return ("<h2>Attention maps</h2><p>The right weights of the first call's first batch row, at the queries that "
            f"were checked.</p>{''.join(parts)}") if parts else ""


def _findings(w: WatchReport) -> str:
    """What is wrong, in the order in which it came."""
    parts = [f"<h3>{text(found.layer)}, call {found.call}</h3><p>{text(found.sentence)}</p>" + "".join(
        f"<p>{text(clue)}</p>" for clue in found.clues) for found in w.findings]
    return "<h2>Findings, in the order of the run</h2>" + "".join(parts) if parts else ""


def _body(w: WatchReport) -> str:
    """What the page shows, without its frame."""
    verdict = w.status
    left = Table(("layer", "why"), [(name, why) for name, reasons in w.unchecked.items() for why in reasons])
    more = f"<h2>Not checked</h2>{left._repr_html_()}" if len(left) else ""
    head = f"<h1 class={verdict.replace(' ', '-')}>{text(type(w._model).__name__)} {verdict}</h1>"
    every = f"<h2>All layers</h2>{w.table()._repr_html_()}" if w.layers else ""
    return f"{head}<p>{text(w.summary)}</p>{_findings(w)}{_map(w)}{_looks(w)}{more}{every}"


def _page(w: WatchReport) -> str:
    """A watched model as one page. It loads nothing, runs nothing, and shows names of modules as text."""
    return document(w.summary, _body(w))


def _notebook(w: WatchReport) -> str:
    """The same within a notebook."""
    return framed(f"<style>{STYLE}</style>{_body(w)}", min(900, 260 + 60 * len(w.layers) + 120 * len(w.findings)))
