"""Files of named tensors: safetensors, npy, npz and GGUF are read, safetensors and npy written."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Iterator, Mapping, Optional

import numpy as np

from . import abi
from . import arrays as a
from .library import Handle, call, create, lib
from .parameters import dtype_name
from .tables import Table, optional


def path_of(name: str, path: Any) -> bytes:
    """A path as the library takes it; "-" is a file of that name, not a standard stream."""
    try:
        found = os.fsencode(path)
    except TypeError:
        raise TypeError(f"{name}: expected a path, found {type(path).__name__}") from None
    if not found or b"\0" in found:
        raise ValueError(f"{name}: expected a path, found {path!r}")
    return b"./-" if found == b"-" else found


def open_file(path: Any) -> Handle:
    """An open file of tensors."""
    return create("file", lib.mha_file_close, lib.mha_file_open, path_of("path", path))


def config_beside(path: Any) -> Optional[str]:
    """The config.json in the folder of a file; None where there is none."""
    path = os.fsdecode(path)
    beside = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "config.json")
    return beside if os.path.exists(beside) else None


class File(Mapping[str, Any]):
    """The tensors of a file as arrays of numpy, each read when it is asked for; dict(file) reads them all.

    bfloat16 and float8 are arrays of ml_dtypes where that is installed, else widened, exactly, to float32. Quantised
    tensors are decoded to float32; those of types that are not decoded raise mha.UnsupportedError.
    """

    def __init__(self, path: Any) -> None:
        self._handle = open_file(path)
        self._rows: dict[str, abi.FileTensor] = {}  # copies, which outlive the file
        self._places: dict[str, int] = {}
        for index in range(lib.mha_file_count(self._handle.address)):
            row = abi.FileTensor.from_buffer_copy(lib.mha_file_at(self._handle.address, index).contents)
            self._rows[str(optional(row.name))], self._places[str(optional(row.name))] = row, index

    def close(self) -> None:
        """Closes the file; `with mha.File(path) as file:` does it at the end."""
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

    def __getitem__(self, name: str) -> Any:
        row = self._rows[name]
        code = row.reads_as
        if code >= len(abi.DTYPES):
            code = abi.F32  # what cannot be read says so itself
        wrap: Any = a.wrap_numpy
        if code in (abi.BF16, abi.F8_E4M3, abi.F8_E5M2):
            try:
                import ml_dtypes  # noqa: F401
            except ImportError:
                code = abi.F32
        array = np.empty(tuple(row.shape[:row.rank]), {abi.BF16: "uint16", abi.F8_E4M3: "uint8",
                                                       abi.F8_E5M2: "uint8"}.get(code, a.NAMES[code]))
        view = a.view_of(a.Tensor(array, code, wrap))
        file = self._handle.address
        call(lib.mha_file_read, file, lib.mha_file_at(file, self._places[name]), ctypes.byref(view))
        return wrap(array, code)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def table(self) -> Table:
        """Names, types and shapes, from the header alone."""
        return Table(("name", "dtype", "shape", "elements", "bytes"),
                     [(name, dtype_name(r.dtype), tuple(r.shape[:r.rank]), r.elements, r.bytes)
                      for name, r in self._rows.items()])

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def load(path: Any) -> File:
    """Opens a file of tensors, or a folder with a model's: a mapping from names to arrays, with .metadata."""
    return File(path)


def save(path: Any, tensors: Mapping[str, a.Array], metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes arrays under their names: ".safetensors", or ".npy" for one array. A file that is there is replaced when
    all is written, never left half-written."""
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
    for name, value in metadata.items():
        call(lib.mha_writer_add_metadata, writer.address, a.text("metadata", name), a.text("metadata", value))
    call(lib.mha_writer_commit, writer.address)
