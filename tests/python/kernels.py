"""Attention in float32 as kernels compute it: right ones in several orders, and wrong ones that round or compute
something coarsely. Arrays are (..., T, d); each kernel is a function of query, key and value."""
import os
import random

import numpy as np


def drawn(names, share):
    """Draw one in `share` names, from $DRAW_SEED or at random; all names with $DRAW_ALL (`make test-long`)."""
    names = list(names)
    return names if os.environ.get("DRAW_ALL") else random.Random(os.environ.get("DRAW_SEED")).sample(
        names, -(-len(names) // share))


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

# Errors larger than those of float32. The small ones are below its rounding where many keys share a query.
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


# ---------------------------------------------------------------- keys in parts, exponentials of 2

LN2, LOG2E = np.float32(np.log(2)), np.float32(1 / np.log(2))


def visible(T, S, is_causal=False, window=None, lengths=None, offset=0, attn_mask=None):
    """(B or 1, 1 or h, T, S) booleans, and what is added to the scores."""
    at = np.arange(T)[:, None] + (S - T if offset == "bottom-right" else 0 if offset == "top-left" else offset)
    key, added = np.arange(S), np.float32(0)
    sees = np.ones((1, 1, T, S), bool)
    left, right = window or (-1, -1)
    if is_causal:
        sees = sees & (key <= at)
    if left >= 0:
        sees = sees & (key >= at - left)
    if right >= 0:
        sees = sees & (key <= at + right)
    if lengths is not None:
        sees = sees & (key < np.asarray(lengths)[:, None, None, None])
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        sees, added = (sees & mask, added) if mask.dtype == bool else (sees & (mask > -np.inf), mask.astype("f4"))
    return sees, np.where(sees, added, np.float32(-np.inf))


def attend(s, v, base_2):
    """Output and lse of masked scores, in the base; zeros and -inf where a query sees no key."""
    power, log = (np.exp2, np.log2) if base_2 else (np.exp, np.log)
    most = s.max(-1, keepdims=True, initial=-np.inf)
    p = power(s - np.where(most > -np.inf, most, np.float32(0)))
    total = p.sum(-1, keepdims=True, dtype="f4")
    y = p @ v / np.where(total > 0, total, np.float32(1))
    return y, np.where(total > 0, most + log(np.where(total > 0, total, np.float32(1))), np.float32(-np.inf))


def at_once(parts, base_2):
    """What a last pass over all parts makes of them: weights by the lse of all, which is rounded as well."""
    power, log = (np.exp2, np.log2) if base_2 else (np.exp, np.log)
    most = np.maximum.reduce([lse for _, lse in parts])
    safe = np.where(most > -np.inf, most, np.float32(0))
    total = sum(power(lse - safe) for _, lse in parts)
    lse = np.where(total > 0, safe + log(np.where(total > 0, total, np.float32(1))), np.float32(-np.inf))
    last = np.where(lse > -np.inf, lse, np.float32(0))
    return sum(power(one - last) * y for y, one in parts), lse


def in_turn(parts, base_2):
    """Part after part, as ring attention takes them."""
    found = parts[0]
    for part in parts[1:]:
        found = at_once([found, part], base_2)
    return found


def in_pairs(parts, base_2):
    while len(parts) > 1:
        parts = [at_once(parts[i:i + 2], base_2) for i in range(0, len(parts), 2)]
    return parts[0]


def split(count, merge=at_once, base_2=False, scale_in_q=False, interleaved=False, order=None):
    """A kernel of mha.conform whose keys are in parts, some of them empty, in the order of a seed; each part has an lse
    in float32."""
    def run(q, k, v, scale=None, softcap=0.0, sinks=None, enable_gqa=False, return_lse=False, **said):
        kind = q.dtype
        q, k, v = (np.asarray(x).astype("f4") for x in (q, k, v))
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
        T, S = q.shape[2], k.shape[2]
        times = np.float32(q.shape[-1]**-0.5 if scale is None else scale)
        factor = times * LOG2E if base_2 and not softcap else times
        s = (q * factor) @ k.swapaxes(2, 3) if scale_in_q else q @ k.swapaxes(2, 3) * factor
        if softcap:
            s = np.float32(softcap) * np.tanh(s / np.float32(softcap)) * (LOG2E if base_2 else np.float32(1))
        sees, added = visible(T, S, **said)
        s = np.where(sees, s + added * (LOG2E if base_2 else np.float32(1)), np.float32(-np.inf))
        random = np.random.default_rng(order or 0)
        ends = [0, *np.sort(random.integers(0, S + 1, count - 1)), S]
        places = [np.arange(i, S, count) if interleaved else np.arange(*ends[i:i + 2]) for i in range(count)]
        if order is not None:
            random.shuffle(places)
        parts = [attend(s[..., those], v[..., those, :], base_2) for those in places]
        if sinks is not None:
            sink = np.broadcast_to(np.asarray(sinks, "f4")[:, None, None] * (LOG2E if base_2 else np.float32(1)),
                                   parts[0][1].shape)
            parts.append((np.zeros_like(parts[0][0]), sink))
        y, lse = merge(parts, base_2)
        y = y.astype(kind)
        return (y, lse[..., 0] * (LN2 if base_2 else np.float32(1))) if return_lse else y
    return run


SPLIT = {
    "2 parts": split(2), "3 parts in turn": split(3, in_turn), "16 parts": split(16, order=3),
    "16 parts in turn": split(16, in_turn, order=1), "16 parts in pairs": split(16, in_pairs),
    "8 interleaved": split(8, interleaved=True), "7 interleaved in turn": split(7, in_turn, interleaved=True),
    "4 parts, scale in q": split(4, scale_in_q=True), "12 parts in pairs": split(12, in_pairs, order=5),
    "5 parts in turn": split(5, in_turn, order=2), "base 2": split(1, base_2=True),
    "base 2, scale in q": split(1, base_2=True, scale_in_q=True), "2 parts, base 2": split(2, base_2=True),
    "4 parts in turn, base 2": split(4, in_turn, True, True), "8 parts, base 2": split(8, at_once, True, True, order=4),
    "16 parts in turn, base 2": split(16, in_turn, True, order=7), "6 parts in pairs, base 2": split(6, in_pairs, True),
    "9 interleaved, base 2": split(9, at_once, True, interleaved=True),
    "16 interleaved in pairs, base 2": split(16, in_pairs, True, True, True),
    "3 interleaved in turn, base 2": split(3, in_turn, True, interleaved=True),
}
