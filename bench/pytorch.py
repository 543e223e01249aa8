"""PyTorch as a contender of bench/peers.py."""
import math

import numpy as np

from work import Absent, time_calls


class Torch:
    """PyTorch. `plain`: linear, baddbmm, softmax, bmm, on tensors in the layout it likes best; `module`:
    nn.MultiheadAttention, which takes its fused path where it can; `sdpa`: linear and scaled_dot_product_attention."""

    def __init__(self, threads, kind, dtype="float32"):
        try:
            import torch
        except ImportError as error:
            raise Absent(str(error))
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        if kind == "sdpa" and int(torch.__version__.split(".")[0]) < 2:
            raise Absent(f"PyTorch {torch.__version__} has no scaled_dot_product_attention")
        self.torch, self.kind, self.call, self.result = torch, kind, None, None
        self.dtype, self.version = getattr(torch, dtype), torch.__version__

    def prepare(self, work):
        if work.part != "proj" and self.kind != "sdpa":
            work.hold_scores()
        if self.kind == "module":
            self.call = self.module(work)
        elif work.part == "layer":
            self.call = self.plain_layer(work)
        elif work.part == "proj":
            self.call = self.projections(work)
        else:
            q, k, v = (self.tensor(work.heads(n)) for n in ("query", "key", "value"))
            core = self.core(work)
            self.call = lambda: [core(q, k, v).transpose(1, 2)]

    def tensor(self, array):
        return self.torch.from_numpy(array).to(self.dtype)

    def core(self, work):
        """softmax(Q K^T / sqrt(d_k) + mask) V on (B, h, T, d_k)."""
        torch, w = self.torch, work
        if self.kind == "sdpa":
            attend = torch.nn.functional.scaled_dot_product_attention
            return lambda q, k, v: attend(q, k, v, is_causal=bool(w.causal), enable_gqa=w.h_kv != w.h)
        B, h, T_q, T_k, d, scale = w.B, w.h, w.T_q, w.T_k, w.d_k, 1 / math.sqrt(w.d_k)
        mask = torch.full((T_q, T_k), -math.inf).triu(1) if w.causal else torch.zeros(1, 1)

        def run(q, k, v):
            if w.h_kv != h:
                k, v = (x.repeat_interleave(h // w.h_kv, dim=1) for x in (k, v))
            q, k, v = q.reshape(B * h, T_q, d), k.reshape(B * h, T_k, d), v.reshape(B * h, T_k, d)
            scores = torch.baddbmm(mask, q, k.transpose(1, 2), beta=1 if w.causal else 0, alpha=scale)
            return torch.bmm(torch.softmax(scores, dim=-1), v).view(B, h, T_q, d)

        return run

    def weights(self, work):
        """W_Q, b_Q, ... in PyTorch's (out, in) order."""
        out = {}
        for x in "QKVO":
            out["W" + x] = self.tensor(np.ascontiguousarray(work[f"W_{x}"].T))
            bias = work[f"b_{x}"]
            out["b" + x] = None if bias is None else self.tensor(bias)
        return out

    def plain_layer(self, work):
        torch, w, core = self.torch, work, self.core(work)
        linear, p = torch.nn.functional.linear, self.weights(work)
        x = self.tensor(w["query"])
        context = self.tensor(w["key"]) if w.crosses else x
        wide = w.h * w.d_k
        if w.decodes:
            keys, values = self.tensor(w["cached_keys"]), self.tensor(w["cached_values"])

        project = self.projector(w, p)

        def split(y, n):
            return y.view(w.B, -1, n, w.d_k).transpose(1, 2)

        def run():
            q, k, v = project(x, context)
            q, k, v = split(q, w.h), split(k, w.h_kv), split(v, w.h_kv)
            if w.decodes:
                keys[:, :, -1:], values[:, :, -1:] = k, v
                k, v = keys, values
            heads = core(q, k, v).transpose(1, 2).reshape(w.B, w.T_q, wide)
            return [linear(heads, p["WO"], p["bO"])]

        return run

    def projector(self, w, p):
        """Q, K and V from x and what keys and values are made of; one product where these are the same."""
        torch, linear = self.torch, self.torch.nn.functional.linear
        if w.crosses:
            return lambda x, y: (linear(x, p["WQ"], p["bQ"]), linear(y, p["WK"], p["bK"]), linear(y, p["WV"], p["bV"]))
        fused = torch.cat([p["WQ"], p["WK"], p["WV"]])
        bias = torch.cat([p["bQ"], p["bK"], p["bV"]]) if w.bias else None
        widths = [w.h * w.d_k, w.h_kv * w.d_k, w.h_kv * w.d_k]
        return lambda x, y: [part.contiguous() for part in linear(x, fused, bias).split(widths, dim=-1)]

    def projections(self, w):
        p = self.weights(w)
        project, linear = self.projector(w, p), self.torch.nn.functional.linear
        x, heads = self.tensor(w["query"]), self.tensor(w["heads"])
        context = self.tensor(w["key"]) if w.crosses else x
        return lambda: [*project(x, context), linear(heads, p["WO"], p["bO"])]

    def module(self, work):
        torch, w = self.torch, work
        if w.part != "layer":
            raise Absent("nn.MultiheadAttention is a whole layer")
        if w.decodes or w.h_kv != w.h or w.h * w.d_k != w.d_model:
            raise Absent("nn.MultiheadAttention has no cache, grouped heads or free head width")
        mha, p = torch.nn.MultiheadAttention(w.d_model, w.h, batch_first=True).eval(), self.weights(w)
        mha.in_proj_weight.copy_(torch.cat([p["WQ"], p["WK"], p["WV"]]))
        mha.out_proj.weight.copy_(p["WO"])
        if w.bias:  # else its biases stay zero: without any, its fused path does not run
            mha.in_proj_bias.copy_(torch.cat([p["bQ"], p["bK"], p["bV"]]))
            mha.out_proj.bias.copy_(p["bO"])
        x = torch.from_numpy(w["query"])
        context = torch.from_numpy(w["key"]) if w.crosses else x
        mask = torch.ones(w.T_q, w.T_k, dtype=torch.bool).triu(1) if w.causal else None
        return lambda: mha(x, context, context, attn_mask=mask, need_weights=False)[:1]

    def turn(self):
        def once():
            self.result = self.call()
        return time_calls(once)

    def output(self):
        return np.concatenate([y.float().contiguous().numpy().reshape(-1) for y in self.result])

    def release(self):
        self.call = self.result = None
