"""The settings of a call, given as keyword arguments, as the library's struct."""
from __future__ import annotations

import ctypes
import difflib
from dataclasses import dataclass
from typing import Any, Iterable, Optional, Sequence

import numpy as np

from . import _abi
from . import arrays as a
from ._library import call, lib

# Every setting, with what it means; the same words in every function of the module.
SETTINGS = {
    "causal": "a query sees keys at positions up to its own",
    "is_causal": "the same, aligned top-left, as PyTorch and JAX do: query i sees keys j <= i",
    "offset": "position of query 0: a number, one for each batch row, 'top-left' (0) or 'bottom-right' (S - T_q)",
    "key_offset": "number of keys that come before those of this call, which are a part of a longer sequence",
    "keys_only": "the softmax is over the keys alone: sinks and extra rows are counted by another part",
    "window": "(left, right): keys farther away than that are hidden; -1 is open",
    "prefix": "with causal: keys at positions below this one are seen, too",
    "window_keep": "the left side of the window does not hide keys at positions below this one",
    "chunk": "n > 0: a query sees only keys of its own chunk of n positions",
    "scale": "factor of the scores; 1/sqrt(d_k) when None",
    "softcap": "c > 0: scores become c * tanh(score / c), before masks",
    "mask": "broadcast to (B, h, T_q, S): numbers are added, booleans keep or hide as mask_kind says",
    "mask_kind": "'additive', 'keeps' or 'hides'",
    "key_padding": "(B, S): as mask, one value for each key",
    "key_padding_kind": "'additive', 'keeps' or 'hides'",
    "padding_fill": "added to keys that key_padding hides, instead of hiding them",
    "lengths": "(B): key j of batch row b is hidden from j = lengths[b] on",
    "q_segments": "(B, T_q) whole numbers: a query sees only keys of its own number (documents packed into a row)",
    "k_segments": "(B, S): the numbers of the keys; q_segments when None",
    "query_padding": "(B, T_q) booleans: a query of padding sees nothing, and its heads are 0",
    "query_padding_kind": "'keeps' or 'hides': what True says of a query",
    "key_lists": "broadcast to (B, h, T_q, n), n of any size: positions of the keys a query sees; -1 fills",
    "blocks": "broadcast to (B, h, ceil(T_q / n), ceil(S / m)): booleans for blocks of n queries and m keys",
    "blocks_kind": "'keeps' or 'hides'",
    "block_size": "(n, m): queries and keys in a block of blocks",
    "alibi": "(h): slopes; adds -slope * (position of the query - position of the key)",
    "position_bias": "mha.Bias: adds a number from a table to each score, by where query and key stand",
    "relative": "mha.Relative: adds products of queries and keys with rows of tables, chosen by where both stand",
    "sinks": "(h): one more logit for each head in the softmax denominator",
    "rope": "mha.Rope: rotates queries and new keys",
    "norm_eps": "epsilon of a layer's q/k norms; 1e-6 when 0",
    "norm_kind": "'rms', 'layer' or 'l2': what q/k norms divide by",
    "norm_plus_one": "q/k norms multiply by 1 + weight (Gemma 3)",
    "norm_after_rope": "q/k norms come after the rotation (Llama 4)",
    "norm_unweighted": "each head of queries and keys is normalised also where there is no weight",
    "query_scale": "(growth, every, first): queries times 1 + growth * log(1 + (position + first) // every)",
    "clip_qkv": "c > 0: q, k and v limited to [-c, c], behind the bias, or behind a norm before the rotation",
    "zero_row": "one more key and value of zeros, always visible",
    "softmax_plus_one": "one more exp(0) in the denominator",
    "normaliser": "'softmax', or 'sigmoid': weights 1 / (1 + exp(-(score + sigmoid_bias))), each key by itself",
    "sigmoid_bias": "of normaliser 'sigmoid'; Ramapuram et al. 2024 have -log(S)",
    "empty_rows": "'zero' or 'nan': the weights of a query that sees no key",
    "hidden_values": "'ignore' or 'propagate': whether NaN in the value of a hidden key reaches the output",
    "cu_seqlens_q": "(n + 1): starts of n sequences in one batch row, and their end",
    "cu_seqlens_k": "the same for the keys; cu_seqlens_q when None",
}


# Words of others that are no settings here, and what says the same.
_ELSEWHERE = {
    "need_weights": "keep=['weights'] of a layer, return_stages=['weights'] of a function",
    "average_attn_weights": "keep=['weights_mean'] of a layer",
    "attn_mask": "mask, with mask_kind='keeps' for booleans",
    "key_padding_mask": "key_padding, with key_padding_kind='hides' where True hides a key",
    "local_window_size": "window", "sliding_window": "window", "logits_soft_cap": "softcap",
    "key_value_seq_lengths": "lengths", "kdim": "d_kin", "vdim": "d_vin", "add_bias_kv": "bias_kv=True",
    "add_zero_attn": "zero_row=True", "batch_first": "layout of the call, 'BTE' or 'TBE'",
}


def expect_settings(names: Iterable[str]) -> None:
    """TypeError for a name that is no setting, with the nearest one."""
    for name in names:
        if name in SETTINGS:
            continue
        near = difflib.get_close_matches(name, SETTINGS, 1)
        meant = f": here it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else f": is {near[0]!r} meant?" if near else ""
        raise TypeError(f"unknown setting {name!r}{meant}")


def _expect_rotation(kind: Any, last: Any) -> None:
    a.choice("kind", kind, _abi.ROPE_KINDS)
    a.flag("last", last)


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of queries and new keys (Su et al. 2021).

    kind: "interleaved" rotates features (0, 1), (2, 3), ...; "half_split" (i, i + dim/2), as Hugging Face does.
    dim: number of features that are rotated; 0: all of a head.
    base: angle = position * base^(-2 i / dim).
    q_positions, k_positions: (B, T) whole numbers; None: offset + i, and the position in the cache.
    cos, sin: (n, dim/2) by position, or (B, T, dim/2) for each row; float32 or float64. None: computed.
    last: the last `dim` features are rotated, not the first.
    frequencies: (dim/2) numbers, angle = position * frequencies[i]; None: by base. Rope.scaled computes those of YaRN
        and others.
    attention_factor: rotated features are multiplied by it.
    origin: of what Rope.by_axes made cos and sin: order, sections, positions, frequencies. Cases record it, and the
        diagnosis names what people get wrong about it.
    """

    kind: str = "half_split"
    dim: int = 0
    base: float = 10000.0
    q_positions: Any = None
    k_positions: Any = None
    cos: Any = None
    sin: Any = None
    last: bool = False
    frequencies: Any = None
    attention_factor: float = 1.0
    origin: Any = None

    @classmethod
    def scaled(cls, scaling: str, dim: int, factor: float = 1.0, original_length: float = 0.0, *, length: int = 0,
               kind: str = "half_split", base: float = 10000.0, last: bool = False, **numbers: Any) -> Rope:
        """The rotation of a model whose context was stretched, as its config.json states it.

        scaling: "linear", "dynamic" (NTK), "yarn", "longrope" or "llama3"; what each does stands in mha/rope.h.
        dim: number of features that are rotated.
        factor, original_length: how much longer the context became, and how long it was.
        length: positions in use, which dynamic and longrope depend on.
        numbers: attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim, untruncated, low_frequency_factor,
            high_frequency_factor, short_factors, long_factors.
        """
        s = _abi.RopeScaling()
        s.kind = a.choice("scaling", scaling, _abi.ROPE_SCALINGS)
        _expect_rotation(kind, last)
        dim, length = a.whole_number("dim", dim, 0), a.whole_number("length", length, 0)
        s.factor, s.original_length = a.number("factor", factor), a.number("original_length", original_length)
        for name, value in numbers.items():
            if name in ("short_factors", "long_factors"):
                factors = a.numbers(name, value, (dim // 2,))
                if len(factors) > _abi.ROPE_MAX_PAIRS:
                    raise ValueError(f"{name}: expected at most {_abi.ROPE_MAX_PAIRS} numbers, found {len(factors)}")
                s.pairs = len(factors)
                getattr(s, name)[:len(factors)] = factors.tolist()
            elif name == "untruncated":
                s.untruncated = a.flag(name, value)
            elif name in dict(s._fields_):
                setattr(s, name, a.number(name, value))
            else:
                raise TypeError(f"unknown number {name!r} of a scaling")
        frequencies, times = np.empty(dim // 2), ctypes.c_double()
        call(lib.mha_rope_frequencies, ctypes.byref(s), dim, a.number("base", base), length,
             frequencies.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), ctypes.byref(times))
        return cls(kind, dim, base, last=last, frequencies=frequencies, attention_factor=times.value)

    @classmethod
    def by_axes(cls, positions: Any, sections: Any, order: str = "blocks", *, kind: str = "half_split",
                base: float = 10000.0, last: bool = False, frequencies: Any = None,
                attention_factor: float = 1.0) -> Rope:
        """The rotation of tokens that have a position on each of several axes: time, height and width.

        positions: (axes, T) or (axes, B, T) whole numbers; the rows of a self-attention.
        sections: (axes): pairs of features that turn by each axis.
        order: "blocks" (M-RoPE of Qwen2-VL), "interleaved" (Qwen3-VL), "repeated" (images in Qwen2-VL, Llama 4) or
            "dealt" (Pixtral); mha/rope.h has each in a formula.
        frequencies: instead of base^(-2 i / dim) for i = 0, 1, ..., where dim is twice the number of pairs, for
            "repeated" those of the largest section.
        """
        axes = _abi.RopeAxes()
        _expect_rotation(kind, last)
        axes.kind = a.choice("order", order, _abi.ROPE_AXES)
        sizes = [a.whole_number("sections", x, 1) for x in np.asarray(sections).ravel().tolist()]
        if not 1 <= len(sizes) <= _abi.ROPE_MAX_AXES:
            raise ValueError(f"sections: expected 1 to {_abi.ROPE_MAX_AXES} sizes, found {len(sizes)}")
        if sum(sizes) > _abi.ROPE_MAX_PAIRS:
            raise ValueError(f"sections: expected at most {_abi.ROPE_MAX_PAIRS} pairs together, found {sum(sizes)}")
        for name, x in (("base", base), ("attention_factor", attention_factor)):
            if not 0 < a.number(name, x) < np.inf:
                raise ValueError(f"{name}: expected a finite number above 0, found {x}")
        axes.axes, axes.sections[:len(sizes)] = len(sizes), sizes
        wanted = max(sizes) if order == "repeated" else sum(sizes)
        f = (np.array([a.number("base", base) ** (-i / wanted) for i in range(wanted)]) if frequencies is None
             else np.array(a.numbers("frequencies", frequencies, (wanted,)), np.float64))
        if not np.isfinite(f).all():
            raise ValueError("frequencies: expected finite numbers")
        told = np.asarray(positions)
        if told.dtype.kind not in "iu" or (told.size > 0 and int(told.max()) > np.iinfo(np.int64).max):
            raise TypeError(f"positions: expected whole numbers that int64 holds, found {told.dtype}")
        places = a.given("positions", told.astype(np.int64))
        rank = places.array.ndim
        if rank not in (2, 3) or places.array.shape[0] != len(sizes):
            raise ValueError(f"positions: expected shape ({len(sizes)}, T) or ({len(sizes)}, B, T), found "
                             f"{places.array.shape}")
        by_row = places.array if rank == 3 else places.array[:, None]
        rows = a.given("positions", np.ascontiguousarray(by_row))
        tables = [np.empty((*by_row.shape[1:], sum(sizes))) for _ in range(2)]
        views = [a.view_of(a.given("table", table)) for table in tables]
        call(lib.mha_rope_axes_tables, ctypes.byref(axes), f.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
             ctypes.byref(a.view_of(rows)), ctypes.byref(views[0]), ctypes.byref(views[1]))
        return cls(kind, 2 * sum(sizes), base, cos=tables[0], sin=tables[1], last=last,
                   attention_factor=attention_factor,
                   origin=(order, sizes, rows.array, None if frequencies is None else f))


@dataclass(frozen=True)
class Bias:
    """A learned number for each head that is added to a score, chosen by where query and key stand.

    rule: "buckets": by their distance (T5, Raffel et al. 2020); "grid": by the offset of two cells of a grid of
        height x width cells (Swin, Liu et al. 2021). mha/bias.h has both formulas.
    table: (n, h); None: the weight bias_table of the layer.
    one_way: buckets for earlier keys alone; else half of them are for later keys.
    max_distance: keys farther away share a bucket; 128 when 0.
    height, width: cells of the grid, (2 height - 1)(2 width - 1) rows of the table.
    class_token: one token before the grid, three more rows of the table (BEiT).
    """

    rule: str = "buckets"
    table: Any = None
    one_way: bool = False
    max_distance: int = 0
    height: int = 0
    width: int = 0
    class_token: bool = False


@dataclass(frozen=True)
class Relative:
    """Products of a query, or of a key, with a learned row that is chosen by where both stand, added to the score.

    rule: "distance": by it (Shaw et al. 2018); "log_buckets": by it, in buckets (DeBERTa v2, He et al. 2021); "grid":
        by the offset of two cells of a grid of height x width cells (SAM). mha/relative.h has the formulas.
    k, columns, q: tables (n, d_k), or all of them (n, h * d_k); None: the weights relative_k, relative_columns and
        relative_q of the layer. Queries are multiplied with rows of k and columns, keys with rows of q.
    reversed: the distance is key minus query.
    max_distance: of log_buckets; 512 when 0.
    k_scale, q_scale: factors of the products; the scale of the call when 0.
    """

    rule: str = "distance"
    k: Any = None
    columns: Any = None
    q: Any = None
    reversed: bool = False
    max_distance: int = 0
    height: int = 0
    width: int = 0
    k_scale: float = 0.0
    q_scale: float = 0.0


def window_segments(height: int, width: int, window: int, shift: int) -> Any:
    """q_segments of the windows of an image of height x width cells, rolled up and left by `shift` cells (Swin):
    (n, window^2), for n batch rows that are the windows of one image. np.tile repeats them for several images."""
    sizes = [a.whole_number(name, value, 0) for name, value in
             (("height", height), ("width", width), ("window", window), ("shift", shift))]
    cells, area = sizes[0] * sizes[1], sizes[2] ** 2
    whole = 0 < area <= cells <= 2**32 and cells % area == 0  # otherwise refused below
    made = np.empty((cells // area, area) if whole else (0, 0), np.int64)
    call(lib.mha_window_segments, *sizes, made.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)))
    return made


@dataclass(frozen=True)
class Sizes:
    """What settings are held against: batch rows or sequences, heads, queries and keys (cached ones included)."""

    B: int
    h: int
    T_q: int
    S: int


class Semantics:
    """The struct of the settings, the weights among them by name, and the arrays that both borrow."""

    def __init__(self, sizes: Sizes, settings: dict[str, Any]) -> None:
        expect_settings(settings)
        self.struct = _abi.Semantics()
        self.weights: dict[str, Any] = {}
        self._held: list[Any] = []
        self._given = {name: value for name, value in settings.items() if value is not None}
        self._sizes = sizes
        self._sequences()
        self._numbers()
        self._positions()
        self._hiding()
        if "rope" in self._given:
            self._rotation(self._given["rope"])

    def _held_view(self, tensor: a.Tensor) -> _abi.View:
        self._held.append(tensor)
        return a.view_of(tensor)

    def let_go(self) -> None:
        """Lets go of the arrays of others; what was copied stays."""
        self._held, self._given = [held for held in self._held if not isinstance(held, a.Tensor)], {}

    def _address(self, array: Any) -> Any:
        self._held.append(array)
        return array.ctypes.data

    def _number(self, name: str) -> Optional[float]:
        return a.number(name, self._given[name]) if name in self._given else None

    def _flag(self, name: str) -> bool:
        return a.flag(name, self._given.get(name, False))

    def _sequences(self) -> None:
        """A ragged batch: B is then the number of sequences, T_q and S the longest lengths."""
        self._lengths_q = self._lengths_k = None
        if "cu_seqlens_q" not in self._given:
            if "cu_seqlens_k" in self._given:
                raise ValueError("cu_seqlens_k: means nothing without cu_seqlens_q")
            return
        s, rows = self.struct, self._sizes
        q = a.whole_numbers("cu_seqlens_q", self._given["cu_seqlens_q"])
        k = a.whole_numbers("cu_seqlens_k", self._given.get("cu_seqlens_k", q), len(q))
        for name, cu, total in (("cu_seqlens_q", q, rows.T_q), ("cu_seqlens_k", k, rows.S)):
            if len(cu) < 1 or cu[0] != 0 or (np.diff(cu) < 0).any() or cu[-1] > total:
                raise ValueError(f"{name}: expected numbers from 0 up to {total} that never decrease, found {cu}")
        s.n_sequences, s.cu_seqlens_q, s.cu_seqlens_k = len(q) - 1, self._address(q), self._address(k)
        self._lengths_q, self._lengths_k = np.diff(q), np.diff(k)
        longest = [int(lengths.max(initial=0)) for lengths in (self._lengths_q, self._lengths_k)]
        self._sizes = Sizes(len(q) - 1, rows.h, longest[0], longest[1])

    def _numbers(self) -> None:
        s, h = self.struct, self._sizes.h
        scale, fill = self._number("scale"), self._number("padding_fill")
        if scale is not None:
            s.has_scale, s.scale = True, scale
        if fill is not None:
            s.has_padding_fill, s.padding_fill = True, fill
        s.softcap, s.norm_eps = self._number("softcap") or 0.0, self._number("norm_eps") or 0.0
        s.clip_qkv = self._number("clip_qkv") or 0.0
        s.norm.kind = a.choice("norm_kind", self._given.get("norm_kind", "rms"), _abi.NORM_KINDS)
        for name in ("plus_one", "after_rope", "unweighted"):
            setattr(s.norm, name, self._flag(f"norm_{name}"))
        if "query_scale" in self._given:
            s.query_scale.growth, every, first = a.numbers("query_scale", self._given["query_scale"], (3,)).tolist()
            s.query_scale.every, s.query_scale.first = (
                a.whole_number("query_scale", int(x) if float(x).is_integer() else x) for x in (every, first))
        s.zero_row, s.softmax_plus_one = self._flag("zero_row"), self._flag("softmax_plus_one")
        s.keys_only = self._flag("keys_only")
        s.normaliser = a.choice("normaliser", self._given.get("normaliser", "softmax"), _abi.NORMALISERS)
        s.sigmoid_bias = self._number("sigmoid_bias") or 0.0
        s.empty_rows = a.choice("empty_rows", self._given.get("empty_rows", "zero"), _abi.EMPTY_ROWS)
        s.hidden_values = a.choice("hidden_values", self._given.get("hidden_values", "ignore"), _abi.HIDDEN_VALUES)
        if "alibi" in self._given:
            s.alibi_slopes = self._address(a.numbers("alibi", self._given["alibi"], (h,)))
        if "sinks" in self._given:
            self.weights["sinks"] = a.numbers("sinks", self._given["sinks"], (h,))
        if "position_bias" in self._given:
            self._bias(self._given["position_bias"])
        if "relative" in self._given:
            self._relative(self._given["relative"])

    def _bias(self, bias: Any) -> None:
        if not isinstance(bias, Bias):
            raise TypeError(f"position_bias: expected mha.Bias, found {type(bias).__name__}")
        s = self.struct.bias
        s.rule = a.choice("position_bias.rule", bias.rule, _abi.BIAS_RULES)
        for name in ("one_way", "class_token"):
            setattr(s, name, a.flag(f"position_bias.{name}", getattr(bias, name)))
        for name in ("max_distance", "height", "width"):
            setattr(s, name, a.whole_number(f"position_bias.{name}", getattr(bias, name), 0))
        if bias.table is not None:
            rows = len(bias.table) if hasattr(bias.table, "__len__") else 0
            self.weights["bias_table"] = a.numbers("position_bias.table", bias.table, (rows, self._sizes.h))

    def _relative(self, relative: Any) -> None:
        if not isinstance(relative, Relative):
            raise TypeError(f"relative: expected mha.Relative, found {type(relative).__name__}")
        s = self.struct.relative
        s.rule = a.choice("relative.rule", relative.rule, _abi.RELATIVE_RULES)
        s.reversed = a.flag("relative.reversed", relative.reversed)
        for name in ("max_distance", "height", "width"):
            setattr(s, name, a.whole_number(f"relative.{name}", getattr(relative, name), 0))
        for name in ("k_scale", "q_scale"):
            setattr(s, name, a.number(f"relative.{name}", getattr(relative, name)))
        for name in ("k", "columns", "q"):
            table = getattr(relative, name)
            if table is not None:
                shape = tuple(getattr(table, "shape", ()))
                if len(shape) != 2:
                    raise ValueError(f"relative.{name}: expected a table, (n, d_k) or (n, h*d_k), found {shape}")
                self.weights[f"relative_{name}"] = a.numbers(f"relative.{name}", table, shape)

    def _positions(self) -> None:
        s, sizes, offset = self.struct, self._sizes, self._given.get("offset")
        s.causal = self._flag("causal") | self._flag("is_causal")
        if "key_offset" in self._given:
            s.has_key_offset, s.key_offset = True, a.whole_number("key_offset", self._given["key_offset"])
        if "window" in self._given:
            pair = a.whole_numbers("window", self._given["window"], 2)
            s.window, s.window_left, s.window_right = True, int(pair[0]), int(pair[1])
        for name in ("prefix", "window_keep", "chunk"):
            setattr(s, name, a.whole_number(name, self._given.get(name, 0), 0))
        if "lengths" in self._given:
            s.kv_lengths = self._address(a.whole_numbers("lengths", self._given["lengths"], sizes.B))
        if offset is None:
            return
        if isinstance(offset, str):
            offset = self._aligned(a.choice("offset", offset, ("top-left", "bottom-right")) == 1)
        if hasattr(type(offset), "__index__") and getattr(offset, "ndim", 0) == 0:
            s.has_offset, s.offset = True, a.whole_number("offset", offset)
        else:
            s.position_offset = self._address(a.whole_numbers("offset", offset, sizes.B))

    def _aligned(self, bottom_right: bool) -> Any:
        """The offset of an alignment."""
        if not bottom_right:
            return 0
        if "lengths" in self._given:
            raise ValueError("offset: 'bottom-right' beside lengths is not clear: give lengths - T_q or S - T_q")
        if self._lengths_q is not None and self._lengths_k is not None:
            return self._lengths_k - self._lengths_q
        return self._sizes.S - self._sizes.T_q

    # ---------------------------------------------------------------- masks

    def _hiding(self) -> None:
        n = self._sizes
        self._mask("mask", self.struct.mask, (n.B, n.h, n.T_q, n.S))
        self._mask("key_padding", self.struct.key_padding, (n.B, n.S))
        self._pattern(self.struct.pattern)

    def _pattern(self, p: _abi.Pattern) -> None:
        n = self._sizes
        if "block_size" in self._given:
            size = a.whole_numbers("block_size", self._given["block_size"], 2)
            if (size < 1).any():
                raise ValueError(f"block_size: expected whole numbers of 1 or more, found {size}")
            p.block_queries, p.block_keys = int(size[0]), int(size[1])
        blocks = (-(-n.T_q // p.block_queries), -(-n.S // p.block_keys)) if p.block_queries else (0, 0)
        if "blocks" in self._given and not p.block_queries:
            raise ValueError("block_size: is needed beside blocks")
        self._mask("query_padding", p.query_padding, (n.B, n.T_q))
        self._mask("blocks", p.blocks, (n.B, n.h, *blocks))
        for name in ("q_segments", "k_segments", "key_lists"):
            if name in self._given:
                setattr(p, name, self._held_view(self._wholes(name, self._given[name])))

    @staticmethod
    def _wholes(name: str, value: Any) -> a.Tensor:
        """Whole numbers of any shape, as I64."""
        tensor = a.given(name, value)
        if tensor.dtype not in a.INTEGERS:
            raise TypeError(f"{name}: expected whole numbers, found {a.NAMES[tensor.dtype]}")
        return a.Tensor(np.array(tensor.array, np.int64, order="C"), _abi.I64, a.wrap_numpy)

    def _mask(self, name: str, mask: _abi.Mask, full: Sequence[int]) -> None:
        kind = self._given.get(name + "_kind")
        if name not in self._given:
            if kind is not None:
                raise ValueError(f"{name}_kind: means nothing without {name}")
            return
        tensor = a.given(name, self._given[name])
        boolean = tensor.dtype == _abi.BOOL
        if not boolean and tensor.dtype not in a.FLOATS:
            raise TypeError(f"{name}: expected booleans or floating-point numbers, found {a.NAMES[tensor.dtype]}")
        if boolean and kind is None:
            raise ValueError(f"{name}_kind: a boolean mask 'keeps' or 'hides' where it is true: say which")
        mask.kind = a.choice(name + "_kind", "additive" if kind is None else kind, _abi.MASK_KINDS)
        if (mask.kind == 1) == boolean or mask.kind == 0:
            raise ValueError(f"{name}_kind: {kind!r} does not go with a mask of {a.NAMES[tensor.dtype]}")
        shape = tensor.array.shape
        fits = 1 <= len(shape) <= len(full) and all(
            n in (1, whole) for n, whole in zip(shape[::-1], tuple(full)[::-1]))
        if not fits:
            raise ValueError(f"{name}: shape {shape} cannot be broadcast to {tuple(full)}")
        mask.values = self._held_view(a.widened(tensor) if tensor.dtype in a.HALVES else tensor)

    # ---------------------------------------------------------------- rotation

    def _rotation(self, rope: Any) -> None:
        if not isinstance(rope, Rope):
            raise TypeError(f"rope: expected mha.Rope, found {type(rope).__name__}")
        r = self.struct.rope
        r.kind = a.choice("rope.kind", rope.kind, _abi.ROPE_KINDS)
        r.dim = a.whole_number("rope.dim", rope.dim, 0)
        r.base = a.number("rope.base", rope.base)
        r.last = a.flag("rope.last", rope.last)
        r.attention_factor = a.number("rope.attention_factor", rope.attention_factor)
        for name, value in (("q_positions", rope.q_positions), ("k_positions", rope.k_positions)):
            if value is not None:
                setattr(r, name, self._held_view(self._wholes(f"rope.{name}", value)))
        for name, called, value in (("cos_table", "cos", rope.cos), ("sin_table", "sin", rope.sin),
                                    ("frequencies", "frequencies", rope.frequencies)):
            if value is not None:
                tensor = a.floats(f"rope.{called}", value)
                setattr(r, name, self._held_view(a.widened(tensor) if tensor.dtype in a.HALVES else tensor))
        if rope.origin is not None:
            order, sizes, positions, frequencies = rope.origin
            axes = r.origin.axes
            axes.kind, axes.axes = a.choice("order", order, _abi.ROPE_AXES), len(sizes)
            axes.sections[:len(sizes)] = sizes
            r.origin.positions = self._held_view(self._wholes("positions", positions))
            if frequencies is not None:
                r.origin.frequencies = self._held_view(a.floats("frequencies", frequencies))
