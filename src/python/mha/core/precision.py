"""Where a kernel of a low precision rounds: to which type, at which points."""
from __future__ import annotations

from typing import Mapping

from . import abi
from . import arrays as a
from .library import lib

POINTS = tuple(name for name, _ in abi.Precision._fields_ if name != "reserved")
_ROUNDINGS = (abi.F32, abi.F16, abi.BF16, abi.F8_E4M3, abi.F8_E5M2, abi.I8, abi.TF32)


def set_points(precision: abi.Precision, points: Mapping[str, object]) -> str:
    """Types by the points at which a kernel rounds, set in the struct; what was set, in words."""
    words = ""
    for point, given in points.items():
        a.choice("precision", point, POINTS)
        types = _ROUNDINGS[:3] if point in ("scores", "sums") else _ROUNDINGS
        code = a.float_type(f"precision[{point!r}]", given, types)
        setattr(precision, point, code)
        words += f", {point} in {a.NAMES[code]}"
    return words


def precision_of(given: object) -> abi.Precision:
    """The struct of a call: a type means a fused kernel of it, a dict names the points one by one."""
    precision = abi.Precision()
    if isinstance(given, Mapping):
        set_points(precision, given)
    else:
        precision = lib.mha_precision_of(a.float_type("precision", given, _ROUNDINGS))
    return precision
