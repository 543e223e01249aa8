"""The stages of one call: a mapping from names to arrays that shows itself as a table."""
from __future__ import annotations

from typing import Any, Iterator, Mapping

import numpy as np

from . import arrays as a
from .tables import Table

_MEANING = {
    "q": "queries after bias, before norm and rotation", "k": "keys likewise", "v": "values",
    "q_rot": "queries after norm and rotation", "k_rot": "keys after norm and rotation",
    "scores": "scale * q k^T, of hidden keys too", "capped": "scores after softcap",
    "masked": "hidden keys -inf, masks and ALiBi added", "weights": "after softmax",
    "weights_mean": "mean of the weights over the heads", "heads": "the heads side by side",
    "output": "after W_O, or the heads", "present_key": "cached and new keys",
    "present_value": "cached and new values", "lse": "log sum exp of the scores",
}


class Trace(Mapping[str, Any]):
    """Named intermediate results of a call, in the order data flows: trace["weights"]; print(trace) is a table."""

    def __init__(self, stages: Mapping[str, Any]) -> None:
        self._stages = {name: stages[name] for name in _MEANING if name in stages}

    def __getitem__(self, name: str) -> Any:
        return self._stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def table(self) -> Table:
        """One row for each stage: its shape and the size of its finite numbers."""
        rows = []
        for name, value in self._stages.items():
            array = a.widened(a.floats(name, value), 1).array
            finite = array[np.isfinite(array)]
            some = finite if finite.size else np.array([np.nan])
            rows.append((name, tuple(array.shape), float(some.min()), float(some.max()),
                         float(np.sqrt(np.mean(some**2))), int(array.size - finite.size), _MEANING[name]))
        return Table(("stage", "shape", "min", "max", "rms", "not finite", "what it is"), rows)

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
