"""Arrays on devices: conform, invariances, watch, assertions and gradients take them, and wait for the device."""
import os
import subprocess
import sys
import types

import fake_device
import mha
import numpy as np
import pytest
import torch
from planted_peer import model_of

sdpa = torch.nn.functional.scaled_dot_product_attention


def on_fake(*shapes):
    return [torch.randn(shape).to("fake") for shape in shapes]


def without_mask(q, k, v, is_causal=False, **said):
    return sdpa(q, k, v, **said)


def test_conform_on_a_device():
    seen = set()

    def kernel(q, k, v, **said):
        seen.update(x.device.type for x in (q, k, v, *said.values()) if isinstance(x, torch.Tensor))
        return sdpa(q, k, v, **said)

    waited = len(fake_device.waited)
    report = mha.conform(kernel, has={"causal/bool_mask", "gqa", "backward"}, level="smoke", arrays="torch",
                         device="fake")
    assert report.passed and seen == {"fake"}, report
    assert len(fake_device.waited) - waited >= len(report.results)
    wrong = mha.conform(without_mask, has={"causal"}, level="smoke", arrays="torch", device="fake", only="causal")
    assert "causal-missing" in wrong.failed[-1].names, wrong
    small = wrong.reduce(wrong.failed[-1].case)
    assert ".to('fake')" in small.script and "causal-missing" in small.names
    assert mha.testing.invariant(sdpa, under=["batch"], lengths=[5, 9], arrays="torch", device="fake")
    assert next(mha.test_cases(level="smoke", arrays="torch", device="fake")).inputs[0].device.type == "fake"


def test_results_on_a_device():
    q, k, v = on_fake((2, 4, 7, 8), (2, 2, 7, 8), (2, 2, 7, 8))
    right = mha.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert right.device.type == "fake"
    mha.testing.assert_attention_close(sdpa(q, k, v, is_causal=True, enable_gqa=True), q, k, v, is_causal=True,
                                       enable_gqa=True)
    found = mha.diagnose(sdpa(q, k, v, enable_gqa=True), q, k, v, is_causal=True, enable_gqa=True)
    assert found.names == ["causal-missing"]
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    do = torch.randn(2, 4, 7, 8).to("fake")
    sdpa(*leaves, is_causal=True, enable_gqa=True).backward(do)
    mha.testing.assert_gradients_close(*[x.grad for x in leaves], q, k, v, do, is_causal=True, enable_gqa=True)


def test_watch_on_a_device():
    model = model_of("qwen3").to("fake")
    ids = torch.randint(3, 50, (2, 9)).to("fake")
    mask = torch.ones(2, 9, dtype=int)
    mask[0, :3] = 0
    with torch.no_grad(), mha.watch(model) as w:
        model(input_ids=ids, attention_mask=mask.to("fake"))
    assert w.passed and "merged heads in 12" in w.summary, w
    model.layers[4].self_attn.scaling = 1.0
    with torch.no_grad(), mha.watch(model) as w:
        model(input_ids=ids)
    assert w.first.layer == "layers.4.self_attn" and w.first.names == ("scale-missing",), w


def test_no_such_device():
    for arrays, device, says in (("torch", "cuda:7", "one that torch has here (cpu, fake:0), found 'cuda:7'"),
                                 ("torch", "nowhere", "one that torch has here"),
                                 ("numpy", "cuda", "none with arrays of numpy, found 'cuda'"),
                                 ("jax", "tpu", "one that jax has here (cpu:0), found 'tpu'")):
        with pytest.raises(ValueError, match="device: expected") as raised:
            mha.conform(sdpa, arrays=arrays, device=device)
        assert says in str(raised.value)
    with pytest.raises(TypeError, match="device: expected a text, found int"):
        mha.conform(sdpa, arrays="torch", device=0)
    with pytest.raises(TypeError, match="query: expected a tensor with numbers, found one on meta"):
        mha.scaled_dot_product_attention(*[torch.empty(1, 1, 2, 4, device="meta")] * 3)


def test_no_memory_is_named(tmp_path):
    def kernel(q, k, v, **said):
        raise torch.OutOfMemoryError("fake out of memory. Tried to allocate 20.00 GiB")

    report = mha.conform(kernel, has=(), level="smoke", arrays="torch", device="fake", only="plain")
    assert report.failed and all(x.reason.startswith("out of memory: OutOfMemoryError") for x in report.failed)
    file = tmp_path / "kernel.py"
    file.write_text("import torch\n"
                    "def lacks(q, k, v, **said):\n    raise torch.OutOfMemoryError('none left')\n"
                    "def hangs(q, k, v, **said):\n    import time; time.sleep(60)\n"
                    "def right(q, k, v, **said):\n    assert q.device.type == 'cpu'\n"
                    "    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **said)\n")
    for name, code, says in (("lacks", 1, "out-of-memory"), ("hangs", 1, "timeout"), ("right", 0, "PASSED")):
        run = subprocess.run([sys.executable, "-m", "mha", "conform", f"{file}:{name}", "--sealed", "--arrays", "torch",
                              "--device", "cpu", "--has", "", "--timeout", "2"], capture_output=True, text=True,
                             cwd=tmp_path)
        assert run.returncode == code and says in run.stdout, (run.stdout, run.stderr)


def test_devices_of_jax():
    """Two devices on one CPU: results come from the second."""
    script = """
import jax, mha
def kernel(q, k, v, is_causal=False):
    assert all(x.devices() == {jax.devices()[1]} for x in (q, k, v))
    return jax.nn.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), is_causal=is_causal).swapaxes(1, 2)
report = mha.conform(kernel, has={"causal"}, level="smoke", arrays="jax", device="cpu:1")
assert report.passed, report
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                         env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
    assert run.returncode == 0, run.stderr


def test_arrays_of_cupy(monkeypatch):
    """A module that looks like CuPy, whose arrays numpy cannot see."""
    log = []

    class ndarray:  # noqa: N801 (its name there)
        def __init__(self, held, device):
            self.held, self.device = held, device

        def __array__(self, *_, **__):
            raise TypeError("Implicit conversion to a NumPy array is not allowed")

        def get(self):
            log.append("get")
            return self.held.copy()

    class Device:
        current = [0]

        def __init__(self, number=None):
            self.number = self.current[-1] if number is None else number

        def __enter__(self):
            self.current.append(self.number)

        def __exit__(self, *_):
            self.current.pop()

        def synchronize(self):
            log.append(f"wait {self.number}")

    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2)
    module = types.SimpleNamespace(ndarray=ndarray, asarray=lambda x: ndarray(np.array(x), Device()),
                                   cuda=types.SimpleNamespace(Device=Device, runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", module)

    def kernel(q, k, v, **said):
        assert q.device.number == 1
        said = {name: x.held if isinstance(x, ndarray) else x for name, x in said.items()}
        return ndarray(mha.scaled_dot_product_attention(q.held, k.held, v.held, **said), q.device)

    report = mha.conform(kernel, has={"causal", "gqa", "lengths"}, level="smoke", arrays="cupy", device="cuda:1")
    assert report.passed and log[-2:] == ["wait 1", "get"], report
    with pytest.raises(ValueError, match=r"one that cupy has here \(cuda:0, cuda:1\), found 'cuda:2'"):
        mha.conform(kernel, arrays="cupy", device="cuda:2")


def test_compiled_kernels():
    """torch.compile with a backend that needs no compiler of C."""
    torch._dynamo.reset()
    said = {"has": {"causal"}, "level": "smoke", "arrays": "torch", "only": "causal.q1"}
    assert mha.conform(torch.compile(sdpa, backend="eager"), **said).passed
    wrong = mha.conform(torch.compile(without_mask, backend="eager"), **said)
    assert "causal-missing" in wrong.failed[-1].names, wrong


def test_kernels_of_pallas():
    """In its interpreter: one program for each head."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas

    def program(hides):
        def run(q, k, v, out):
            scores = q[...] @ k[...].T / jnp.sqrt(jnp.float32(q.shape[1]))
            if hides:
                scores = jnp.where(jnp.tri(*scores.shape, dtype=bool), scores, -jnp.inf)
            out[...] = jax.nn.softmax(scores) @ v[...]
        return run

    def kernel(q, k, v, is_causal=False, right=True):
        call = pallas.pallas_call(program(is_causal and right), interpret=True,
                                  out_shape=jax.ShapeDtypeStruct((q.shape[2], v.shape[3]), q.dtype))
        return jax.vmap(jax.vmap(call))(q, k, v)

    said = {"has": {"causal"}, "level": "smoke", "arrays": "jax", "only": "causal.q1"}
    assert mha.conform(kernel, **said).passed
    wrong = mha.conform(lambda q, k, v, is_causal=False: kernel(q, k, v, is_causal, False), **said)
    assert "causal-missing" in wrong.failed[-1].names, wrong
