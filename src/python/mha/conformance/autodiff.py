"""A forward and its backward, run: of torch, of JAX, or two functions."""
from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Sequence

import numpy as np

from ..core import abi
from ..core import arrays as a


def _seeded(output: Any, seed: int) -> Any:
    """A random gradient of the output, of its kind and type."""
    tensor = a.floats("the output", output)
    drawn = np.random.default_rng(seed).standard_normal(tensor.array.shape)
    return tensor.wrap(a.narrowed(drawn, abi.F64, tensor.dtype), tensor.dtype)


def _leaf(x: Any) -> Any:
    """A copy of a tensor with its strides, of which autograd finds the gradient."""
    detached = x.detach()
    memory = detached.untyped_storage().clone()
    return detached.new_empty(0).set_(memory, x.storage_offset(), x.shape, x.stride()).requires_grad_()


def _by_torch(function: Any, inputs: Sequence[Any], do: Any, seed: int) -> tuple[Any, Any, Any]:
    torch = sys.modules["torch"]
    leaves = [_leaf(x) for x in inputs]
    output = getattr(function, "apply", function)(*leaves)
    if not (isinstance(output, torch.Tensor) and output.requires_grad):
        raise TypeError("function: expected an output that autograd follows back to q, k and v: that of a "
                        "torch.autograd.Function, or of operations of torch; or give backward=")
    do = _seeded(output, seed) if do is None else torch.as_tensor(do)
    found = torch.autograd.grad(output, leaves, do.to(output), allow_unused=True)
    return output.detach(), do, found


def _by_jax(function: Any, inputs: Sequence[Any], do: Any, seed: int) -> tuple[Any, Any, Any]:
    jax = sys.modules["jax"]
    output, back = jax.vjp(function, *inputs)
    do = jax.numpy.asarray(_seeded(output, seed) if do is None else do, output.dtype)
    return output, do, back(do)


def run_pair(function: Any, backward: Optional[Callable[..., Any]], inputs: Sequence[Any], do: Any,
             seed: int) -> tuple[Any, Any, Sequence[Any]]:
    """The output, its gradient, and the three that the backward gives."""
    output, do, found = _run(function, backward, inputs, do, seed)
    if not isinstance(found, (tuple, list)) or len(found) != 3:
        many = f" of {len(found)}" if isinstance(found, (tuple, list)) else ""
        raise TypeError(f"backward: expected dq, dk and dv, found {type(found).__name__}{many}")
    return output, do, found


def _run(function: Any, backward: Any, inputs: Sequence[Any], do: Any, seed: int) -> tuple[Any, Any, Any]:
    if backward is not None:
        output = function(*inputs)
        do = _seeded(output, seed) if do is None else do
        return output, do, backward(*inputs, output, do)
    if a.is_of(inputs[0], "torch", "Tensor"):
        return _by_torch(function, inputs, do, seed)
    if a.is_of(inputs[0], "jax", "Array"):
        return _by_jax(function, inputs, do, seed)
    raise TypeError("backward: needed where neither torch nor jax has one: backward(q, k, v, output, do) returns dq, "
                    "dk and dv")
