"""The wheel in an environment with only numpy and pytest: a test as users write it, pictures, another OpenBLAS."""
import ctypes
import glob
import os
import subprocess
import sys
import threading

import mha
import numpy as np
import pytest

Q, K, V = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16)).astype("f4")


def test_right_numbers_pass():
    mine = mha.scaled_dot_product_attention(Q, K, V, is_causal=True)
    mha.testing.assert_attention_close(mine, Q, K, V, is_causal=True)


def test_advice_of_a_failure_can_be_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("MHA_SAVE_FAILURES", str(tmp_path))
    wrong = mha.scaled_dot_product_attention(Q, K, V, scale=0.3)
    with pytest.raises(AssertionError, match="case saved: ") as failure:
        mha.testing.assert_attention_close(wrong, Q, K, V)
    for command in str(failure.value).partition("case saved: ")[2].split("; "):
        program, what, path = command.split()
        assert program == os.environ["WHEEL_PROGRAM"]  # no PATH here
        run = subprocess.run([program, what, path], capture_output=True, text=True)
        assert "scale" in run.stdout if what == "diagnose" else run.returncode == 1, run


def test_a_picture():
    """A page, which a browser is shown afterwards."""
    layer = mha.MultiHeadAttention(16, 2)
    _, trace = layer(np.random.default_rng(1).standard_normal((1, 3, 16)).astype("f4"), return_stages=["weights"])
    trace.picture("page.html", tokens=["[CLS]", "a<b", "sat"])
    with open("page.html", encoding="utf-8") as page:
        assert page.read().startswith("<!DOCTYPE html>")


def maps():
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return {line.split()[-1] for line in lines if "/" in line}


def test_one_library_and_no_blas_of_the_system():
    libraries = {os.path.basename(path) for path in maps() if ".so" in path}
    assert len({name for name in libraries if name.startswith("libmha")}) == 2, libraries
    strangers = {name for name in libraries if name.startswith(("libopenblas", "libjansson", "libzip"))}
    assert not strangers, strangers


def other_blas():
    """numpy's OpenBLAS, or None."""
    found = [path for path in maps() if "openblas" in os.path.basename(path)]
    return ctypes.CDLL(found[0]) if found else None


def threads_of(blas):
    names = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads")
    return next(getattr(blas, name) for name in names if hasattr(blas, name))()


def test_another_openblas_is_neither_used_nor_disturbed():
    """Its threads and its bits are the same before, during and after calls of this one, and these are the same, too."""
    blas = other_blas()
    if blas is None:
        pytest.skip("numpy has no OpenBLAS here")
    big = np.random.default_rng(2).standard_normal((256, 256))
    layer, x = mha.MultiHeadAttention(64, 4), np.random.default_rng(3).standard_normal((2, 64, 64)).astype("f4")
    count, product = threads_of(blas), big @ big
    first = {path: layer(x, path=path) for path in ("fast", "blas", "exact")}
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(threads_of(blas))
            assert ((big @ big) == product).all()

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(100):
        for path, output in first.items():
            np.testing.assert_array_equal(layer(x, path=path), output)
    stop.set()
    watcher.join()
    assert seen == {count} and threads_of(blas) == count
    np.testing.assert_array_equal(big @ big, product)


def test_order_of_loading_gives_the_same_bits():
    code = ("import hashlib; x = numpy.random.default_rng(3).standard_normal((2, 64, 64)).astype('f4');"
            "y = [mha.MultiHeadAttention(64, 4)(x, path=path).tobytes() for path in ('fast', 'blas')];"
            "print(hashlib.sha256(b''.join(y)).hexdigest())")
    # First only the library; the module itself begins with numpy.
    alone = f"import ctypes; ctypes.CDLL({mha.core.library.lib._name!r}, mode=ctypes.RTLD_GLOBAL); import mha, numpy;"
    said = {subprocess.run([sys.executable, "-c", first + code], capture_output=True, text=True, check=True).stdout
            for first in ("import numpy, mha;", alone)}
    assert len(said) == 1


def test_the_module_loads_faster_than_numpy():
    """Processor time, compared with numpy in the same process: how fast the machine is does not count."""
    code = ("import time; begin = time.process_time(); import numpy; between = time.process_time(); import mha;"
            "print((time.process_time() - between) / (between - begin))")
    took = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
            for _ in range(5)]
    assert min(took) < 1, took
    print("import mha, compared with import numpy:", min(took))


def test_licences_are_there():
    """Of the libraries inside, and the two that nettle's refers to."""
    folder, = glob.glob(os.path.dirname(os.path.dirname(mha.__file__)) + "/mha-*.dist-info/licenses")
    inside = {"jansson.txt", "libzip.txt", "nettle.txt", "openblas.txt", "zlib.txt", "GPL-3", "LGPL-3"}
    assert inside <= set(os.listdir(folder))
