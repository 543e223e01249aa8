"""Many Python threads, processes made by fork, and objects that are used by two at once."""
import ctypes
import multiprocessing
import threading
import time

import mha
import numpy as np
import pytest
from mha.core.library import lib

R = np.random.default_rng(7)


def together(count, work):
    """Runs work(i) in threads of their own; what any of them raises is raised here."""
    wrong = []

    def guarded(i):
        try:
            work(i)
        except BaseException as reason:
            wrong.append(reason)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]


def test_threads_share_kept_calls_layers_and_files(tmp_path):
    """The same bits in every thread, whoever else calls meanwhile."""
    inputs = [R.standard_normal((1, 2, 5 + i % 3, 8)).astype("f4") for i in range(8)]
    layer, rows = mha.MultiHeadAttention(16, 2), R.standard_normal((1, 6, 16)).astype("f4")
    expected = [mha.scaled_dot_product_attention(x, x, x) for x in inputs]
    whole = layer(rows)
    mha.save(tmp_path / "x.safetensors", {"x": rows})
    file = mha.load(tmp_path / "x.safetensors")

    def work(i):
        for _ in range(20):
            x = inputs[i]
            assert np.array_equal(mha.scaled_dot_product_attention(x, x, x), expected[i])
            assert np.array_equal(layer(rows), whole)
            assert np.array_equal(file["x"], rows)

    together(8, work)


def test_calls_release_the_global_lock():
    """ctypes releases it for a CDLL and keeps it for a PyDLL."""
    assert isinstance(lib, ctypes.CDLL) and not isinstance(lib, ctypes.PyDLL)


def test_weights_do_not_change_during_a_call():
    """One thread calls again and again, until the other has met one of its calls."""
    layer, x = mha.MultiHeadAttention(64, 4), R.standard_normal((1, 500, 64)).astype("f4")
    refused = threading.Event()

    def call(_):
        while not refused.is_set():
            layer(x, path="exact", threads=1)

    def write(_):
        while not refused.is_set():
            try:
                layer.set("b_O", np.zeros(64))
            except RuntimeError as reason:
                refused.set()
                assert "no call while its weights change" in str(reason)

    together(2, lambda i: (write if i == 0 else call)(i))
    layer.set("b_O", np.ones(64))


def test_calls_see_weights_whole():
    """A call that begins while a weight is written waits: its output is that of the old weight or of the new one."""
    layer, x = mha.MultiHeadAttention(8, 2, d_out=100_000), R.standard_normal((1, 1, 8)).astype("f4")
    biases, done = [np.full(100_000, n, "f4") for n in (0, 1)], threading.Event()

    def write(_):
        for i in range(200):
            try:
                layer.set("b_O", biases[i % 2])
            except RuntimeError:
                pass
        done.set()

    def read(_):
        while not done.is_set():
            y = layer(x)
            assert y.min() == y.max()
            time.sleep(1e-4)

    layer.set("W_O", np.zeros((8, 100_000)))
    together(3, lambda i: (write if i == 0 else read)(i))


def test_a_cache_serves_one_call_at_a_time():
    layer = mha.MultiHeadAttention(16, 2)
    x, cache = R.standard_normal((1, 2, 16)).astype("f4"), layer.cache(1, 100_000)
    rows = []

    def work(i):
        for _ in range(50):
            try:
                layer(x, cache=cache)
                rows.append(2)
            except RuntimeError as reason:
                assert "in use by another thread" in str(reason)

    together(4, work)
    assert len(cache) == sum(rows)


def child(x, expected, queue):
    same = all(np.array_equal(mha.scaled_dot_product_attention(x, x, x, path=path), expected[path])
               for path in ("fast", "blas", "exact") for _ in range(3))
    queue.put(same and mha.diagnose(expected["fast"], x, x, x).right)


def test_fork():
    """Children of fork call the library at once, also while other threads of the parent are in it."""
    x = R.standard_normal((2, 4, 33, 16)).astype("f4")
    expected = {path: mha.scaled_dot_product_attention(x, x, x, path=path) for path in ("fast", "blas", "exact")}
    fork, stop = multiprocessing.get_context("fork"), threading.Event()

    def keep_busy():
        while not stop.is_set():
            mha.scaled_dot_product_attention(x, x, x)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        queue = fork.Queue()
        children = [fork.Process(target=child, args=(x, expected, queue)) for _ in range(4)]
        for c in children:
            c.start()
        assert [queue.get(timeout=60) for _ in children] == [True] * 4
        for c in children:
            c.join(60)
            assert c.exitcode == 0
    finally:
        stop.set()
        busy.join()


def test_handles_are_closed_once_and_say_so():
    handle = mha.MultiHeadAttention(16, 2).handle
    handle.close()
    handle.close()
    with pytest.raises(ValueError, match="layer: expected an open layer"):
        handle.address


def test_errors_travel_between_processes():
    import pickle
    with pytest.raises(mha.Error) as caught:
        mha.load("/no/such")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and isinstance(again, mha.NotFoundError)
    assert str(again) == str(caught.value) and again.status == "not found"
