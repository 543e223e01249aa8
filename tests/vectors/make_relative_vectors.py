"""Records relative terms as transformers computes them, as case files next to this script.

    python3 -m pip install torch transformers
    python3 tests/vectors/make_relative_vectors.py [directory]

DeBERTa v2 (DisentangledSelfAttention, buckets with a logarithm, c2p and p2c), DeBERTa v2 without buckets and c2p
alone, SAM (SamVisionAttention, a grid of unequal sides), and Wav2Vec2-BERT (relative_key of Shaw et al.): attention
between given queries, keys and values, in float32. The tables of DeBERTa are its relative embeddings,
projected.
"""
import math
import pathlib
import sys

import torch
import transformers
from transformers.models.deberta_v2 import modeling_deberta_v2 as deberta
from transformers.models.sam.configuration_sam import SamVisionConfig
from transformers.models.sam.modeling_sam import SamVisionAttention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as speech

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "weights"))
import mha_case  # noqa: E402

B, HEADS, D = 2, 3, 4
WIDTH = HEADS * D


def filled(module, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.rand(p.shape, generator=g) * 1.6 - 0.8)
    return module.eval()


def alone(linear):
    """Makes an output projection the identity, so that the heads are the output."""
    with torch.no_grad():
        linear.weight.copy_(torch.eye(WIDTH))
        linear.bias.zero_()


def heads(x):
    return x.reshape(B, -1, HEADS, D)


def of_deberta(T, types, buckets, most):
    config = deberta.DebertaV2Config(hidden_size=WIDTH, num_attention_heads=HEADS, relative_attention=True,
                                     position_buckets=buckets, max_relative_positions=most, pos_att_type=types)
    module = filled(deberta.DisentangledSelfAttention(config), 3)
    span = buckets if buckets > 0 else most
    embeddings = torch.rand((2 * span, WIDTH), generator=torch.Generator().manual_seed(4)) * 2 - 1

    def run(x, module, embeddings):
        out, weights = module(x, torch.ones(B, 1, T, T), output_attentions=True, rel_embeddings=embeddings)
        tables = {"relative_k": module.pos_key_proj(embeddings)}
        if "p2c" in types:
            tables["relative_q"] = module.pos_query_proj(embeddings)
        inputs = [heads(p(x)) for p in (module.query_proj, module.key_proj, module.value_proj)]
        return inputs, tables, heads(out), weights

    words = {"scale": repr(1 / math.sqrt(D * (1 + len(types))))}
    words |= {"relative_rule": "log_buckets", "relative_max_distance": most} if buckets > 0 else {
        "relative_rule": "distance"}
    return T, module, run, (embeddings,), words


def of_sam(height, width):
    config = SamVisionConfig(hidden_size=WIDTH, num_attention_heads=HEADS, use_rel_pos=True, qkv_bias=True)
    module = SamVisionAttention(config, height)
    module.rel_pos_w = torch.nn.Parameter(torch.zeros(2 * width - 1, D))
    filled(module, 5)
    alone(module.proj)

    def run(x, module):
        out, weights = module(x.reshape(B, height, width, WIDTH))
        inputs = module.qkv(x).reshape(B, height * width, 3, HEADS, D).unbind(2)
        return (inputs, {"relative_k": module.rel_pos_h, "relative_columns": module.rel_pos_w},
                out.reshape(B, -1, HEADS, D), weights.reshape(B, HEADS, height * width, -1))

    return height * width, module, run, (), {"relative_rule": "grid", "relative_height": height,
                                             "relative_width": width, "relative_k_scale": 1}


def of_shaw(T, reach):
    config = speech.Wav2Vec2BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS, attention_dropout=0.0,
                                       position_embeddings_type="relative_key", left_max_position_embeddings=reach,
                                       right_max_position_embeddings=reach, attn_implementation="eager")
    module = filled(speech.Wav2Vec2BertSelfAttention(config), 6)
    alone(module.linear_out)

    def run(x, module):
        out, weights = module(x)
        inputs = [heads(p(x)) for p in (module.linear_q, module.linear_k, module.linear_v)]
        return inputs, {"relative_k": module.distance_embedding.weight}, heads(out), weights

    return T, module, run, (), {"relative_rule": "distance", "relative_reversed": 1}


def main(folder):
    cases = {"deberta_buckets": of_deberta(21, ["c2p", "p2c"], 6, 17),
             "deberta_distance": of_deberta(9, ["c2p"], -1, 5),
             "sam": of_sam(3, 4),
             "shaw": of_shaw(9, 3)}
    for name, (T, module, run, more, words) in cases.items():
        x = torch.randn((B, T, WIDTH), generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            inputs, tables, output, weights = run(x, module, *more)
            tensors = dict(zip(("query", "key", "value"), inputs)) | tables
            tensors |= {"expected.output": output, "expected.weights": weights}
        mha_case.save(f"{folder}/relative_{name}.safetensors",
                      **{k: v.detach().contiguous().numpy() for k, v in tensors.items()}, format_version=1,
                      name=f"relative_{name}", kind="sdpa", layout="BTHD", source="transformers",
                      source_version=f"transformers {transformers.__version__}", **words)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
