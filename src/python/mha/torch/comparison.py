"""python -m mha watch --compare A B: compares two dumps of a model, and finds the right one."""
from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

import numpy as np

from ..core import arrays as a
from ..core.errors import BAD_REQUEST, DONE, MACHINE, NO, NOT_CHECKED, Error
from ..core.tables import Table, shown
from ..judge.check import Diagnosis, diagnose
from .dumps import PRINTED, DumpError, Stage, edges, read

_UNITS = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}
_CHECKED = ("heads",)
_INPUTS = (("q_rot", "q"), ("k_rot", "k"), ("v",))


@dataclass(frozen=True)
class ComparedStage:
    """A stage of both dumps. relative: rms of the difference over that of the larger. why: why they were left out."""

    name: str
    layer: int
    relative: Optional[float]
    allowed: float
    why: str = ""

    @property
    def same(self) -> bool:
        """Whether they agree, as far as they were compared."""
        return self.relative is None or self.relative <= self.allowed


@dataclass
class Parting:
    """What two dumps have in common. first: the first stage that differs. checked: which of the two is right there, by
    the name of the dump. sentences: what that means."""

    stages: list[ComparedStage] = field(default_factory=list)
    first: Optional[ComparedStage] = None
    checked: dict[str, Diagnosis] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Stages that both have, in one shape."""
        return sum(each.relative is not None for each in self.stages)

    def table(self) -> Table:
        """A row for each stage."""
        return Table(("stage", "layer", "relative", "allowed", ""),
                     [(x.name, x.layer if x.layer >= 0 else None, x.relative, x.allowed,
                       x.why or ("FIRST" if x is self.first else "ok" if x.same else "differs")) for x in self.stages])

    def to_dict(self) -> dict[str, object]:
        """All of it in plain types."""
        return {"same": self.first is None and self.compared > 0, "first": self.first and self.first.name,
                "layer": self.first and self.first.layer, "stages": [vars(x) for x in self.stages],
                "right": {name: found.right for name, found in self.checked.items()},
                "names": {name: found.names for name, found in self.checked.items()}, "sentences": self.sentences}

    def __str__(self) -> str:
        return "\n".join([str(self.table()), "", *self.sentences])


def compare(left: a.Path, right: a.Path, *, n_heads: int = 0, kv_heads: int = 0, rtol: Optional[float] = None,
            settings: Optional[Mapping[str, Any]] = None) -> Parting:
    """Compare two dumps (paths), stage by stage in the order of the first.

    n_heads, kv_heads: of stages that have heads side by side, (B, T, h*d). rtol: what rms of the difference over rms
    is still the same; None: half of the digits of the coarser type agree. settings: of the attention call; None: causal
    or full, whichever makes one of the two right.
    """
    names = [str(left), str(right)]
    dumps = [{stage.key: stage for stage in read(path)} for path in (left, right)]
    found = Parting()
    for key, stage in dumps[0].items():
        if key in dumps[1]:
            found.stages.append(_held(stage, dumps[1][key], rtol))
    found.first = next((each for each in found.stages if not each.same), None)
    if not found.compared:
        found.sentences = ["the dumps have no stage in common"]
    elif found.first is None:
        found.sentences = [f"all {found.compared} stages that both have agree"]
    else:
        first = found.first
        where = f" of layer {first.layer}" if first.layer >= 0 else ""
        found.sentences = [f"FIRST: {first.name}{where}: they part by {first.relative:.2g}, {first.allowed:.2g} is "
                           "allowed"]
        _check(found, names, dumps, n_heads, kv_heads, settings)
    return found


def _held(mine: Stage, theirs: Stage, rtol: Optional[float]) -> ComparedStage:
    """One stage of both."""
    unit = max(_UNITS.get(x.dtype, _UNITS["BF16"]) for x in (mine, theirs))
    allowed = unit**0.5 if rtol is None else rtol
    pair = [mine.array, theirs.array]
    shapes = [tuple(n for n in x.shape if n != 1) for x in (mine, theirs)]
    if shapes[0] != shapes[1]:
        return ComparedStage(mine.name, mine.layer, None, allowed, f"{mine.shape} and {theirs.shape}")
    if mine.printed != theirs.printed or pair[0].size != pair[1].size:
        pair = [edges(x) for x in pair]
    x, y = (each.reshape(-1) for each in pair)
    if not (np.isfinite(x) == np.isfinite(y)).all():
        return ComparedStage(mine.name, mine.layer, float("inf"), allowed)
    finite = np.isfinite(x)
    x, y = x[finite], y[finite]
    off, size = float(np.sqrt(np.sum((x - y)**2))), float(max(np.linalg.norm(x), np.linalg.norm(y)))
    if mine.printed or theirs.printed:  # both numbers of a pair are rounded
        off = max(off - 2 * PRINTED * len(x)**0.5, 0.0)
    return ComparedStage(mine.name, mine.layer, off / size if size else 0.0, allowed)


# ---------------------------------------------------------------- which of the two is right


def _check(found: Parting, names: list[str], dumps: list[dict[tuple[int, str], Stage]], n_heads: int, kv_heads: int,
           settings: Optional[Mapping[str, Any]]) -> None:
    """Compares the heads of the first layer that differs with its own queries, keys and values."""
    assert found.first is not None
    layer = found.first.layer
    readings = [dict(settings)] if settings is not None else [{"is_causal": True}, {}]
    best: dict[str, Diagnosis] = {}
    for reading in readings:
        checked: dict[str, Diagnosis] = {}
        for name, dump in zip(names, dumps):
            lacking = _lacks(dump, layer)
            if lacking:
                if reading is readings[0]:
                    found.sentences.append(f"{name}: not checked: {lacking}")
                continue
            try:
                checked[name] = _diagnosed(dump, layer, n_heads, kv_heads, reading)
            except (Error, TypeError, ValueError) as reason:
                found.sentences.append(f"{name}: not checked: {shown(str(reason).partition(chr(10))[0])}")
        if checked and (not best or any(x.right for x in checked.values()) and not any(x.right for x in best.values())):
            best, said = checked, reading
    if best and settings is None and not any(x.right or x.names for x in best.values()):
        found.sentences.append("not checked: no heads are what q, k and v give as they lie there, causal or full: "
                               "something may come between, such as a rotation; --set says more of the call, and "
                               "mha.watch(model) checks calls as they are")
        return
    for name, diagnosis in best.items():
        told = ", ".join(f"{word}={value}" for word, value in said.items()) or "full"
        found.sentences.append(f"{name}: {'RIGHT' if diagnosis.right else 'WRONG'} on its own q, k and v ({told}): "
                               f"{diagnosis.sentence}")
    found.checked = best
    if len(best) == 2 and all(x.right for x in best.values()):
        found.sentences.append("Both compute what their q, k and v ask for: what parts them comes before the heads, or "
                               "behind them")


def _lacks(dump: Mapping[tuple[int, str], Stage], layer: int) -> str:
    """What a layer of a dump lacks to be checked."""
    for wanted in (*_INPUTS, _CHECKED):
        stage = next((dump[layer, name] for name in wanted if (layer, name) in dump), None)
        if stage is None:
            return f"it has no {wanted[-1]} of this layer"
        if stage.printed:
            return f"of {stage.name} only printed digits are there"
    return ""


def _diagnosed(dump: Mapping[tuple[int, str], Stage], layer: int, n_heads: int, kv_heads: int,
               settings: Mapping[str, Any]) -> Diagnosis:
    """Whether the heads of a dump are what its queries, keys and values give."""
    stages = [next(dump[layer, name] for name in wanted if (layer, name) in dump) for wanted in (*_INPUTS, _CHECKED)]
    h = n_heads or (stages[0].array.shape[1] if stages[0].array.ndim == 4 else 0)
    if not h:
        raise ValueError("--heads: expected a number, because its queries have heads side by side, found none")
    keys = stages[1].array
    h_kv = kv_heads or (keys.shape[1] if keys.ndim == 4 else h)
    rounded = max(_UNITS.get(x.dtype, 0.0) for x in stages)
    dtype = {2.0**-8: "bfloat16", 2.0**-11: "float16", 2.0**-24: "float32"}.get(rounded, "float64")
    q, k, v = (_split(x.array, n) for x, n in zip(stages, (h, h_kv, h_kv)))
    heads = _split(stages[3].array, h)
    if dtype != "float64":
        q, k, v, heads = (x.astype(np.float32) for x in (q, k, v, heads))
    if heads.shape[:3] != q.shape[:3] and heads.shape[1:3] == q.shape[2:0:-1]:
        heads = heads.swapaxes(1, 2)
    return diagnose(heads, q, k, v, dtype=dtype, enable_gqa=True, **settings)


def _split(x: a.Floats, heads: int) -> a.Floats:
    """Heads apart, (B, h, T, d)."""
    if x.ndim == 4:
        return x
    x = x[None] if x.ndim == 2 else x
    if x.ndim != 3 or x.shape[-1] % heads:
        raise ValueError(f"--heads: expected a number of heads that a stage of shape {x.shape} can have, found {heads}")
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


# ---------------------------------------------------------------- the command


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="mha watch", description="Holds two dumps of a model's intermediate results together, stage by stage: "
        "where they part first, which of the two is right there, and the bug of the other. A dump is arrays by "
        "name (safetensors, npz, what mha forward --trace writes), the JSON of transformers' "
        "model_addition_debugger_context, or what llama-eval-callback prints. Exit code 0: they agree; 1: they part; "
        "2: a wrong request or file, or no file; 3: the machine cannot read it; 4: they have no stage in common.")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), required=True, help="the two dumps")
    parser.add_argument("--heads", type=int, default=0, metavar="N", help="query heads, where a dump has them side by "
                        "side")
    parser.add_argument("--kv-heads", type=int, default=0, metavar="N", help="key/value heads [as many]")
    parser.add_argument("--rtol", type=float, metavar="R", help="rms of a difference over rms that is still the same "
                        "[half of the digits of the type agree]")
    parser.add_argument("--set", type=_setting, action="append", metavar="NAME=VALUE", help="a setting of the "
                        "attention call, as is_causal=true or scale=0.5 [causal or full, whichever makes one of "
                        "the two right]")
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    said = parser.parse_args(arguments)
    if said.heads < 0 or said.kv_heads < 0 or said.rtol is not None and not 0 <= said.rtol < float("inf"):
        print("mha watch: --heads, --kv-heads, --rtol: expected numbers from 0", file=sys.stderr)
        return BAD_REQUEST
    try:
        found = compare(*said.compare, n_heads=said.heads, kv_heads=said.kv_heads, rtol=said.rtol,
                        settings=None if said.set is None else dict(said.set))
    except DumpError as reason:
        print(f"mha watch: {shown(reason)}", file=sys.stderr)
        return BAD_REQUEST
    except OSError as reason:
        print(f"mha watch: {shown(reason.filename)}: {reason.strerror}", file=sys.stderr)
        no_file = isinstance(reason, (FileNotFoundError, IsADirectoryError, NotADirectoryError))
        return BAD_REQUEST if no_file else MACHINE
    print(json.dumps(found.to_dict(), indent=1) if said.json else found)
    return NOT_CHECKED if not found.compared else DONE if found.first is None else NO
