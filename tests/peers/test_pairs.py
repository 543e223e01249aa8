"""assert_function_close: torch.autograd.Function, functions of torch, and jax.custom_vjp."""
import mha
import numpy as np
import pytest

torch = pytest.importorskip("torch")


def forward(q, k, v):
    """Causal attention of grouped heads; the weights, too."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1]**-0.5 + torch.full(q.shape[-2:-1] + k.shape[-2:-1], -torch.inf).triu(1)
    weights = torch.softmax(scores, -1)
    return weights @ v, weights


def backward(q, k, v, do):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    _, p = forward(q, k, v)
    dp = do @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[-1]**-0.5
    fold = lambda x: x.unflatten(1, (2, -1)).sum(2)
    return ds @ k, fold(ds.mT @ q), fold(p.mT @ do)


def inputs():
    torch.manual_seed(3)
    return [torch.randn(s) for s in ((2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8), (2, 4, 6, 8))]


class Flash(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(context, q, k, v):
        context.save_for_backward(q, k, v)
        return forward(q, k, v)[0]

    @staticmethod
    def backward(context, do):
        dq, dk, dv = backward(*context.saved_tensors, do)
        return Flash.factor * dq, dk, dv


class Nothing(Flash):
    @staticmethod
    def backward(context, do):
        return None, None, None


def plain(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_conform_runs_autograd_through_a_kernel(dtype):
    apart = []

    def sdpa(q, k, v, is_causal=False, enable_gqa=False):
        apart.append(not k.is_contiguous())
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=enable_gqa)

    said = {"arrays": "torch", "dtype": dtype, "level": "smoke", "only": "backward"}
    report = mha.conform(sdpa, has="causal cross gqa backward", **said)
    assert report.passed and not report.refused and len(report.results) > 20 and not any(apart), report
    assert mha.conform(sdpa, has="causal backward strides", **{**said, "only": "backward-strides"}).passed
    assert apart[-1], "inputs that lie apart keep their strides under autograd"
    none = mha.conform(lambda q, k, v: q.detach(), has="backward", **said)
    assert "that autograd follows back" in str(none), none


def test_conform_names_a_wrong_autograd_function(monkeypatch):
    def kernel(q, k, v, is_causal, enable_gqa):
        return Flash.apply(q, k, v)

    asked = {"arrays": "torch", "level": "smoke", "has": "causal gqa backward", "only": "backward-gqa-causal.b2-h4"}
    assert mha.conform(kernel, **asked).passed
    monkeypatch.setattr(Flash, "factor", 4.0)
    report = mha.conform(kernel, **asked)
    assert not report.passed and "scale-missing-dq" in report.failed[0].names, report


def test_torch(monkeypatch):
    q, k, v, do = inputs()
    check = lambda function, **said: mha.testing.assert_function_close(function, q, k, v, is_causal=True, **said)
    for function in (Flash, lambda *x: Flash.apply(*x), plain):
        check(function)
        check(function, do=do, seed=1)
    mha.testing.assert_function_close(plain, *(x.bfloat16() for x in (q, k, v)), is_causal=True)
    monkeypatch.setattr(Flash, "factor", 8**0.5)
    with pytest.raises(AssertionError, match=r"^backward: dq differs(.|\n)*explained by scale-missing-dq"):
        check(Flash)
    with pytest.raises(AssertionError, match="dk: the backward gives none"):
        check(lambda q, k, v: plain(q, k.detach(), v))
    with pytest.raises(AssertionError, match="dq: the backward gives none\ndk: .*\ndv: the backward gives none"):
        check(Nothing)
    with pytest.raises(TypeError, match="function: expected an output that autograd follows"):
        check(lambda *x: plain(*x).detach())


def test_jax():
    jax = pytest.importorskip("jax")
    numbers = lambda *x: [torch.from_numpy(np.array(y)) for y in x]
    factor = [1]

    @jax.custom_vjp
    def flash(q, k, v):
        return jax.numpy.asarray(forward(*numbers(q, k, v))[0].numpy())

    def back(saved, do):
        dq, dk, dv = (jax.numpy.asarray(x.numpy()) for x in backward(*numbers(*saved, do)))
        return dq, dk, factor[0] * dv

    flash.defvjp(lambda *x: (flash(*x), x), back)
    q, k, v, do = (jax.numpy.asarray(x.numpy()) for x in inputs())
    mha.testing.assert_function_close(flash, q, k, v, is_causal=True)
    mha.testing.assert_function_close(flash, q, k, v, do=do, is_causal=True)

    def kernel(q, k, v, causal=False):
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    report = mha.conform(kernel, layout="BTNH", arrays="jax", has="causal gqa backward", only="backward-gqa",
                         level="smoke")
    assert report.passed and not report.refused and len(report.results) == 2, report
    factor[0] = 2
    with pytest.raises(AssertionError, match="^backward: dv differs"):
        mha.testing.assert_function_close(flash, q, k, v, is_causal=True)
