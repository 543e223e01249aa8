"""Attention kernels that are wrong in one regime of sizes or of settings, and right elsewhere. Arrays are (B, h, T, d);
each kernel takes the keywords of mha.conform."""
import mha
import numpy as np


def right(q, k, v, past_key=None, past_value=None, page_table=None, page_lengths=None, **said):
    """Every feature of the suite, with keys of earlier calls and keys in pages."""
    if page_table is not None:
        said = {name: x for name, x in said.items() if name not in ("is_causal", "enable_gqa")}
        return mha.paged_attention(q, k, v, page_table, page_lengths, layout="BHTD", causal=True, **said)
    if past_key is None:
        return mha.scaled_dot_product_attention(q, k, v, **said)
    if "rope" in said:
        raise NotImplementedError("keys of earlier calls are rotated already")
    said.setdefault("offset", past_key.shape[2])
    return mha.scaled_dot_product_attention(q, np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2),
                                            **said)


class Call:
    """A call: its sizes, its settings, and which of them it has."""

    def __init__(self, q, k, v, said):
        self.q, self.k, self.v, self.said = q, k, v, dict(said)
        self.B, self.h, self.T, self.d = q.shape
        self.paged, self.past = "page_table" in said, said["past_key"].shape[2] if "past_key" in said else 0
        self.page, self.h_kv = (k.shape[1], k.shape[2]) if self.paged else (0, k.shape[1])
        self.S = int(max(said["page_lengths"])) if self.paged else k.shape[2] + self.past

    def has(self, *names):
        return all(name in self.said for name in names)


def without(*names):
    """Leaves settings out."""
    def change(c):
        for name in names:
            c.said.pop(name, None)
    return change


def tiled_groups(c):
    """Query head i reads key/value head i % h_kv."""
    order = np.argsort(np.arange(c.h) % c.h_kv, kind="stable")
    c.q, c.after = c.q[:, order], lambda y: y[:, np.argsort(order, kind="stable")]


def last_key_lost(c):
    """The last key has a score far below the others."""
    if c.S > 1 and not c.paged:
        c.k, c.v = c.k.copy(), c.v.copy()
        c.k[:, :, -1] = c.k[:, :, -2]
        c.v[:, :, -1] = c.v[:, :, -2]


def first_rows_read(rows):
    """Rows of the cache from `rows` on are read as the one before."""
    def change(c):
        for name in ("past_key", "past_value"):
            c.said[name] = c.said[name][:, :, np.minimum(np.arange(c.past), rows - 1)]
    return change


def one_scale(c):
    """The scale of a head of 64."""
    c.said["scale"] = 0.125


def scaled_twice(c):
    c.q = c.q * np.float32(1.25)


def last_head_wrong(c):
    c.after = lambda y: np.concatenate([y[:, :-1], y[:, -2:-1]], 1)


def rows_from(start):
    """Batch rows from `start` on have the lengths of the first."""
    def change(c):
        lengths = np.array(c.said["lengths"])
        lengths[start:] = lengths[0]
        c.said["lengths"] = lengths
    return change


def page_shifted(c):
    """The last page of each sequence is read from the first one."""
    table = np.array(c.said["page_table"])
    ends = (np.asarray(c.said["page_lengths"]) - 1) // c.page
    table[np.arange(c.B), ends] = table[:, 0]
    c.said["page_table"] = table


def mask_missing(c):
    del c.said["attn_mask"]


def window_at_most(most):
    def change(c):
        c.said["window"] = tuple(min(int(x), most) for x in np.ravel(c.said["window"]))
    return change


def contiguous_lost(name):
    """An array is read as if it lay without gaps."""
    def change(c):
        x = getattr(c, name)
        low = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,))
        setattr(c, name, np.nan_to_num(low).reshape(x.shape).copy())
    return change


def additive(c):
    return c.has("attn_mask") and c.said["attn_mask"].dtype != bool


def boolean(c):
    return c.has("attn_mask") and c.said["attn_mask"].dtype == bool


def mask_shape(c, *shape):
    found = c.said["attn_mask"].shape if c.has("attn_mask") else None
    wanted = tuple({"B": c.B, "h": c.h, "T": c.T, "S": c.S}.get(x, x) for x in shape)
    return found == wanted and len(wanted) == len(shape)


def ragged_single(c):
    return c.has("cu_seqlens_q") and (np.diff(c.said["cu_seqlens_q"]) == 0).any()


def left(c):
    return int(np.ravel(c.said["window"])[0]) if c.has("window") else -1


def around(S, tile):
    return S % tile in (1, tile - 1) and S >= tile - 1


# What is wrong, where a call is in the regime, and the mistake there.
WRONG = {
    # a feature left out at one width of heads
    "softcap left out at d 64": (lambda c: c.d == 64, without("softcap")),
    "softcap left out at d 80": (lambda c: c.d == 80, without("softcap")),
    "softcap left out at d 256": (lambda c: c.d == 256, without("softcap")),
    "sinks left out at d 128": (lambda c: c.d == 128, without("sinks")),
    "sinks left out at d 96": (lambda c: c.d == 96, without("sinks")),
    "window left out at d 80": (lambda c: c.d == 80, without("window")),
    "window left out at d 128": (lambda c: c.d == 128, without("window")),
    "ALiBi left out at d 64": (lambda c: c.d == 64, without("alibi")),
    "rotation left out at d 128": (lambda c: c.d == 128, without("rope")),
    "additive mask left out at d 96": (lambda c: c.d == 96 and additive(c), mask_missing),
    "boolean mask left out at d 256": (lambda c: c.d == 256 and boolean(c), mask_missing),
    "lengths left out at d 128": (lambda c: c.d == 128, without("lengths")),
    "causal left out at d 80 with 65 keys and more": (lambda c: c.d == 80 and c.S > 64, without("is_causal")),
    "scale ignored at d 128": (lambda c: c.d == 128, without("scale")),
    "scale of 64 at d 80": (lambda c: c.d == 80 and not c.has("scale"), one_scale),
    "lse off at d 64": (lambda c: c.d == 64 and c.has("return_lse"), scaled_twice),
    "strides of q ignored at d 128": (lambda c: c.d == 128 and not c.q.flags.c_contiguous, contiguous_lost("q")),
    "q norm ignored at d 128": (lambda c: c.d == 128, without("q_norm")),
    "cache cut at d 128": (lambda c: c.d == 128 and c.past > 1, first_rows_read(1)),
    "varlen joined at d 128": (lambda c: c.d == 128, without("cu_seqlens_q")),
    # one query
    "softcap left out with one query": (lambda c: c.T == 1, without("softcap")),
    "sinks left out with one query": (lambda c: c.T == 1, without("sinks")),
    "lengths left out with one query": (lambda c: c.T == 1, without("lengths")),
    "additive mask left out with one query": (lambda c: c.T == 1 and additive(c), mask_missing),
    "boolean mask left out with one query": (lambda c: c.T == 1 and boolean(c), mask_missing),
    "window left out with one query": (lambda c: c.T == 1, without("window")),
    "ALiBi left out with one query": (lambda c: c.T == 1, without("alibi")),
    "lse off with one query": (lambda c: c.T == 1 and c.has("return_lse"), scaled_twice),
    "last page wrong with one query": (lambda c: c.T == 1 and c.paged, page_shifted),
    "groups tiled with one query, 32 on 8": (lambda c: c.T == 1 and (c.h, c.h_kv) == (32, 8), tiled_groups),
    # groups and batches
    "groups tiled, 32 on 8": (lambda c: (c.h, c.h_kv) == (32, 8), tiled_groups),
    "groups tiled, 32 on 8 and causal": (lambda c: (c.h, c.h_kv) == (32, 8) and c.has("is_causal"), tiled_groups),
    "softcap left out in groups of 4": (lambda c: c.h == 4 * c.h_kv, without("softcap")),
    "sinks left out in 8 on 4": (lambda c: (c.h, c.h_kv) == (8, 4), without("sinks")),
    "last head wrong from 64 heads in a batch": (lambda c: c.B * c.h > 64 and c.h > 1, last_head_wrong),
    "lengths of the fifth row on": (lambda c: c.B > 4 and c.has("lengths"), rows_from(4)),
    # caches and pages
    "cache cut at 32 rows": (lambda c: c.past > 32 and c.T == 1, first_rows_read(32)),
    "cache cut at 64 rows": (lambda c: c.past > 64, first_rows_read(64)),
    "softcap left out with a cache": (lambda c: c.past > 0, without("softcap")),
    "additive mask left out with a cache": (lambda c: c.past > 0 and additive(c), mask_missing),
    "window left out with a cache and one query": (lambda c: c.past > 0 and c.T == 1, without("window")),
    "last page wrong of 32 rows and more": (lambda c: c.page >= 32, page_shifted),
    "last page wrong with a part of a page": (
        lambda c: c.paged and c.page > 4 and (np.asarray(c.said["page_lengths"]) % c.page > 0).any() and c.T == 1,
        page_shifted),
    "last page wrong with 5 sequences and more": (lambda c: c.paged and c.B > 4, page_shifted),
    "softcap left out with pages": (lambda c: c.paged, without("softcap")),
    "window left out with pages": (lambda c: c.paged, without("window")),
    "sinks left out with pages": (lambda c: c.paged, without("sinks")),
    # windows, masks, pairs of features
    "window never above 63": (lambda c: left(c) > 63, window_at_most(63)),
    "window left out with lengths": (lambda c: c.has("lengths"), without("window")),
    "window left out with a rotation": (lambda c: c.has("rope"), without("window")),
    "mask of (T, S) left out": (lambda c: mask_shape(c, "T", "S"), mask_missing),
    "mask of (B, 1, 1, S) left out": (lambda c: c.B > 1 and c.T > 1 and mask_shape(c, "B", 1, 1, "S"), mask_missing),
    "additive mask of (B, 1, T, S) left out": (
        lambda c: c.B > 1 and c.h > 1 and additive(c) and mask_shape(c, "B", 1, "T", "S"), mask_missing),
    "softcap left out with sinks": (lambda c: c.has("sinks"), without("softcap")),
    "softcap left out with lengths": (lambda c: c.has("lengths"), without("softcap")),
    "last key lost at 129 keys": (lambda c: c.S == 129 and c.T > 1 and c.d >= 64, last_key_lost),
    "last key lost at a tile of 64 and d 128": (lambda c: around(c.S, 64) and c.d == 128, last_key_lost),
    "ALiBi left out with 13 heads and more": (lambda c: c.h > 12, without("alibi")),
    "rotation left out beyond 70 tokens": (lambda c: c.S > 70, without("rope")),
    "last key lost above 600 keys, not causal": (lambda c: c.T > 600 and not c.has("is_causal"), last_key_lost),
}


def wrong(name):
    """The kernel of a row."""
    where, change = WRONG[name]

    def run(q, k, v, **said):
        c = Call(q, k, v, said)
        c.after = lambda y: y
        if where(c):
            change(c)
        y = right(c.q, c.k, c.v, **c.said)
        return (c.after(y[0]), *y[1:]) if isinstance(y, tuple) else c.after(y)
    return run


def is_asked(name, q, k, v, said):
    """Whether a call is in the regime of a row."""
    return bool(WRONG[name][0](Call(q, k, v, said)))


def accepted(level, names=tuple(WRONG), seed=0):
    """The kernels that pass every test case up to a level: {name: the calls that were in its regime}."""
    from mha.conformance import suite
    left = dict.fromkeys(names, 0)
    choices = suite.choices_of({}, seed)
    for row in suite.rows():
        if row.level > suite.LEVELS.index(level) or "backward" in row.needs or not left:
            continue
        asked = suite.Case(row, suite.TYPES[0], choices).ask("BHTD", lambda x, code: x)
        for name in list(left):
            if not is_asked(name, *asked.inputs, asked.settings):
                continue
            case = suite.Case(row, suite.TYPES[0], choices)
            asked = case.ask("BHTD", lambda x, code: x)
            try:
                y = case.seen("BHTD", wrong(name)(*asked.inputs, **asked.settings))
            except (NotImplementedError, TypeError, ValueError) as why:
                if isinstance(why, NotImplementedError) or "extra_row" in row.needs:
                    continue
                raise
            left[name] += 1
            if not case.check(y).passed:
                del left[name]
    return left
