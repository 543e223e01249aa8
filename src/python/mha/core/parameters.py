"""The parameter table of the library as rows: every total is read from what was allocated."""
from __future__ import annotations

import ctypes
from typing import Iterator, NamedTuple, Optional, Sequence

from . import abi
from . import arrays as a
from .library import Handle, call, lib
from .tables import Table, optional


class Parameter(NamedTuple):
    """One named tensor of a parameter table.

    Attributes
    ----------
    name, role, group : str
        Name; part in its layer ("W_Q"); part of the model ("attention", "ffn", ...).
    shape : tuple of int
        Shape.
    dtype : str
        Type, as files spell it.
    elements, nbytes : int
        Number of elements, and of bytes in memory.
    kind : str
        "parameter", "buffer" or "derived".
    trainable : bool
        Whether training changes it.
    inert : int
        Elements that cannot change the output.
    storage : int
        Number of its storage; rows that share memory have one number.
    alias_of : str or None
        The row whose storage it shares.
    packed_bytes : int
        Bytes of its packed panels, padding included; 0 if it is not packed.
    """

    name: str
    role: str
    group: str
    shape: tuple[int, ...]
    dtype: str
    elements: int
    nbytes: int
    kind: str
    trainable: bool
    inert: int
    storage: int
    alias_of: Optional[str]
    packed_bytes: int = 0


class Totals(NamedTuple):
    """Sums over the storages of a parameter table; each storage counts once.

    Attributes
    ----------
    parameters, trainable, inert : int
        Elements of parameters; of those that train; of those that cannot change the output.
    buffers : int
        Elements of buffers, which are not learned.
    parameter_bytes, buffer_bytes, derived_bytes, bytes_allocated : int
        Bytes of parameters, of buffers, of tensors computed from them, and of all.
    storages, derived_storages : int
        Numbers of storages.
    tensors, aliases : int
        Rows of the table, and those that share the storage of another row.
    """

    parameters: int
    parameter_bytes: int
    trainable: int
    buffers: int
    buffer_bytes: int
    derived_bytes: int
    inert: int
    storages: int
    derived_storages: int
    tensors: int
    aliases: int
    bytes_allocated: int


class Parameters(Table):
    """The parameter table, an mha.Table whose rows are mha.Parameter.

    Attributes
    ----------
    totals : mha.Totals
        Sums over the storages.

    Examples
    --------
    >>> mha.MultiHeadAttention(32, 4).parameters().totals.parameters
    4224
    """

    _by_name = "`weights` of a layer has arrays by name"

    def __init__(self, rows: list[Parameter], totals: Totals) -> None:
        self.totals = totals
        note = f"total  {totals.parameters:,} parameters in {totals.storages:,} storages"
        if totals.inert:
            note += f", {totals.inert:,} of them inert"
        if totals.buffers:
            note += f"; buffers, not learned: {totals.buffers:,} elements"
        super().__init__(Parameter._fields, rows, note)
        self.rows: Sequence[Parameter] = rows

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.rows)


def new_table() -> Handle:
    """An empty table."""
    address = ctypes.c_void_p()
    call(lib.mha_params_create, None, ctypes.byref(address))
    return Handle("parameter table", address.value, lib.mha_params_destroy)


def dtype_name(code: int) -> str:
    """The name of a type as files spell it."""
    return str(lib.mha_dtype_name(code).decode())


def totals_of(table: object, group: Optional[str] = None) -> Totals:
    """The totals of a table, or of one group of it."""
    totals = lib.mha_params_totals(table, None if group is None else a.text("group", group))
    return Totals(*(getattr(totals, name) for name in Totals._fields))


def parameters_of(table: object) -> Parameters:
    """All rows of a table, in the order in which they were added."""
    rows = []
    for index in range(lib.mha_params_count(table)):
        t = lib.mha_tensor_info_of(lib.mha_params_at(table, index))
        rows.append(Parameter(
            str(optional(t.name)), str(optional(t.role)), str(optional(t.group)), tuple(t.shape[:t.rank]),
            dtype_name(t.dtype), t.elements, t.bytes, abi.TENSOR_KINDS[t.kind], t.trainable, t.inert_elements,
            t.storage, optional(t.alias_of), t.packed_bytes))
    return Parameters(rows, totals_of(table))
