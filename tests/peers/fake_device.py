"""A device "fake" of PyTorch for machines without one: its tensors compute on the CPU, and numpy cannot see them."""
import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_map

waited = []  # devices for whose work somebody waited


class Module:
    """torch.fake: what a backend offers."""

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        return 1

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def _is_in_bad_fork():
        return False

    @staticmethod
    def manual_seed_all(seed):
        """No random numbers are made there."""

    @staticmethod
    def synchronize(device=None):
        waited.append(device)


class OnFake(torch.Tensor):
    """A tensor of the device; `held` has its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=torch.device("fake", 0), requires_grad=held.requires_grad)
        made.held = held
        return made

    def __repr__(self):
        return f"OnFake{tuple(self.shape)}"

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if op is torch.ops.aten.copy_.default:
            inside(args[0]).copy_(inside(args[1]))
            return args[0]
        result = op(*tree_map(inside, args), **tree_map(inside, kwargs))
        if torch.device(kwargs.get("device") or "fake").type != "fake":
            return result
        given = {id(x.held): x for x in args if isinstance(x, OnFake)}
        return tree_map(lambda x: given[id(x)] if id(x) in given else OnFake(x) if isinstance(x, torch.Tensor) else x,
                        result)


def inside(x):
    """What holds the numbers of a tensor; of the device the CPU."""
    if isinstance(x, OnFake):
        return x.held
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == "fake" else x


def copy_from(x, target, non_blocking=False):
    inside(target).copy_(inside(x))
    return target


backend_registration._setup_privateuseone_for_python_backend("fake", backend_module=Module())
_library = torch.library.Library("aten", "IMPL")
_library.impl("empty.memory_format", lambda size, dtype=None, **_: OnFake(torch.empty(size, dtype=dtype)),
              "PrivateUse1")
_library.impl("empty_strided", lambda size, stride, dtype=None, **_: OnFake(
    torch.empty_strided(size, stride, dtype=dtype)), "PrivateUse1")
_library.impl("_copy_from", copy_from, "PrivateUse1")
