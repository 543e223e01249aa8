"""What a piece of bench/peers.py gives in float64, of some rows: with it each contender's error stands beside its time.
"""
import math

import numpy as np

ROWS = 8  # queries of the first batch row: the first, the last, others between


class Reference:
    """Chosen rows of a piece's output, and the contenders' errors against them."""

    def __init__(self, work):
        self.work = work
        self.rows = np.unique(np.linspace(0, work.T_q - 1, ROWS).astype(int))
        self.exact = {"core": self.core, "layer": self.layer, "proj": self.projections}[work.part]()

    def load(self, name):
        array = self.work[name]
        return None if array is None else array.astype(np.float64)

    def project(self, x, name):
        bias = self.load("b_" + name)
        y = x @ self.load("W_" + name)
        return y if bias is None else y + bias

    def attend(self, q, k, v):
        """q (rows, h, d), k and v (h_kv, T_k, d): the heads of the chosen rows side by side."""
        w = self.work
        out = np.empty((len(self.rows), w.h, w.d_k))
        for head in range(w.h):
            kv = head // (w.h // w.h_kv)
            scores = q[:, head] @ k[kv].T / math.sqrt(w.d_k)
            if w.causal:
                scores[self.rows[:, None] < np.arange(w.T_k)[None]] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[kv]
        return out.reshape(len(self.rows), w.h * w.d_k)

    def core(self):
        w = self.work
        q = self.load("query")[0].reshape(w.T_q, w.h, w.d_k)[self.rows]
        return self.attend(q, *(w.heads(n)[0].astype(np.float64) for n in ("key", "value")))

    def layer(self):
        w = self.work
        x = self.load("query")[0]
        context = self.load("key")[0] if w.crosses else x
        q = self.project(x[self.rows], "Q").reshape(-1, w.h, w.d_k)
        k, v = (self.project(context, n).reshape(-1, w.h_kv, w.d_k).transpose(1, 0, 2) for n in "KV")
        if w.decodes:  # the new key and value are the last of the cache
            k, v = (np.concatenate([self.load(n)[0][:, :w.T_k - 1], new], axis=1)
                    for n, new in (("cached_keys", k), ("cached_values", v)))
        return self.project(self.attend(q, k, v), "O")

    def projections(self):
        return np.concatenate([self.project(self.load("query")[0][self.rows], "Q"),
                               self.project(self.load("heads")[0][self.rows], "O")], axis=1)

    def error(self, output):
        """The largest error of a contender's output in these rows, as a part of the largest number there."""
        w, wide = self.work, self.work.h * self.work.d_k
        if w.part == "proj":  # Q first, the product with W_O last
            q = output[:w.T_q * wide].reshape(w.T_q, wide)[self.rows]
            last = output[output.size - w.B * w.T_q * w.d_model:].reshape(w.B, w.T_q, -1)[0, self.rows]
            found = np.concatenate([q, last], axis=1)
        else:
            found = output.reshape(w.B, w.T_q, -1)[0, self.rows]
        return float(np.abs(found - self.exact).max() / np.abs(self.exact).max())
