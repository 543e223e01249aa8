"""Devices of PyTorch, JAX and CuPy: arrays go to one, and results come back when it has finished."""
from __future__ import annotations

import importlib
from typing import Any, Callable, Iterator, Optional

Put = Callable[..., object]  # an array of a library as one on a device


def fetched(value: Any) -> Any:
    """A tensor of PyTorch in the memory of the CPU, when all work of its device has ended."""
    torch = importlib.import_module("torch")
    wait = getattr(getattr(torch, value.device.type, None), "synchronize", None)
    if wait is not None:
        wait(*() if value.device.type == "mps" else (value.device,))
    return value.detach().cpu()


def host(value: Any) -> Any:
    """The same value, in tuples, lists and dicts as well, with tensors of PyTorch in the memory of the CPU."""
    if type(value) in (tuple, list):
        return type(value)(map(host, value))
    if type(value) is dict:
        return {key: host(x) for key, x in value.items()}
    kind = getattr(getattr(value, "device", None), "type", "cpu")
    return fetched(value) if kind not in ("cpu", "meta") and hasattr(value, "detach") else value


def has_no_memory(raised: BaseException) -> bool:
    """Whether an exception says that a device, or the machine, lacks memory."""
    return (isinstance(raised, MemoryError) or type(raised).__name__ == "OutOfMemoryError"
            or "RESOURCE_EXHAUSTED" in str(raised))


# ---------------------------------------------------------------- libraries


def _of_torch(device: str) -> Put:
    torch = importlib.import_module("torch")
    place = torch.device(device)
    torch.empty(0, device=place)
    return lambda x: x.to(place) if hasattr(x, "detach") else x


def _torch_devices() -> Iterator[str]:
    yield "cpu"
    accelerator: Any = getattr(importlib.import_module("torch"), "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        kind = accelerator.current_accelerator().type
        yield from (f"{kind}:{i}" for i in range(accelerator.device_count()))


def _all_of_jax() -> dict[str, object]:
    jax = importlib.import_module("jax")
    return {f"{x.platform}:{x.id}": x for x in (*jax.devices("cpu"), *jax.devices())}


def _of_jax(device: str) -> Put:
    jax = importlib.import_module("jax")
    place = next(x for name, x in _all_of_jax().items() if device in (name, name.partition(":")[0]))
    return lambda x: jax.device_put(x, place) if isinstance(x, jax.Array) else x  # without x64 some are of numpy


def _of_cupy(device: str) -> Put:
    cupy = importlib.import_module("cupy")
    number = int(device.rpartition(":")[2]) if device != "cuda" else 0
    if not 0 <= number < cupy.cuda.runtime.getDeviceCount():
        raise ValueError(number)

    def put(x: object) -> object:
        with cupy.cuda.Device(number):
            return cupy.asarray(x)
    return put


def _cupy_devices() -> Iterator[str]:
    count: int = importlib.import_module("cupy").cuda.runtime.getDeviceCount()
    yield from (f"cuda:{i}" for i in range(count))


_LIBRARIES: dict[str, tuple[Callable[[str], Put], Callable[[], Iterator[str]]]] = {
    "torch": (_of_torch, _torch_devices), "jax": (_of_jax, lambda: iter(_all_of_jax())),
    "cupy": (_of_cupy, _cupy_devices)}


def put(library: str, device: Optional[str]) -> Optional[Put]:
    """What brings arrays of a library to a device; None: they stay where the library makes them.

    ValueError: the library has no such device here.
    """
    if device is None and library != "cupy":
        return None
    if library not in _LIBRARIES:
        raise ValueError(f"device: expected none with arrays of {library}, found {device!r}; give arrays='torch'")
    open_device, devices = _LIBRARIES[library]
    try:
        return open_device("cuda" if device is None else device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, StopIteration, ValueError):
        raise ValueError(f"device: expected one that {library} has here ({', '.join(dict.fromkeys(devices()))}), found "
                         f"{device!r}") from None
