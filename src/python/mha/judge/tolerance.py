"""The tolerance of a call: how far from exact rounding may take a right result."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.layer import MultiHeadAttention
from ..core.reference import Computed, Meant

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..core.typed import MeantSettings


class Tolerance(NamedTuple):
    """A right result differs from the exact one by at most atol + rtol |exact|, element by element."""

    rtol: float
    atol: float


def tolerance(query: a.Array, key: Optional[a.Array] = None, value: Optional[a.Array] = None, *,
              layer: Optional[MultiHeadAttention] = None, layout: Optional[str] = None, stage: str = "output",
              dtype: Any = None, precision: Optional[Mapping[str, Any]] = None,
              **settings: Unpack[MeantSettings]) -> Tolerance:
    """The tolerance that mha.check and mha.testing derive from a call.

        rtol, atol = mha.tolerance(q, k, v, is_causal=True, dtype="bfloat16")
        numpy.testing.assert_allclose(mine, mha.scaled_dot_product_attention(q, k, v, is_causal=True), rtol, atol)

    query, key, value, layer, layout, precision, settings: as in mha.diagnose.
    stage: the result in question, "output", "lse", "weights" or another stage.
    dtype: the type of the kernel's arithmetic and of its result; that of query when None.

    atol is infinite where numbers may leave the range of float32, so that no tolerance follows.
    """
    meant = Meant(query, key, value, layer, layout, {**settings})
    code = (a.float_type("dtype", dtype, a.COMPUTED) if dtype is not None else
            next(x.dtype for x in meant.shape.inputs if x is not None))
    stage = abi.STAGES[a.choice("stage", stage, abi.STAGES)]
    result = {stage: a.Tensor(np.empty(0), code, a.wrap_numpy)}
    found = meant.allowed(Computed(dtype, precision, result), result)[stage]
    return Tolerance(found.rtol, found.atol)
