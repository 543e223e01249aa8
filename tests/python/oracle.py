"""Attention in numpy and float64, written for these tests: shares no code with the library."""
import numpy as np


def bucket(bias, n, p, q):
    """T5: distances counted off bucket by bucket, each of the later ones to where a geometric series has come."""
    first, d = 0, int(p - q)
    if not bias.one_way:
        n, first, d = n // 2, n // 2 if d < 0 else 0, abs(d)
    exact, most = n // 2, bias.max_distance or 128
    ends = [exact * (most / exact) ** (i / (n - exact)) for i in range(1, n - exact)]
    return first + (max(d, 0) if d < exact else exact + sum(d >= end - 1e-9 for end in ends))


def grid_row(bias, n, p, q):
    """Swin; with a class token BEiT."""
    first = int(bias.class_token)
    if p < first or q < first:
        return n - 1 if p < first and q < first else n - 3 if p < first else n - 2
    (y, x), (v, u) = (divmod(t - first, bias.width) for t in (p, q))
    return (y - v + bias.height - 1) * (2 * bias.width - 1) + x - u + bias.width - 1


def relative_terms(relative, q, k, p, scale):
    """Products with rows of tables, (B, h, T_q, S): the row by a distance, by DeBERTa's buckets or by SAM's cells."""
    sums, j = 0.0, np.arange(k.shape[2])
    for name, table, x in (("k", relative.k, q), ("columns", relative.columns, q), ("q", relative.q, k)):
        if table is None:
            continue
        n, d = len(table), p - j
        if relative.rule == "grid":
            at = [t // relative.width if name == "k" else t % relative.width for t in (p, j)]
            row = at[0] - at[1] + n // 2
        else:
            d = -d if relative.reversed else d
            m, most = n // 4, relative.max_distance or 512
            if relative.rule == "log_buckets":
                far = np.maximum(abs(d), m) / m
                d = np.where(abs(d) <= m, d, np.sign(d) * (m + np.ceil(
                    (m - 1) * np.log(far) / np.log((most - 1) / m) - 1e-9)))
            row = np.clip(d + n // 2, 0, n - 1).astype(int)
        table = np.asarray(table, np.float64).reshape(n, -1, q.shape[3]).swapaxes(0, 1)
        products = x @ np.broadcast_to(table, (q.shape[1], *table.shape[1:])).swapaxes(1, 2)
        products = products[:, :, :, None] if name != "q" else products[:, :, None]
        rows = np.broadcast_to(row, (*q.shape[:3], len(j)))[..., None]
        factor = (relative.q_scale if name == "q" else relative.k_scale) or scale
        sums = sums + factor * np.take_along_axis(np.broadcast_to(products, (*rows.shape[:4], n)), rows, 4)[..., 0]
    return sums


def attention(q, k, v, mask=None, causal=False, offset=0, window=None, scale=None, softcap=0.0, sinks=None, alibi=None,
              lengths=None, plus_one=False, norm=None, query_scale=None, bias=None,
              clip_qkv=None, relative=None, log_n_scale=None, dropout_p=0.0, dropout_keep=True):
    """q (B, h, T_q, d), k and v (B, h_kv, S, d): output, lse and weights. mask: booleans keep, numbers are added."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    B, h, T, d = q.shape
    S = k.shape[2]
    k, v = (np.repeat(x, h // x.shape[1], axis=1) for x in (k, v))
    if norm is not None:  # epsilon of an L2 norm without weights
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + norm) for x in (q, k))
    if clip_qkv is not None:
        q, k, v = (np.clip(x, -clip_qkv, clip_qkv) for x in (q, k, v))
    p = (np.arange(T) + np.reshape(offset, (-1, 1)))[:, None, :, None]  # (B or 1, 1, T, 1)
    if query_scale is not None:
        growth, every, first = query_scale
        q = q * (1 + growth * np.log1p(np.maximum(0, np.floor((p + first) / every))))
    if log_n_scale is not None:
        q = q * np.maximum(1, np.log(np.maximum(1, p + 1)) / np.log(log_n_scale))
    scores = np.einsum("bhid,bhjd->bhij", q, k) * (d**-0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    j = np.arange(S)
    seen = np.ones((B, h, T, S), bool)
    if causal:
        seen &= j <= p
    if window is not None:
        left, right = window
        seen &= (left < 0) | (j >= p - left)
        seen &= (right < 0) | (j <= p + right)
    if lengths is not None:
        seen &= j < np.reshape(lengths, (-1, 1, 1, 1))
    if alibi is not None:
        scores = scores - np.reshape(alibi, (1, -1, 1, 1)) * (p - j)
    if bias is not None:
        table, row = np.asarray(bias.table, np.float64), grid_row if bias.rule == "grid" else bucket
        rows = np.array([[[row(bias, len(table), query, key) for key in j] for query in p[b, 0, :, 0]]
                         for b in range(len(p))])
        scores = scores + table[rows].transpose(0, 3, 1, 2)
    if relative is not None:
        scores = scores + relative_terms(relative, q, k, p, d**-0.5 if scale is None else scale)
    if mask is not None and mask.dtype == bool:
        seen &= mask
    elif mask is not None:
        seen &= mask != -np.inf
        scores = scores + mask.astype(np.float64)
    scores = np.where(seen, scores, -np.inf)
    extra = np.full((B, h, T, 0), 0.0)
    if sinks is not None:
        extra = np.concatenate([extra, np.broadcast_to(np.reshape(sinks, (1, -1, 1, 1)), (B, h, T, 1))], -1)
    if plus_one:
        extra = np.concatenate([extra, np.zeros((B, h, T, 1))], -1)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores).sum(-1) + np.exp(extra).sum(-1))
    weights = np.where(np.isinf(lse)[..., None], 0.0, np.exp(scores - np.where(np.isinf(lse), 0, lse)[..., None]))
    return np.where(dropout_keep, weights / (1 - dropout_p), 0.0) @ v, lse, weights
