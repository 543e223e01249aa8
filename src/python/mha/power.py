"""The power of a test: which wrong attentions its inputs and its tolerance would let pass."""
from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

from . import _abi
from . import arrays as a
from ._library import call, lib
from .layer import MultiHeadAttention
from .meant import Meant
from .tables import Table, optional


class Power(Table):
    """One row for each wrong variant that applies: whether the test rejects it, and by how much (`factor`: its largest
    violation as a multiple of what is allowed). "same": this input does not show it at all."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        super().__init__(("variant", "answer", "max |difference|", "factor", "what it is"), rows)
        shown = len(self) - len(self.same)
        self.note = f"{len(self.accepted)} of the {shown} wrong variants that this input shows would pass"

    def _named(self, answer: str) -> list[str]:
        return [row[0] for row in self if row[1] == answer]

    @property
    def accepted(self) -> list[str]:
        """Wrong variants that the test would take for right."""
        return self._named("accepted")

    @property
    def rejected(self) -> list[str]:
        """Wrong variants that the test catches."""
        return self._named("rejected")

    @property
    def same(self) -> list[str]:
        """Wrong variants that this input does not show."""
        return self._named("same")


def power(query: a.Array, key: Optional[a.Array] = None, value: Optional[a.Array] = None, *,
          rtol: Optional[float] = None, atol: Optional[float] = None, nmse: Optional[float] = None,
          cosine: Optional[float] = None, dtype: Any = "float32", stage: str = "output",
          layer: Optional[MultiHeadAttention] = None,
          layout: Optional[str] = None, threads: int = 0, **settings: Any) -> Power:
    """Which wrong attentions would a test with these inputs and this tolerance let pass?

        print(mha.testing.power(q, k, v, is_causal=True, atol=1e-2, rtol=1e-2))

    rtol, atol: as of numpy.allclose. nmse: sum (x - y)^2 <= nmse * sum y^2. cosine: x.y >= cosine * |x| |y|. Without
    any of them the tolerance is the derived one. dtype: in which the implementation under test stores its results; what
    only rounds to it is not wrong. stage: which is compared. The rest is as in mha.diagnose.
    """
    case = Meant(query, key, value, layer, layout, settings).case({}, name="the test")
    criterion = _abi.Criterion(stage=_abi.STAGES[a.choice("stage", stage, _abi.STAGES)].encode(),
                               precision=a.float_type("dtype", dtype, a.FLOATS + (_abi.TF32,)))
    limits = {"nmse": nmse, "cosine": cosine}
    given = [name for name, value in limits.items() if value is not None]
    close = rtol is not None or atol is not None
    if len(given) + close > 1:
        raise ValueError(f"{given[0]}: one criterion at a time: rtol and atol, nmse, or cosine")
    if close:
        criterion.kind = _abi.CRITERIA.index("close")
        criterion.rtol = a.number("rtol", 0.0 if rtol is None else rtol)
        criterion.atol = a.number("atol", 0.0 if atol is None else atol)
    elif given:
        criterion.kind = _abi.CRITERIA.index(given[0])
        criterion.limit = a.number(given[0], limits[given[0]])
    found = _abi.Power()
    call(lib.mha_case_power, case.address, ctypes.byref(criterion), a.thread_count(threads), None,
         ctypes.byref(found))
    try:
        rows = [(row.variant.contents, row) for row in found.rows[:found.count]]
        return Power([(str(optional(variant.name)), _abi.POWER_ANSWERS[row.answer], row.max_abs, row.factor,
                       str(optional(variant.help))) for variant, row in rows])
    finally:
        lib.mha_power_clear(ctypes.byref(found))
