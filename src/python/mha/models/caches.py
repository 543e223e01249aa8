"""The caches of a model, counted where they are allocated, and the caches that the log of an engine states."""
from __future__ import annotations

import ctypes
from typing import NamedTuple, Optional

from ..core import abi
from ..core import arrays as a
from ..core.files import path_of
from ..core.library import Handle, call, lib
from ..core.parameters import new_table, parameters_of, totals_of


class CacheKind(NamedTuple):
    """Caches of one kind.

    Attributes
    ----------
    cache : str
        "all keys", "window", "latents", "cross-attention", "index keys" or "states".
    layers, rows, elements : int
        Number of layers; rows of a sequence; elements of a row in the first layer.
    bytes, bytes_in_pages, bytes_llama_cpp : int
        As needed; with rows in whole pages of 16; as llama.cpp allocates them.
    """

    cache: str
    layers: int
    rows: int
    elements: int
    bytes: int
    bytes_in_pages: int
    bytes_llama_cpp: int


class EngineLog(NamedTuple):
    """The caches that a log states.

    Attributes
    ----------
    engine : str
        "llama.cpp" or "vLLM".
    bytes : int
        Bytes in the log.
    parts : dict from str to int
        Parts that sum to these bytes: "needed", then "type", "cells", ..., "rounding of the log" or "unexplained".
    """

    engine: str
    bytes: int
    parts: dict[str, int]


class Caches(NamedTuple):
    """The caches that decoding needs after a forward pass.

    Attributes
    ----------
    batch, seq : int
        Number of sequences, and their tokens.
    kinds : tuple of CacheKind
        Caches by kind.
    bytes, bytes_in_pages, bytes_llama_cpp : int
        Sums over the kinds.
    log : EngineLog or None
        The caches of the log.
    """

    batch: int
    seq: int
    kinds: tuple[CacheKind, ...]
    bytes: int
    bytes_in_pages: int
    bytes_llama_cpp: int
    log: Optional[EngineLog]


def _log(model: Handle, run: abi.ModelPass, dtype: int, path: a.Path) -> EngineLog:
    split = abi.LogSplit()
    call(lib.mha_model_split_log, model.address, path_of("log", path), ctypes.byref(run), dtype, ctypes.byref(split))
    return EngineLog(split.engine.decode(), split.bytes,
                     {part.name.decode(): part.bytes for part in split.parts[:split.count]})


def caches_of(model: Handle, run: abi.ModelPass, dtype: a.Type, log: Optional[a.Path]) -> Caches:
    """The caches of a model, see mha.Model.caches."""
    code = abi.I8 if str(dtype) in ("i8", "int8") else a.weight_type("dtype", dtype)
    split = None if log is None else _log(model, run, code, log)
    tables = []
    for page, ahead in ((1, 0), (16, 0), (256, 512)):  # as needed, as vLLM's pages, as llama.cpp's cells
        tables.append(new_table())
        call(lib.mha_model_add_caches, model.address, ctypes.byref(run), code, page, ahead, tables[-1].address)
    rows = parameters_of(tables[0].address)
    kinds: list[CacheKind] = []
    missing: list[str] = []
    while (kind := lib.mha_cache_kind_at(len(kinds) + len(missing))) is not None:
        name = kind.decode()
        own = [row for row in rows if row.group == name]
        if not own:
            missing.append(name)
            continue
        first = own[:2] if own[1:] and own[1].role == "values" else own[:1]
        kinds.append(CacheKind(name, sum(row.role != "values" for row in own), own[-1].shape[2],
                               sum(row.shape[1] * row.shape[3] for row in first),
                               *(totals_of(table.address, name).buffer_bytes for table in tables)))
    return Caches(run.batch, run.seq, tuple(kinds), *(totals_of(table.address).buffer_bytes for table in tables), split)
