/* Public statements about parameter counts, as data. claims.c counts what they state in storages.
 * Pages 000 to 004 are five public questions with answers about multi-head attention:
 * 000 BERT-base in keras-bert, 001 a general recipe with d_k and d_v, 002 head counts in RoBERTa, 003 LLaMA-7B,
 * 004 why W_Q and W_K are not one matrix. */
#include "models/claims/statements.h"
#include "models/claims/claims.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* rows leave out their last columns */

#define BERT_LAYER "layer d_model=768 h=12 bias=1"
#define BASE_LAYER "layer d_model=512 h=8 bias=1"
#define MILLION 1000000
#define BILLION 1000000000LL

/* clang-format off */
const mha__claim_row mha__claim_rows[] = {
    /* ------------------------------------------------------------ page 000 */
    {"page 000, question", "BERT-base: one multi-head attention layer has 2,362,368 parameters",
     "2362368", BERT_LAYER, "total"},
    {"page 000, question", "in each head, Q, K and V are 768 x 768 matrices",
     "768*768", BERT_LAYER, "head_W_Q", .condition = "each head's matrix is 768 x 64"},
    {"page 000, question", "Q, K and V of 12 heads: 12 * (3 * 768 * 768 + 3 * 768) = 21,261,312",
     "12*(3*768*768 + 3*768)", BERT_LAYER, "W_Q+b_Q+W_K+b_K+W_V+b_V", .condition = "768 x 768 already holds all 12 heads"},
    {"page 000, answer", "Q, K and V together: 1,771,776",
     "3*(768*768 + 768)", BERT_LAYER, "W_Q+b_Q+W_K+b_K+W_V+b_V"},
    {"page 000, first answer", "each head's context vector has dimension 768",
     "768", BERT_LAYER, "head_b_V", .condition = "each is d_v = 64 wide"},
    {"page 000, first answer", "the projection of 12 context vectors has 12 * 768 * 768 + 768 = 7,078,656",
     "12*768*768 + 768", BERT_LAYER, "W_O+b_O", .condition = "12 vectors of 64 make 768 inputs: 768 * 768 + 768"},
    {"page 000, first answer", "in all: 21,261,312 + 7,078,656 + 2 * 768 = 28,341,504",
     "12*(3*768*768 + 3*768) + 12*768*768 + 768 + 2*768", BERT_LAYER, "total"},
    {"page 000, first answer", "LayerNorm's 2 * 768 belong to the layer's parameters",
     "4*(768*768 + 768) + 2*768", BERT_LAYER, "total", .condition = "LayerNorm is not part of 2,362,368"},
    {"page 000, answer", "d_model is 786", "4*(786*786 + 786)", BERT_LAYER, "total",
     .condition = "768; 786 is not divisible by 12 heads"},
    {"page 000, picture", "the heads' outputs are Z0 to Z7: 8 heads", "8", BERT_LAYER, "heads"},
    {"page 000, answer", "2,362,368 is the total of a transformer cell",
     "2362368", "bert-base-uncased", "blocks/layers", .condition = "attention alone; feed-forward and norms make 7,087,872"},
    {"page 000, comment", "the answer's dense layer, 768 * 768 + 768, is the feed-forward network",
     "768*768 + 768", "bert-base-uncased", "ffn/layers", .condition = "it is W_O"},
    {"page 000, third answer", "more heads never add parameters, since splitting is a reshape",
     "4*(d_model*d_model + d_model)", "layer d_model=768 h=8 bias=1", "total",
     .otherwise = "layer d_model=768 h=8 d_k=64 bias=1", .condition = "h * d_k = d_model"},

    /* ------------------------------------------------------------ page 001 */
    {"page 001, answer", "the biases are h * (3 * d_k + d_v) + d_model = 2,560",
     "h*(3*d_k + d_v) + d_model", BASE_LAYER, "b_Q+b_K+b_V+b_O", .condition = "h * (2 * d_k + d_v) + d_model"},
    {"page 001, answer", "with biases: d_model 512, 8 heads, d_k = d_v = 64 have 1,051,136",
     "h*d_model*(2*d_k + d_v) + d_model*d_model + h*(3*d_k + d_v) + d_model", BASE_LAYER, "total"},
    {"page 001, example 2", "with biases: d_model 512, 8 heads have 1,050,624", "1050624", BASE_LAYER, "total"},
    {"page 001, example 1", "without biases: d_model 512, 8 heads have 1,048,576",
     "h*d_model*(2*d_k + d_v) + d_model*d_model", "layer d_model=512 h=8", "total"},
    {"page 001, example 1", "1,048,576 is confirmed by a module of four nn.Linear",
     "1048576", BASE_LAYER, "total", .condition = "nn.Linear has biases unless told otherwise"},
    {"page 001, answer", "W_O has the shape (d_model, d_model)",
     "d_model*d_model", BASE_LAYER, "W_O", .otherwise = "layer d_model=512 h=8 d_k=64 d_v=32 bias=1",
     .condition = "h * d_v = d_model"},
    {"page 001, example 3", "d_model 512, 8 heads, d_k 64, d_v 32, no biases: 917,504",
     "h*d_model*(2*d_k + d_v) + d_model*d_model", "layer d_model=512 h=8 d_k=64 d_v=32", "total",
     .condition = "W_O is (h * d_v, d_model)"},
    {"page 001, code", "d_model 512 with 12 heads: d_k = 512 // 12 = 42 gives 1,036,288",
     "h*d_model*3*(d_model/h) + d_model*d_model", "layer d_model=512 h=12 d_k=42", "total",
     .condition = "W_O has 504 rows; PyTorch refuses 12 heads on 512"},

    /* ------------------------------------------------------------ page 002 */
    {"page 002, printout", "RobertaForMaskedLM with 3 heads", "3", "roberta-30522 num_attention_heads=4", "heads",
     .condition = "the configuration says 4"},
    {"page 002, printout", "RobertaForMaskedLM with 4 heads has 109,514,298 parameters",
     "109514298", "roberta-30522 num_attention_heads=4", "total"},
    {"page 002, printout", "RobertaForMaskedLM with 12 heads has 109,514,298 parameters", "109514298", "roberta-30522", "total"},
    {"page 002, answer", "109,514,298 is RoBERTa-base", "109514298", "roberta-base", "total",
     .condition = "it takes BERT's vocabulary of 30,522 with 512 positions and 2 token types"},
    {"page 002, by summing state_dict", "the same model has 132,985,716 parameters",
     "132985716", "roberta-30522", "total", .condition = "tied tensors counted twice"},
    {"page 002, answer", "d_k = d_v = d_model / h", "d_model/h", "roberta-base", "head_W_Q/d_model",
     .otherwise = "qwen3-0.6b", .condition = "the library chooses so"},
    {"page 002, comment", "the embedding has to be a multiple of the heads: W_Q has d_model columns",
     "d_model", "roberta-base", "W_Q_0", .otherwise = "t5-11b", .condition = "h * d_k = d_model"},
    {"page 002, answer", "W_O has the shape (h * d_v, d_model)",
     "h*d_v*d_model", "layer d_model=512 h=8 d_k=64 d_v=32", "W_O"},

    /* ------------------------------------------------------------ page 003 */
    {"page 003, question", "LLaMA-7B's embedding size is 786", "786", "llama-7b", "embedding/V"},
    {"page 003, question", "LLaMA-7B's embedding size is 766", "766", "llama-7b", "embedding/V"},
    {"page 003, question", "the attention has 32 * 766 * 2048 * 4096 = 205 billion parameters",
     "32*766*2048*4096", "llama-7b", "attention"},
    {"page 003, question", "the same with 786: 210,990,268,416", "32*786*2048*4096", "llama-7b", "attention"},
    {"page 003, answer", "wq, wk and wv are dim x n_heads * head_dim",
     "d_model*h*d_k", "llama-7b", "W_K/layers", .otherwise = "llama-2-70b", .condition = "n_kv_heads = n_heads"},
    {"page 003, answer", "wo too is dim x n_heads * head_dim: it reads dim inputs",
     "d_model", "llama-7b", "W_O_1", .otherwise = "mistral-nemo-12b", .condition = "h * d_k = d_model"},
    {"page 003, answer", "each feed-forward matrix is dim x hidden_dim: w2 reads dim inputs",
     "d_model", "llama-7b", "W_2_1", .condition = "w2 is hidden_dim x dim"},
    {"page 003, answer", "the hidden dimension is 11,008", "11008", "llama-7b", "W_1_0"},
    {"page 003, answer", "32 layers of attention and feed-forward have 6,476,005,376",
     "32*(4*4096*4096 + 3*4096*11008)", "llama-7b", "attention+ffn"},
    {"page 003, answer", "6,476,005,376 is everything but the embeddings",
     "32*(4*4096*4096 + 3*4096*11008)", "llama-7b", "total-embedding-head", .condition = "65 RMSNorm vectors: 266,240"},
    {"page 003, answer", "with vocab_size = 50,000 the total is 6,885,605,376",
     "32*(4*4096*4096 + 3*4096*11008) + 2*50000*4096", "llama-7b", "total", .condition = "the vocabulary has 32,000"},
    {"page 003, comment", "n_blocks * n_heads * 4 * head_dim^2 = 67,108,864 parameters in attention",
     "L*h*4*d_k^2", "llama-7b", "attention", .condition = "32 times too few: every head reads all of dim"},
    {"page 003, comment", "each head's matrices are head_dim x head_dim",
     "d_k^2", "llama-7b", "head_W_Q", .condition = "4096 x 128"},
    {"page 003, second answer", "the dense layers are 4096 x 4096", "4096*4096", "llama-7b", "W_1/layers",
     .condition = "those of attention; the feed-forward ones are 4096 x 11008"},
    {"page 003, comment", "the connection after the heads has 128 * 128 * 32 * 4096 = 2,147,483,648",
     "128*128*32*4096", "llama-7b", "W_O/layers", .condition = "W_O is 4096 x 4096"},
    {"page 003, answer", "the context size does not enter: twice as much (LLaMA 2), 6,738,415,616 still",
     "6738415616", "llama-2-7b", "total"},

    /* ------------------------------------------------------------ page 004 */
    {"page 004, question", "one merged matrix in place of W_Q and W_K has d_model^2 elements",
     "d_model^2", "layer d_model=512 h=1", "merged_qk", .otherwise = "layer d_model=512 h=8",
     .condition = "h = 1: every head needs its own"},
    {"page 004, answer", "the pair W_Q, W_K has 2 * d_model^2 / h elements",
     "2*d_model^2/h", "layer d_model=512 h=1", "W_Q+W_K", .otherwise = "layer d_model=512 h=8",
     .condition = "h = 1, or one head is meant"},
    {"page 004, answer", "per head the pair has 2 * d_model^2 / h elements",
     "2*d_model^2/h", "layer d_model=512 h=8", "head_W_Q+head_W_K"},
    {"page 004, question", "the pair has at least as many elements as merged matrices (1: it has)", "1",
     "layer d_model=512 h=1", "W_Q+W_K >= merged_qk", .otherwise = "layer d_model=512 h=8",
     .condition = "h <= 2: equal at h = 2, from h = 3 on the pair is smaller"},
    {"page 004, answer", "W_Q W_K^T of a head is an outer product: rank 1", "1", "layer d_model=64 h=4", "rank_qk",
     .condition = "a matrix product of rank d_k"},
    {"page 004, comment", "arXiv 1906.07510 writes W_Q as d_model x d_model: all heads stacked",
     "d_model^2", "layer d_model=512 h=8", "W_Q"},

    /* ------------------------------------------------------------ the paper */
    {"Vaswani et al. 2017, table 3, base", "65 million parameters", "65*10^6", "transformer-base vocab_size=40000",
     "total", MILLION, .otherwise = "transformer-base", .condition = "the shared vocabulary has 39,841 to 41,793 tokens, not 37,000"},
    {"Vaswani et al. 2017, table 3, big", "213 million parameters", "213*10^6", "transformer-big vocab_size=36000",
     "total", MILLION, .otherwise = "transformer-big", .condition = "the shared vocabulary has 35,368 to 36,344 tokens, not 37,000"},
    {"Vaswani et al. 2017, table 3 (A)", "1 head of width 512: as many parameters as 8 of 64",
     "18*4*512^2", "transformer-base num_attention_heads=1", "attention"},
    {"Vaswani et al. 2017, table 3 (A)", "32 heads of width 16: as many parameters as 8 of 64",
     "18*4*512^2", "transformer-base num_attention_heads=32", "attention"},
    {"Vaswani et al. 2017, table 3 (B)", "d_k = 16: 58 million", "58*10^6",
     "transformer-base vocab_size=40000 d_k=16 d_v=64", "total", MILLION},
    {"Vaswani et al. 2017, table 3 (B)", "d_k = 32: 60 million", "60*10^6",
     "transformer-base vocab_size=40000 d_k=32 d_v=64", "total", MILLION},

    /* ------------------------------------------------------------ libraries */
    {"PyTorch, nn.MultiheadAttention(512, 8)", "in_proj 1536 x 512, out_proj 512 x 512 and biases: 1,050,624",
     "1536*512 + 1536 + 512*512 + 512", BASE_LAYER, "total"},
    {"PyTorch, kdim=256, vdim=128", "722,944", "512*512 + 512*256 + 512*128 + 1536 + 512*512 + 512",
     "layer d_model=512 h=8 kdim=256 vdim=128 bias=1", "total"},
    {"PyTorch, add_bias_kv=True", "1,051,648", "1050624 + 2*512", "layer d_model=512 h=8 bias=1 bias_kv=1", "total"},
    {"Keras, MultiHeadAttention(h, key_dim=64)", "the count does not depend on the heads", "4*(512*512 + 512)",
     "layer d_model=512 h=8 d_k=64 bias=1", "total", .otherwise = "layer d_model=512 h=12 d_k=64 bias=1",
     .condition = "key_dim = d_model / h"},
    {"Keras, MultiHeadAttention(12, key_dim=64)", "1,575,680", "3*(512*768 + 768) + 768*512 + 512",
     "layer d_model=512 h=12 d_k=64 bias=1", "total"},

    /* ------------------------------------------------------------ papers and model cards */
    {"Devlin et al. 2019", "BERT-base has 110M parameters", "110*10^6", "bert-base-uncased class=BertForPreTraining",
     "total", MILLION},
    {"Devlin et al. 2019", "BERT-large has 340M parameters", "340*10^6", "bert-large-uncased class=BertForPreTraining",
     "total", (int64_t)10 * MILLION},
    {"Lan et al. 2020", "ALBERT-base has 12M parameters", "12*10^6", "albert-base-v2", "total", MILLION},
    {"fairseq, model card", "roberta.base has 125M parameters", "125*10^6", "roberta-base", "total", MILLION},
    {"Radford et al. 2019, table 2", "the smallest GPT-2 has 117M parameters", "117*10^6", "gpt2", "total", MILLION},
    {"Radford et al. 2019, table 2", "the second GPT-2 has 345M parameters", "345*10^6", "gpt2-medium", "total", MILLION},
    {"Radford et al. 2019, table 2", "the third GPT-2 has 762M parameters", "762*10^6", "gpt2-large", "total", MILLION},
    {"Radford et al. 2019, table 2", "the largest GPT-2 has 1542M parameters", "1542*10^6", "gpt2-xl", "total", MILLION},
    {"Touvron et al. 2023, table 2", "LLaMA-7B has 6.7B parameters", "67*10^8", "llama-7b", "total", BILLION / 10},
    {"Touvron et al. 2023, table 2", "LLaMA-13B has 13.0B parameters", "130*10^8", "llama-13b", "total", BILLION / 10},
    {"Mistral AI, announcement", "Mistral 7B is a 7.3B parameter model", "73*10^8", "mistral-7b-v0.1", "total", BILLION / 10},
    {"model card", "Gemma 2B has 2B parameters", "2*10^9", "gemma-2b", "total", BILLION},
    {"model card", "Gemma 7B has 7B parameters", "7*10^9", "gemma-7b", "total", BILLION},
    {"model card", "Qwen2-0.5B has 0.49B parameters", "49*10^7", "qwen2-0.5b", "total", BILLION / 100},
    {"Raffel et al. 2020", "T5-11B has 11B parameters", "11*10^9", "t5-11b", "total", BILLION},
    {"Dosovitskiy et al. 2021, table 1", "ViT-Base has 86M parameters", "86*10^6",
     "vit-base-patch16-224 class=ViTModel", "total", MILLION, .otherwise = "vit-base-patch16-224",
     .condition = "there is no classifier for 1000 classes"},

    /* ------------------------------------------------------------ the Hub's counters */
    {"Hub, gpt2", "137,022,720 parameters", "137022720", "gpt2", "total", .condition = "12 causal masks of 1024 x 1024 are buffers"},
    {"Hub, Llama-2-7b-hf", "6,738,417,664 parameters", "6738417664", "llama-2-7b", "total",
     .condition = "32 rotary tables of 64 are buffers"},
    {"Hub, Llama-2-70b-hf", "68,976,653,312 parameters", "68976653312", "llama-2-70b", "total",
     .condition = "80 rotary tables of 64 are buffers"},
    {"Hub, roberta-base", "124,697,433 parameters (F32)", "124697433", "roberta-base", "total"},

    /* ------------------------------------------------------------ what follows from the equation */
    {"shift invariance of softmax", "12 * 768 = 9,216 elements of BERT-base, its key biases, cannot change its output",
     "L*d_model", "bert-base-uncased", "inert"},
    {"grouped heads", "with 64 key/value heads Llama-2-70B would have 21,474,836,480 in attention",
     "80*4*8192^2", "llama-2-70b num_key_value_heads=64", "attention"},
};
/* clang-format on */

const size_t mha__claim_rows_count = sizeof mha__claim_rows / sizeof *mha__claim_rows;
