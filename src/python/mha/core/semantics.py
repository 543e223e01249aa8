"""The settings of a call, given as keyword arguments, as the library's struct."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from typing import Any, Optional

import numpy as np

from . import abi
from . import arrays as a
from .errors import typed
from .library import call, lib
from .settings import ROWS, WEIGHTS, Setting, expect_settings, row_of


def _expect_rotation(kind: Any, last: Any) -> None:
    a.choice("kind", kind, ROWS["rope"].words)
    a.flag("last", last)


# The orders of Rope.by_axes, in the order of mha_rope_axes_kind.
_ORDERS = ("blocks", "interleaved", "repeated", "dealt")


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

        scaling: "linear", "dynamic" (NTK), "yarn", "longrope" or "llama3"; mha/rope.h defines them.
        dim: number of features that are rotated.
        factor, original_length: how much longer the context became, and how long it was.
        length: positions in use, which dynamic and longrope depend on.
        numbers: attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim, untruncated, low_frequency_factor,
            high_frequency_factor, short_factors, long_factors.
        """
        s = abi.RopeScaling()
        s.kind = a.choice("scaling", scaling, abi.ROPE_SCALINGS)
        _expect_rotation(kind, last)
        dim, length = a.whole_number("dim", dim, 0), a.whole_number("length", length, 0)
        s.factor, s.original_length = a.number("factor", factor), a.number("original_length", original_length)
        for name, value in numbers.items():
            if name in ("short_factors", "long_factors"):
                factors = a.numbers(name, value, (dim // 2,))
                if len(factors) > abi.ROPE_MAX_PAIRS:
                    raise ValueError(f"{name}: expected at most {abi.ROPE_MAX_PAIRS} numbers, found {len(factors)}")
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
        axes = abi.RopeAxes()
        _expect_rotation(kind, last)
        axes.kind = a.choice("order", order, _ORDERS)
        sizes = [a.whole_number("sections", x, 1) for x in np.asarray(sections).ravel().tolist()]
        if not 1 <= len(sizes) <= abi.ROPE_MAX_AXES:
            raise ValueError(f"sections: expected 1 to {abi.ROPE_MAX_AXES} sizes, found {len(sizes)}")
        if sum(sizes) > abi.ROPE_MAX_PAIRS:
            raise ValueError(f"sections: expected at most {abi.ROPE_MAX_PAIRS} pairs together, found {sum(sizes)}")
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
    one_way: buckets only for earlier keys; else half of them are for later keys.
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


# Pairs and triples that are several rows, and objects whose fields are rows or weights of this beginning.
_SEVERAL = {"window": ("window_left", "window_right"), "block_size": ("block_queries", "block_keys"),
            "query_scale": ("query_scale_growth", "query_scale_every", "query_scale_first")}
_OBJECTS: dict[str, tuple[Any, str]] = {
    "rope": (Rope, "rope"), "position_bias": (Bias, "bias"), "relative": (Relative, "relative")}


# The row, or the weight, of each of their fields.
_INSIDE = {name: {field.name: begin if (name, field.name) == ("rope", "kind") else f"{begin}_{field.name}"
                  for field in fields(kind)} for name, (kind, begin) in _OBJECTS.items()}


class Semantics:
    """The struct of the settings, the weights among them by name, and the arrays that both borrow.

    words: the names of rows and weights as the caller typed them, where these are others. numbers: without arrays,
    which depend on the sizes of a call.
    """

    def __init__(self, sizes: Sizes, settings: dict[str, Any], numbers: bool = False) -> None:
        expect_settings(settings)
        self.struct, self.rope_origin = abi.Semantics(), abi.RopeOrigin()
        self.weights: dict[str, Any] = {}
        self.words: dict[str, str] = {}
        self._held: list[Any] = []
        self._sizes = sizes
        self._found: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}
        self._bottom_right: Optional[bool] = None  # where an alignment is given
        with typed(self.words):
            for name, value in settings.items():
                if value is not None and not (numbers and name == "offset"):
                    self._take(name, value)
            if self._bottom_right is not None:
                offset = self._aligned() if self._bottom_right else 0
                self._put("position_offset" if np.ndim(offset) else "offset", offset, "offset")
            self._say_kinds()
            rows = [(ROWS[name], value) for name, value in self._found.items()]
            self._found = {}
            for row, value in rows:
                if not row.is_array:
                    self._number(row, value)
                elif not numbers:
                    self._array(row, value)
            self._expect_lengths()

    def let_go(self) -> None:
        """Lets go of the arrays of others; what was copied stays."""
        self._held = [held for held in self._held if not isinstance(held, a.Tensor)]

    # ---------------------------------------------------------------- words of this module as rows

    def _take(self, name: str, value: Any) -> None:
        """Finds the rows of one argument."""
        row = row_of(name)
        if name in _SEVERAL:
            parts = _SEVERAL[name]
            if name == "window" and isinstance(value, int):
                raise TypeError(f"window: expected (left, right), found {value}: ({value - 1}, 0) is {value} keys, "
                                f"that of the query among them; ({value}, {value}) is {value} keys on each side of it")
            wholes = all(ROWS[part].kind != "real" for part in parts)
            numbers = a.whole_numbers(name, value, len(parts)) if wholes else a.numbers(name, value, (len(parts),))
            for part, x in zip(parts, numbers.tolist()):
                self._put(part, int(x) if ROWS[part].kind != "real" and float(x).is_integer() else x, name)
        elif name in _OBJECTS and not (row and isinstance(value, str)):
            self._object(name, value)
        elif name in WEIGHTS:
            self.weights[name] = a.numbers(name, value, getattr(value, "shape", None))
        elif name in ("causal", "is_causal"):
            self._found["causal"] = a.flag(name, value) | self._found.get("causal", False)
        elif name == "offset" and isinstance(value, str):
            self._bottom_right = a.choice("offset", value, ("top-left", "bottom-right")) == 1
        elif name == "offset" and (getattr(value, "ndim", None) or not hasattr(type(value), "__index__")):
            self._put("position_offset", value, name)
        elif row:
            self._put(row.name, value, name)

    def _put(self, row: str, value: Any, word: str) -> None:
        if row in self._found:
            raise TypeError(f"{word}: given as {self.words.get(row, row)}, too")
        self._found[row] = value
        if word != row:
            self.words[row] = word

    def _object(self, name: str, value: Any) -> None:
        kind = _OBJECTS[name][0]
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected mha.{kind.__name__}, found {type(value).__name__}")
        for field, inside in _INSIDE[name].items():
            x = getattr(value, field)
            if x is None:
                continue
            if inside == "rope_origin":
                self._origin(x)
            elif inside in ROWS:
                self._put(inside, x, f"{name}.{field}")
            else:
                self.weights[inside] = self._table(f"{name}.{field}", x, name == "position_bias")

    def _origin(self, given: Any) -> None:
        """What Rope.by_axes made the tables of, for the notes of a case."""
        if not isinstance(given, (tuple, list)) or len(given) != 4:
            raise TypeError("rope.origin: expected what Rope.by_axes gives: order, sections, positions, frequencies")
        order, sizes, positions, frequencies = given
        if positions is None:
            return
        if not 1 <= len(sizes) <= abi.ROPE_MAX_AXES:
            raise ValueError(f"rope.origin: expected 1 to {abi.ROPE_MAX_AXES} sections, found {len(sizes)}")
        origin, held = self.rope_origin, [a.given("rope_positions", positions)]
        origin.axes.kind = a.choice("rope_axes", order, _ORDERS)
        origin.axes.axes, origin.axes.sections[:len(sizes)] = len(sizes), list(sizes)
        origin.positions = a.view_of(held[0])
        if frequencies is not None:
            held.append(a.given("rope_axes_frequencies", frequencies))
            origin.frequencies = a.view_of(held[1])
        self._held.append(held)

    def _table(self, name: str, value: Any, by_head: bool) -> Any:
        """A table of two axes that is a weight."""
        shape = tuple(getattr(value, "shape", ()))
        if by_head:
            rows = len(value) if isinstance(value, (list, tuple)) else shape[0] if shape else 0
            shape = (rows, self._sizes.h)
        if len(shape) != 2:
            raise ValueError(f"{name}: expected a table, (n, d_k) or (n, h*d_k), found {shape}")
        return a.numbers(name, value, shape)

    def _say_kinds(self) -> None:
        """The kind of a mask may be left out where it has numbers, which are added."""
        found = self._found
        for row in [ROWS[name] for name in found]:
            kind = ROWS.get(row.needs)
            if not row.is_array or kind is None or "keeps" not in kind.words:
                continue
            mask = a.given(row.name, found[row.name])
            may_add = "additive" in kind.words
            if mask.dtype != abi.BOOL and not (may_add and mask.dtype in a.FLOATS):
                expected = "booleans or floating-point numbers" if may_add else "booleans"
                raise TypeError(f"{row.name}: expected {expected}, found {a.NAMES[mask.dtype]}")
            if mask.dtype == abi.BOOL and kind.name not in found:
                raise ValueError(f"{kind.name}: a boolean mask 'keeps' or 'hides' where it is true: say which")
            if may_add:
                found.setdefault(kind.name, "additive")

    def _aligned(self) -> Any:
        """The offset that aligns bottom-right."""
        if "kv_lengths" in self._found:
            raise ValueError("offset: 'bottom-right' beside lengths is not clear: give lengths - T_q or S - T_q")
        if "cu_seqlens_q" not in self._found:
            return self._sizes.S - self._sizes.T_q
        q = a.whole_numbers("cu_seqlens_q", self._found["cu_seqlens_q"])
        return np.diff(a.whole_numbers("cu_seqlens_k", self._found.get("cu_seqlens_k", q), len(q))) - np.diff(q)

    # ---------------------------------------------------------------- rows into the struct

    def _number(self, row: Setting, value: Any) -> None:
        if row.kind == "switch":
            value = a.flag(row.name, value)
        elif row.kind == "real":
            value = a.number(row.name, value)
        elif row.kind == "choice":
            value = row.word(value)
            a.choice(row.name, value, row.words)
        else:
            value = a.whole_number(row.name, value)
        row.put(value, self.struct)

    def _array(self, row: Setting, value: Any) -> None:
        """Lends an array to the struct; whole numbers are copied: what was checked stays as it is."""
        if row.kind == "view":
            tensor = a.given(row.name, value)
            if tensor.dtype in a.INTEGERS:
                tensor = a.Tensor(np.array(tensor.array, np.int64, order="C"), abi.I64, a.wrap_numpy)
            elif tensor.dtype in a.HALVES:
                tensor = a.widened(tensor)
            self._held.append(tensor)
            view = a.view_of(tensor)
            ctypes.memmove(ctypes.addressof(self.struct) + row.at, ctypes.byref(view), ctypes.sizeof(view))
        else:
            array = a.whole_numbers(row.name, value) if row.kind == "wholes" else a.numbers(row.name, value)
            self._held.append(array)
            self._lengths[row.name] = len(array)
            ctypes.c_void_p.from_buffer(self.struct, row.at).value = array.ctypes.data
            if row.name == "cu_seqlens_q" and not self.struct.place.n_sequences:
                self.struct.place.n_sequences = max(len(array), 1) - 1

    def _expect_lengths(self) -> None:
        """The library cannot see how many numbers lie behind an address."""
        for name, found in self._lengths.items():
            length = ROWS[name].length(self.struct, self._sizes.B, self._sizes.h)
            if found != length:
                raise ValueError(f"{name}: expected shape ({length},), found ({found},)")


def settings_of(struct: abi.Semantics, sizes: Sizes) -> dict[str, Any]:
    """What a struct says, as keywords; its arrays are copied."""
    found: dict[str, Any] = {}
    values = {name: np.array(x) if ROWS[name].is_array else x for name, x in rows_given(struct, sizes).items()}
    for name, parts in _SEVERAL.items():
        if any(part in values for part in parts):
            found[name] = tuple(values.pop(part) if part in values else ROWS[part].value(struct) for part in parts)
    for name, (kind, _) in _OBJECTS.items():
        own = {field: values.pop(inside) for field, inside in _INSIDE[name].items() if inside in values}
        if own:
            found[name] = kind(**own)
    return {**found, **values}


def rows_given(struct: abi.Semantics, sizes: Sizes) -> dict[str, Any]:
    """The rows of the table that a struct gives, by their names; its arrays are not copied."""
    return {name: _array_of(row, struct, sizes) if row.is_array else row.value(struct)
            for name, row in ROWS.items() if row.given(struct)}


def _array_of(row: Setting, struct: abi.Semantics, sizes: Sizes) -> Any:
    if row.kind == "view":
        return a.of_memory(abi.View.from_buffer(struct, row.at), struct)
    numbers: Any = ctypes.c_double if row.kind == "reals" else ctypes.c_int64
    address = ctypes.c_void_p.from_buffer(struct, row.at).value or 0
    return np.array((numbers * row.length(struct, sizes.B, sizes.h)).from_address(address))
