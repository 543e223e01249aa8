"""The stages of one call: a mapping from names to arrays, a table of them, and pictures of the weights."""
from __future__ import annotations

import os
from typing import Any, Iterator, Mapping, Sequence, Union

import numpy as np

from . import abi
from . import arrays as a
from .files import File, path_of, save
from .library import lib, program
from .pictures import framed, heat_map
from .tables import Table


def _meanings() -> dict[str, str]:
    """The meaning of each stage: in the order data flows, then the side results, then those of a backward."""
    rows = [lib.mha_stage_at(stage).contents for stage in range(len(abi.STAGES))]
    order = sorted(rows, key=lambda row: row.step if row.step >= 0 else len(rows))
    backwards = [lib.mha_backward_stage_at(stage).contents for stage in range(len(abi.BACKWARD_STAGES))]
    return {row.name.decode(): row.meaning.decode() for row in [*order, *backwards]}


def _shapes_of_backward() -> dict[str, str]:
    rows = [lib.mha_backward_stage_at(stage).contents for stage in range(len(abi.BACKWARD_STAGES))]
    return {row.name.decode(): lib.mha_stage_at(row.like).contents.shape.decode() for row in rows}


_MEANING = _meanings()
_MOST_DRAWN = 16  # heads
_SIGNED = tuple(name for name, shape in _shapes_of_backward().items() if "S'" in shape)  # drawn without their signs


class Trace(Mapping[str, Any]):
    """Named intermediate results of a call, in the order of the data flow: trace["weights"]; print(trace) is a table.

    A notebook shows the table and a picture of each head's weights.

    Parameters
    ----------
    stages : dict from str to array_like
        Stages by name.

    Examples
    --------
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16), dtype=np.float32)
    >>> y, trace = mha.scaled_dot_product_attention(q, k, v, return_stages=["weights"])
    >>> trace["weights"].shape
    (2, 4, 9, 9)
    """

    def __init__(self, stages: Mapping[str, Any]) -> None:
        names = [name for name in _MEANING if name in stages]
        self._stages, self._names = stages, names + [name for name in stages if name not in _MEANING]

    @classmethod
    def load(cls, path: a.Path) -> Trace:
        """Read the floating-point tensors of a file, such as `mha forward --trace` writes.

        Parameters
        ----------
        path : path_like
            As in mha.load.

        Returns
        -------
        mha.Trace
            Arrays of numpy by name.

        Raises
        ------
        mha.Error
            mha cannot read the file.

        Examples
        --------
        >>> mha.save("trace.safetensors", {"weights": np.ones((1, 2, 3, 3), np.float32)})
        >>> mha.Trace.load("trace.safetensors").table()[0][:2]
        ('weights', (1, 2, 3, 3))
        """
        file, floats = File(path), [abi.DTYPES[code] for code in a.RESULTS]
        return cls({name: file[name] for name, dtype, *_ in file.table() if dtype in floats})

    def __getitem__(self, name: str) -> Any:
        return self._stages[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _array(self, name: str) -> a.Doubles:
        return a.doubles(a.floats(name, self[name], a.RESULTS))

    def table(self) -> Table:
        """Tabulate shape, minimum, maximum and rms of the finite numbers.

        Returns
        -------
        mha.Table
            One row for each stage.
        """
        rows = []
        for name in self:
            array = self._array(name)
            finite = array[np.isfinite(array)]
            some = finite if finite.size else np.array([np.nan])
            rows.append((name, tuple(array.shape), float(some.min()), float(some.max()),
                         float(np.sqrt(np.mean(some**2))), int(array.size - finite.size), _MEANING.get(name, "")))
        return Table(("stage", "shape", "min", "max", "rms", "not finite", "what it is"), rows)

    def picture(self, path: a.Path, *, tokens: Union[Sequence[object], a.Path, None] = None) -> None:
        """Write the picture of `mha show`: a page with all numbers (.html), or only the maps (.svg, .png).

        Parameters
        ----------
        path : path_like
            File to write.
        tokens : sequence of str or path_like, default None
            Names of the tokens, or a file of them as `mha show --tokens` reads it.

        Raises
        ------
        FileNotFoundError
            The program mha is not installed.
        ValueError
            The trace has no weights, or the tokens do not fit.

        Examples
        --------
        >>> y, trace = mha.MultiHeadAttention(32, 4)(np.ones((1, 3, 32), np.float32), return_stages=["weights"])
        >>> trace.picture("page.html", tokens=["the", "cat", "sat"])
        """
        import subprocess
        import tempfile

        found = program()
        if found is None:
            raise FileNotFoundError("mha: expected the program, which draws pictures, found none; `pip install .` or "
                                    "`make install` in the sources installs it")
        with tempfile.TemporaryDirectory() as folder:
            stages, names = "trace.safetensors", "tokens.txt"  # as the page calls them
            save(os.path.join(folder, stages), {name: self[name] for name in self})
            if isinstance(tokens, (str, bytes, os.PathLike)):
                names = os.path.abspath(os.fsdecode(tokens))
            elif tokens is not None:
                with open(os.path.join(folder, names), "w", encoding="utf-8") as file:
                    file.write("\n".join(map(str, tokens)))
            to = os.path.abspath(os.fsdecode(path_of("path", path)))
            run = subprocess.run([os.path.abspath(found), "show", stages, "--quiet", "--picture", to,
                                  *([] if tokens is None else ["--tokens", names])],
                                 cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if run.returncode:
            raise ValueError(run.stderr.strip().replace("mha show: ", ""))

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        drawn = [heat_map(np.abs(self._array(name)[index]), f"{f'|{name}|' if name in _SIGNED else name}: " + ", ".join(
            f"{word} {i}" for word, i in zip(("batch row", "head"), index)))
            for name, index in self._maps()[:_MOST_DRAWN]]
        left = len(self._maps()) - len(drawn)
        note = f"<p>{left} more are not drawn.</p>" if left else ""
        table = self.table()._repr_html_()
        return framed(table + "".join(drawn) + note, min(900, 80 + 24 * len(self) + 270 * -(-len(drawn) // 4)))

    def _maps(self) -> list[tuple[str, tuple[int, ...]]]:
        """The matrices of weights and their gradients: their stage, and their place in it."""
        return [(name, index) for name in self if name in ("weights", "weights_mean", *_SIGNED)
                and 0 not in self[name].shape for index in np.ndindex(tuple(self[name].shape[:-2]))]
