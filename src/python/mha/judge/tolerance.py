"""The tolerance of a call: how far from exact rounding may take a right result."""
from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.layer import MultiHeadAttention
from ..core.reference import Computed, Meant

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..core.typed import MeantSettings


class Tolerance(NamedTuple):
    """A right result differs from the exact one by at most atol + rtol |exact|, element by element.

    Attributes
    ----------
    rtol, atol : float
        Relative and absolute part.
    """

    rtol: float
    atol: float


def tolerance(query: a.ArrayLike, key: Optional[a.ArrayLike] = None, value: Optional[a.ArrayLike] = None, *,
              layer: Optional[MultiHeadAttention] = None, layout: Optional[str] = None, stage: str = "output",
              dtype: Optional[a.Type] = None, precision: Optional[Mapping[str, a.Type]] = None,
              **settings: Unpack[MeantSettings]) -> Tolerance:
    """Derive the tolerance of a call, as mha.check and mha.testing do.

    Parameters
    ----------
    query, key, value, layer, layout, precision
        As in mha.diagnose.
    stage : str, default "output"
        The result in question: "output", "lse", "weights" or another stage.
    dtype : str or dtype, default None
        Type of the kernel's arithmetic and of its result; None: that of query.
    **settings
        The intended call, as in mha.diagnose.

    Returns
    -------
    mha.Tolerance
        A right result satisfies |yours - exact| <= atol + rtol |exact|. atol is infinite if numbers may leave the range
        of float32.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or value.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> rtol, atol = mha.tolerance(q, k, v, is_causal=True, dtype="bfloat16")
    >>> 0 < atol < 0.1
    True
    """
    meant = Meant(query, key, value, layer, layout, {**settings})
    code = (a.float_type("dtype", dtype, a.COMPUTED) if dtype is not None else
            next(x.dtype for x in meant.shape.inputs if x is not None))
    stage = abi.STAGES[a.choice("stage", stage, abi.STAGES)]
    result = {stage: a.Tensor(np.empty(0), code, a.wrap_numpy)}
    found = meant.allowed(Computed(dtype, precision, result), result)[stage]
    return Tolerance(found.rtol, found.atol)
