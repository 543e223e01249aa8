"""The gate: every kind of array, memory order and type, and what is refused by name."""
import gc
import resource
import weakref

import mha
import numpy as np
import pytest
from mha.core import arrays

R = np.random.default_rng(2)
sdpa = mha.scaled_dot_product_attention


def three(*shape, dtype="float32"):
    return [R.standard_normal(shape).astype(dtype) for _ in range(3)]


def orders(x):
    """The same numbers in other memory: Fortran order, reversed, every second, read-only, foreign byte order."""
    wide = np.zeros(x.shape[:-1] + (2 * x.shape[-1],), x.dtype)
    wide[..., ::2] = x
    padded = np.zeros(tuple(n + 2 for n in x.shape), x.dtype)
    padded[tuple(slice(1, n + 1) for n in x.shape)] = x
    locked = x.copy()
    locked.flags.writeable = False
    return {"fortran": np.asfortranarray(x), "reversed": x[::-1, :, ::-1].copy()[::-1, :, ::-1],
            "backwards": x[..., ::-1].copy()[..., ::-1], "every second": wide[..., ::2],
            "inner": padded[tuple(slice(1, n + 1) for n in x.shape)], "locked": locked,
            "swapped": np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
            "bytes": x.astype(x.dtype.newbyteorder("S"))}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_any_memory_gives_the_same_bits(dtype):
    q, k, v = three(2, 3, 5, 8, dtype=dtype)
    for path in ("auto", "exact") + (("fast", "blas") if dtype != "float64" else ()):
        whole = sdpa(q, k, v, path=path)
        for i, x in enumerate((q, k, v)):
            for name, other in orders(x).items():
                inputs = [q, k, v]
                inputs[i] = other
                assert np.array_equal(other, x)
                np.testing.assert_array_equal(sdpa(*inputs, path=path), whole, err_msg=name)
                assert sdpa(*inputs, path=path).dtype.name == dtype


def test_broadcast_rows():
    q, k, v = three(2, 3, 5, 8)
    one = np.broadcast_to(k[:1, :1], k.shape)
    for path in ("fast", "blas", "exact"):
        np.testing.assert_array_equal(sdpa(q, one, one, path=path), sdpa(q, one.copy(), one.copy(), path=path))
    same = np.broadcast_to(k[:, :, :1], k.shape)
    np.testing.assert_array_equal(sdpa(q, same, v), sdpa(q, same.copy(), v))


@pytest.mark.needs("torch")
def test_tensors_whose_memory_was_let_go():
    """As those of sharded training are between two uses; one without numbers needs none."""
    import torch

    for i, name in enumerate(("query", "key", "value")):
        inputs = [torch.from_numpy(x) for x in three(2, 3, 5, 8)]
        gone = inputs[i] = inputs[i].clone()
        (gone.untyped_storage() if hasattr(gone, "untyped_storage") else gone.storage()).resize_(0)
        with pytest.raises(TypeError, match=f"{name}: expected a tensor with memory, found one whose storage"):
            sdpa(*inputs)
    assert sdpa(*[torch.zeros(0, 2, 3, 4)] * 3).shape == (0, 2, 3, 4)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 2, 0, 4), (0, 0, 0, 4)])
def test_zero_sizes(shape):
    q = np.zeros(shape, "f4")
    for path in ("fast", "blas", "exact"):
        if 0 in shape[1:2]:
            with pytest.raises(ValueError):
                sdpa(q, q, q, path=path)
        else:
            assert sdpa(q, q, q, path=path).shape == shape
    nothing = sdpa(np.ones((1, 2, 3, 4), "f4"), np.ones((1, 2, 0, 4), "f4"), np.ones((1, 2, 0, 4), "f4"))
    assert nothing.shape == (1, 2, 3, 4) and not nothing.any()
    with pytest.raises(ValueError):
        sdpa(*[np.ones((1, 2, 3, 0), "f4")] * 3)


@pytest.mark.parametrize("value, words", [
    (None, "NoneType"), ("text", "str"), (b"bytes", "bytes"), ([[1.0]], "list"), (3.5, "float"), (object(), "object"),
    (np.array([[object()]]), "object"), (np.ones((2, 3, 4), "c8"), "complex64"), (np.ones((2, 3, 4), "i4"), "int32"),
    (np.ones((2, 3, 4), "U3"), "str"), (np.ones((2, 3, 4), "V4"), "void"), (np.ones((2, 3, 4), "M8[s]"), "datetime"),
    (np.ones((2, 3, 4), [("a", "f4")]), "void"), (np.ones((2, 3, 4), bool), "bool"),
    (np.ma.masked_array(np.ones((2, 3, 4), "f4"), True), "mask"), (np.ones((1,) * 12, "f4"), "axes"),
    (np.longdouble([[[1]]]), "float128|longdouble"), (np.float32(3), "axes")])
def test_what_is_refused_by_name(value, words):
    q = np.ones((2, 3, 4), "f4")
    for i, name in enumerate(("query", "key", "value")):
        inputs = [q, q, q]
        inputs[i] = value
        with pytest.raises((TypeError, ValueError), match=f"^(query|{name}): ") as caught:
            sdpa(*inputs)
        assert i or "query" in str(caught.value)
    with pytest.raises((TypeError, ValueError), match=f"query: .*({words})"):
        sdpa(value, q, q)


class Foreign:
    """Somebody's array that speaks DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_other_kinds():
    q, k, v = three(2, 3, 5, 8)
    whole = sdpa(q, k, v)
    interface = lambda x: type("A", (), {"__array_interface__": x.__array_interface__, "x": x})()
    for wrap in (memoryview, Foreign, interface):
        result = sdpa(wrap(q), wrap(k), wrap(v))
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, whole)
        assert np.shares_memory(arrays.given("query", wrap(q)).array, q)
    import array
    flat = memoryview(array.array("f", range(12))).cast("B").cast("f", (3, 4))
    assert sdpa(flat, flat, flat).shape == (3, 4)


def test_broken_foreign_arrays():
    class Broken:
        def __init__(self, reason):
            self.reason = reason

        def __dlpack__(self, **how):
            raise self.reason

        def __dlpack_device__(self):
            return (1, 0)

    for reason in (BufferError("gone"), RuntimeError("no"), TypeError("not this"), ValueError("none")):
        with pytest.raises(TypeError, match=f"^key: .*{reason}"):
            sdpa(np.ones((2, 3), "f4"), Broken(reason), np.ones((2, 3), "f4"))


def test_no_copy():
    """A call on 128 MiB of keys, which are the values, too, takes less than a tenth of that beside them."""
    n = 1 << 19
    k = np.ones((1, 1, n, 64), "f4")
    q = np.ones((1, 1, 1, 64), "f4")
    sdpa(q, k[:, :, :8], k[:, :, :8])
    for x in (k, np.ones((1, n, 1, 64), "f4").swapaxes(1, 2)):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = sdpa(q, x, x)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 12 << 10  # KiB
        np.testing.assert_allclose(result, 1, rtol=1e-5)
        del x


def test_nothing_is_held_or_leaked():
    class Array(np.ndarray):  # can be referred to weakly
        pass

    x = R.standard_normal((2, 3, 4)).astype("f4").view(Array)
    gone = weakref.ref(x)
    y = sdpa(x, x, x)
    del x
    gc.collect()
    assert gone() is None and y.shape == (2, 3, 4)
    q = np.ones((1, 2, 3, 4), "f4")
    import sys
    before = sys.getrefcount(q)
    for _ in range(5):
        sdpa(q, q, q)
        with pytest.raises(ValueError):
            sdpa(q, q, q, window=(1,))
    assert sys.getrefcount(q) == before
