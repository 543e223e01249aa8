"""Tables that print, turn into dicts, and show themselves in a notebook."""
from __future__ import annotations

import html
from typing import Any, Iterator, Optional, Sequence, Union, overload


_LONG = 16  # letters of a cell with words that gets a wide column
_MOST_SHOWN, _ENDS = 60, 10  # rows that repr() shows; of a longer table the first and the last ones


def shown(value: object) -> str:
    """A cell as text: whole numbers in groups of three, others in four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "".join(c if c.isprintable() else "?" for c in str(value))


class Table(Sequence["tuple[Any, ...]"]):
    """Rows under column titles: table[i] is a row, print(table) lines them up, a notebook shows them.

    Parameters
    ----------
    columns : sequence of str
        Titles.
    rows : sequence of sequences
        Cells.
    note : str, default ""
        Line below the table.

    Examples
    --------
    >>> print(mha.Table(("name", "size"), [("a", 1200)]))
    name   size
    a     1,200
    """

    _by_name = "column(title) has the values under a title"

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
        self.columns, self.note = tuple(columns), note
        self.rows: Sequence[tuple[Any, ...]] = [tuple(row) for row in rows]

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Any, ...]]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[tuple[Any, ...], Sequence[tuple[Any, ...]]]:
        if isinstance(index, str):
            raise TypeError(f"index: expected the number of a row or a slice, found {index!r}; {self._by_name}")
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def to_dicts(self) -> list[dict[str, object]]:
        """Convert each row to a dict by column title.

        Returns
        -------
        list of dict
            One for each row.
        """
        return [dict(zip(self.columns, row)) for row in self.rows]

    def __str__(self) -> str:
        cells = [[shown(value) for value in row] for row in self.rows]
        right = [bool(self.rows) and all(v is None or isinstance(v, (int, float)) and not isinstance(v, bool)
                                         for v in column) for column in zip(*self.rows)] or [False] * len(self.columns)
        widths = [max(map(len, column)) for column in zip(self.columns, *cells)]
        lines = ["  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right)).rstrip()
                 for row in [self.columns, *cells]]
        return "\n".join(lines + ([self.note] if self.note else []))

    def __repr__(self) -> str:
        return str(self._short())

    def _short(self) -> Table:
        """A long table without the rows between its first and its last ones."""
        left = len(self.rows) - 2 * _ENDS
        if len(self.rows) <= _MOST_SHOWN:
            return self
        middle = ("...", *[None] * (len(self.columns) - 1))
        note = f"{left:,} more rows; print(table) shows all" + (f"\n{self.note}" if self.note else "")
        return Table(self.columns, [*self.rows[:_ENDS], middle, *self.rows[-_ENDS:]], note)

    def _repr_html_(self) -> str:
        return self._short()._html()

    def _html(self) -> str:
        def row(cells: Sequence[object], tag: str) -> str:
            texts = [shown(cell) for cell in cells]
            return "<tr>" + "".join(f"<{tag}{' class=long' * (len(t) > _LONG and ' ' in t)}>{html.escape(t)}</{tag}>"
                                    for t in texts) + "</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<table><thead>{row(self.columns, 'th')}</thead><tbody>{body}</tbody></table>{note}"

    def column(self, title: str) -> list[object]:
        """Get the values under a title.

        Parameters
        ----------
        title : str
            One of `columns`.

        Returns
        -------
        list
            One value for each row.

        Raises
        ------
        ValueError
            No column has this title.

        Examples
        --------
        >>> mha.Table(("name", "size"), [("a", 1200)]).column("size")
        [1200]
        """
        return [row[self.columns.index(title)] for row in self.rows]


def optional(text: Optional[bytes]) -> Optional[str]:
    """A text of the library, or None."""
    return None if text is None else text.decode("utf-8", "replace")
