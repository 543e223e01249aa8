"""Arrays of numpy, PyTorch, JAX and others as views of the library, and results back as the kind that was given.

Every array passes `given`, the one gate: what cannot be taken is refused there, under the argument's name.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional, Sequence, SupportsFloat, SupportsIndex, cast

import numpy as np

from . import abi, devices
from .kinds import (ArrayLike, Attention, Doubles, Flags, Floats, Hook, Inputs, Json, Kind, Module, Numbers,
                    Path, Precision, Stored, Torch, TorchType, Type, Wholes, Wrap)
from .library import lib

__all__ = ["ArrayLike", "Attention", "Doubles", "Flags", "Floats", "Hook", "Inputs", "Json", "Kind", "Module",
           "Numbers", "Path", "Precision", "Stored", "Torch", "TorchType", "Type", "Wholes", "Wrap"]

CODES = {"float32": abi.F32, "float64": abi.F64, "float16": abi.F16, "bfloat16": abi.BF16, "int64": abi.I64,
         "int32": abi.I32, "int16": abi.I16, "int8": abi.I8, "uint64": abi.U64, "uint32": abi.U32,
         "uint16": abi.U16, "uint8": abi.U8, "bool": abi.BOOL, "float8_e4m3fn": abi.F8_E4M3,
         "float8_e5m2": abi.F8_E5M2}
BLOCKS = abi.BLOCKS  # types of only a layer's matrices, not of arrays
PRODUCTS = {"tf32": abi.TF32}  # what products of matrices round to; no array has it
NAMES = {code: name for name, code in {**CODES, **PRODUCTS, **BLOCKS}.items()}
# By the types of numpy itself, which takes its time to say a name.
_NATIVE = {np.dtype(name): code for name, code in CODES.items() if name != "bfloat16" and "float8" not in name}
FLOATS = (abi.F64, abi.F32, abi.F16, abi.BF16)
HALVES = (abi.F16, abi.BF16)
CACHED = FLOATS + (abi.I8,)  # types of the rows of a cache
INTEGERS = tuple(range(abi.I64, abi.U8 + 1))
RESULTS = FLOATS + (abi.F8_E4M3, abi.F8_E5M2)  # in which kernels store what they computed
COMPUTED = RESULTS + (abi.TF32,)  # in which they compute


class Tensor:
    """An array that passed the gate: its memory as numpy sees it, its type in the library, and its kind.

    array: of numpy; a type that numpy lacks (bfloat16, float8) is there as unsigned integers.
    wrap: makes an array of the given kind from another Tensor's memory.
    """

    __slots__ = ("array", "dtype", "wrap")

    def __init__(self, array: Stored, dtype: int, wrap: Wrap) -> None:
        self.array, self.dtype, self.wrap = array, dtype, wrap

    def on(self, array: Stored) -> Tensor:
        """Another array of the same type and kind."""
        return Tensor(array, self.dtype, self.wrap)


# ---------------------------------------------------------------- kinds of arrays


_TAKEN = "float64, float32, float16, bfloat16, integers or bool"


def _own_type(code: int) -> np.dtype[np.generic]:
    """The type by which numpy knows a type of the library; with ml_dtypes also the short floats."""
    name = NAMES[code]
    if name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"out_dtype: expected a type of numpy, found {name}; install ml_dtypes, or give numpy.float32"
                        ) from None
    return np.dtype(getattr(ml_dtypes, name))


def wrap_numpy(array: Stored, code: int) -> Stored:
    """An array of numpy."""
    return array if NAMES[code] == array.dtype.name else array.view(_own_type(code))


def _wrap_torch(array: Stored, code: int) -> ArrayLike:
    torch = sys.modules["torch"]
    if NAMES[code] == array.dtype.name:
        return cast(Torch, torch.from_numpy(array))
    signed = array.view(np.int16 if array.dtype.itemsize == 2 else np.int8)
    return cast(Torch, torch.from_numpy(signed).view(getattr(torch, NAMES[code])))


def _wrap_jax(array: Stored, code: int) -> ArrayLike:
    jax = sys.modules["jax"]
    result = jax.numpy.asarray(wrap_numpy(array, code))
    return wrap_numpy(array, code) if result.dtype.name != NAMES[code] else result  # without x64 it would lose float64


def _wrap_cupy(array: Stored, code: int) -> ArrayLike:
    return cast(ArrayLike, sys.modules["cupy"].asarray(wrap_numpy(array, code)))


def _of_torch(name: str, value: Torch) -> Tensor:
    torch = sys.modules["torch"]
    if value.device.type == "meta":
        raise TypeError(f"{name}: expected a tensor with numbers, found one on meta")
    if value.device.type != "cpu":
        place = value.device
        found = _of_torch(name, devices.fetched(value))
        return Tensor(found.array, found.dtype, lambda array, code: cast(Torch, _wrap_torch(array, code)).to(place))
    if value.layout != torch.strided or value.is_quantized or getattr(value, "is_nested", False):
        raise TypeError(f"{name}: expected a plain dense tensor, found {value.layout}")
    code = CODES.get(str(value.dtype).replace("torch.", ""))
    if code is None:
        raise TypeError(f"{name}: expected {_TAKEN}, found {value.dtype}")
    value = value.detach().resolve_neg()
    if value.numel() and type(value) is torch.Tensor and not value.data_ptr():
        raise TypeError(f"{name}: expected a tensor with memory, found one whose storage has no bytes")
    if code == abi.BF16:
        return Tensor(value.view(torch.int16).numpy().view(np.uint16), code, _wrap_torch)
    if code in (abi.F8_E4M3, abi.F8_E5M2):
        return Tensor(value.view(torch.uint8).numpy(), code, _wrap_torch)
    return Tensor(value.numpy(), code, _wrap_torch)


def is_of(value: object, module: str, kind: str) -> bool:
    """Whether a value is of a class of a module that its owner has imported; nothing is imported for this."""
    known = sys.modules.get(module)
    return known is not None and isinstance(value, getattr(known, kind, ()))


def given(name: str, value: object) -> Tensor:
    """The gate: any array as a Tensor on the same memory, from a device on a copy; or a TypeError that names the
    argument."""
    if type(value) is np.ndarray:
        return _of_numpy(name, value, wrap_numpy)
    if is_of(value, "torch", "Tensor"):
        return _of_torch(name, cast(Torch, value))
    return _of_numpy(name, *_foreign(name, value))


def _foreign(name: str, value: object) -> tuple[Stored, Wrap]:
    """Other arrays as one of numpy on the same memory, and how to make one of their kind."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, found a masked array; give its mask as an argument")
    if is_of(value, "cupy", "ndarray"):
        with cast(Any, value).device:
            sys.modules["cupy"].cuda.Device().synchronize()
        return cast(Any, value).get(), _wrap_cupy
    wrap: Wrap = _wrap_jax if is_of(value, "jax", "Array") else wrap_numpy
    try:
        if isinstance(value, (np.ndarray, np.generic)) or wrap is _wrap_jax:
            return np.asarray(value), wrap
        if hasattr(value, "__array_interface__"):
            return np.asarray(value), wrap
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(cast(Stored, value)), wrap
        if not isinstance(value, (bytes, bytearray, str)):
            return np.asarray(memoryview(cast(bytes, value))), wrap
    except (TypeError, ValueError, BufferError, RuntimeError, AttributeError, NotImplementedError) as reason:
        if hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"):
            raise TypeError(f"{name}: expected an array that numpy can view, found {type(value).__name__} ({reason})"
                            ) from None
    raise TypeError(f"{name}: expected an array (numpy, PyTorch, JAX, CuPy, or with __dlpack__ or the buffer "
                    f"protocol), found {type(value).__name__}")


def _of_numpy(name: str, array: Stored, wrap: Wrap) -> Tensor:
    dtype = array.dtype
    code = _NATIVE.get(dtype)
    if code is None:
        code = CODES.get(dtype.name)
    if code is None or dtype.kind == "O":
        raise TypeError(f"{name}: expected {_TAKEN}, found {dtype.name}")
    if array.ndim > abi.MAX_RANK:
        raise ValueError(f"{name}: expected at most {abi.MAX_RANK} axes, found {array.ndim}")
    if not dtype.isnative or not array.flags.aligned:
        array = np.array(array, dtype=dtype.newbyteorder("="), order="C")  # exact, in one copy
    if array.dtype.kind not in "fiub":
        array = array.view(np.uint16 if dtype.itemsize == 2 else np.uint8)  # a type of ml_dtypes
    return Tensor(array, code, wrap)


# ---------------------------------------------------------------- what arguments may be


def floats(name: str, value: object, types: Sequence[int] = FLOATS) -> Tensor:
    """An array of float64, float32, float16 or bfloat16; with RESULTS, of 8 bits, too."""
    tensor = given(name, value)
    if tensor.dtype not in types:
        raise TypeError(f"{name}: expected {_listed(types)}, found {NAMES[tensor.dtype]}")
    return tensor


def _listed(types: Sequence[int]) -> str:
    return ", ".join(NAMES[t] for t in types[:-1]) + f" or {NAMES[types[-1]]}"


def widened(tensor: Tensor, to: int = abi.F32) -> Tensor:
    """The same numbers as float32 or float64, exactly; the tensor itself where it has that type."""
    if tensor.dtype == to:
        return tensor
    result = np.empty(tensor.array.shape, NAMES[to])
    wide = Tensor(result, to, tensor.wrap)
    copy(view_of(wide), view_of(tensor))
    return wide


def doubles(tensor: Tensor) -> Doubles:
    """The numbers as float64, exactly; the tensor's own array where it has that type."""
    return cast(Doubles, widened(tensor, abi.F64).array)


def numbers(name: str, value: object, shape: Optional[Sequence[int]] = None) -> Doubles:
    """Real numbers as a contiguous float64 array of the given shape, or of one axis; a list will do."""
    if isinstance(value, (list, tuple)):
        value = np.array([number(name, item) for item in value])
    array = np.ascontiguousarray(doubles(floats(name, value)))
    if array.shape != tuple(shape) if shape is not None else array.ndim != 1:
        raise ValueError(f"{name}: expected shape {'(n,)' if shape is None else tuple(shape)}, found {array.shape}")
    return array


def whole_numbers(name: str, value: object, count: Optional[int] = None) -> Wholes:
    """Whole numbers as a contiguous int64 array of one axis; a list will do."""
    if isinstance(value, (list, tuple)):
        value = np.array([whole_number(name, item) for item in value], np.int64)
    tensor = given(name, value)
    if tensor.dtype not in INTEGERS:
        raise TypeError(f"{name}: expected whole numbers, found {NAMES[tensor.dtype]}")
    if tensor.dtype == abi.U64 and tensor.array.size and tensor.array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: expected numbers of at most 2^63 - 1, found {tensor.array.max()}")
    array = np.array(tensor.array, np.int64, order="C")  # a copy: what was checked stays as it is
    if array.ndim != 1 or count is not None and len(array) != count:
        raise ValueError(f"{name}: expected shape ({'n' if count is None else count},), found {array.shape}")
    return array


def window_pair(name: str, value: object) -> Wholes:
    """(left, right) of a window."""
    if hasattr(type(value), "__index__") and not getattr(value, "ndim", 0):
        n = int(cast(SupportsIndex, value))
        raise TypeError(f"{name}: expected (left, right), found {n}; give ({n - 1}, 0) for {n} keys, that of the query "
                        f"among them, ({n}, {n}) for {n} on each side")
    return whole_numbers(name, value, 2)


def thread_count(threads: object) -> int:
    """A number of threads, which C counts in an int."""
    return 0 if threads is None else whole_number("threads", threads, 0, bits=31)


def count(name: str, value: object) -> int:
    """A whole number that is not negative. The library reads 0 as not given, as None."""
    return 0 if value is None else whole_number(name, value, 0)


def whole_number(name: str, value: object, least: int = -(2**63), bits: int = 63) -> int:
    """One whole number below 2**bits."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name}: expected a whole number, found {type(value).__name__}")
    try:
        number = int(cast(SupportsIndex, value).__index__())
    except TypeError:
        raise TypeError(f"{name}: expected a whole number, found {type(value).__name__}") from None
    if not least <= number < 2**bits:
        raise ValueError(f"{name}: expected a whole number from {least} to 2^{bits} - 1, found {number}")
    return number


def number(name: str, value: object) -> float:
    if isinstance(value, (str, bytes, bool, np.bool_, np.ndarray)) or not hasattr(type(value), "__float__"):
        raise TypeError(f"{name}: expected a number, found {type(value).__name__}")
    try:
        return float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError) as reason:
        raise TypeError(f"{name}: expected a number, found {type(value).__name__} ({reason})") from None


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, found {type(value).__name__}")
    return bool(value)


def choice(name: str, value: object, names: Sequence[str]) -> int:
    """The index of a name in a list of names."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected one of {', '.join(names)}, found {type(value).__name__}")
    if value not in names:
        raise ValueError(f"{name}: expected one of {', '.join(names)}, found {value!r}")
    return names.index(value)


def words(name: str, value: object) -> list[str]:
    """Words: a collection of them, or a text with commas or blanks between."""
    found = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(found, (list, tuple, set, frozenset)) or not all(isinstance(word, str) for word in found):
        raise TypeError(f"{name}: expected words, found {type(value).__name__}")
    return list(found)


def text(name: str, value: object) -> bytes:
    """A text as the library takes it."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a text, found {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name}: expected a text without zero bytes, found {value!r}")
    return value.encode("utf-8", "surrogateescape")


def float_type(name: str, dtype: object, types: Sequence[int] = FLOATS) -> int:
    """The type of the library for a floating type as numpy, PyTorch or a text names it."""
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).replace("torch.", "")
    text = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "half": "float16"}.get(text, text)
    code = CODES.get(text, PRODUCTS.get(text))
    if code is None or code not in types:
        raise TypeError(f"{name}: expected {_listed(types)}, found {text}")
    return code


def weight_type(name: str, dtype: object) -> int:
    """A floating type, or one of the quantised types in which a layer stores its matrices."""
    if isinstance(dtype, str) and dtype.lower() in BLOCKS:
        return BLOCKS[dtype.lower()]
    try:
        return float_type(name, dtype)
    except TypeError as error:
        raise TypeError(f"{error}; or {_listed(tuple(BLOCKS.values()))}") from None


# ---------------------------------------------------------------- views


def view_of(tensor: Optional[Tensor]) -> abi.View:
    """A view on a tensor's memory; without a tensor a view without data."""
    view = abi.View()
    if tensor is None:
        return view
    array, n = tensor.array, tensor.array.ndim
    view.data, view.dtype, view.rank = array.ctypes.data, tensor.dtype, n
    view.shape[:n] = list(array.shape)
    view.stride[:n] = [stride // array.itemsize for stride in array.strides]  # whole, because arrays are aligned
    return view


def stepped(tensor: Tensor, rows: bool) -> Tensor:
    """The tensor, or one copy of it where its strides are none that an input may have: features side by side, and
    for the float paths (`rows`) rows along axis 1 that do not overlap."""
    array = tensor.array
    size, strides, shape = array.itemsize, array.strides, array.shape
    good = shape[-1] < 2 or strides[-1] == size
    if good and rows and shape[1] > 1:
        good = shape[-1] * size <= strides[1] <= (2**31 - 1) * size
    return tensor if good or array.size == 0 else tensor.on(np.ascontiguousarray(array))


def copy(to: abi.View, source: abi.View) -> None:
    """Copies numbers, converting floating types: widened exactly, narrowed to nearest even."""
    if lib.mha_view_copy(ctypes.byref(to), ctypes.byref(source), None):
        raise TypeError(f"array: expected numbers that {NAMES.get(to.dtype)} can hold, found {NAMES.get(source.dtype)}")


def empty(shape: Sequence[int], dtype: int) -> Stored:
    """New memory for a result; MemoryError and ValueError as numpy raises them."""
    return np.empty(tuple(shape), {abi.BF16: "uint16"}.get(dtype, NAMES[dtype]))


def narrowed(array: Stored, dtype: int, to: int) -> Stored:
    """A result rounded once to the type in which it is handed back."""
    if dtype == to:
        return array
    result = empty(array.shape, to)
    copy(view_of(Tensor(result, to, wrap_numpy)), view_of(Tensor(array, dtype, wrap_numpy)))
    return result


def of_memory(view: abi.View, owner: object) -> Stored:
    """The library's own memory as an array of numpy that keeps `owner` alive; bfloat16 and blocks become float32."""
    shape = tuple(view.shape[:view.rank])
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count == 0:
        return np.empty(shape, np.float32)
    if not view.data:
        raise MemoryError(f"no memory for the numbers of a packed tensor of shape {shape}")
    if view.dtype in BLOCKS.values():
        values = np.empty(shape, np.float32)
        copy(view_of(Tensor(values, abi.F32, wrap_numpy)), view)
        return values
    size = np.dtype("uint16" if view.dtype == abi.BF16 else NAMES[view.dtype]).itemsize
    last = sum((extent - 1) * stride for extent, stride in zip(shape, view.stride)) + 1
    memory = (ctypes.c_char * (last * size)).from_address(view.data)
    setattr(memory, "_owner", owner)
    base = np.frombuffer(memory, "uint16" if view.dtype == abi.BF16 else NAMES[view.dtype])
    array = np.lib.stride_tricks.as_strided(base, shape, [s * size for s in view.stride[:view.rank]])
    return widened(Tensor(array, view.dtype, wrap_numpy)).array if view.dtype == abi.BF16 else array
