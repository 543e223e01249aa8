"""The bits of the exact path, which are those of any machine; the other paths are checked."""
import hashlib

import mha
import numpy as np


def bits(array):
    """A name for the bits of an array."""
    return hashlib.sha256(array.tobytes()).hexdigest()


q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 9, 16)).astype("f4")
x = np.random.default_rng(5).standard_normal((2, 64, 64)).astype("f4")
layer = mha.MultiHeadAttention(64, 4, causal=True)
print("inputs", bits(q), bits(x))
for dtype in "f4", "f8":
    inputs = [array.astype(dtype) for array in (q, k, v)]
    print(dtype, bits(mha.scaled_dot_product_attention(*inputs, is_causal=True, path="exact")))
print("layer", bits(layer(x, path="exact")))
for path in "fast", "blas":
    mha.testing.assert_attention_close(mha.scaled_dot_product_attention(q, k, v, is_causal=True, path=path), q, k, v,
                                       is_causal=True)
    mha.testing.assert_attention_close(layer(x, path=path), x, layer=layer)
