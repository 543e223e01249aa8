"""Calls with a misspelt setting each, of which mypy --strict must find every one."""
import mha
import numpy as np

q = np.zeros((1, 2, 3, 4), "f4")
mha.scaled_dot_product_attention(q, q, q, is_casual=True)  # misspelt
mha.attention(q, q, q, sofcap=30.0)  # misspelt
mha.MultiHeadAttention(8, 2, casual=True)  # misspelt
mha.MultiHeadAttention(8, 2)(q, windows=(1, 0))  # misspelt
mha.check(q, q, q, q, is_casual=True)  # misspelt
mha.diagnose(q, q, q, q, is_casual=True)  # misspelt
mha.testing.assert_attention_close(q, q, q, q, is_casual=True)  # misspelt
mha.testing.power(q, q, q, a_tol=1e-3)  # misspelt
mha.paged_attention(q, q, q, q, q, sof_cap=1.0)  # misspelt
