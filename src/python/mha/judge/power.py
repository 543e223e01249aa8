"""The power of a test: which wrong attentions its inputs and its tolerance would let pass."""
from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Optional, Sequence

from ..core import abi
from ..core import arrays as a
from ..core.backward import TYPED, MeantBackward
from ..core.backward_call import GRADIENTS, INPUTS
from ..core.errors import typed
from ..core.layer import MultiHeadAttention
from ..core.library import call, lib
from ..core.reference import Meant
from ..core.tables import Table, optional

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..core.typed import MeantSettings


_NEAREST = 3  # rejected bugs that are shown where none is accepted
_ROUNDING = re.compile(r"(inputs|weights)-b?f16(-cut)?|.*-in-b?float16")


class Power(Table):
    """An mha.Table with one row for each known bug that applies, in the order of the data flow.

    Its columns: bug, result ("accepted", "rejected", or "same" if this input does not show it), max |difference|, times
    allowed (the largest violation over the allowed error), and what it is. print() and notebooks show the accepted
    bugs, or else those that the test rejects by the least; .rows has all.

    Attributes
    ----------
    derived : (float, float)
        atol and rtol that rounding explains; a test with larger ones is coarser than necessary.
    """

    noun, what = "bug", "known bugs"

    def __init__(self, rows: Sequence[Sequence[object]], derived: tuple[float, float] = (0.0, 0.0),
                 tight: int = 0) -> None:
        super().__init__((self.noun, "result", "max |difference|", "times allowed", "what it is"), rows)
        self.derived, self._tight = derived, tight

    def _named(self, result: str) -> list[str]:
        return [row[0] for row in self if row[1] == result]

    @property
    def accepted(self) -> list[str]:
        """Known bugs that the test would take for right."""
        return self._named("accepted")

    @property
    def rejected(self) -> list[str]:
        """Known bugs that the test catches."""
        return self._named("rejected")

    @property
    def same(self) -> list[str]:
        """Known bugs that this input does not show."""
        return self._named("same")

    @property
    def roundings(self) -> list[str]:
        """Bugs that round inputs or weights to a shorter type, and are nothing else."""
        return [row[0] for row in self if _ROUNDING.fullmatch(row[0])]

    def summary(self) -> Table:
        """Tabulate what is printed: accepted bugs, then accepted roundings; or the nearest rejected bugs.

        Returns
        -------
        mha.Table
            One row for each.
        """
        accepted, rounded = self.accepted, self.roundings
        nearest = sorted((row for row in self if row[1] == ("accepted" if accepted else "rejected")),
                         key=lambda row: (row[0] in rounded, row[3]))[:None if accepted else _NEAREST]
        notes = [self._verdict(accepted, rounded)]
        if self._tight:
            notes.append("Rounding explains no more than atol {:.2g}, rtol {:.2g} here, which would reject {} of them."
                         .format(*self.derived, self._tight))
        if self.same:
            notes.append(f"This input cannot show {len(self.same)} more (.same).")
        shown = [i for i, title in enumerate(self.columns) if title != "result"]
        return Table([self.columns[i] for i in shown], [[row[i] for i in shown] for row in nearest],
                     "\n".join(notes))

    def _verdict(self, accepted: list[str], rounded: list[str]) -> str:
        shown = [row[0] for row in self if row[1] != "same"]
        if not accepted:
            return f"All {len(shown)} {self.what} that this input shows are rejected; above are the nearest."
        wrong, tried = (len([name for name in names if name not in rounded]) for names in (accepted, shown))
        short = len(accepted) - wrong
        return (f"{wrong} of the {tried} {self.what} that this input shows would pass"
                + (f", and {short} that only round{'s' * (short == 1)} to a shorter type." if short else "."))

    def __str__(self) -> str:
        return str(self.summary())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def power(query: Optional[a.ArrayLike] = None, key: Optional[a.ArrayLike] = None,
          value: Optional[a.ArrayLike] = None, *, rtol: Optional[float] = None, atol: Optional[float] = None,
          nmse: Optional[float] = None, cosine: Optional[float] = None, dtype: a.Type = "float32",
          stage: str = "output", layer: Optional[MultiHeadAttention] = None, layout: Optional[str] = None,
          threads: Optional[int] = None, benchmark: Optional[str] = None,
          **settings: Unpack[MeantSettings]) -> Power:
    """List the known bugs that a test with these inputs and this tolerance would accept.

    Parameters
    ----------
    query, key, value, layer, layout, threads
        As in mha.diagnose.
    rtol, atol : float, default None
        As in numpy.allclose. Without any criterion: the derived tolerance.
    nmse : float, default None
        sum (x - y)^2 <= nmse * sum y^2.
    cosine : float, default None
        x . y >= cosine * |x| |y|.
    dtype : str or dtype, default "float32"
        Type of the results under test; rounding to it is not a bug.
    stage : str, default "output"
        The result that the test compares.
    benchmark : str, default None
        Name of a published test, alone or with `threads`: its inputs and its criterion, as of `mha power --benchmark`.
    **settings
        The intended call, as in mha.diagnose.

    Returns
    -------
    Power
        One row for each known bug that applies; print() shows the accepted ones.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or there is more than one criterion.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> "scale-missing" in mha.testing.power(q, k, v, atol=1e-3).rejected
    True
    """
    found = abi.Power()
    if benchmark is not None:
        names: list[str] = []
        while name := optional(lib.mha_benchmark_at(len(names), None)):
            names.append(str(name))
        a.choice("benchmark", benchmark, names)
        given: dict[str, object] = {"query": query, "key": key, "value": value, "rtol": rtol, "atol": atol,
                                    "nmse": nmse, "cosine": cosine, "layer": layer, "layout": layout, **settings}
        if other := [name for name, x in given.items() if x is not None]:
            raise ValueError(f"benchmark: expected no other argument but threads, found {other[0]}")
        call(lib.mha_benchmark_power, benchmark.encode(), a.thread_count(threads), None, ctypes.byref(found))
        return Power(*_taken(found))
    if query is None:
        raise TypeError("query: expected an array, or benchmark=, found neither")
    case = Meant(query, key, value, layer, layout, {**settings}).case({}, name="the test")
    criterion = _criterion(rtol, atol, nmse, cosine, dtype)
    criterion.stage = abi.STAGES[a.choice("stage", stage, abi.STAGES)].encode()
    call(lib.mha_case_power, case.address, ctypes.byref(criterion), a.thread_count(threads), None,
         ctypes.byref(found))
    return Power(*_taken(found))


def _taken(found: abi.Power) -> tuple[list[tuple[str, str, float, float, str]], tuple[float, float], int]:
    """The arguments of a Power; frees what the library has found."""
    try:
        rows = [(str(optional(row.bug)), abi.POWER_RESULTS[row.result], row.max_abs, row.factor,
                 str(optional(row.help))) for row in found.rows[:found.count]]
        return rows, (found.derived_atol, found.derived_rtol), found.accepted - found.faint
    finally:
        lib.mha_power_clear(ctypes.byref(found))


def _criterion(rtol: Optional[float], atol: Optional[float], nmse: Optional[float], cosine: Optional[float],
               dtype: a.Type) -> abi.Criterion:
    """How a test compares."""
    criterion = abi.Criterion(precision=a.float_type("dtype", dtype, a.FLOATS + (abi.TF32,)))
    limits = {"nmse": nmse, "cosine": cosine}
    given = [name for name, value in limits.items() if value is not None]
    close = rtol is not None or atol is not None
    if len(given) + close > 1:
        raise ValueError(f"{given[0]}: expected one criterion (rtol and atol, nmse, or cosine), found "
                         f"{', '.join((*given, *(('rtol or atol',) if close else ())))}")
    if close:
        criterion.kind = abi.CRITERIA.index("close")
        criterion.rtol = a.number("rtol", 0.0 if rtol is None else rtol)
        criterion.atol = a.number("atol", 0.0 if atol is None else atol)
    elif given:
        criterion.kind = abi.CRITERIA.index(given[0])
        criterion.limit = a.number(given[0], limits[given[0]])
    return criterion


class GradientPower(Power):
    """An mha.testing.Power of a test of gradients, with one row for each bug of a backward that applies."""

    noun, what = "bug", "bugs of a backward"


def gradient_power(q: a.ArrayLike, k: Optional[a.ArrayLike], v: Optional[a.ArrayLike], do: a.ArrayLike, *,
                   layer: Optional[MultiHeadAttention] = None, dlse: Optional[a.ArrayLike] = None,
                   compared: Sequence[str] = ("query", "key", "value"), rtol: Optional[float] = None,
                   atol: Optional[float] = None, nmse: Optional[float] = None, cosine: Optional[float] = None,
                   dtype: a.Type = "float32", layout: Optional[str] = None,
                   **settings: Unpack[MeantSettings]) -> GradientPower:
    """List the known bugs of a backward that a test with these inputs and this tolerance would accept.

    Each bug takes one backward of the whole call in float64.

    Parameters
    ----------
    q, k, v, do, layer, dlse, layout
        As in mha.testing.assert_gradients_close.
    compared : sequence of str, default ("query", "key", "value")
        Gradients that the test compares, also names as of `also` there.
    rtol, atol, nmse, cosine, dtype
        As in mha.testing.power, of each gradient. Without a criterion each element has its own error bound.
    **settings
        The intended call, as in mha.diagnose.

    Returns
    -------
    GradientPower
        One row for each known bug that applies.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong, or there is more than one criterion.

    Examples
    --------
    >>> q, k, v, do = np.random.default_rng(0).standard_normal((4, 2, 4, 9, 16), dtype=np.float32)
    >>> "scale-missing-dq" in mha.testing.gradient_power(q, k, v, do, atol=1e-3).rejected
    True
    """
    if isinstance(compared, str) or not isinstance(compared, (list, tuple)) or not compared:
        raise TypeError(f"compared: expected a list of names of gradients, found {compared!r}")
    with typed(TYPED):
        meant = Meant(q, k, v, layer, layout, {**settings})
    backward = MeantBackward(meant, do, dlse)
    for name in compared:
        a.choice("compared", name, GRADIENTS)
    left_out = [name for name, x in zip(INPUTS, meant.shape.inputs) if x is None]
    with typed({"also": "compared"}):
        memory = backward.memory([name for name in compared if name not in left_out])
    backward.lend(backward.struct, memory)
    criterion, found = _criterion(rtol, atol, nmse, cosine, dtype), abi.Power()
    with backward.request.typed():
        call(lib.mha_examine_gradients, backward.request.layer_address, ctypes.byref(backward.request.struct),
             ctypes.byref(backward.struct), ctypes.byref(criterion), ctypes.byref(found))
    return GradientPower(_taken(found)[0])
