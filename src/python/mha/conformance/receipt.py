"""Results of a sealed run: a receipt, one line of reward for each test case, sentences."""
from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from typing import Mapping

from ..core import arrays as a
from ..core.library import __version__
from ..core.tables import shown
from .schema import closed
from .sealed import GOOD, KINDS, OUTCOMES, Judge, own_digest
from .suite import CONVENTIONS, LEVELS, NEEDS, REGIMES, TYPES, VERSION

NAME = "mha-receipt 1"
_MOST = 6  # kinds of failure that are told


def receipt(judge: Judge, found: Mapping[str, a.Json], said: Mapping[str, a.Json], given: bool) -> dict[str, a.Json]:
    """The receipt of a run whose comparison found this; said: the options of the command."""
    packages = dict.fromkeys(("numpy", judge.arrays.partition(",")[0]))
    versions = {"mha": __version__, "python": platform.python_version(), "machine": platform.machine(),
                **{name: importlib.metadata.version(name) for name in packages}}
    has = None if said["has"] is None else sorted(set(said["has"].replace(",", " ").split()))
    return {"receipt": NAME, "suite": VERSION, "verdict": found["verdict"], "seed": judge.seed,
            "draw": "given" if given else "private",
            "kernel": judge.command or os.path.basename(judge.kernel), "files": judge.files,
            "level": said["level"], "dtype": a.NAMES[judge.dtype], "layout": judge.layout, "arrays": judge.arrays,
            "has": has, "versions": versions, "digest": own_digest(),
            **{key: value for key, value in found.items() if key != "verdict"}}


def schema() -> dict[str, a.Json]:
    """The JSON Schema (draft 2020-12) of a receipt."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    result = closed({"case": text, "regime": {"enum": sorted(REGIMES)}, "outcome": {"enum": sorted(OUTCOMES)},
                     "call": {"enum": list(KINDS)}, "error": {"type": ["number", "null"], "minimum": 0},
                     "bug": {"type": ["string", "null"]}, "reason": text})
    choices = {name: {"enum": sorted(d.choices)} for name, d in CONVENTIONS.items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Receipt of a sealed run of a conformance suite",
            **closed({"receipt": {"enum": [NAME]}, "suite": {"enum": [VERSION]},
                      "verdict": {"enum": ["passed", "failed", "not checked"]}, "seed": count,
                      "draw": {"enum": ["private", "given"]}, "kernel": text,
                      "files": {"type": "object", "additionalProperties": digest}, "level": {"enum": list(LEVELS)},
                      "dtype": {"enum": [a.NAMES[dtype] for dtype in TYPES]}, "layout": text, "arrays": text,
                      "has": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"enum": sorted(NEEDS)}}]},
                      "versions": {"type": "object", "additionalProperties": text}, "digest": digest,
                      "conventions": {"type": "object", "properties": choices, "additionalProperties": False},
                      "passed": count, "failed": count, "refused": count,
                      "changed_files": {"type": "array", "items": text}, "output": text,
                      "results": {"type": "array", "items": result}})}


def rewards(found: Mapping[str, a.Json]) -> str:
    """One line of JSON for each test case."""
    keys = "case", "regime", "outcome", "error", "bug"
    return "".join(json.dumps({key: result[key] for key in keys}) + "\n" for result in found["results"])


def sentences(record: Mapping[str, a.Json]) -> str:
    """A receipt in plain sentences, the verdict last."""
    said, kinds = [], dict[str, list[Mapping[str, a.Json]]]()
    for result in record["results"]:
        if result["outcome"] not in GOOD:
            kinds.setdefault(result["outcome"], []).append(result)
    for outcome, those in list(kinds.items())[:_MOST]:
        first = those[0]
        bug = f"; the numbers are those of {first['bug']}" if first["bug"] else ""
        reason = f": {shown(first['reason'].partition(chr(10))[0])}" if first["reason"] else ""
        said.append(f"{outcome} ({OUTCOMES[outcome]}) in {len(those)} test cases. The first, {first['case']}, "
                    f"call \"{first['call']}\"{reason}{bug}.")
    said += [f"The kernel's file {shown(name)} changed during the run." for name in record["changed_files"]]
    if record["refused"]:
        said.append(f"refused: {record['refused']} test cases.")
    if record["output"]:
        said.append(f"The kernel printed: {shown(record['output'][:200])}")
    verdict = {"passed": "PASSED", "failed": "WRONG", "not checked": "NOT CHECKED"}[record["verdict"]]
    said.append(f"{verdict}: {shown(record['kernel'])} passes {record['passed']} of "
                f"{record['passed'] + record['failed']} test cases, {len(KINDS)} calls each ({record['suite']}, "
                f"{record['dtype']}, level {record['level']}, sealed, seed {record['seed']}).")
    return "\n".join(said)
