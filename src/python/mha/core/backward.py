"""Gradients of attention, in float64, as the library's reference computes them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .backward_call import GRADIENTS, INPUTS, Backward, further, stages_of
from .errors import typed
from .reference import PAST, Meant
from .shapes import layout_of
from .trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import MeantSettings

TYPED = {"query": "q", "key": "k", "value": "v"}  # what these are called here


class MeantBackward(Backward):
    """The gradients of a call as it was meant."""

    def __init__(self, meant: Meant, do: object, dlse: object) -> None:
        self.meant = meant
        super().__init__(meant.request, meant.shape.seen(a.floats("do", do), "do"), dlse)

    def turned(self, name: str, array: a.Stored) -> a.Stored:
        """A gradient in the axes of what it is of, as the caller gave it; others than those of rows stay."""
        if name in PAST and self.meant.layer is None:
            return self.meant.shape.input_back(array.transpose(0, 2, 1, 3))
        return self.meant.shape.input_back(array) if name in INPUTS else array

    def inside(self, name: str, array: a.Stored) -> a.Stored:
        """A gradient as the library has it, of one in the axes of what it is of."""
        if name in PAST and self.meant.layer is None:
            return self.meant.shape.inside(array).transpose(0, 2, 1, 3)
        return self.meant.shape.inside(array) if name in INPUTS else array

    def noted(self, gradients: Mapping[str, a.Tensor]) -> abi.Gradients:
        """The gradients of the user in a case, in the library's axes, with the call; for as long as
        this backward and these live."""
        struct = abi.Gradients.from_buffer_copy(self.struct)
        for name, tensor in gradients.items():
            struct.of[GRADIENTS.index(name)] = a.view_of(tensor)
        return struct


def attention_backward(q: a.ArrayLike, k: a.ArrayLike, v: a.ArrayLike, do: a.ArrayLike, *,
                       dlse: Optional[a.ArrayLike] = None, also: Sequence[str] = (), return_stages: Sequence[str] = (),
                       layout: Optional[str] = None, out_dtype: Optional[a.Type] = None,
                       **settings: Unpack[MeantSettings]) -> object:
    """Compute the gradients (dq, dk, dv) of attention in float64 with the exact path.

    With P = softmax(S), dP = dO V^T and D = rowsum(dO O): dS = P (dP - D + dlse), dQ = scale dS K, dK = scale dS^T Q,
    dV = P^T dO. A fully masked row has gradients of 0.

    Parameters
    ----------
    q, k, v : array_like
        As in mha.attention, shape (B, h, T, width).
    do : array_like, in the axes of the output
        Gradient of the output.
    dlse : array_like, shape (B, h, T_q), default None
        Gradient of lse; None: 0.
    also : sequence of str, default ()
        Further gradients: "mask" and "key_padding" (additive, in their shapes), "alibi_slopes", "sinks", "bias_table",
        "relative_k", ..., and "past_key", "past_value", of settings of these names, in their own axes.
    return_stages : sequence of str, default ()
        Stages of the backward, in the library's shapes: "d_heads" (dO), "d_weights" (dP), "row_sums" (D), "d_masked"
        (dZ), "d_scores" (dS), "d_q_rot", "d_k_rot", "d_v". P is the stage "weights" of mha.attention.
    layout : {"BHTD", "BTHD", "BTNH"}, default None
        Order of the axes, as in mha.attention.
    out_dtype : str or dtype, default None
        Type to which mha rounds gradients once; None: that of q.
    **settings
        As in mha.attention; with layout="BHTD" also attn_mask and is_causal of
        mha.scaled_dot_product_attention.

    Returns
    -------
    dq, dk, dv : arrays
        In the axes and of the kind of q, k and v.
    more : dict from str to array
        Only with `also`, in the library's shapes.
    trace : mha.Trace
        Only with return_stages, numpy arrays of float64.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or the call has no such gradient or stage. Tables of a rotation, positions and numbers of
        the settings have no gradient.

    Examples
    --------
    >>> q, k, v, do = np.random.default_rng(0).standard_normal((4, 2, 4, 9, 16), dtype=np.float32)
    >>> dq, dk, dv = mha.attention_backward(q, k, v, do, causal=True)
    >>> dq.shape, dq.dtype
    ((2, 4, 9, 16), dtype('float32'))
    """
    more, stages = further(also), stages_of("return_stages", return_stages)
    with typed(TYPED):
        meant = Meant(q, k, v, None, layout_of(layout, q, settings.get("cu_seqlens_q")), {**settings})
    backward = MeantBackward(meant, do, dlse)
    found = backward.run([*INPUTS, *more, *stages])
    kind = meant.shape.kind
    back = kind.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)

    def given(name: str) -> a.ArrayLike:
        array = np.ascontiguousarray(backward.turned(name, found[name]))
        return kind.wrap(a.narrowed(array, abi.F64, back), back)

    results: tuple[object, ...] = tuple(given(name) for name in INPUTS)
    if more:
        results = (*results, {name: given(name) for name in more})
    return (*results, Trace({name: found[name] for name in stages})) if stages else results
