"""Attention to keys and values in pages, in flash-attn's conventions (block_table, cache_seqlens)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .backward_call import Backward, further, stages_of
from .call import Request
from .errors import typed
from .functional import flash_words
from .semantics import Semantics
from .settings import has
from .shapes import Heads, run
from .trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import PagedSettings

_GRADIENTS = ("query", "page_keys", "page_values")


class _Queries(Heads):
    """Queries (B, T_q, h, d_k) whose keys lie in pages."""

    def __init__(self, q: a.Array, keys: a.Tensor, values: a.Tensor, longest: int) -> None:
        self.kind = a.floats("q", q)
        if self.kind.array.ndim != 4:
            raise ValueError(f"q: expected the axes B, T_q, h, d_k, found shape {self.kind.array.shape}")
        self.swapped, self.axes = False, 4
        self.lead, self.names = self.kind.array.shape[:1], ("batch row", "query", "head")
        self.B, self.T_q, self.h, _ = self.kind.array.shape
        self.S, self.h_kv, self.d_v = longest, keys.array.shape[2], values.array.shape[3]
        self.inputs = [self.kind]


class _Paged:
    """A call of queries whose keys and values lie in pages."""

    def __init__(self, q: a.Array, key_pages: a.Array, value_pages: a.Array, page_table: a.Array,
                 page_lengths: a.Array, settings: dict[str, Any]) -> None:
        if "is_causal" in settings:
            raise TypeError("is_causal: queries are the last tokens of each sequence here: causal, aligned "
                            "bottom-right")
        self.keys, self.values = a.floats("key_pages", key_pages), a.floats("value_pages", value_pages)
        for name, pool in (("key_pages", self.keys), ("value_pages", self.values)):
            if pool.array.ndim != 4:
                raise ValueError(f"{name}: expected the axes pages, page_size, h_kv, width, found shape "
                                 f"{pool.array.shape}")
        table = a.given("page_table", page_table)
        if table.dtype not in a.INTEGERS or table.array.ndim != 2:
            raise TypeError(f"page_table: expected whole numbers of shape (B, columns), found {a.NAMES[table.dtype]} "
                            f"of shape {table.array.shape}")
        fits = (table.array >= 0) & (table.array <= 2**31 - 1)
        self.entries = np.ascontiguousarray(np.where(fits, table.array, -1), np.int32)  # what does not fit is no page
        self.lengths = a.whole_numbers("page_lengths", page_lengths, len(self.entries))
        self.heads = _Queries(q, self.keys, self.values, int(self.lengths.max(initial=0)))
        if settings.get("cu_seqlens_k") is not None:
            raise ValueError("cu_seqlens_k: expected none, because page_lengths say how many keys a sequence has")
        starts = settings.get("cu_seqlens_q")
        sequences = self.heads.B if starts is None else max(len(a.whole_numbers("cu_seqlens_q", starts)), 1) - 1
        if len(self.entries) != sequences:
            raise ValueError(f"page_table: expected a row for each of {sequences} sequences, found "
                             f"{len(self.entries)}")

    def request(self, causal: bool, window_size: Sequence[int], settings: dict[str, Any], **how: Any) -> Request:
        """The call, in the words of flash-attn."""
        settings = dict(settings, causal=a.flag("causal", causal))
        window = a.whole_numbers("window_size", window_size, 2)
        if (window >= 0).any():
            settings.setdefault("window", np.maximum(window, -1))
        aligned = isinstance(settings.get("offset"), str) and settings["offset"] == "bottom-right"
        if aligned and not has(settings, "kv_lengths"):
            del settings["offset"]  # queries are the last tokens of each sequence where nothing else is said
        request = Request([self.heads.kind, None, None], Semantics(self.heads.sizes(), settings), **how)
        pages = request.struct.pages
        pages.keys, pages.values = a.view_of(self.keys), a.view_of(self.values)
        pages.table, pages.lengths = self.entries.ctypes.data, self.lengths.ctypes.data
        pages.columns = self.entries.shape[1]
        return request


def paged_attention(q: a.Array, key_pages: a.Array, value_pages: a.Array, page_table: a.Array, page_lengths: a.Array,
                    *, causal: bool = True, window_size: Sequence[int] = (-1, -1),
                    softmax_scale: Optional[float] = None, softcap: float = 0.0,
                    alibi_slopes: Optional[a.Array] = None, return_lse: bool = False,
                    return_stages: Sequence[str] = (), path: str = "auto", threads: int = 0, precision: Any = None,
                    out_dtype: Any = None, **settings: Unpack[PagedSettings]) -> Any:
    """Attention to keys and values in pages of a pool, which are read where they lie.

    q: (B, T_q, h, d_k): the last tokens of each sequence, whose keys are in the pages already. With cu_seqlens_q
        among the settings (1, total, h, d_k).
    key_pages: (pages, page_size, h_kv, d_k), value_pages: (pages, page_size, h_kv, d_v), of one type: float32,
        float16 or bfloat16, or float64 with path="exact".
    page_table: (B, columns) whole numbers: key j of sequence b is row j % page_size of page
        page_table[b, j // page_size]. Entries of pages without keys may be any.
    page_lengths: (B) whole numbers: the keys of each sequence.
    window_size: (left, right) around the position of a query; -1 is open.
    precision: "bfloat16" asks for pages of bfloat16 unless path="exact".
    The rest is as in mha.attention. The result has the bits that a cache of the same rows gives.
    """
    paged = _Paged(q, key_pages, value_pages, page_table, page_lengths, {**settings})
    given = {"scale": softmax_scale, "softcap": softcap, "alibi_slopes": alibi_slopes, **settings}
    with typed(flash_words(settings)):
        request = paged.request(causal, window_size, given, path=path, threads=threads, precision=precision)
        return run(paged.heads, request, return_lse=return_lse, return_stages=return_stages, out_dtype=out_dtype)


def paged_attention_backward(q: a.Array, key_pages: a.Array, value_pages: a.Array, page_table: a.Array,
                             page_lengths: a.Array, do: a.Array, *, dlse: Optional[a.Array] = None,
                             causal: bool = True, window_size: Sequence[int] = (-1, -1),
                             softmax_scale: Optional[float] = None, softcap: float = 0.0,
                             alibi_slopes: Optional[a.Array] = None, also: Sequence[str] = (),
                             return_stages: Sequence[str] = (), out_dtype: Any = None,
                             **settings: Unpack[PagedSettings]) -> Any:
    """The gradients (dq, dkey_pages, dvalue_pages) of mha.paged_attention, computed in float64 by the exact path.

    q ... page_lengths, and all else that has the same name: as in mha.paged_attention.
    do: the gradient of the output, in its axes. dlse: that of the lse, (B, h, T_q); None: 0.
    also, return_stages, out_dtype: as in mha.attention_backward.

    A row of a page has the sum over all sequences that read it, and 0 where none does.
    """
    more, stages = further(also), stages_of("return_stages", return_stages)
    paged = _Paged(q, key_pages, value_pages, page_table, page_lengths, {**settings})
    given = {"scale": softmax_scale, "softcap": softcap, "alibi_slopes": alibi_slopes, **settings}
    with typed(flash_words(settings)):
        request = paged.request(causal, window_size, given, path="exact")
    backward = Backward(request, paged.heads.seen(a.floats("do", do), "do"), dlse)
    found = backward.run([*_GRADIENTS, *more, *stages])
    trace = Trace({name: found.pop(name) for name in stages})
    kind = paged.heads.kind
    back = kind.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)
    wrapped = {name: kind.wrap(a.narrowed(array, abi.F64, back), back) for name, array in found.items()}
    results: tuple[Any, ...] = tuple(wrapped[name] for name in _GRADIENTS)
    if more:
        results = (*results, {name: wrapped[name] for name in more})
    return (*results, trace) if stages else results
