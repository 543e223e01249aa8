"""The test cases of the conformance suite, for a kernel in Python."""
from __future__ import annotations

import ctypes
import functools
import importlib
from dataclasses import fields, is_dataclass, replace
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, cast

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core import devices
from ..core.backward_call import INPUTS
from ..core.library import call, create, lib
from ..core.semantics import Relative, Sizes, settings_of
from ..core.shapes import heads_first
from ..core.tables import optional
from ..judge.check import GRADIENT_STAGES, Diagnosis, StageVerdict, Verdict, diagnosis_of, match_of, verdict_of

LEVELS = tuple(lib.mha_conform_level_name(i).decode() for i in range(abi.CONSTANTS["MHA_CONFORM_LEVEL_COUNT"]))
VERSION = "mha-conform 1.2"
TYPES = (abi.F32, abi.F16, abi.BF16)


class Row(NamedTuple):
    """One row of the suite's table."""

    number: int
    name: str
    family: str
    regime: str
    settings: str
    level: int
    needs: tuple[str, ...]
    sizes: dict[str, int]


def _row(index: int, row: abi.ConformRow) -> Row:
    sizes = {name: getattr(row, name) for name in ("B", "h", "h_kv", "T_q", "T_k", "P", "d_k", "d_v")}
    return Row(index, row.name.decode(), row.family.decode(), row.regime.decode(), row.settings.decode(), row.level,
               tuple(row.has.decode().split()), sizes)


def rows() -> Iterator[Row]:
    """All test cases, in the order of the suite."""
    index, row = 0, abi.ConformRow()
    while lib.mha_conform_at(index, ctypes.byref(row)):
        yield _row(index, row)
        index += 1


def _words(at: Callable[[int], Any]) -> dict[str, str]:
    found, index = {}, 0
    while pointer := at(index):
        found[str(optional(pointer.contents.name))] = str(optional(pointer.contents.meaning))
        index += 1
    return found


NEEDS = _words(lib.mha_conform_need_at)
REGIMES = _words(lib.mha_conform_regime_at)


class Convention(NamedTuple):
    """Something that kernels understand differently: its choices, with what each means."""

    number: int
    name: str
    meaning: str
    choices: dict[str, str]
    probe: str


def _conventions() -> Iterator[Convention]:
    index = 0
    while pointer := lib.mha_conform_convention_at(index):
        d = pointer.contents
        choices = {str(optional(r.name)): str(optional(r.meaning)) for r in d.choices[:d.count]}
        yield Convention(index, str(optional(d.name)), str(optional(d.meaning)), choices, str(optional(d.probe)))
        index += 1


CONVENTIONS = {d.name: d for d in _conventions()}


def choices_of(chosen: Mapping[str, str], seed: int = 0, longer: int = 0) -> abi.ConformChoices:
    """Choices and a draw as the library takes them; ValueError for a convention or a choice that is none."""
    choices = abi.ConformChoices(seed=seed, longer=longer)
    text = ",".join(f"{name}={choice}" for name, choice in chosen.items())
    call(lib.mha_conform_choices_put, a.text("convention", text), ctypes.byref(choices))
    return choices


def _memory(view: abi.View, owner: object) -> a.Stored:
    """The library's memory as an array, bfloat16 as unsigned integers, with the strides that it has."""
    shape, strides = tuple(view.shape[:view.rank]), tuple(view.stride[:view.rank])
    dtype = np.dtype({abi.BF16: "uint16"}.get(view.dtype, a.NAMES[view.dtype]))
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides)) + 1
    assert view.data is not None
    memory = (ctypes.c_char * (last * dtype.itemsize)).from_address(view.data)
    setattr(memory, "_owner", owner)
    base = np.frombuffer(memoryview(memory), dtype)
    return np.lib.stride_tricks.as_strided(base, shape, [s * dtype.itemsize for s in strides])


class CaseInputs(NamedTuple):
    """What a kernel is called with."""

    inputs: tuple[a.ArrayLike, ...]
    settings: dict[str, Any]


ARRAYS = ("numpy", "torch", "jax", "cupy")


def wrapper(kind: object) -> a.Wrap:
    """What makes arrays of a kind, "numpy", "torch", "jax" or "cupy", of numpy's memory and a type of the library.

    A device follows the kind after a comma: "torch,cuda:0".
    """
    library, _, device = kind.partition(",") if isinstance(kind, str) else (kind, "", "")
    name = ARRAYS[a.choice("arrays", library, ARRAYS)]
    importlib.import_module(name)
    wrap = {"torch": a._wrap_torch, "jax": a._wrap_jax}.get(name, a.wrap_numpy)
    put = devices.put(name, device or None)
    if put is None:
        return wrap
    return functools.partial(_put, put, wrap)


def _put(put: devices.Put, wrap: a.Wrap, array: a.Stored, code: int) -> a.ArrayLike:
    return cast(a.ArrayLike, put(wrap(array, code)))


def on_device(arrays: str, device: Optional[str]) -> str:
    """The kind of arrays on a device, as `wrapper` takes it."""
    if device is not None:
        a.text("device", device)
    return arrays if device is None else f"{arrays},{device}"


def handed(value: object, wrap: a.Wrap) -> object:
    """A setting, or an object of settings, whose arrays are copies of the kind that `wrap` makes."""
    if isinstance(value, np.ndarray):
        return wrap(np.array(value, order="C"), a.CODES[value.dtype.name])
    if is_dataclass(value) and not isinstance(value, type):
        inside = {f.name: getattr(value, f.name) for f in fields(value)}
        return replace(value, **{name: handed(x, wrap) for name, x in inside.items() if isinstance(x, np.ndarray)})
    return value


class Case:
    """One test case in a type and in a convention."""

    def __init__(self, row: Row, dtype: int, choices: Optional[abi.ConformChoices] = None) -> None:
        self.dtype = dtype
        self.handle = create("case", lib.mha_test_case_destroy, lib.mha_test_case_create, row.number, dtype,
                             None if choices is None else ctypes.byref(choices))
        self.row = _row(row.number, lib.mha_test_case_row(self.handle.address).contents)
        self.call = lib.mha_test_case_call(self.handle.address).contents
        self._d_output = abi.View()
        lib.mha_test_case_d_output(self.handle.address, ctypes.byref(self._d_output))

    def differs(self, convention: Convention) -> bool:
        """Whether a convention matters to it."""
        return bool(lib.mha_test_case_differs(self.handle.address, convention.number))

    # ---------------------------------------------------------------- asking

    def _array(self, view: abi.View, swapped: bool, wrap: a.Wrap) -> a.ArrayLike:
        """Somebody's array of a view, of which rows and heads change places if `swapped`."""
        found = _memory(view, self.handle)
        if view.rank == 4 and swapped:
            found = found.swapaxes(1, 2)
        return wrap(found if "strides" in self.row.needs else np.array(found, order="C"), view.dtype)

    def d_output(self, layout: str, wrap: a.Wrap) -> a.ArrayLike:
        """The gradient of the output, with which a backward begins."""
        return self._array(self._d_output, heads_first(layout), wrap)

    def ask(self, layout: str, wrap: a.Wrap) -> CaseInputs:
        """The arrays and the keywords of a call in a layout, in the words of the module's own function of it."""
        swapped = heads_first(layout)

        def array(view: abi.View, by_head: bool = False) -> a.ArrayLike:
            return self._array(view, swapped != by_head, wrap)

        past = abi.View(), abi.View()
        lib.mha_test_case_past(self.handle.address, *map(ctypes.byref, past))
        said = {name: handed(value, wrap) for name, value in self._words(swapped).items()}
        for name, view in zip(("past_key", "past_value"), past):
            if view.data:
                said[name] = array(view, by_head=True)
        pages = self.call.pages
        if not pages.keys.data:
            return CaseInputs(tuple(array(view) for view in (self.call.query, self.call.key, self.call.value)), said)
        B, columns = self.row.sizes["B"], pages.columns
        table = np.array((ctypes.c_int32 * (B * columns)).from_address(pages.table or 0), np.int64)
        lengths = np.array((ctypes.c_int64 * B).from_address(pages.lengths or 0), np.int64)
        pool = [wrap(_memory(view, self.handle).copy(), view.dtype) for view in (pages.keys, pages.values)]
        said.update(page_table=handed(table.reshape(B, columns), wrap), page_lengths=handed(lengths, wrap))
        return CaseInputs((array(self.call.query), *pool), said)

    def plain(self, layout: str) -> tuple[a.Floats, a.Floats, a.Floats, dict[str, Any]]:
        """q, k and v as float32, (B, h, T, d), and the keywords of a layout; k and v of earlier calls in the same axes.
        Of pages k and v are the contents, and the keywords are page_lengths and page_rows, the rows of a page."""
        def wide(view: abi.View) -> a.Floats:
            return a.of_memory(view, self.handle).astype(np.float32) if view.data else np.zeros((0,) * 4, np.float32)

        q, k, v = (wide(view).swapaxes(1, 2) for view in (self.call.query, self.call.key, self.call.value))
        past = abi.View(), abi.View()
        lib.mha_test_case_past(self.handle.address, *map(ctypes.byref, past))
        said = self.ask(layout, lambda array, code: array).settings
        said.update((name, wide(view)) for name, view in zip(("past_key", "past_value"), past) if view.data)
        pages = self.call.pages
        if pages.keys.data:
            table, S = said.pop("page_table"), int(said["page_lengths"].max())
            said["page_rows"] = int(pages.keys.shape[1])
            k, v = (wide(view)[table].reshape(len(table), -1, *view.shape[2:4])[:, :S].swapaxes(1, 2)
                    for view in (pages.keys, pages.values))
        return q, k, v, said

    def plain_d_output(self) -> Optional[a.Floats]:
        """The gradient of the output as float32, (B, h, T, d); None where no gradients are asked for."""
        if not self._d_output.data:
            return None
        return a.of_memory(self._d_output, self.handle).astype(np.float32).swapaxes(1, 2)

    def _words(self, swapped: bool) -> dict[str, Any]:
        sizes = self.row.sizes
        said = settings_of(self.call.semantics, Sizes(sizes["B"], sizes["h"], sizes["T_q"],
                                                      sizes["P"] + sizes["T_k"]))
        weights = {name: _memory(self.call.weights[i], self.handle).copy() for i, name in enumerate(abi.WEIGHTS)
                   if self.call.weights[i].data}
        if "position_bias" in said:
            said["position_bias"] = _with(said["position_bias"], table=weights.pop("bias_table"))
        if "relative" in said:
            said["relative"] = _with(said["relative"], k=weights.pop("relative_k", None),
                                     columns=weights.pop("relative_columns", None), q=weights.pop("relative_q", None))
        said.pop("n_sequences", None)
        said.update(weights)
        others = {"kv_lengths": "lengths", "alibi_slopes": "alibi", "causal": "is_causal", "mask": "attn_mask"}
        if not swapped:
            others = {"kv_lengths": "lengths", "window": "window_size", "scale": "softmax_scale"}
        elif "mask" in said:
            said.pop("mask_kind")
        if swapped and sizes["h"] != sizes["h_kv"]:
            said["enable_gqa"] = True
        if "lse" in self.row.needs:
            said["return_lse"] = True
        return {others.get(name, name): value for name, value in said.items()}

    # ---------------------------------------------------------------- results

    def seen(self, layout: str, result: object) -> list[a.Tensor]:
        """A result as the library sees it: the output, and lse where it is asked for."""
        parts = result if isinstance(result, (tuple, list)) else (result,)
        return self.shaped(layout, [a.floats(name, part) for name, part in zip(self.results, parts)])

    @property
    def results(self) -> tuple[str, ...]:
        """The names of its results."""
        return ("output", "lse") if "lse" in self.row.needs else ("output",)

    def shaped(self, layout: str, parts: Sequence[a.Tensor]) -> list[a.Tensor]:
        """The tensors of a result as the library sees them; ValueError for other shapes."""
        if not parts:
            raise ValueError("output: expected a result, found none")
        sizes, output = self.row.sizes, parts[0]
        shape = (sizes["B"], sizes["T_q"], sizes["h"], sizes["d_v"])
        wanted = tuple(shape[i] for i in (0, 2, 1, 3)) if heads_first(layout) else shape
        if output.array.shape != wanted:
            raise ValueError(f"output: expected shape {wanted}, found {output.array.shape}")
        found = [output.on(output.array.swapaxes(1, 2)) if heads_first(layout) else output]
        if "lse" not in self.row.needs:
            return found
        if len(parts) < 2:
            raise ValueError("lse: expected (output, lse) for return_lse=True, found only the output")
        lse = parts[1]
        if lse.array.shape != (sizes["B"], sizes["h"], sizes["T_q"]):
            raise ValueError(f"lse: expected shape {(sizes['B'], sizes['h'], sizes['T_q'])}, found {lse.array.shape}")
        return [*found, lse]

    def check(self, result: list[a.Tensor], gradients: Mapping[str, a.Tensor] = {}) -> Verdict:
        """The verdict on a result: on the forward, and on dq, dk and dv where they are given, each element of these by
        its own error bound."""
        verdict = abi.Verdict()
        call(lib.mha_test_case_check, self.handle.address, ctypes.byref(_answer(result, gradients)),
             ctypes.byref(verdict))
        return verdict_of(verdict)

    def rows_off(self, result: list[a.Tensor], atol: float, rtol: float) -> a.Doubles:
        """(B, h, T_q), float64: of each row of the output the largest of |exact - yours| / (atol + rtol |exact|).

        Infinite where only one of both is NaN, or infinite.
        """
        worst: a.Doubles = self._off("output", result, atol, rtol).max(-1).swapaxes(1, 2)
        return worst

    def most_off(self, result: list[a.Tensor], stage: StageVerdict) -> float:
        """The largest |exact - yours| / (atol + rtol |exact|) of a stage, "output" or "lse"."""
        return float(self._off(stage.name, result, stage.atol, stage.rtol).max(initial=0))

    def _off(self, name: str, result: list[a.Tensor], atol: float, rtol: float) -> a.Doubles:
        right = abi.TestResult()
        call(lib.mha_test_case_exact, self.handle.address, ctypes.byref(right))
        exact = _memory(getattr(right, name), self.handle)
        yours = a.doubles(result[self.results.index(name)])
        with np.errstate(all="ignore"):
            off = np.abs(exact - yours) / (atol + rtol * np.abs(exact))
        same = (exact == yours) | (np.isnan(exact) & np.isnan(yours))
        apart: a.Doubles = np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
        return apart

    def diagnose(self, result: list[a.Tensor], gradients: Mapping[str, a.Tensor], stage: str) -> Diagnosis:
        """The diagnosis of one of its stages: of a gradient which bugs of a backward give all of them."""
        case = create("case", lib.mha_case_close, lib.mha_test_case_as_case, self.handle.address,
                      ctypes.byref(_answer(result, gradients)), needs=(self.handle,))
        return match_of(case) if stage in GRADIENT_STAGES else diagnosis_of(case, stage)

    def gradients(self, layout: str, result: Sequence[object]) -> dict[str, a.Tensor]:
        """dq, dk and dv as the library sees them."""
        found = {}
        for name, given in zip(INPUTS, result):
            word, view = f"d{name[0]}", getattr(self.call, name)
            if given is None:
                raise ValueError(f"{word}: expected a gradient of the backward, found None")
            tensor = a.floats(word, given)
            shape = tuple(view.shape[:4])
            wanted = tuple(shape[i] for i in (0, 2, 1, 3)) if heads_first(layout) else shape
            if tensor.array.shape != wanted:
                raise ValueError(f"{word}: expected shape {wanted}, found {tensor.array.shape}")
            found[name] = tensor.on(tensor.array.swapaxes(1, 2)) if heads_first(layout) else tensor
        return found

    def save(self, path: bytes, result: list[a.Tensor], gradients: Mapping[str, a.Tensor]) -> None:
        """Writes it with what there is of a result as a case file."""
        call(lib.mha_test_case_save, self.handle.address, path, ctypes.byref(_answer(result, gradients)))


def _answer(result: list[a.Tensor], gradients: Mapping[str, a.Tensor]) -> abi.TestResult:
    """A result as the library takes it: output and lse, and gradients by the names of the inputs."""
    found = abi.TestResult()
    for name, tensor in zip(("output", "lse"), result):
        setattr(found, name, a.view_of(tensor))
    for name, tensor in gradients.items():
        found.gradients[INPUTS.index(name)] = a.view_of(tensor)
    return found


def _with(value: object, **tables: object) -> object:
    """An object of settings with its tables."""
    return replace(cast(Relative, value), **tables)
