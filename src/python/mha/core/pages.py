"""Attention to keys and values in pages, in flash-attn's conventions (block_table, cache_seqlens)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Sequence

import numpy as np

from . import abi
from . import arrays as a
from .backward_call import Backward, further, stages_of
from .call import Request
from .errors import typed
from .functional import flash_words
from .semantics import Semantics
from .settings import has
from .shapes import Heads, heads_first, run
from .trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import PagedSettings

_GRADIENTS = ("query", "page_keys", "page_values")


class _Queries(Heads):
    """Queries with keys in pages."""

    def __init__(self, q: a.ArrayLike, keys: a.Tensor, values: a.Tensor, longest: int, layout: str) -> None:
        self.kind = a.floats("q", q)
        if self.kind.array.ndim != 4:
            raise ValueError(f"q: expected four axes, {layout}, found shape {self.kind.array.shape}")
        self.swapped, self.axes = heads_first(layout), 4
        middle = ("head", "query") if self.swapped else ("query", "head")
        self.lead, self.names = self.kind.array.shape[:1], ("batch row", *middle)
        self.inputs = [self.kind.on(self.inside(self.kind.array))]
        self.B, self.T_q, self.h, _ = self.inputs[0].array.shape
        self.S, self.h_kv, self.d_v = longest, keys.array.shape[2], values.array.shape[3]


class _Paged:
    """A call of queries with keys and values in pages."""

    def __init__(self, q: a.ArrayLike, key_pages: a.ArrayLike, value_pages: a.ArrayLike, page_table: a.ArrayLike,
                 page_lengths: a.ArrayLike, layout: str, settings: Mapping[str, object]) -> None:
        if "is_causal" in settings:
            raise TypeError("is_causal: expected causal, found is_causal; queries are the last tokens of each "
                            "sequence, aligned bottom-right")
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
        self.heads = _Queries(q, self.keys, self.values, int(self.lengths.max(initial=0)), layout)
        if settings.get("cu_seqlens_k") is not None:
            raise ValueError("cu_seqlens_k: expected None, found an array; page_lengths has the keys of each sequence")
        starts = settings.get("cu_seqlens_q")
        sequences = self.heads.B if starts is None else max(len(a.whole_numbers("cu_seqlens_q", starts)), 1) - 1
        if len(self.entries) != sequences:
            raise ValueError(f"page_table: expected a row for each of {sequences} sequences, found "
                             f"{len(self.entries)}")

    def request(self, causal: bool, window_size: Sequence[int], settings: Mapping[str, object], *, path: str = "exact",
                threads: Optional[int] = None, precision: a.Precision = None) -> Request:
        """The call, in the words of flash-attn."""
        settings = dict(settings, causal=a.flag("causal", causal))
        window = a.window_pair("window_size", window_size)
        if (window >= 0).any():
            settings.setdefault("window", np.maximum(window, -1))
        aligned = isinstance(settings.get("offset"), str) and settings["offset"] == "bottom-right"
        if aligned and not has(settings, "kv_lengths"):
            del settings["offset"]  # queries are the last tokens of each sequence where nothing else is said
        request = Request([self.heads.inputs[0], None, None], Semantics(self.heads.sizes(), settings), path=path,
                          threads=threads, precision=precision)
        pages = request.struct.pages
        pages.keys, pages.values = a.view_of(self.keys), a.view_of(self.values)
        pages.table, pages.lengths = self.entries.ctypes.data, self.lengths.ctypes.data
        pages.columns = self.entries.shape[1]
        return request


def paged_attention(q: a.ArrayLike, key_pages: a.ArrayLike, value_pages: a.ArrayLike, page_table: a.ArrayLike,
                    page_lengths: a.ArrayLike, *, layout: str = "BHTD", causal: bool = True,
                    window_size: Sequence[int] = (-1, -1), softmax_scale: Optional[float] = None, softcap: float = 0.0,
                    alibi_slopes: Optional[a.ArrayLike] = None, return_lse: bool = False,
                    return_stages: Sequence[str] = (), path: str = "auto", threads: Optional[int] = None,
                    precision: a.Precision = None, out_dtype: Optional[a.Type] = None, **settings: Unpack[PagedSettings]
                    ) -> object:
    """Attend to keys and values in pages of a pool, without a copy of them, in flash-attn's conventions.

    Key j of sequence b is row j % page_size of page page_table[b, j // page_size]. Queries are the last tokens of each
    sequence; their keys are in the pages already. The result has the bits that a cache of the same rows gives.

    Parameters
    ----------
    q : array_like, shape (B, h, T_q, d_k)
        Queries; (1, h, total, d_k) with cu_seqlens_q among the settings.
    key_pages : array_like, shape (pages, page_size, h_kv, d_k)
        float32, float16 or bfloat16; float64 with path="exact".
    value_pages : array_like, shape (pages, page_size, h_kv, d_v)
        Of the type of key_pages.
    page_table : array_like of int, shape (B, columns)
        Page numbers. mha does not read entries of pages without keys.
    page_lengths : array_like of int, shape (B,)
        Number of keys of each sequence.
    layout : {"BHTD", "BTHD", "BTNH"}, default "BHTD"
        Order of the axes of q and of the output; "BTHD": (B, T_q, h, d_k). Pages always have the axes above.
    causal : bool, default True
        Aligned bottom-right.
    window_size : (int, int), default (-1, -1)
        (left, right) around the position of a query, in keys; -1: open.
    softmax_scale, softcap, alibi_slopes, return_lse, return_stages, path, threads, precision, out_dtype
        As in mha.attention. precision="bfloat16" needs pages of bfloat16 unless path="exact".
    **settings
        Further settings, see mha.SETTINGS.

    Returns
    -------
    output : array, shape (B, h, T_q, d_v)
        In the axes of q, of its kind and type; lse (B, h, T_q) and mha.Trace follow if asked for.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or value, or the table names a page that does not exist.

    Examples
    --------
    >>> q = np.ones((1, 4, 1, 16), np.float32)
    >>> pages = np.random.default_rng(0).standard_normal((3, 8, 2, 16), dtype=np.float32)
    >>> mha.paged_attention(q, pages, pages, page_table=np.array([[2, 0]]), page_lengths=[11]).shape
    (1, 4, 1, 16)
    """
    paged = _Paged(q, key_pages, value_pages, page_table, page_lengths, layout, {**settings})
    given: dict[str, object] = {"scale": softmax_scale, "softcap": softcap, "alibi_slopes": alibi_slopes, **settings}
    with typed(flash_words(settings)):
        request = paged.request(causal, window_size, given, path=path, threads=threads, precision=precision)
        return run(paged.heads, request, return_lse=return_lse, return_stages=return_stages, out_dtype=out_dtype)


def paged_attention_backward(q: a.ArrayLike, key_pages: a.ArrayLike, value_pages: a.ArrayLike, page_table: a.ArrayLike,
                             page_lengths: a.ArrayLike, do: a.ArrayLike, *, layout: str = "BHTD",
                             dlse: Optional[a.ArrayLike] = None, causal: bool = True,
                             window_size: Sequence[int] = (-1, -1), softmax_scale: Optional[float] = None,
                             softcap: float = 0.0, alibi_slopes: Optional[a.ArrayLike] = None,
                             also: Sequence[str] = (), return_stages: Sequence[str] = (),
                             out_dtype: Optional[a.Type] = None, **settings: Unpack[PagedSettings]) -> object:
    """Compute the gradients (dq, dkey_pages, dvalue_pages) of mha.paged_attention in float64 with the exact path.

    A row of a page has the sum over all sequences that read it, and 0 if none does.

    Parameters
    ----------
    q, key_pages, value_pages, page_table, page_lengths
        As in mha.paged_attention.
    do : array_like, in the axes of the output
        Gradient of the output.
    dlse : array_like, shape (B, h, T_q), default None
        Gradient of lse; None: 0.
    layout, causal, window_size, softmax_scale, softcap, alibi_slopes
        As in mha.paged_attention.
    also, return_stages, out_dtype
        As in mha.attention_backward.
    **settings
        Further settings, see mha.SETTINGS.

    Returns
    -------
    dq, dkey_pages, dvalue_pages : arrays
        In the axes of q, key_pages and value_pages; a dict of `also` and mha.Trace follow if asked for.

    Raises
    ------
    TypeError, ValueError
        As in mha.paged_attention and mha.attention_backward.

    Examples
    --------
    >>> q = np.ones((1, 4, 1, 16), np.float32)
    >>> pages = np.random.default_rng(0).standard_normal((3, 8, 2, 16), dtype=np.float32)
    >>> dq, dk, dv = mha.paged_attention_backward(q, pages, pages, np.array([[2, 0]]), [11], np.ones_like(q))
    >>> dk.shape, float(abs(dk[1]).max())
    ((3, 8, 2, 16), 0.0)
    """
    more, stages = further(also), stages_of("return_stages", return_stages)
    paged = _Paged(q, key_pages, value_pages, page_table, page_lengths, layout, {**settings})
    given: dict[str, object] = {"scale": softmax_scale, "softcap": softcap, "alibi_slopes": alibi_slopes, **settings}
    with typed(flash_words(settings)):
        request = paged.request(causal, window_size, given)
    backward = Backward(request, paged.heads.seen(a.floats("do", do), "do"), dlse)
    found = backward.run([*_GRADIENTS, *more, *stages])
    trace = Trace({name: found.pop(name) for name in stages})
    found["query"] = np.ascontiguousarray(paged.heads.input_back(found["query"]))
    kind = paged.heads.kind
    back = kind.dtype if out_dtype is None else a.float_type("out_dtype", out_dtype)
    wrapped = {name: kind.wrap(a.narrowed(array, abi.F64, back), back) for name, array in found.items()}
    results: tuple[object, ...] = tuple(wrapped[name] for name in _GRADIENTS)
    if more:
        results = (*results, {name: wrapped[name] for name in more})
    return (*results, trace) if stages else results
