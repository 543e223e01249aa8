"""The settings of a call, given as keyword arguments, as the library's struct."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from . import abi
from . import arrays as a
from .errors import typed
from .library import call, lib
from .settings import ROWS, WEIGHTS, Setting, expect_settings, row_of


def _expect_rotation(kind: object, last: object) -> None:
    a.choice("kind", kind, ROWS["rope"].words)
    a.flag("last", last)


# The orders of Rope.by_axes, in the order of mha_rope_axes_kind.
_ORDERS = ("blocks", "interleaved", "repeated", "dealt")


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of queries and new keys (Su et al. 2021).

    Pair i of a row at position p turns by the angle p f_i, with f_i = base^(-2 i / dim):
    (a, b) -> (a cos - b sin, a sin + b cos), times attention_factor.

    Parameters
    ----------
    kind : {"half_split", "interleaved"}, default "half_split"
        Pairs: "interleaved" (0, 1), (2, 3), ...; "half_split" (i, i + dim/2), as in Hugging Face.
    dim : int, default None
        Number of rotated features; None: all of a head.
    base : float, default 10000.0
        Base of the frequencies.
    q_positions, k_positions : array_like of int, shape (B, T), default None
        Positions; None: offset + i, and the position in the cache.
    cos, sin : array_like, shape (n, dim/2) by position or (B, T, dim/2) by row, default None
        float32 or float64 tables; None: computed.
    last : bool, default False
        Rotate the last `dim` features, not the first.
    frequencies : array_like, shape (dim/2,), default None
        f_i, in radians per position; None: from base. Rope.scaled computes those of YaRN and others.
    attention_factor : float, default 1.0
        Factor of rotated features.
    origin : tuple, default None
        Order, sections, positions and frequencies from which Rope.by_axes computed cos and sin. Cases record it.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> mha.scaled_dot_product_attention(q, k, v, rope=mha.Rope("interleaved", dim=8)).shape
    (2, 4, 9, 16)
    """

    kind: str = "half_split"
    dim: Optional[int] = None
    base: float = 10000.0
    q_positions: Optional[a.ArrayLike] = None
    k_positions: Optional[a.ArrayLike] = None
    cos: Optional[a.ArrayLike] = None
    sin: Optional[a.ArrayLike] = None
    last: bool = False
    frequencies: Optional[a.Numbers] = None
    attention_factor: float = 1.0
    origin: Optional[tuple[str, Sequence[int], a.ArrayLike, Optional[a.ArrayLike]]] = None

    @classmethod
    def scaled(cls, scaling: str, dim: int, factor: float = 1.0, original_length: Optional[float] = None, *,
               length: Optional[int] = None, kind: str = "half_split", base: float = 10000.0, last: bool = False,
               **numbers: Union[float, a.Numbers]) -> Rope:
        """Make the rotation of a model with an extended context, as its config.json states it.

        With f_i = base^(-2 i / dim), F = factor and L = original_length:

            linear    f_i / F (Chen et al. 2023)
            dynamic   base times (F n / L - F + 1)^(dim / (dim - 2)) if n = length > L
            yarn      f_i / F for slow pairs, f_i for fast ones, a ramp between beta_slow and beta_fast turns within L;
                      attention factor 0.1 ln F + 1 (Peng et al. 2023)
            longrope  f_i / long_factors[i] if length > L, else f_i / short_factors[i];
                      attention factor sqrt(1 + ln F / ln L) (Ding et al. 2024)
            llama3    f_i / F for wavelengths 2 pi / f_i above L / low_frequency_factor,
                      f_i below L / high_frequency_factor, a mean of both between

        Parameters
        ----------
        scaling : {"none", "linear", "dynamic", "yarn", "longrope", "llama3"}
            Kind of scaling.
        dim : int
            Number of rotated features.
        factor : float, default 1.0
            F, extension of the context.
        original_length : float, default None
            L, positions of the training; all kinds but "linear" need it.
        length : int, default None
            Positions in use; None: those of the training. For "dynamic" and "longrope".
        kind, base, last
            As in mha.Rope.
        **numbers
            attention_factor, beta_fast (32), beta_slow (1), mscale, mscale_all_dim, untruncated, low_frequency_factor,
            high_frequency_factor, short_factors and long_factors (dim/2,).

        Returns
        -------
        mha.Rope
            With frequencies and attention_factor.

        Raises
        ------
        TypeError, ValueError
            A number is missing, unknown or out of range.

        Examples
        --------
        >>> mha.Rope.scaled("linear", 4, factor=2.0).frequencies.tolist()
        [0.5, 0.005]
        """
        s = abi.RopeScaling()
        s.kind = a.choice("scaling", scaling, abi.ROPE_SCALINGS)
        _expect_rotation(kind, last)
        dim, length = a.whole_number("dim", dim, 0), a.count("length", length)
        s.factor = a.number("factor", factor)
        s.original_length = 0.0 if original_length is None else a.number("original_length", original_length)
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
                raise TypeError(f"numbers: expected names of numbers of a scaling, found {name!r}")
        frequencies, times = np.empty(dim // 2), ctypes.c_double()
        call(lib.mha_rope_frequencies, ctypes.byref(s), dim, a.number("base", base), length,
             frequencies.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), ctypes.byref(times))
        return cls(kind, dim, base, last=last, frequencies=frequencies, attention_factor=times.value)

    @classmethod
    def by_axes(cls, positions: object, sections: object, order: str = "blocks", *, kind: str = "half_split",
                base: float = 10000.0, last: bool = False, frequencies: Optional[a.Numbers] = None,
                attention_factor: float = 1.0) -> Rope:
        """Make the rotation of tokens that have positions on several axes, such as time, height and width.

        Pair i turns by p_a f_j at position p_a of axis a, with f_j = base^(-2 j / dim):

            blocks       a block of pairs for each axis, j = i (M-RoPE of Qwen2-VL)
            interleaved  a = i mod axes if i < axes * sections[a], else 0; j = i (Qwen3-VL)
            repeated     blocks; j begins at 0 in each (images in Qwen2-VL, Llama 4)
            dealt        blocks of one size; j = axes * (index in the block) + a (Pixtral)

        Parameters
        ----------
        positions : array_like of int, shape (axes, T) or (axes, B, T)
            Positions of the rows of a self-attention.
        sections : sequence of int, length axes
            Pairs of features that turn by each axis; dim is twice their sum.
        order : {"blocks", "interleaved", "repeated", "dealt"}, default "blocks"
            Which axis and which frequency a pair has.
        kind, base, last, attention_factor
            As in mha.Rope.
        frequencies : array_like, shape (dim/2,), default None
            Instead of f_j; for "repeated" one for each pair of the largest section.

        Returns
        -------
        mha.Rope
            With tables cos and sin.

        Raises
        ------
        TypeError, ValueError
            Positions are not whole numbers, or the shapes do not fit.

        Examples
        --------
        >>> mha.Rope.by_axes([[0, 0, 1, 1], [0, 1, 0, 1]], sections=[2, 2]).cos.shape
        (1, 4, 4)
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
        axes.axes, axes.sections[:len(sizes)] = len(sizes), [*sizes]
        wanted = max(sizes) if order == "repeated" else sum(sizes)
        f = (np.array([a.number("base", base) ** (-i / wanted) for i in range(wanted)]) if frequencies is None
             else np.array(a.numbers("frequencies", frequencies, (wanted,)), np.float64))
        if not np.isfinite(f).all():
            raise ValueError(f"frequencies: expected finite numbers, found {f.tolist()}")
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
    """Learned number of each head that is added to a score, chosen by the positions p of the query and q of the key.

    "buckets" (T5, Raffel et al. 2020): d = q - p. With n rows and m = n/2 buckets for each direction, later keys use
    the rows from m on; one_way has m = n and counts later keys as d = 0. The first e = m/2 buckets hold one distance
    each; the bucket of |d| >= e is e + floor((m - e) log(|d|/e) / log(max_distance/e)), at most m - 1.

    "grid" (Swin, Liu et al. 2021), row (y_p - y_q + height - 1)(2 width - 1) + x_p - x_q + width - 1 for cells (y, x).

    Parameters
    ----------
    rule : {"buckets", "grid"}, default "buckets"
        Rule that chooses the row.
    table : array_like, shape (n, h), default None
        Numbers; None: the weight bias_table of the layer.
    one_way : bool, default False
        Buckets for earlier keys only.
    max_distance : int, default None
        Keys farther away share a bucket; None: 128.
    height, width : int, default None
        Cells of the grid; the table has (2 height - 1)(2 width - 1) rows.
    class_token : bool, default False
        One token before the grid, three more rows of the table (BEiT).

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> mha.scaled_dot_product_attention(q, k, v, position_bias=mha.Bias(table=np.zeros((32, 4)))).shape
    (2, 4, 9, 16)
    """

    rule: str = "buckets"
    table: Optional[a.Numbers] = None
    one_way: bool = False
    max_distance: Optional[int] = None
    height: Optional[int] = None
    width: Optional[int] = None
    class_token: bool = False


@dataclass(frozen=True)
class Relative:
    """Products of queries or keys with learned rows, chosen by the positions p of the query and q of the key.

    The score gets k_scale q_i . k[row] + k_scale q_i . columns[row] + q_scale k_j . q[row], after scale and softcap.

    "distance" (Shaw et al. 2018): row d + n/2 for d = p - q, at least 0 and at most n - 1. "log_buckets" (DeBERTa v2,
    He et al. 2021): row n/2 + s. With m = n/4, s = d for |d| <= m; beyond it, with the sign of d, |s| = m + ceil((m -
    1) log(|d|/m) / log((max_distance - 1)/m)). "grid" (SAM): row y_p - y_q + height - 1 of k and x_p - x_q + width - 1
    of columns, for cells (y, x).

    Parameters
    ----------
    rule : {"distance", "log_buckets", "grid"}, default "distance"
        Rule that chooses the rows.
    k, columns, q : array_like, shape (n, d_k) or (n, h * d_k), default None
        Tables; None: the weights relative_k, relative_columns and relative_q of the layer.
    reversed : bool, default False
        d = q - p.
    max_distance : int, default None
        Of log_buckets; None: 512.
    height, width : int, default None
        Cells of the grid.
    k_scale, q_scale : float, default None
        Factors of the products; None: the scale of the call.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> mha.scaled_dot_product_attention(q, k, v, relative=mha.Relative(k=np.zeros((17, 16)))).shape
    (2, 4, 9, 16)
    """

    rule: str = "distance"
    k: Optional[a.ArrayLike] = None
    columns: Optional[a.ArrayLike] = None
    q: Optional[a.ArrayLike] = None
    reversed: bool = False
    max_distance: Optional[int] = None
    height: Optional[int] = None
    width: Optional[int] = None
    k_scale: Optional[float] = None
    q_scale: Optional[float] = None


def window_segments(height: int, width: int, window: int, shift: int) -> a.Wholes:
    """Number the windows of a shifted image for q_segments (Swin).

    mha rolls the image up and left by `shift` cells and cuts it into windows. Tokens of a window attend to each other
    if their numbers are equal: those that the roll brought from another side of the image have another number.

    Parameters
    ----------
    height, width : int
        Size of the image, in cells.
    window : int
        Side of a window, in cells; it divides height and width.
    shift : int
        Cells by which the image is rolled; 0: not.

    Returns
    -------
    ndarray of int64, shape (windows, window**2)
        For windows as batch rows of one image; np.tile repeats it for several images.

    Raises
    ------
    TypeError, ValueError
        A size is not a whole number, or the window does not divide the image.

    Examples
    --------
    >>> mha.window_segments(4, 4, 2, 1).shape
    (4, 4)
    """
    sizes = [a.whole_number(name, value, 0) for name, value in
             (("height", height), ("width", width), ("window", window), ("shift", shift))]
    cells, area = sizes[0] * sizes[1], sizes[2] ** 2
    whole = 0 < area <= cells <= 2**32 and cells % area == 0  # otherwise refused below
    made = np.empty((cells // area, area) if whole else (0, 0), np.int64)
    call(lib.mha_window_segments, *sizes, made.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)))
    return made


@dataclass(frozen=True)
class Sizes:
    """The sizes that settings must fit: batch rows or sequences, heads, queries and keys (cached ones included)."""

    B: int
    h: int
    T_q: int
    S: int


# Pairs and triples that are several rows, and objects whose fields are rows or weights of this beginning.
_SEVERAL = {"window": ("window_left", "window_right"), "block_size": ("block_queries", "block_keys"),
            "query_scale": ("query_scale_growth", "query_scale_every", "query_scale_first")}
_OBJECTS: dict[str, tuple[type[Union[Rope, Bias, Relative]], str]] = {
    "rope": (Rope, "rope"), "position_bias": (Bias, "bias"), "relative": (Relative, "relative")}


# The row, or the weight, of each of their fields.
_INSIDE = {name: {field.name: begin if (name, field.name) == ("rope", "kind") else f"{begin}_{field.name}"
                  for field in fields(kind)} for name, (kind, begin) in _OBJECTS.items()}


class Semantics:
    """The struct of the settings, the weights among them by name, and the arrays that both borrow.

    words: the names of rows and weights as the caller typed them, where these are others. numbers: without arrays,
    which depend on the sizes of a call.
    """

    def __init__(self, sizes: Sizes, settings: Mapping[str, object], numbers: bool = False) -> None:
        expect_settings(settings)
        self.struct, self.rope_origin = abi.Semantics(), abi.RopeOrigin()
        self.weights: dict[str, a.Doubles] = {}
        self.words: dict[str, str] = {}
        self._held: list[object] = []
        self._sizes = sizes
        self._found: dict[str, object] = {}
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

    def _take(self, name: str, value: object) -> None:
        """Finds the rows of one argument."""
        row = row_of(name)
        if name in _SEVERAL:
            parts = _SEVERAL[name]
            wholes = all(ROWS[part].kind != "real" for part in parts)
            numbers = (a.window_pair(name, value) if name == "window" else
                       a.whole_numbers(name, value, len(parts)) if wholes else a.numbers(name, value, (len(parts),)))
            for part, x in zip(parts, numbers.tolist()):
                self._put(part, int(x) if ROWS[part].kind != "real" and float(x).is_integer() else x, name)
        elif name in _OBJECTS and not (row and isinstance(value, str)):
            self._object(name, value)
        elif name in WEIGHTS:
            self.weights[name] = a.numbers(name, value, getattr(value, "shape", None))
        elif name in ("causal", "is_causal"):
            self._found["causal"] = a.flag(name, value) or bool(self._found.get("causal", False))
        elif name == "offset" and isinstance(value, str):
            self._bottom_right = a.choice("offset", value, ("top-left", "bottom-right")) == 1
        elif name == "offset" and (getattr(value, "ndim", None) or not hasattr(type(value), "__index__")):
            self._put("position_offset", value, name)
        elif row:
            self._put(row.name, value, name)

    def _put(self, row: str, value: object, word: str) -> None:
        if row in self._found:
            raise TypeError(f"{word}: expected one of {word} and {self.words.get(row, row)}, found both")
        self._found[row] = value
        if word != row:
            self.words[row] = word

    def _object(self, name: str, value: object) -> None:
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

    def _origin(self, given: object) -> None:
        """What Rope.by_axes made the tables of, for the notes of a case."""
        if not isinstance(given, (tuple, list)) or len(given) != 4:
            raise TypeError("rope.origin: expected (order, sections, positions, frequencies) of Rope.by_axes, found "
                            f"{type(given).__name__}")
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

    def _table(self, name: str, value: object, by_head: bool) -> a.Doubles:
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
                raise ValueError(f"{kind.name}: expected 'keeps' or 'hides' for a boolean mask, found None")
            if may_add:
                found.setdefault(kind.name, "additive")

    def _aligned(self) -> Union[int, a.Wholes]:
        """The offset that aligns bottom-right."""
        if "kv_lengths" in self._found:
            raise ValueError("offset: expected a number with lengths, found 'bottom-right'; give lengths - T_q or "
                             "S - T_q")
        if "cu_seqlens_q" not in self._found:
            return self._sizes.S - self._sizes.T_q
        q = a.whole_numbers("cu_seqlens_q", self._found["cu_seqlens_q"])
        k = a.whole_numbers("cu_seqlens_k", self._found.get("cu_seqlens_k", q), len(q))
        aligned: a.Wholes = np.diff(k) - np.diff(q)
        return aligned

    # ---------------------------------------------------------------- rows into the struct

    def _number(self, row: Setting, value: object) -> None:
        if row.kind == "switch":
            number: float = a.flag(row.name, value)
        elif row.kind == "real":
            number = a.number(row.name, value)
        elif row.kind == "choice":
            number = a.choice(row.name, row.word(value), row.words)
        else:
            number = a.whole_number(row.name, value)
        row.put(number, self.struct)

    def _array(self, row: Setting, value: object) -> None:
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
        """The library cannot see how many numbers are at an address."""
        for name, found in self._lengths.items():
            length = ROWS[name].length(self.struct, self._sizes.B, self._sizes.h)
            if found != length:
                raise ValueError(f"{name}: expected shape ({length},), found ({found},)")


def settings_of(struct: abi.Semantics, sizes: Sizes) -> dict[str, Any]:
    """What a struct says, as keywords; its arrays are copied."""
    found: dict[str, object] = {}
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


def _array_of(row: Setting, struct: abi.Semantics, sizes: Sizes) -> a.Stored:
    if row.kind == "view":
        return a.of_memory(abi.View.from_buffer(struct, row.at), struct)
    numbers: type[Union[ctypes.c_double, ctypes.c_int64]] = ctypes.c_double if row.kind == "reals" else ctypes.c_int64
    address = ctypes.c_void_p.from_buffer(struct, row.at).value or 0
    return np.array((numbers * row.length(struct, sizes.B, sizes.h)).from_address(address))
