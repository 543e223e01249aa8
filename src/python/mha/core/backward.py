"""Gradients of attention, in float64, as the library's reference computes them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .backward_call import GRADIENTS, INPUTS, Backward, further, stages_of
from .errors import typed
from .reference import PAST, Meant
from .trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import MeantSettings

TYPED = {"query": "q", "key": "k", "value": "v"}  # what these are called here


class MeantBackward(Backward):
    """The gradients of a call as it was meant."""

    def __init__(self, meant: Meant, do: a.Array, dlse: Optional[a.Array]) -> None:
        self.meant = meant
        super().__init__(meant.request, meant.shape.seen(a.floats("do", do), "do"), dlse)

    def turned(self, name: str, array: Any) -> Any:
        """A gradient in the axes of what it is of, as the caller gave it; others than those of rows stay."""
        if name in PAST and self.meant.layer is None:
            return self.meant.shape.input_back(array.transpose(0, 2, 1, 3))
        return self.meant.shape.input_back(array) if name in INPUTS else array

    def inside(self, name: str, array: Any) -> Any:
        """A gradient as the library has it, of one in the axes of what it is of."""
        if name in PAST and self.meant.layer is None:
            return self.meant.shape.inside(array).transpose(0, 2, 1, 3)
        return self.meant.shape.inside(array) if name in INPUTS else array

    def noted(self, gradients: Mapping[str, a.Tensor]) -> abi.Gradients:
        """What a case has of somebody's gradients, which are in the library's axes, beside the call; for as long as
        this backward and these live."""
        struct = abi.Gradients.from_buffer_copy(self.struct)
        for name, tensor in gradients.items():
            struct.of[GRADIENTS.index(name)] = a.view_of(tensor)
        return struct


def attention_backward(q: a.Array, k: a.Array, v: a.Array, do: a.Array, *, dlse: Optional[a.Array] = None,
                       also: Sequence[str] = (), return_stages: Sequence[str] = (), layout: str = "BTHD",
                       out_dtype: Any = None, **settings: Unpack[MeantSettings]) -> Any:
    """The gradients (dq, dk, dv) of attention, computed in float64 by the exact path.

        output = mha.attention(q, k, v, causal=True)
        dq, dk, dv = mha.attention_backward(q, k, v, do, causal=True)

    q, k, v, layout, settings: as in mha.attention; with layout "BHTD" those of mha.scaled_dot_product_attention.
    do: the gradient of the output, in its axes. dlse: that of the lse, (B, h, T_q); None: 0.
    also: names of further gradients, which then follow as a dict, in the library's shapes: "mask" and "key_padding"
        (additive ones, in their own shapes), "alibi_slopes", "sinks", "bias_table", "relative_k", ..., and, in
        their own axes, "past_key" and "past_value": of rows of earlier calls that are given by these names.
    return_stages: names of stages of the backward, which then follow as an mha.Trace of numpy arrays in float64, in the
        library's shapes: "d_heads" (dO), "d_weights" (dP), "row_sums" (D), "d_masked" (dZ), "d_scores" (dS), "d_q_rot",
        "d_k_rot", "d_v". P is the stage "weights" of mha.attention.
    out_dtype: of the gradients, to which they are rounded once; None: that of q.

    A query that sees no key has gradients of 0. What has no gradient here is refused: see mha/backward.h.
    """
    more, stages = further(also), stages_of("return_stages", return_stages)
    with typed(TYPED):
        meant = Meant(q, k, v, None, layout, {**settings})
    backward = MeantBackward(meant, do, dlse)
    found = backward.run([*INPUTS, *more, *stages])
    kind = meant.shape.kind
    back = kind.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)

    def given(name: str) -> Any:
        array = np.ascontiguousarray(backward.turned(name, found[name]))
        return kind.wrap(a.narrowed(array, abi.F64, back), back)

    results: tuple[Any, ...] = tuple(given(name) for name in INPUTS)
    if more:
        results = (*results, {name: given(name) for name in more})
    return (*results, Trace({name: found[name] for name in stages})) if stages else results
