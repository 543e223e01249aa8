"""A forward and its backward, run: of torch, of JAX, or two functions."""
from __future__ import annotations

import sys
from typing import Callable, Optional, Sequence, cast

import numpy as np

from ..core import abi
from ..core import arrays as a

Ran = tuple[a.ArrayLike, a.ArrayLike, object]  # the output, its gradient, the results of a backward


def _seeded(output: object, seed: int) -> a.ArrayLike:
    """A random gradient of the output, of its kind and type."""
    tensor = a.floats("the output", output)
    drawn = np.random.default_rng(seed).standard_normal(tensor.array.shape)
    return tensor.wrap(a.narrowed(drawn, abi.F64, tensor.dtype), tensor.dtype)


def _leaf(x: a.Torch) -> a.Torch:
    """A copy of a tensor with its strides, of which autograd finds the gradient; on a device without gaps."""
    detached = x.detach()
    if x.device.type != "cpu":
        return detached.to(detached, copy=True).requires_grad_()
    memory = detached.untyped_storage().clone()
    return detached.new_empty(0).set_(memory, x.storage_offset(), x.shape, x.stride()).requires_grad_()


def _by_torch(function: Callable[..., object], inputs: Sequence[a.Torch], do: object, seed: int) -> Ran:
    torch = sys.modules["torch"]
    leaves = [_leaf(x) for x in inputs]
    output = getattr(function, "apply", function)(*leaves)
    if not (isinstance(output, torch.Tensor) and output.requires_grad):
        raise TypeError("function: expected an output that autograd follows back to q, k and v, found "
                        f"{type(output).__name__}; use operations of torch, a torch.autograd.Function, or backward=")
    given = cast("a.Torch", _seeded(output, seed) if do is None else torch.as_tensor(do))
    found = torch.autograd.grad(output, leaves, given.to(output), allow_unused=True)
    return output.detach(), given, found


def _by_jax(function: Callable[..., object], inputs: Sequence[object], do: object, seed: int) -> Ran:
    jax = sys.modules["jax"]
    output, back = jax.vjp(function, *inputs)
    given = jax.numpy.asarray(_seeded(output, seed) if do is None else do, output.dtype)
    return output, given, back(given)


def run_pair(function: Callable[..., object], backward: Optional[Callable[..., object]], inputs: Sequence[object],
             do: Optional[a.ArrayLike], seed: int) -> tuple[a.ArrayLike, a.ArrayLike, Sequence[Optional[a.ArrayLike]]]:
    """The output, its gradient, and the three that the backward gives."""
    output, given, found = _run(function, backward, inputs, do, seed)
    if not isinstance(found, (tuple, list)) or len(found) != 3:
        many = f" of {len(found)}" if isinstance(found, (tuple, list)) else ""
        raise TypeError(f"backward: expected dq, dk and dv, found {type(found).__name__}{many}")
    return output, given, found


def _run(function: Callable[..., object], backward: Optional[Callable[..., object]], inputs: Sequence[object],
         do: Optional[a.ArrayLike], seed: int) -> Ran:
    if backward is not None:
        output = cast("a.ArrayLike", function(*inputs))
        do = _seeded(output, seed) if do is None else do
        return output, do, backward(*inputs, output, do)
    if a.is_of(inputs[0], "torch", "Tensor"):
        return _by_torch(function, cast("Sequence[a.Torch]", inputs), do, seed)
    if a.is_of(inputs[0], "jax", "Array"):
        return _by_jax(function, inputs, do, seed)
    raise TypeError("backward: expected a function, because only torch and jax have autograd, found None; give "
                    "backward(q, k, v, output, do), which returns dq, dk and dv")
