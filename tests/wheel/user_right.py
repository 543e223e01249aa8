"""Calls as users write them, which mypy --strict must pass."""
import mha
import numpy as np

q = np.zeros((1, 2, 3, 4), "f4")
mha.scaled_dot_product_attention(q, q, q, is_causal=True, softcap=np.float32(30), window=(2, 0), query_scale=None,
                                 zero_row=np.bool_(True))
mha.attention(q, q, q, causal=True, window_size=(1, 1), rope=mha.Rope("interleaved"), position_offset=None)
layer = mha.MultiHeadAttention(embed_dim=8, num_heads=2, causal=True)
layer(np.zeros((1, 3, 8), "f4"), return_stages=["weights"], lengths=[3])
mha.MultiHeadAttention(8, 2, bias=False, sinks=True, softcap=3.0)
verdict: mha.Verdict = mha.check(q, q, q, q, is_causal=True)
diagnosis: mha.Diagnosis = mha.diagnose(q, q, q, q, layout="BTHD", causal=True, past_key=q, past_value=q)
mha.testing.assert_attention_close(q, q, q, q, is_causal=True, enable_gqa=True)
names: list[str] = mha.testing.power(q, q, q, atol=1e-3, scale=0.5).accepted
