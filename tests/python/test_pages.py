"""Keys and values in pages against numpy and against a call with the same rows in one piece."""
import mha
import numpy as np
import pytest

R = np.random.default_rng(6)
LENGTHS = [11, 3, 9]


def paged(h=4, h_kv=2, d=8, T_q=2, dtype="float32"):
    q = R.standard_normal((3, T_q, h, d)).astype("float32")
    pools = [R.standard_normal((9, 4, h_kv, d)).astype(dtype) for _ in range(2)]
    return q, *pools, np.array([[4, 7, 1], [0, 99, -3], [8, 2, 2**40]]), LENGTHS


def rows(pool, table, b):
    """The rows of sequence b in one piece."""
    return np.stack([pool[table[b, j // 4], j % 4] for j in range(LENGTHS[b])])[None].astype("float32")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("how", [{}, {"causal": False}, {"window_size": (4, 0)}, {"softcap": 3.0},
                                 {"alibi_slopes": [0.5, 0.25, 0.1, 0.0]}, {"path": "exact"},
                                 {"offset": "bottom-right"}])
def test_each_sequence_has_the_bits_of_its_rows(dtype, how):
    q, k, v, table, lengths = paged(dtype=dtype)
    table[2, 2] = 5
    output, lse = mha.paged_attention(q, k, v, table, lengths, layout="BTHD", return_lse=True, **how)
    for b in range(3):
        one = mha.attention(q[b:b + 1], rows(k, table, b), rows(v, table, b), layout="BTHD",
                            return_lse=True, **{"causal": True, **how})
        assert np.array_equal(output[b], one[0][0]) and np.array_equal(lse[b], one[1][0])
    first = mha.paged_attention(q.swapaxes(1, 2), k, v, table, lengths, **how)  # heads before tokens
    assert np.array_equal(first.swapaxes(1, 2), output)


def test_the_definition():
    q, k, v, table, lengths = paged(T_q=1)
    table[2, 2] = 5
    output = mha.paged_attention(q, k, v, table, lengths, layout="BTHD", path="exact", out_dtype="float64")
    for b in range(3):
        keys, values = (np.repeat(rows(p, table, b)[0].astype(float), 2, axis=1) for p in (k, v))
        e = np.exp(np.einsum("hd,jhd->hj", q[b, 0].astype(float), keys) / np.sqrt(8))
        assert np.allclose(output[b, 0], np.einsum("hj,jhd->hd", e / e.sum(1, keepdims=True), values), rtol=1e-12)


def test_ragged_queries():
    q, k, v, table, lengths = paged(T_q=1)
    table[2, 2] = 5
    packed = R.standard_normal((1, 6, 4, 8)).astype("float32")
    output = mha.paged_attention(packed, k, v, table, lengths, layout="BTHD", cu_seqlens_q=[0, 3, 4, 6])
    for b, (begin, end) in enumerate(((0, 3), (3, 4), (4, 6))):
        one = mha.attention(packed[:, begin:end], rows(k, table, b), rows(v, table, b), layout="BTHD",
                            causal=True)
        assert np.array_equal(output[:, begin:end], one)


@pytest.mark.parametrize("change, words", [
    (dict(page_table=np.zeros((2, 3), int)), "3 sequences, found 2|shape"),
    (dict(page_lengths=[11, 3]), "page_lengths"),
    (dict(page_lengths=[13, 3, 9]), "length 13 of sequence 0"), (dict(page_lengths=[11, 5, 9]), "page 1 of sequence 1"),
    (dict(), "found -1 for page 2 of sequence 2"),
    (dict(key_pages=np.zeros((9, 4, 2, 8), "int8")), "key_pages: expected"),
    (dict(value_pages=np.zeros((9, 4, 16), "float32")), "value_pages: expected the axes"),
    (dict(q=np.zeros((2, 4, 8), "float32")), "q: expected four axes"),
    (dict(page_table=np.zeros((3, 3))), "page_table: expected whole numbers"),
    (dict(cu_seqlens_q=3), "cu_seqlens_q"), (dict(cu_seqlens_q=[]), "page_table: expected a row for each of 0"),
    (dict(cu_seqlens_q=[0, 2], cu_seqlens_k=[0, 9]), "cu_seqlens_k: expected None")])
def test_what_does_not_fit_is_refused(change, words):
    given = dict(zip(("q", "key_pages", "value_pages", "page_table", "page_lengths"), paged()))
    with pytest.raises((ValueError, TypeError), match=words):
        mha.paged_attention(**{**given, "layout": "BTHD", **change})
