"""Writes a case for each way in which the numbers of a layer can follow from each other: walk_cases.py FOLDER
GROUP, which prints the files of that group: rows, masks or left_out.

Settings are crossed; the results in the cases are not looked at. test_page.sh draws each case, and drive.js asks of
each number of its walk whether it is what it is said to come from."""
import sys

import numpy as np

B, T, D, H, KV, DK, DV = 2, 6, 10, 4, 2, 6, 5
rng = np.random.default_rng(17)


def tensor(*shape):
    return rng.normal(size=shape).astype("float32") / 2


def layer(h=H, kv=KV, d_k=DK, d_v=DV, biased=True):
    words = dict(query=tensor(B, T, D), W_q=tensor(D, h * d_k), W_k=tensor(D, kv * d_k), W_v=tensor(D, kv * d_v),
                 W_o=tensor(h * d_v, D), num_heads=h, output=np.zeros((B, T, D), "float32"))
    if biased:
        words.update(b_q=tensor(h * d_k), b_k=tensor(kv * d_k), b_v=tensor(kv * d_v), b_o=tensor(D))
    return words


def latent(q_rank, absorbed, h=3, kv_rank=7, d_rope=2, d_n=4, d_v=5):
    words = dict(query=tensor(B, T, D), W_q=tensor(q_rank or D, h * (d_n + d_rope)), W_kva=tensor(D, kv_rank + d_rope),
                 b_kva=tensor(kv_rank + d_rope), kva_norm_weight=tensor(kv_rank),
                 W_kvb=tensor(kv_rank, h * (d_n + d_v)),
                 W_o=tensor(h * d_v, D), num_heads=h, output=np.zeros((B, T, D), "float32"), rope="interleaved",
                 rope_dim=d_rope, rope_last=True, causal=True, absorbed=absorbed, norm_eps=0.01)
    if q_rank:
        words.update(W_qa=tensor(D, q_rank), b_qa=tensor(q_rank), qa_norm_weight=tensor(q_rank))
    return words


def masks(**words):
    """Every kind of mask and pattern at once: most cells are hidden by more than one."""
    lists = rng.integers(-1, T, size=(B, H, T, 8)).astype("int64")
    return layer() | dict(
        causal=True, chunk=4, window_left=3, window_right=0, attn_mask=rng.random((B, 1, T, T)) < 0.85,
        attn_mask_kind="bool_true_keeps", key_padding_mask=rng.random((B, T)) < 0.2,
        key_padding_mask_kind="bool_true_masks", q_segments=np.array([[0, 0, 0, 1, 1, 2]] * B),
        k_segments=np.array([[0, 0, 1, 1, 1, 2]] * B),
        query_padding_mask=np.array([[0, 0, 0, 0, 0, 1]] * B, bool),
        query_padding_mask_kind="bool_true_masks", key_lists=lists, block_mask=rng.random((B, H, 3, 2)) < 0.85,
        block_mask_kind="bool_true_keeps", block_queries=2, block_keys=3) | words


table = tensor(8, H)
table[5, 1] = -np.inf
turned = dict(rope="half_split", rope_dim=4, position_ids=np.arange(3, 3 + 2 * T, 2))
cases = {
    "gate_feature": layer() | dict(W_g=tensor(D, H * DV), b_g=tensor(H * DV), causal=True),
    "gate_head": layer(kv=H) | dict(W_g=tensor(D, H)),
    "latents": latent(6, False),
    "latents_plain_queries": latent(0, False),
    "latents_absorbed": latent(6, True),
    "latents_absorbed_plain": latent(0, True) | dict(softmax_plus_one=True),
    "norm_layer": layer() | turned | dict(q_norm_weight=tensor(DK), k_norm_weight=tensor(DK), q_norm_bias=tensor(DK),
                                          k_norm_bias=tensor(DK), norm_kind="layer", rope_attention_factor=1.25),
    "norm_l2_after": layer() | dict(q_norm_weight=tensor(DK), norm_kind="l2", norm_after_rope=True, norm_plus_one=True,
                                    norm_unweighted=True, rope="interleaved", norm_eps=0.1),
    "norm_each_head": layer(biased=False) | dict(q_norm_weight=tensor(H, DK), k_norm_weight=tensor(KV, DK),
                                                 norm_plus_one=True, query_scale_growth=0.3, query_scale_every=2,
                                                 query_scale_first=1),
    "norm_row": layer() | turned | dict(q_norm_weight=tensor(H * DK), k_norm_weight=tensor(KV * DK),
                                        query_scale_growth=0.2, query_scale_every=3),
    "rotation_tables": layer() | dict(rope="half_split", cos_cache=tensor(T, DK // 2), sin_cache=tensor(T, DK // 2)),
    "rotation_yarn": layer() | dict(rope="interleaved", rope_scaling="yarn", rope_factor=4, rope_original_length=4),
    "rotation_frequencies": layer() | dict(rope="interleaved", rope_frequencies=np.array([1.0, 0.3, 0.05]),
                                           position_offset=np.array([1, 4])),
    "rotation_axes": layer() | dict(rope="half_split", rope_axes="blocks", rope_sections=np.array([1, 1, 1]),
                                    rope_positions=rng.integers(0, 9, size=(3, B, T)),
                                    rope_axes_frequencies=np.array([1.0, 0.5, 0.1])),
    "log_n": layer(biased=False) | dict(log_n_scale=3, causal=True),
    "log_n_and_steps": layer() | turned | dict(log_n_scale=4, query_scale_growth=0.2, query_scale_every=2,
                                               rope_base=500, rope_k_positions=turned["position_ids"]),
    "part": layer() | dict(key_offset=2, offset=3, causal=True, keys_only=True, scale=0.7, sinks=tensor(H),
                            alibi_slopes=np.array([0.5, 0.25, 0.125, 0.0])),
    "ragged": layer() | dict(query=tensor(1, T, D), output=np.zeros((1, T, D), "float32"), n_sequences=2,
                             cu_seqlens_q=np.array([0, 2, T]), cu_seqlens_k=np.array([0, 3, T]), causal=True),
    "bias_class": layer() | dict(bias_table=tensor(18, H), bias_rule="grid", bias_height=2, bias_width=3,
                                 bias_class_token=True),
    "bias_buckets": layer() | dict(bias_table=table, bias_rule="buckets", bias_max_distance=6, alibi_slopes=np.array(
        [0.5, 0.25, 0.125, 0.0]), causal=True),
    "bias_grid": layer() | dict(bias_table=tensor(15, H), bias_rule="grid", bias_height=2, bias_width=3,
                                attn_mask=tensor(T, T)),
    "sinks_learned_rows": layer() | dict(sinks=tensor(H) * 8, bias_k=tensor(KV * DK), bias_v=tensor(KV * DV),
                                         add_zero_attn=True, softmax_plus_one=True, softcap=2.0),
    "sigmoid": layer() | dict(normaliser="sigmoid", sigmoid_bias=-0.75, causal=True, add_zero_attn=True),
    "decoding": layer() | dict(past_key=tensor(B, KV, 3, DK), past_value=tensor(B, KV, 3, DV), causal=True,
                               q_norm_weight=tensor(DK), k_norm_weight=tensor(DK), rope="half_split",
                               query_scale_growth=0.5, query_scale_every=4),
    "masks": masks(),
    "masks_filled": masks(mask_filter_value=-2.5, bias_table=table, bias_rule="buckets", bias_one_way=True,
                          prefix=2, window_keep=1, lengths=np.array([5, T]), fully_masked="nan",
                          add_zero_attn=True),
    "masks_additive": layer() | dict(attn_mask=np.where(rng.random((H, T, T)) < 0.3, -np.inf, tensor(H, T, T))),
    "left_out": layer(d_v=2400) | dict(W_g=tensor(D, H * 2400)),
    "left_out_latents": latent(6, False, d_v=3000),
    "left_out_absorbed": latent(6, True, d_v=5000),
    "propagates": masks(hidden_values="propagate"),
}
GROUPS = {"rows": lambda name: not name.startswith(("masks_f", "prop", "left")) and name != "masks",
          "left_out": lambda name: name.startswith("left"),
          "masks": lambda name: name in ("masks", "masks_filled", "propagates")}
folder, group = sys.argv[1:]
for name, words in cases.items():
    if GROUPS[group](name):
        np.savez(f"{folder}/walk_{name}.npz", **words)
        print(f"{folder}/walk_{name}.npz")
