"""Attention in float32 as kernels compute it: right ones in several orders, and wrong ones that round or compute
something coarsely. Arrays are (..., T, d); each kernel is a function of query, key and value."""
import numpy as np


def bf16(x):
    bits = np.ascontiguousarray(x, "f4").view("u4").astype("u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype("u4").view("f4")


def tf32(x):
    bits = np.ascontiguousarray(x, "f4").view("u4").astype("u8")
    return ((bits + 0xFFF + (bits >> 13 & 1)) >> 13 << 13).astype("u4").view("f4")


def f16(x):
    return np.asarray(x).astype("f2").astype("f4")


def int8(x):
    """One scale for each row."""
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    return np.rint(x / scale) * scale


def whole(x):
    """Whole 127ths, as probabilities in 8 bits are."""
    return np.rint(x * np.float32(127)) / np.float32(127)


def same(x):
    return x


def cubic(x):
    """exp by a polynomial of the third degree in place of the sixth."""
    y = x * np.float32(1 / np.log(2))
    n = np.rint(y)
    f = y - n
    return np.ldexp(1 + f * np.float32(0.6931472) + f**2 * np.float32(0.2402265) + f**3 * np.float32(0.0555),
                    n.astype("i4")).astype("f4")


def clamped(x):
    return np.exp(np.maximum(x, np.float32(-5)))


def kernel(factors=same, keys=same, weights=same, scores=same, terms=same, exp=np.exp, scale=None, more=0.0, eps=0.0):
    """softmax(q k^T scale) v, with roundings: of q and k as they are multiplied, of k and v as they are stored, of
    scores, of exponentials as they meet v, of those that are added up. more: relative error of the scale; eps: what the
    denominator is raised by."""
    def run(q, k, v):
        times = (scale or same)(np.float32((1 + more) / np.sqrt(q.shape[-1])))
        k, v = keys(k), keys(v)
        s = scores(factors(q) @ factors(k).swapaxes(-1, -2) * times)
        p = exp(s - s.max(-1, keepdims=True))
        return (weights(p) @ v / (terms(p).sum(-1, keepdims=True) + np.float32(eps))).astype("f4")
    return run


def blocks(size, base_2=False):
    """Online softmax over blocks of keys; base_2: exponentials of 2, with log2(e) in the scale."""
    def run(q, k, v):
        one = np.float32
        times = one(1 / np.sqrt(q.shape[-1]) * (1 / np.log(2) if base_2 else 1))
        power = np.exp2 if base_2 else np.exp
        most, total, heads = one(-np.inf), one(0), one(0)
        for start in range(0, k.shape[-2], size):
            keys, values = k[..., start:start + size, :], v[..., start:start + size, :]
            s = q @ keys.swapaxes(-1, -2) * times
            new = np.maximum(most, s.max(-1, keepdims=True))
            p, old = power(s - new), power(most - new)
            total, heads, most = total * old + p.sum(-1, keepdims=True), heads * old + p @ values, new
        return (heads / total).astype("f4")
    return run


def one_by_one(q, k, v):
    """Sums term after term, from the last to the first; the scale in q; weights divided before they meet v."""
    q = q * np.float32(1 / np.sqrt(q.shape[-1]))
    s = np.zeros(q.shape[:-1] + k.shape[-2:-1], "f4")
    for c in reversed(range(q.shape[-1])):
        s += q[..., c, None] * k[..., None, :, c]
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= np.cumsum(p, -1, dtype="f4")[..., -1:]
    y = np.zeros(q.shape[:-1] + v.shape[-1:], "f4")
    for j in reversed(range(k.shape[-2])):
        y += p[..., j, None] * v[..., j, None, :]
    return y


RIGHT = {"plain": kernel(), "blocks of 64": blocks(64), "blocks of 5, base 2": blocks(5, True),
         "one by one": one_by_one}

# What float32 is not. The small ones move a result by less than its rounding where many keys share a query.
WRONG = {
    "bfloat16 products": kernel(bf16, bf16, bf16), "bfloat16 q and k": kernel(bf16), "bfloat16 p": kernel(weights=bf16),
    "bfloat16 scores": kernel(scores=bf16), "bfloat16 denominator": kernel(terms=bf16),
    "float16 products": kernel(f16, f16, f16), "float16 p": kernel(weights=f16), "float16 k and v": kernel(keys=f16),
    "float16 scores": kernel(scores=f16),
    "tf32 products": kernel(tf32, tf32, tf32), "tf32 q and k": kernel(tf32), "tf32 p": kernel(weights=tf32),
    "int8 k and v": kernel(keys=int8), "int8 p": kernel(weights=whole),
    "exp of degree 3": kernel(exp=cubic), "exp clamped at -5": kernel(exp=clamped),
    "scale 0.2 % off": kernel(more=2e-3), "scale 1e-4 off": kernel(more=1e-4),
    "eps 1e-3": kernel(eps=1e-3), "eps 1e-4": kernel(eps=1e-4), "eps 1e-5": kernel(eps=1e-5),
}
