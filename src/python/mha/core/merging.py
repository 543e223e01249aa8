"""Attention over a sequence of keys from the results of its parts: flash-decoding, ring and cascade attention."""
from __future__ import annotations

import ctypes
from typing import Sequence, cast

from . import abi
from . import arrays as a
from .library import call, lib
from .settings import ROWS
from .shapes import heads_first


def merge(parts: Sequence[tuple[a.Kind, a.Kind]], *, layout: str = "BHTD", empty_rows: str = "zero"
          ) -> tuple[a.Kind, a.Kind]:
    """Merge (output, lse) pairs of the same queries over disjoint keys into those of all keys together.

    lse = log sum_i exp(lse_i), output = sum_i exp(lse_i - lse) output_i. A causal mask, a window and ALiBi need
    key_offset in each part. Sinks must count in one part only; the others need keys_only=True.

    Parameters
    ----------
    parts : sequence of (output, lse)
        output (B, h, T_q, d_v), lse (B, h, T_q).
    layout : {"BHTD", "BTHD", "BTNH"}, default "BHTD"
        Order of the axes of the outputs; with "BTHD" (B, T_q, h, d_v).
    empty_rows : {"zero", "nan"}, default "zero"
        Output of a row that is fully masked in every part.

    Returns
    -------
    output, lse : arrays
        Of the types and of the kind of the first part.

    Raises
    ------
    TypeError, ValueError
        parts is not a list of pairs, or the shapes differ.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> sdpa = mha.scaled_dot_product_attention
    >>> parts = [sdpa(q, k[:, :, i], v[:, :, i], return_lse=True) for i in (slice(0, 5), slice(5, 9))]
    >>> output, lse = mha.merge(parts)
    >>> bool(np.allclose(output, sdpa(q, k, v), atol=1e-6))
    True
    """
    swapped = heads_first(layout)
    if not isinstance(parts, (list, tuple)) or not parts:
        raise TypeError("parts: expected a list of (output, lse) pairs, found "
                        f"{type(parts).__name__ if parts else 'an empty list'}")
    given = []
    for i, part in enumerate(parts):
        if not isinstance(part, (list, tuple)) or len(part) != 2:
            raise TypeError(f"parts[{i}]: expected a pair of output and lse, found {type(part).__name__}")
        pair = a.floats(f"parts[{i}][0]", part[0]), a.floats(f"parts[{i}][1]", part[1])
        for word, tensor, axes in (("0", pair[0], 4), ("1", pair[1], 3)):
            if tensor.array.ndim != axes:
                raise ValueError(f"parts[{i}][{word}]: expected {axes} axes, found shape {tensor.array.shape}")
        given.append(pair)

    def part_of(output: a.Tensor, lse: a.Tensor) -> abi.Part:
        heads = output.on(output.array.swapaxes(1, 2)) if swapped else output
        return abi.Part(a.view_of(heads), a.view_of(lse))

    views = (abi.Part * len(given))(*(part_of(*part) for part in given))
    results = [tensor.on(a.empty(tensor.array.shape, tensor.dtype)) for tensor in given[0]]
    call(lib.mha_merge, views, len(views), a.choice("empty_rows", empty_rows, ROWS["empty_rows"].words),
         ctypes.byref(part_of(*results)))
    output, lse = (tensor.wrap(tensor.array, tensor.dtype) for tensor in results)
    return cast("a.Kind", output), cast("a.Kind", lse)
