"""Compares results with the reference, and names the known bug that gives a wrong one."""
from __future__ import annotations

import ctypes
import math
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Mapping, Optional, Union

from .._renamed import Renamed
from ..core import abi
from ..core import arrays as a
from ..core.call import EXACT
from ..core.errors import Error, NotFoundError
from ..core.files import path_of
from ..core.layer import MultiHeadAttention
from ..core.library import Handle, call, create, lib
from ..core.parameters import dtype_name
from ..core.reference import Computed, Meant
from ..core.shapes import LAYOUTS, Heads, Rows, heads_first
from ..core.tables import Table, optional

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..core.typed import MeantSettings


def _case_of(actual: object, query: object, key: object, value: object, layer: Optional[MultiHeadAttention],
             layout: Optional[str], stages: object, dtype: Optional[a.Type], precision: Optional[Mapping[str, a.Type]],
             settings: Mapping[str, object]) -> tuple[Handle, Union[Heads, Rows, None]]:
    """The case, and the axes in which its output was given; None of a file."""
    if query is None:
        if any(x is not None for x in (key, value, layer, layout, stages, dtype, precision)) or settings:
            raise TypeError("query: expected an array, found None; only the path of a case file needs no query")
        return create("case", lib.mha_case_close, lib.mha_case_open, path_of("actual", actual), None), None
    meant = Meant(query, key, value, layer, layout, settings)
    recorded = meant.recorded(actual, stages)
    return meant.case(recorded, Computed(dtype, precision, recorded)), meant.shape


# ---------------------------------------------------------------- the diagnosis


def bugs() -> Table:
    """List all known bugs, in the order of the data flow.

    Returns
    -------
    mha.Table
        Columns "bug" and "what it is".

    Examples
    --------
    >>> mha.bugs()[0][0] in mha.bugs().column("bug")
    True
    """
    rows = (lib.mha_bug_at(i).contents for i in range(lib.mha_bug_count()))
    return Table(("bug", "what it is"), [(optional(v.name), optional(v.help)) for v in rows])


@dataclass(frozen=True)
class Match(Renamed):
    """The call with up to two known bugs, and its distance from the recorded tensor.

    Attributes
    ----------
    bugs, help : tuple of str
        Names, with found numbers ("case-lacks-softcap 30"), and meanings; empty for the intended call.
    heads : int
        Number of heads, if only that differs; else 0.
    max_abs, relative : float
        Largest difference; rms of the difference / rms of the tensor.
    exact : bool
        Whether it gives every element within rounding.
    within : str or None
        Type of that rounding, "float32", ...
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"variants": "bugs"}

    bugs: tuple[str, ...]
    help: tuple[str, ...]
    heads: int
    max_abs: float
    relative: float
    exact: bool
    within: Optional[str]

    def __str__(self) -> str:
        if self.heads:
            return f"{self.heads} heads (the call with so many heads)"
        return " and ".join(f"{n} ({h})" for n, h in zip(self.bugs, self.help)) or "the call without a bug"


@dataclass(frozen=True)
class Diagnosis(Renamed):
    """The known bugs that give the recorded tensor. It has no truth value: `right` and `names` are its answers.

    Attributes
    ----------
    tensor : str
        Name of the tensor.
    matches : tuple of mha.Match
        Matches with the fewest bugs that reproduce it, or come within 2 percent; equal on this input. A bug may occur
        only in some places: "causal-missing in heads 1-3". Parts describe a change that no known bug makes: "unnamed
        scores: rows of k read one tile of 64 late, in heads 4-7".
    closest : tuple of mha.Match
        The nearest ones if none reproduces it.
    baseline : mha.Match
        The intended call.
    undecided : tuple of str
        Bugs that this input could not show.
    tried, untried : int
        Numbers of candidates, and of known bugs that a limit left out.
    clues : tuple of str
        Sentences about the difference from the baseline if no bug reproduces it: "only head 3 differs".
    layout : str or None
        The other layout, if wrong numbers are right in it.
    rows_checked, rows : int
        Compared query rows of all batch rows, and their number.
    slices : int
        Number of slices of a large call, each a batch row with one key/value head; mha searched one, all others agree.
        0: the call was not cut.
    limit : str
        Sentence about a limit that was reached; else "".
    answer : str
        The answer in one line, with the limit.
    gradients : mha.GradientDiagnosis or None
        Diagnosis of the gradients that a case file also records.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"rows_judged": "rows_checked"}

    tensor: str
    matches: tuple[Match, ...]
    closest: tuple[Match, ...]
    baseline: Match
    undecided: tuple[str, ...]
    tried: int
    clues: tuple[str, ...] = ()
    layout: Optional[str] = None
    rows_checked: int = 0
    rows: int = 0
    slices: int = 0
    untried: int = 0
    limit: str = ""
    answer: str = ""
    gradients: Optional[GradientDiagnosis] = None

    @property
    def names(self) -> list[str]:
        """Names of the bugs that reproduce the tensor, those of a pair joined by "+"; none when it is right."""
        return ["+".join(m.bugs) or f"heads={m.heads}" for m in self.matches if m.exact and (m.bugs or m.heads)]

    @property
    def right(self) -> bool:
        """Whether the tensor is what it was meant to be, within the rounding that was meant."""
        first = self.matches[0] if self.matches else self.baseline
        return self.baseline.exact and first.exact and not first.bugs and not first.heads

    def __bool__(self) -> bool:
        raise TypeError("diagnosis: expected one of its attributes, found a truth value of it; `right` is True if the "
                        "numbers are right, `names` has the known bugs that give them")

    @property
    def sentence(self) -> str:
        """The answer in one line, with another layout in which the numbers are right."""
        return self.answer + (f"; in layout={self.layout!r} they are right" if self.layout else "")

    def table(self) -> Table:
        """Tabulate the matches, or the closest bugs if there are none.

        Returns
        -------
        mha.Table
            One row for each.
        """
        rows = [(" + ".join(e.bugs) or (f"{e.heads} heads" if e.heads else "(none)"), "; ".join(e.help), e.max_abs,
                 e.relative, e.within or "") for e in (self.matches or self.closest)]
        return Table(("bug", "what it is", "max |difference|", "relative", "within"), rows)

    def __str__(self) -> str:
        lines = [f"{self.tensor}, {self.tried} candidates tried: {self.sentence}"]
        if not self.right and (self.matches or self.closest):
            lines += ["", str(self.table())]
        if not self.right:
            off = self.baseline
            by = f"the numbers are off by {off.max_abs:.2g} (relative {off.relative:.2g})"
            lines += ["", f"Without a bug, {'other elements are NaN or infinite' if math.isinf(off.max_abs) else by}."]
            lines += [f"Compared with the call without a bug, {clue}." for clue in self.clues]
        elif self.undecided:
            names = ", ".join(self.undecided)
            lines += textwrap.wrap(f"This input would not show the difference to {names}.", 100)
        return "\n".join(lines + ([] if self.gradients is None else ["", str(self.gradients)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.table()
        table.note = self.sentence
        return table._repr_html_()


def _within(e: abi.BugMatch) -> Optional[str]:
    if not e.exact:
        return None
    return "the case's own tolerance's" if e.stated else a.NAMES.get(e.rounding, dtype_name(e.rounding))


def _match(e: abi.BugMatch) -> Match:
    names = tuple(str(optional(e.bugs[i])) for i in range(e.count))
    known = {str(name): str(meaning) for name, meaning in bugs()}
    found = tuple(f"{n} {e.found[i].value.decode()}".rstrip() for i, n in enumerate(names))
    meanings = tuple(known.get(n, "a change that no known bug makes") for n in names)
    return Match(found, meanings, e.heads, e.max_abs, e.relative, e.exact, _within(e))


def _clue(clue: abi.Clue) -> str:
    text = ctypes.create_string_buffer(256)
    lib.mha_clue_text(ctypes.byref(clue), text, len(text))
    return text.value.decode()


def diagnosis_of(case: Handle, tensor: Optional[str] = None, threads: int = 0) -> Diagnosis:
    """The diagnosis of a tensor of a case."""
    found, text = abi.Diagnosis(), ctypes.create_string_buffer(abi.CONSTANTS["MHA_DIAGNOSIS_TEXT"])
    call(lib.mha_case_diagnose, case.address, None if tensor is None else a.text("tensor", tensor), threads, None,
         ctypes.byref(found))
    try:
        return Diagnosis(
            found.tensor.decode(), tuple(_match(found.matches[i]) for i in range(found.match_count)),
            tuple(_match(found.closest[i]) for i in range(found.closest_count)), _match(found.baseline),
            tuple(str(optional(found.undecided[i])) for i in range(found.undecided_count)), found.tried,
            tuple(_clue(found.clues[i]) for i in range(found.clue_count)), rows_checked=found.part.checked,
            rows=found.part.rows, slices=found.part.slices, untried=found.limits.untried,
            limit=lib.mha_diagnosis_limit_text(ctypes.byref(found), text, len(text)).decode(),
            answer=lib.mha_diagnosis_text(ctypes.byref(found), text, len(text)).decode())
    finally:
        lib.mha_diagnosis_clear(ctypes.byref(found))


@dataclass(frozen=True)
class GradientDiagnosis(Diagnosis):
    """The known bugs of a backward (mha.testing.BUGS) that give all gradients of a case.

    Attributes
    ----------
    bugs : tuple of (str, str)
        Name and meaning of the first ones, in the order of the data flow.
    explained : int
        Number of bugs that give the gradients.
    baseline : mha.Match
        exact: whether the gradients are right. Other fields of mha.Diagnosis are empty.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"mistakes": "bugs", "rows_judged": "rows_checked"}

    bugs: tuple[tuple[str, str], ...] = ()
    explained: int = 0

    @property
    def names(self) -> list[str]:
        """Names of the bugs that give the gradients; none when they are right."""
        return [name for name, _ in self.bugs]

    @property
    def right(self) -> bool:
        """Whether each gradient is within the error bound of rounding."""
        return self.baseline.exact

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        if self.right:
            return "your gradients are right, within the error bound of rounding"
        if not self.bugs:
            return "no known bug of a backward gives your gradients"
        (name, meaning), others = self.bugs[0], self.explained - 1
        return f"your gradients are those of {name} ({meaning})" + (
            f"; this input cannot tell it from {', '.join(self.names[1:3])}"
            + (f" or {others - 2} more" if others > 2 else "") if others else "")

    def table(self) -> Table:
        """Tabulate the bugs that give the gradients.

        Returns
        -------
        mha.Table
            One row for each.
        """
        return Table(("bug", "what it is"), list(self.bugs))

    def __str__(self) -> str:
        lines = [f"{self.tensor}, against {self.tried} bugs of a backward: {self.sentence}"]
        return "\n".join([*lines, "", str(self.table())] if self.bugs else lines)

    __repr__ = __str__


_MOST_BUGS = 8  # that are told of those that explain gradients


def match_of(case: Handle) -> GradientDiagnosis:
    """Which bugs of a backward give the gradients of a case."""
    found = (abi.GradientMatch * _MOST_BUGS)()
    count, right, tried = ctypes.c_size_t(), ctypes.c_bool(), 0
    call(lib.mha_case_explain_gradients, case.address, found, len(found), ctypes.byref(count), ctypes.byref(right))
    while lib.mha_gradient_bug_at(tried):
        tried += 1
    rows = found[:count.value]
    within = "float32" if right.value else None
    return GradientDiagnosis("gradients", (), (), Match((), (), 0, 0.0, 0.0, right.value, within), (), tried,
                             bugs=tuple((row.name.decode(), row.help.decode()) for row in rows),
                             explained=count.value)


GRADIENT_STAGES = {*(f"d_{lib.mha_gradient_name(i).decode()}" for i in range(abi.CONSTANTS["MHA_GRADIENT_COUNT"])),
                   *abi.BACKWARD_STAGES}


def _diagnosis_of_file(case: Handle, tensor: Optional[str], threads: int) -> Diagnosis:
    """What explains the forward that a case file records, and its backward."""
    if tensor is not None:
        named = a.text("tensor", tensor).decode("utf-8", "surrogateescape").rpartition(".")[2] in GRADIENT_STAGES
        return match_of(case) if named else diagnosis_of(case, tensor, threads)
    try:
        found = diagnosis_of(case, None, threads)
    except NotFoundError:
        return match_of(case)
    try:
        return replace(found, gradients=match_of(case))
    except Error:  # it records none, or such that have no backward here
        return found


def diagnose(actual: Union[a.ArrayLike, a.Path, None], query: Optional[a.ArrayLike] = None,
             key: Optional[a.ArrayLike] = None, value: Optional[a.ArrayLike] = None, *,
             layer: Optional[MultiHeadAttention] = None, layout: Optional[str] = None,
             stages: Optional[Mapping[str, a.ArrayLike]] = None, tensor: Optional[str] = None,
             dtype: Optional[a.Type] = None, precision: Optional[Mapping[str, a.Type]] = None,
             threads: Optional[int] = None, sample: Optional[int] = None, time_limit: float = 60.0,
             memory_limit: float = 1.5, **settings: Unpack[MeantSettings]) -> Diagnosis:
    """Find the known bugs, single or in pairs, that give these numbers.

    mha compares gradients that a case file records with the known bugs of a backward. The GradientDiagnosis is the
    field `gradients` of the diagnosis. It is the diagnosis itself if the file records nothing of the forward or
    `tensor` names a gradient.

    Parameters
    ----------
    actual : array_like, path_like or None
        The output in question, in the axes of query; or the path of a case file as the only argument.
    query, key, value : array_like, shape (B, h, T, width)
        Inputs of the call; (B, T, h, width) with layout="BTHD" or "BTNH", (B, T, width) of a layer.
    layer : mha.MultiHeadAttention, default None
        The layer that computed `actual`.
    layout : str, default None
        Order of the axes; None: "BHTD", or that of the layer.
    stages : dict from str to array_like, default None
        Other results in question, by name, in the library's shapes.
    tensor : str, default None
        The result to explain; None: the output.
    dtype : str or dtype, default None
        Type of the arithmetic, also "tf32"; None: that of `actual`.
    precision : dict from str to dtype, default None
        Types by the points at which the kernel rounds, if a fused kernel of `dtype` rounds elsewhere:
        {"probabilities": "bfloat16"}. "float32": no rounding at that point.
    threads : int, default None
        Number of threads; None: all cores.
    sample : int, default None
        Query rows of each batch row to compare; None: all, or some of a large case.
    time_limit : float, default 60.0
        Seconds for trying known bugs, the most common first; math.inf: no limit.
    memory_limit : float, default 1.5
        Memory for that, in units of 1e9 bytes.
    **settings
        The intended call, see mha.SETTINGS: attn_mask (layout "BHTD") and is_causal as PyTorch, aligned top-left;
        causal and window_size as flash-attn, aligned bottom-right. Also past_key, past_value: projected, rotated rows
        of earlier calls, in the axes of key, of a layer (B, kv_heads, P, width). Query 0 is then at position P unless
        `offset` says otherwise.

    Returns
    -------
    mha.Diagnosis
        Its `sentence` is the answer; `limit` and `untried` report a limit that was reached.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or value.
    mha.Error
        mha cannot read the case file.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> mine = mha.scaled_dot_product_attention(q, k, v, scale=1.0)
    >>> mha.diagnose(mine, q, k, v).names
    ['scale-missing']
    """
    case, _ = _case_of(actual, query, key, value, layer, layout, stages, dtype, precision, {**settings})
    threads = a.thread_count(threads)
    lib.mha_case_sample(case.address, a.count("sample", sample))
    lib.mha_case_limit(case.address, a.number("time_limit", time_limit), a.number("memory_limit", memory_limit))
    if query is None:
        return _diagnosis_of_file(case, tensor, threads)
    diagnosis = diagnosis_of(case, tensor, threads)
    if diagnosis.right or layer is not None:
        return diagnosis
    return replace(diagnosis, layout=_right_in(actual, query, key, value, layout, stages, dtype, precision, sample,
                                               settings))


def _right_in(actual: Union[a.ArrayLike, a.Path, None], query: a.ArrayLike, key: Optional[a.ArrayLike],
              value: Optional[a.ArrayLike], layout: Optional[str], stages: Optional[Mapping[str, a.ArrayLike]],
              dtype: Optional[a.Type], precision: Optional[Mapping[str, a.Type]], sample: Optional[int],
              settings: MeantSettings) -> Optional[str]:
    """The other layout, if the numbers are right in that."""
    other = LAYOUTS[int(heads_first("BHTD" if layout is None else layout))]
    try:
        right = check(actual, query, key, value, layout=other, stages=stages, dtype=dtype, precision=precision,
                      sample=sample, **settings).passed
    except (Error, TypeError, ValueError):  # the arrays, or the words, are none of that layout
        return None
    return other if right else None


# ---------------------------------------------------------------- stage by stage


@dataclass(frozen=True)
class StageVerdict(Renamed):
    """One stage, compared element by element: |yours - exact| <= atol + rtol |exact|.

    Attributes
    ----------
    name : str
        Name of the stage.
    ok, checked : bool
        Whether all elements are right; whether mha could compare them. It cannot if numbers may leave the range of
        float32: then atol is infinite, and ok is False.
    max_abs : float
        Largest difference.
    rtol, atol : float
        Tolerance.
    mismatches, elements : int
        Elements that differ, and all.
    worst_index : tuple of int
        Place of the worst element, in the axes of `actual`; of other stages and of case files in those of the library.
    yours, exact : float
        Its values.
    worst_head : int or None
        Its head.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"judged": "checked"}

    name: str
    ok: bool
    checked: bool
    max_abs: float
    rtol: float
    atol: float
    mismatches: int
    elements: int
    worst_index: tuple[int, ...]
    yours: float
    exact: float
    worst_head: Optional[int]


@dataclass(frozen=True)
class Verdict(Renamed):
    """The comparison of all recorded stages. True if all are right.

    Attributes
    ----------
    outcome : str
        "passed", "failed", or "skipped": mha could not check it.
    reason : str
        Reason for an outcome other than "passed".
    stages : tuple of mha.StageVerdict
        In the order of the data flow.
    first : str or None
        Name of the first wrong stage.
    rows_checked, rows : int
        Compared query rows of each batch row, and their number. Errors confined to the others are not detected.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"rows_judged": "rows_checked"}

    outcome: str
    reason: str
    stages: tuple[StageVerdict, ...]
    first: Optional[str]
    rows_checked: int = 0
    rows: int = 0

    @property
    def sample(self) -> str:
        """What share was checked, where that is not all; else ""."""
        if self.rows_checked >= self.rows:
            return ""
        return (f"checked on {self.rows_checked:,} of {self.rows:,} query rows; errors confined to the others are not "
                "detected (sample)")

    @property
    def passed(self) -> bool:
        """Whether every stage is right."""
        return self.outcome == "passed"

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failed(self) -> bool:
        """Whether a stage is wrong."""
        return self.outcome == "failed"

    @property
    def skipped(self) -> bool:
        """Whether it could not be checked."""
        return self.outcome == "skipped"

    def table(self) -> Table:
        """Tabulate the stages.

        Returns
        -------
        mha.Table
            One row for each stage.
        """
        rows = [(s.name, "not checked" if not s.checked else "ok" if s.ok else "FIRST" if s.name == self.first
                 else "differs", s.max_abs, s.atol,
                 s.mismatches, s.elements, s.worst_index, s.yours, s.exact, s.worst_head) for s in self.stages]
        return Table(("stage", "", "max abs", "allowed", "differ", "of", "worst at", "yours", "exact", "head"), rows,
                     self.outcome + (f": {self.reason}" if self.reason else "")
                     + (f"; {self.sample}" if self.sample else ""))

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def check(actual: Union[a.ArrayLike, a.Path, None], query: Optional[a.ArrayLike] = None,
          key: Optional[a.ArrayLike] = None, value: Optional[a.ArrayLike] = None, *,
          layer: Optional[MultiHeadAttention] = None, layout: Optional[str] = None,
          stages: Optional[Mapping[str, a.ArrayLike]] = None, dtype: Optional[a.Type] = None,
          precision: Optional[Mapping[str, a.Type]] = None, threads: Optional[int] = None,
          sample: Optional[int] = None, **settings: Unpack[MeantSettings]) -> Verdict:
    """Compare an output, and optional intermediates, with the reference, stage by stage.

    A result passes if |yours - exact| <= atol + rtol |exact| everywhere. mha derives atol and rtol from the call: the
    cost of computing in `dtype`, and of rounding each result to its own type.

    Parameters
    ----------
    actual, query, key, value, layer, layout, stages, dtype, precision, threads
        As in mha.diagnose.
    sample : int, default None
        Query rows of each batch row to compute and compare; None: all, or 256 of a large case.
    **settings
        The intended call, as in mha.diagnose.

    Returns
    -------
    mha.Verdict
        True if every stage is right.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or value.
    mha.Error
        mha cannot read the case file.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> bool(mha.check(mha.scaled_dot_product_attention(q, k, v), q, k, v))
    True
    """
    case, shape = _case_of(actual, query, key, value, layer, layout, stages, dtype, precision, {**settings})
    lib.mha_case_sample(case.address, a.count("sample", sample))
    verdict = check_case(case, threads)
    return verdict if shape is None else replace(verdict, stages=tuple(
        replace(s, worst_index=shape.place(s.worst_index)) if s.name == "output" and s.elements else s
        for s in verdict.stages))


def rows_checked(case: Handle) -> tuple[int, int]:
    """How many query rows of each batch row of a case are compared, and of how many."""
    rows = ctypes.c_size_t()
    return lib.mha_case_rows(case.address, EXACT, ctypes.byref(rows)), rows.value


def verdict_of(v: abi.Verdict, rows: tuple[int, int] = (0, 0)) -> Verdict:
    """What the library's verdict says; it is cleared."""
    try:
        found = []
        for i in range(v.stage_count):
            s = v.stages[i]
            d = s.difference
            found.append(StageVerdict(s.name.decode(), s.ok, s.checked, d.max_abs, s.rtol, s.atol, d.mismatches,
                                      d.elements, tuple(d.worst_index[:d.rank]), s.yours, s.exact,
                                      s.worst_head if s.worst_head >= 0 else None))
        first = found[v.culprit].name if v.culprit < len(found) else None
        return Verdict(abi.OUTCOMES[v.outcome], v.reason.decode("utf-8", "replace"), tuple(found), first, *rows)
    finally:
        lib.mha_verdict_clear(ctypes.byref(v))


def check_case(case: Handle, threads: Optional[int]) -> Verdict:
    """The verdict of the exact path."""
    v = abi.Verdict()
    call(lib.mha_case_check, case.address, EXACT, None, a.thread_count(threads), ctypes.byref(v))
    return verdict_of(v, rows_checked(case))
