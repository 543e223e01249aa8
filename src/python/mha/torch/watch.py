"""A running model watched: every attention call checked on the very inputs it got, layer by layer and head by head."""
from __future__ import annotations

import functools
import importlib
import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Iterator, Mapping, Optional

from .._renamed import Renamed
from ..core import arrays as a
from ..core.errors import Error
from ..core.tables import Table
from . import call_check as j
from . import page
from . import backward_check
from .call_check import Checked
from .calls import Asked, NotChecked
from .configured import Intended
from .listening import BackwardRun, Seams, related


@dataclass(frozen=True)
class Finding:
    """What is wrong with one layer: which layer, which of its calls, what in a sentence, and the names of the bugs
    that explain it, if any do. kind: "output": a result beyond what rounding may cost on what was asked for;
    "backward": gradients of q, k or v beyond that; "config":
    what was asked for is not what the configuration says; "cache": cached rows changed; "type": another than that of
    the weights."""

    layer: str
    call: int
    kind: str
    sentence: str
    names: tuple[str, ...] = ()
    clues: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.layer}, call {self.call}: {self.sentence}", *(f"  {clue}" for clue in self.clues)])


@dataclass
class Watched(Renamed):
    """One layer: the number of its calls and their settings.

    heads: the largest error over the allowed error, by head. uncompared: the reasons for outputs or gradients that were
    not compared; unchecked: the reasons for everything else that was not compared. described: True if the settings of
    the calls were compared with the configuration. projected: the number of calls whose queries, keys and values were
    compared with the layer's own weights. rounded: True if queries or keys are right only with rotation frequencies
    rounded to the type of the model, as model.to(dtype) rounds them. gradients: the largest error over the allowed
    error of dq, dk and dv in `backward` calls; in_part: the parts of large gradients that were compared. maps: the
    right weights of each head of batch row 0 in the first call, pooled; empty without maps=True."""

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
    backward: int = 0
    gradients: dict[str, float] = field(default_factory=dict)
    in_part: list[str] = field(default_factory=list)
    maps: tuple[Any, ...] = ()

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
                                        ("gradients", self.backward))
                if seen]

    def add_backward(self, checked: backward_check.CheckedBackward) -> None:
        """Counts a backward."""
        self.backward += 1
        for name, ratio in checked.ratios.items():
            self.gradients[name] = max(ratio, self.gradients.get(name, 0.0))
        if checked.share and checked.share not in self.in_part:
            self.in_part.append(checked.share)

    def add(self, asked: Asked, checked: Optional[Checked]) -> None:
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


class Watch(Renamed):
    """A model under watch: see mha.watch, which makes it. layers: by the names of their modules, in the order of their
    first calls. findings: what is wrong, in the order in which it came."""

    _RENAMED: ClassVar[Mapping[str, str]] = {"unjudged": "uncompared"}

    def __init__(self, model: Any, *, sample: int = 0, dtype: Any = None, save: Any = None,
                 most_findings: int = 16, config: bool = True, backward: bool = False, modules: Any = (),
                 maps: bool = False) -> None:
        if not callable(getattr(model, "named_modules", None)):
            raise TypeError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
        self._sample, self._dtype, self._save = a.whole_number("sample", sample, 0), dtype, save
        if dtype is not None:
            a.float_type("dtype", dtype)
        self._most = a.whole_number("most_findings", most_findings, 1)
        self._follows, self._maps = a.flag("backward", backward), a.flag("maps", maps)
        self._model, self._seams = model, Seams(model, self._hear, self._follows, _modules(model, modules))
        self._returning: list[tuple[Watched, Any]] = []
        self._intended = Intended(model) if a.flag("config", config) else None
        self.layers: dict[str, Watched] = {}
        self.findings: list[Finding] = []
        self.saved: Optional[str] = None
        self.seconds, self.checking = 0.0, 0.0
        self._begun = 0.0
        self._ran: set[str] = set()
        self._hooks: list[Any] = []

    def __enter__(self) -> Watch:
        self._seams.open()
        whole = importlib.import_module("torch").nn.MultiheadAttention  # whose fast path hooks would end
        for name, module in self._looks():
            if isinstance(module, whole):
                self._ran.add(name)  # its fast path, in torch.nn.TransformerEncoderLayer, runs without a call
            else:
                self._hooks.append(module.register_forward_pre_hook(lambda *_, name=name: self._ran.add(name)))
        if self._intended is not None:
            self._intended.open()
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun
        if self._intended is not None:
            self._intended.close()
        self._seams.close()
        while self._hooks:
            self._hooks.pop().remove()
        for row, returned in self._returning:
            if returned.rounds == 0 and not returned.again:
                some = ", ".join(f"d{name[0]}" for name in returned.wanted if name not in returned.found)
                self._uncompared(row, f"no gradient came back{f' ({some})' if returned.output is not None else ''}")
            returned.close()
        self._returning.clear()

    # ---------------------------------------------------------------- a call

    def _hear(self, layer: str, ask: Callable[[], Asked], output: Any, backward: Optional[BackwardRun]) -> None:
        """Checks a call behind it."""
        row = self.layers.setdefault(layer, Watched(layer))
        row.calls += 1
        with self._checking(row):
            asked = ask()
            right = self._check(row, asked, output)
            if backward is not None and backward.returned.reason:
                self._uncompared(row, backward.returned.reason)
            elif backward is not None and backward.returned.is_followed and right:
                self._returning.append((row, backward.returned))
                backward.returned.check = functools.partial(self._come_back, row, row.calls, asked, backward)

    def _uncompared(self, row: Watched, reason: str) -> None:
        if reason not in row.uncompared:
            row.uncompared.append(reason)

    @contextmanager
    def _checking(self, row: Watched) -> Iterator[None]:
        """What goes wrong inside is the call's, never the model's."""
        begun = time.perf_counter()
        try:
            yield
        except (NotChecked, Error, TypeError, ValueError, NotImplementedError, RuntimeError, MemoryError) as reason:
            self._uncompared(row, str(reason) or type(reason).__name__)
        self.checking += time.perf_counter() - begun

    def _come_back(self, row: Watched, call: int, asked: Asked, backward: BackwardRun, do: Any,
                   found: dict[str, Any]) -> None:
        """Checks the gradients of a call when they have come back."""
        with self._checking(row), importlib.import_module("torch").no_grad():
            if backward.returned.others:
                raise NotChecked("gradients of weights or of lse")
            checked = backward_check.check(asked, backward.heads(do), {
                name: backward.inputs(x) for name, x in found.items()}, row.backward, self._dtype)
            row.add_backward(checked)
            if checked.ratio > 1 and len(self.findings) < self._most:
                self.findings.append(Finding(row.layer, call, "backward", checked.sentence, checked.names,
                                             (checked.clue,) if checked.clue else ()))

    def _check(self, row: Watched, asked: Asked, output: Any) -> bool:
        """Whether the output is right."""
        rows = j.rows_of(asked, self._sample, len(self.layers) * 1000 + row.calls)
        checked = j.check(asked, output, rows, self._dtype, self._maps and not row.maps)
        row.add(asked, checked)
        if checked is not None and not checked.passed and len(self.findings) < self._most:
            self._wrong(row, asked, output, rows, checked)
        if self._intended is not None:
            found = self._intended.compare(row.layer, asked)
            row.described, row.projected = self._intended.held(row.layer)
            row.rounded = row.layer in self._intended.rounded
            row.unchecked = self._intended.unchecked.get(row.layer, row.unchecked)
            for parted in found:
                known = [(found.layer, found.names, found.kind) for found in self.findings]
                if (row.layer, parted.names, parted.kind) not in known and len(self.findings) < self._most:
                    self.findings.append(Finding(row.layer, row.calls, parted.kind, parted.sentence, parted.names,
                                                 parted.clues))
        return checked is None or checked.passed

    def _wrong(self, row: Watched, asked: Asked, output: Any, rows: Any, checked: Checked) -> None:
        """Says what a wrong output is instead."""
        sentence, clues, names = j.why(asked, output, rows, self._dtype)
        clues = (sentence, *clues)
        if self._save is not None and self.saved is None:
            clues += (self._saved(asked, output),)
        self.findings.append(Finding(row.layer, row.calls, "output", f"the output is {checked.sentence}", names, clues))

    def _saved(self, asked: Asked, output: Any) -> str:
        """Saves the first bad call, and says where."""
        path = os.fspath(self._save)
        if os.path.isdir(path):
            path = os.path.join(path, "watched.safetensors")
        try:
            j.save(path, asked, output, self._dtype)
        except (Error, OSError, TypeError, ValueError) as reason:
            return f"case not saved: {reason}"
        self.saved = str(path)
        return f"case saved: mha check {path}; mha diagnose {path}"

    # ---------------------------------------------------------------- what was found

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

    def _looks(self) -> list[tuple[str, Any]]:
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
        """A row for each layer."""
        rows: list[tuple[Any, ...]] = []
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
        """The largest error over allowed by layer and head."""
        most = max((len(row.heads) for row in self.layers.values()), default=0)
        return Table(("layer", *(f"head {i}" for i in range(most))),
                     [(row.layer, *row.heads, *[None] * (most - len(row.heads))) for row in self.layers.values()])

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types, as json.dumps takes them."""
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
        cost = f", checking took {self.checking:.2g} s beside {rest:.2g} s" if self.seconds else ""
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
        """One HTML page that needs no network: what is wrong, layers down and heads across with the error over what is
        allowed, and what each layer was asked for."""
        return page.page(self)

    def _repr_html_(self) -> str:
        return page.notebook(self)


def _modules(model: Any, modules: Any) -> dict[str, Any]:
    """Modules by name, with what is said of each."""
    if isinstance(modules, str) or not isinstance(modules, (Mapping, list, tuple)):
        raise TypeError(f"modules: expected names of modules, or a dict from names, found {type(modules).__name__}")
    found = dict(modules) if isinstance(modules, Mapping) else dict.fromkeys(modules)
    known = {name for name, _ in model.named_modules()}
    for name, said in found.items():
        if name not in known:
            raise ValueError(f"modules: expected names of model.named_modules(), found {name!r}")
        if said is not None and not callable(said) and not isinstance(said, Mapping):
            raise TypeError(f"modules[{name!r}]: expected a dict of arguments, a function or None, found "
                            f"{type(said).__name__}")
    return found


def watch(model: Any, *, sample: int = 0, dtype: Any = None, save: Any = None, most_findings: int = 16,
          config: bool = True, backward: bool = False, modules: Any = (), maps: bool = False) -> Watch:
    """Checks every attention call of a model while it runs, on the inputs that it got: errors do not travel.

        with mha.watch(model) as w:
            model(**inputs)
        print(w)                          w.passed, w.first, w.table(), w.heads(), w.to_dict(), w.to_html()

    model: a torch.nn.Module on the CPU in eval mode, or without dropout. Heard are transformers' attention interface,
        whatever attn_implementation is set, torch.nn.functional.scaled_dot_product_attention, FlexAttention without
        score_mod, flash_attn_func, and torch.nn.MultiheadAttention, which is checked as a whole layer. Code that
        computes attention by itself is not heard: w.unheard; `modules` names it. The model computes the same bits as
        without.
    sample: how many query rows of each batch row of a call are checked; 0: all, or 32 of a call of more than a million
        scores. Errors confined to other rows are not seen.
    dtype: what the implementation computes in, where the type of its output does not say so.
    save: a path, or a folder: the first bad call is saved there as a case for mha check and mha diagnose.
    most_findings: stop recording after this many findings.
    config: what is asked of each layer of a model of transformers is held against its configuration, as mha.Model reads
        it: heads, who sees whom (with the attention_mask that the model gets), scale, softcap, sinks; and
        the queries, keys and values of some tokens against those that the layer's input, weights and rotation give.
        Where a cache is used, its earlier rows must stay what they were. w.undescribed: the reason for no comparison.
        w.unchecked names the layers for which one of these could not be compared: w.status is then "not checked".
    backward: of a training step the gradients of q, k and v are checked, too, each element by its own error bound
        (mha_gradient_bound) from the gradient that came back to the call's output, and bugs are named
        (mha.testing.BUGS). The backward belongs inside the watch:

            with mha.watch(model, backward=True) as w:
                model(**inputs).loss.backward()

        The gradients of all parameters have the same bits as without. Calls whose output is wrong have no backward
        checked. Of torch.nn.MultiheadAttention the gradients of its inputs are, in float32 and float64; of inputs that
        are one tensor their sum. Of calls of more than a million scores some key/value heads are checked, half of them
        those whose gradients have an odd norm, of a layer some batch rows, of heads of more than four million some
        queries, and only dq (Watched.in_part).
    modules: names of modules that are attention calls themselves: query, key and value in, (B, h, T, d) each, the
        output out, first where there are more. A dict says more of each: arguments of
        torch.nn.functional.scaled_dot_product_attention that the module does not get, {"core": {"is_causal": True}},
        or a function that makes all of them of the module's own arguments,
        {"core": lambda x, past=None: {"query": x.q, "key": x.k, "value": x.v, "scale": 0.1}}.
    maps: the page also shows what the heads of each layer look at: the right weights of the rows checked of batch row
        0, in the first call, at most 64 x 64 cells for each head.

    One model at a time is watched, in the thread that opens the watch.
    """
    return Watch(model, sample=sample, dtype=dtype, save=save, most_findings=most_findings, config=config,
                 backward=backward, modules=modules, maps=maps)
