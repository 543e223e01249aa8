"""Attention over a sequence of keys from the results of its parts: flash-decoding, ring and cascade attention."""
from __future__ import annotations

import ctypes
from typing import Any, Sequence

from . import abi
from . import arrays as a
from .library import call, lib
from .settings import ROWS
from .shapes import heads_first


def merge(parts: Sequence[tuple[a.Array, a.Array]], *, layout: str = "BHTD", empty_rows: str = "zero") -> Any:
    """Joins (output, lse) pairs of the same queries over different keys; returns those of all keys together.

        mha.merge([sdpa(q, k[:, :, :9], v[:, :, :9], return_lse=True),
                   sdpa(q, k[:, :, 9:], v[:, :, 9:], return_lse=True, key_offset=9)])

    output: (B, h, T_q, d_v), or with layout "BTHD" (B, T_q, h, d_v); lse: (B, h, T_q). Results have the types and the
    kind of the first part. A causal mask, a window and ALiBi need key_offset in each part, and the sinks must count in
    one part only: the others say keys_only=True. A row that saw nothing in any part follows empty_rows.
    """
    swapped = heads_first(layout)
    if not isinstance(parts, (list, tuple)) or not parts:
        raise TypeError("parts: expected a list of (output, lse) pairs")
    given = []
    for i, part in enumerate(parts):
        if not isinstance(part, (list, tuple)) or len(part) != 2:
            raise TypeError(f"parts[{i}]: expected a pair of output and lse, found {type(part).__name__}")
        output, lse = a.floats(f"parts[{i}][0]", part[0]), a.floats(f"parts[{i}][1]", part[1])
        for word, tensor, axes in (("0", output, 4), ("1", lse, 3)):
            if tensor.array.ndim != axes:
                raise ValueError(f"parts[{i}][{word}]: expected {axes} axes, found shape {tensor.array.shape}")
        given.append((output, lse))

    def pair(output: a.Tensor, lse: a.Tensor) -> abi.Part:
        heads = output.on(output.array.swapaxes(1, 2)) if swapped else output
        return abi.Part(a.view_of(heads), a.view_of(lse))

    views = (abi.Part * len(given))(*(pair(*part) for part in given))
    results = [tensor.on(a.empty(tensor.array.shape, tensor.dtype)) for tensor in given[0]]
    call(lib.mha_merge, views, len(views), a.choice("empty_rows", empty_rows, ROWS["empty_rows"].words),
         ctypes.byref(pair(*results)))
    return tuple(tensor.wrap(tensor.array, tensor.dtype) for tensor in results)
