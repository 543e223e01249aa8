"""The JSON Schema of a conformance report, from the suite's own lists of words."""
from __future__ import annotations

from typing import Mapping

from ..core import arrays as a
from .suite import CONVENTIONS, LEVELS, NEEDS, REGIMES, TYPES


def closed(properties: Mapping[str, object]) -> dict[str, object]:
    """A schema of an object with these properties and no others."""
    return {"type": "object", "properties": dict(properties), "required": sorted(properties),
            "additionalProperties": False}


def schema() -> dict[str, object]:
    """What Report.to_dict() returns, in draft 2020-12."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    number = {"type": ["number", "null"], "minimum": 0}  # null: NaN or infinite
    result = closed({
        "case": text, "family": text, "regime": {"enum": sorted(REGIMES)},
        "needs": {"type": "array", "items": {"enum": sorted(NEEDS)}},
        "outcome": {"enum": ["passed", "failed", "refused"]}, "reason": text,
        "max_abs": number, "atol": number, "rtol": number, "mismatches": count, "elements": count,
        "bugs": {"type": "array", "items": text}, "clues": {"type": "array", "items": text}})
    choices = sorted({choice for convention in CONVENTIONS.values() for choice in convention.choices})
    convention = closed({"convention": {"enum": sorted(CONVENTIONS)}, "choice": {"enum": choices}, "meaning": text,
                       "how": {"enum": ["declared", "found"]}})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "What a kernel of attention answered to a conformance suite",
            **closed({"suite": {"type": "string", "pattern": "^mha-conform [0-9]+[.][0-9]+$"},
                       "dtype": {"enum": [a.NAMES[dtype] for dtype in TYPES]}, "level": {"enum": list(LEVELS)},
                       "passed": count, "failed": count, "refused": count,
                       "conventions": {"type": "array", "items": convention},
                       "results": {"type": "array", "items": result}})}
