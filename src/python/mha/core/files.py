"""Files of named tensors: safetensors, npy, npz and GGUF are read, safetensors and npy written."""
from __future__ import annotations

import ctypes
import os
from typing import Iterator, Mapping, Optional, cast

import numpy as np

from . import abi
from . import arrays as a
from .library import Handle, call, create, lib
from .parameters import dtype_name
from .tables import Table, optional


def path_of(name: str, path: object) -> bytes:
    """A path as the library takes it; "-" is a file of that name, not a standard stream."""
    try:
        found = os.fsencode(cast(str, path))
    except TypeError:
        raise TypeError(f"{name}: expected a path, found {type(path).__name__}") from None
    if not found or b"\0" in found:
        raise ValueError(f"{name}: expected a path, found {path!r}")
    return b"./-" if found == b"-" else found


def open_file(path: a.Path) -> Handle:
    """An open file of tensors."""
    return create("file", lib.mha_file_close, lib.mha_file_open, path_of("path", path))


def config_beside(path: a.Path) -> Optional[str]:
    """The config.json in the folder of a file; None where there is none."""
    path = os.fsdecode(path)
    beside = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "config.json")
    return beside if os.path.exists(beside) else None


class File(Mapping[str, a.Stored]):
    """The tensors of a file as numpy arrays, each read on access; dict(file) reads them all.

    bfloat16 and float8 are arrays of ml_dtypes if it is installed. Otherwise mha widens them exactly to float32. It
    decodes quantised tensors to float32 and raises mha.UnsupportedError for types that it cannot decode.

    Parameters
    ----------
    path : path_like
        As in mha.load.

    Examples
    --------
    >>> mha.save("layer.safetensors", {"weight": np.eye(2)})
    >>> with mha.File("layer.safetensors") as file:
    ...     print(file.format, list(file))
    safetensors ['weight']
    """

    def __init__(self, path: a.Path) -> None:
        self._handle = open_file(path)
        self._rows: dict[str, abi.FileTensor] = {}  # copies, which outlive the file
        self._places: dict[str, int] = {}
        for index in range(lib.mha_file_count(self._handle.address)):
            row = abi.FileTensor.from_buffer_copy(lib.mha_file_at(self._handle.address, index).contents)
            self._rows[str(optional(row.name))], self._places[str(optional(row.name))] = row, index

    def close(self) -> None:
        """Close the file; `with mha.File(path) as file:` closes it at the end."""
        self._handle.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def format(self) -> str:
        """"safetensors", "npy", "npz" or "gguf"."""
        return str(lib.mha_file_format(self._handle.address).decode())

    @property
    def metadata(self) -> dict[str, str]:
        """All metadata, as text."""
        found, key, value = {}, ctypes.c_char_p(), ctypes.c_char_p()
        for index in range(lib.mha_file_metadata_count(self._handle.address)):
            lib.mha_file_metadata_at(self._handle.address, index, ctypes.byref(key), ctypes.byref(value))
            found[str(optional(key.value))] = str(optional(value.value))
        return found

    def __getitem__(self, name: str) -> a.Stored:
        row = self._rows[name]
        code = row.reads_as
        if code >= len(abi.DTYPES):
            code = abi.F32  # what cannot be read says so itself
        if code in (abi.BF16, abi.F8_E4M3, abi.F8_E5M2):
            try:
                import ml_dtypes  # noqa: F401
            except ImportError:
                code = abi.F32
        array = np.empty(tuple(row.shape[:row.rank]), {abi.BF16: "uint16", abi.F8_E4M3: "uint8",
                                                       abi.F8_E5M2: "uint8"}.get(code, a.NAMES[code]))
        view = a.view_of(a.Tensor(array, code, a.wrap_numpy))
        file = self._handle.address
        call(lib.mha_file_read, file, lib.mha_file_at(file, self._places[name]), ctypes.byref(view))
        return a.wrap_numpy(array, code)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def table(self) -> Table:
        """Tabulate names, types, shapes, elements and bytes. This reads the header only.

        Returns
        -------
        mha.Table
            One row for each tensor.
        """
        return Table(("name", "dtype", "shape", "elements", "bytes"),
                     [(name, dtype_name(r.dtype), tuple(r.shape[:r.rank]), r.elements, r.bytes)
                      for name, r in self._rows.items()])

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def load(path: a.Path) -> File:
    """Open a file of tensors, or a folder with those of a model.

    Parameters
    ----------
    path : path_like
        safetensors, its index, npy, npz or GGUF; or a folder.

    Returns
    -------
    mha.File
        A mapping from names to numpy arrays, with .metadata. It reads an array on access.

    Raises
    ------
    mha.NotFoundError
        The file does not exist; also a FileNotFoundError.
    mha.FormatError
        The file violates its format.

    Examples
    --------
    >>> mha.save("layer.safetensors", {"weight": np.eye(2)})
    >>> mha.load("layer.safetensors")["weight"].shape
    (2, 2)
    """
    return File(path)


def save(path: a.Path, tensors: Mapping[str, a.ArrayLike], metadata: Optional[Mapping[str, str]] = None) -> None:
    """Write arrays under their names. mha replaces an existing file only after it has written the new one completely.

    Parameters
    ----------
    path : path_like
        Ends in ".safetensors", or in ".npy" for one array.
    tensors : dict from str to array_like
        Arrays of any kind and memory order; mha writes them in C order.
    metadata : dict from str to str, default None
        Text for the header of a safetensors file.

    Raises
    ------
    TypeError, ValueError
        A name, an array or the ending of the path is wrong.
    mha.MachineError
        mha cannot write the file; also an OSError.

    Examples
    --------
    >>> mha.save("layer.safetensors", {"weight": np.eye(2)}, {"made by": "hand"})
    >>> mha.load("layer.safetensors").metadata
    {'made by': 'hand'}
    """
    writer = create("writer", lib.mha_writer_destroy, lib.mha_writer_create, path_of("path", path))
    held = []
    metadata = {} if metadata is None else metadata
    for name, given in (("tensors", tensors), ("metadata", metadata)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{name}: expected a dict by names, found {type(given).__name__}")
    for name, value in tensors.items():
        key = a.text("tensors", name)
        tensor = a.given(f"tensors[{name!r}]", value)
        held.append(tensor)
        call(lib.mha_writer_add, writer.address, key, ctypes.byref(a.view_of(tensor)))
    for name, text in metadata.items():
        call(lib.mha_writer_add_metadata, writer.address, a.text("metadata", name), a.text("metadata", text))
    call(lib.mha_writer_commit, writer.address)
