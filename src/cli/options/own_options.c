/* The tables of the commands and of the program's own options. */
#include "cli/options/tables.h"

#include <string.h>

const command_row command_rows[COMMAND_COUNT] = {
    [CMD_FORWARD] = {"forward", "", 0, 0, "run a layer: random inputs, or real weights and inputs"},
    [CMD_PARAMS] = {"params", "", 0, 0, "the parameter table of a layer, counted from what was allocated"},
    [CMD_HEADS] = {"heads", "", 0, 0, "one width, many head counts: allocate, run, compare the totals"},
    [CMD_SHOW] = {"show", "[FILE...]", 0, SIZE_MAX,
        "what heads look at, in numbers and as a page; from cases, traces or a run"},
    [CMD_CHECK] = {"check", "FILE-or-DIRECTORY...", 1, SIZE_MAX,
        "check case files: compare every stage with the expected one"},
    [CMD_COMPARE] = {"compare", "A[:TENSOR] B[:TENSOR]", 2, 2,
        "compare two tensors, or two files of tensors; of quantised ones, what that cost"},
    [CMD_DIAGNOSE] = {"diagnose", "FILE", 1, 1,
        "find the known bug that produces the output recorded in a case file"},
    [CMD_POWER] = {"power", "[FILE]", 0, 1,
        "which wrong attentions a test with these inputs and this tolerance would accept"},
    [CMD_CONFORM] = {"conform", "", 0, 0,
        "test a kernel in any language: write test cases as files, check its results"},
    [CMD_CLAIMS] = {"claims", "", 0, 0, "published statements about parameter counts, compared with what is allocated"},
    [CMD_BENCH] = {"bench", "", 0, 0, "throughput of one layer, in tokens/s and GFLOP/s, against the machine's limits"},
    [CMD_INFO] = {"info", "", 0, 0, "version, instruction set, BLAS, threads"},
    [CMD_COMPLETION] = {"completion", "SHELL", 1, 1, "completion script for a shell: bash, zsh or fish"},
};

const char *const section_titles[SECTION_COUNT] = {
    [SECTION_SHAPE] = "Shape of the layer",
    [SECTION_SOURCE] = "Weights and inputs",
    [SECTION_MEANING] = "What attention means",
    [SECTION_COMPARED] = "What is compared",
    [SECTION_RESULT] = "What is written",
    [SECTION_MACHINE] = "How it is run",
};

enum {
    ON_FORWARD = 1 << CMD_FORWARD,
    ON_PARAMS = 1 << CMD_PARAMS,
    ON_HEADS = 1 << CMD_HEADS,
    ON_SHOW = 1 << CMD_SHOW,
    ON_CHECK = 1 << CMD_CHECK,
    ON_COMPARE = 1 << CMD_COMPARE,
    ON_DIAGNOSE = 1 << CMD_DIAGNOSE,
    ON_POWER = 1 << CMD_POWER,
    ON_CONFORM = 1 << CMD_CONFORM,
    ON_BENCH = 1 << CMD_BENCH,
    ON_INFO = 1 << CMD_INFO,
    ON_ALL = (1 << COMMAND_COUNT) - 1,
    ON_REPORT = ON_ALL & ~(1 << CMD_COMPLETION),
    ON_RUN = ON_FORWARD | ON_HEADS,               /* commands that run layers */
    ON_COMPUTES = ON_RUN | ON_SHOW | ON_CHECK | ON_BENCH,     /* commands that compute */
    ON_LAYER = ON_FORWARD | ON_SHOW | ON_PARAMS | ON_HEADS | ON_POWER, /* commands that make layers */
    ON_ONE_LAYER = ON_FORWARD | ON_SHOW | ON_PARAMS | ON_POWER,        /* commands that make exactly one layer */
    ON_RECORDED = ON_CHECK | ON_DIAGNOSE,         /* commands that check recorded results */
    ON_DRAWN = ON_RUN | ON_SHOW | ON_POWER,                /* commands that draw inputs */
    ON_CALL = ON_FORWARD | ON_SHOW | ON_RECORDED | ON_POWER, /* commands that take weights and inputs */
    ON_SETTINGS = ON_RUN | ON_CALL                           /* commands that take settings of attention */
};

const unsigned commands_with_settings = ON_SETTINGS, commands_with_layers = ON_LAYER;

#define RANGE(low, high) low, high
#define ANY RANGE(INT64_MIN, INT64_MAX)
#define WIDTH RANGE(1, INT32_MAX) /* CBLAS counts in int */

/* Quantised types in which a layer can store its matrices. */
#define BLOCK_TYPES "q8_0|q4_0|q4_1|q5_0|q5_1|q2_k|q3_k|q4_k|q5_k|q6_k|iq4_nl|iq4_xs|mxfp4" \
                    "|f8_e4m3_scaled|f8_e5m2_scaled"

const option_row own_options[OPTION_COUNT] = {
    [OPT_D_MODEL] = {"d-model", COUNT, "N", "768", WIDTH, SECTION_SHAPE, ON_LAYER, "width of the model"},
    [OPT_HEADS] = {"heads", COUNT, "N", "12", WIDTH, SECTION_SHAPE, ON_ONE_LAYER | ON_RECORDED,
        "query heads [with --weights: as its configuration states]"},
    [OPT_HEAD_LIST] = {"heads", COUNTS, "N,N,...", NULL, WIDTH, SECTION_SHAPE, ON_HEADS,
        "head counts to compare [those of 1,2,3,4,6,8,12 that divide d_model]"},
    [OPT_KV_HEADS] = {"kv-heads", COUNT, "N", NULL, WIDTH, SECTION_SHAPE, ON_LAYER | ON_RECORDED,
        "key/value heads; must divide heads [heads]"},
    [OPT_D_K] = {"d-k", COUNT, "N", NULL, WIDTH, SECTION_SHAPE, ON_LAYER | ON_RECORDED,
        "width of one head of Q and K [d_model / heads]"},
    [OPT_BIAS] = {"bias", FLAG, NULL, NULL, ANY, SECTION_SHAPE, ON_LAYER,
        "with b_Q, b_K, b_V and b_O (the default without --kv-rank)"},
    [OPT_NO_BIAS] = {"no-bias", FLAG, NULL, NULL, ANY, SECTION_SHAPE, ON_LAYER,
        "without these biases (the default with --kv-rank)"},
    [OPT_BATCH] = {"batch", COUNT, "N", "1", WIDTH, SECTION_SHAPE, ON_RUN | ON_POWER | ON_PARAMS | ON_BENCH,
        "batch rows; params, bench with a model: sequences of the pass that --seq counts or measures"},
    [OPT_BATCH_ROW] = {"batch", COUNT, "N", NULL, RANGE(0, INT32_MAX), SECTION_RESULT, ON_SHOW,
        "the batch row or sequence that is shown, counted from 0 [all]"},
    [OPT_SEQ] = {"seq", COUNT, "N", "128", WIDTH, SECTION_SHAPE, ON_DRAWN, "queries in each batch row"},
    [OPT_KV_SEQ] = {"kv-seq", COUNT, "N", NULL, WIDTH, SECTION_SHAPE, ON_DRAWN,
        "keys in each batch row: cross-attention [self-attention: as many as queries]"},
    [OPT_PRESET] = {"preset", TEXT, "NAME", NULL, ANY, SECTION_SOURCE, ON_LAYER | ON_BENCH,
        "a model that is built in: gpt2, bert-base-uncased, llama-2-70b, ...; \"list\" lists them"},
    [OPT_CONFIG] = {"config", FILE_NAME, "FILE", NULL, ANY, SECTION_SOURCE, ON_LAYER | ON_RECORDED | ON_BENCH,
        "the model that a config.json describes"},
    [OPT_ARCHITECTURE] = {"architecture", FILE_NAME, "FILE", NULL, ANY, SECTION_SOURCE, ON_PARAMS | ON_HEADS | ON_BENCH,
        "what the configuration means: a description of your own (mha help architectures)"},
    [OPT_CLASS] = {"class", TEXT, "NAME", NULL, ANY, SECTION_SOURCE, ON_PARAMS | ON_HEADS,
        "the model's head: BertForMaskedLM, MaskedLM, pooler, ... [as its configuration states]"},
    [OPT_DTYPE] = {"dtype", CHOICE, "f32|f64|f16|bf16|" BLOCK_TYPES, "f32", ANY, SECTION_SOURCE, ON_LAYER,
        "type the weights are stored in; quantised matrices of a file stay as they are if this is not given"},
    [OPT_BENCH_DTYPE] = {"dtype", CHOICE, "f32|f16|bf16|" BLOCK_TYPES, NULL, ANY, SECTION_SHAPE, ON_BENCH,
        "type the weights are stored in [that of --precision]"},
    [OPT_ROUND_DTYPE] = {"dtype", CHOICE, "q8_0|q4_0", NULL, ANY, SECTION_COMPARED, ON_COMPARE,
        "what rounding costs: B's attention layers are read with their matrices in this type, and compared with A's"},
    [OPT_CACHE_DTYPE] = {"cache-dtype", CHOICE, "f32|f16|bf16|i8", NULL, ANY, SECTION_SHAPE, ON_FORWARD | ON_BENCH,
        "type of the key/value cache [bench, where it decodes: that of --precision; forward: no cache]"},
    [OPT_COST_SEQ] = {"seq", COUNT, "N", NULL, WIDTH, SECTION_SHAPE, ON_PARAMS | ON_BENCH,
        "tokens in a sequence: shows the cost of a model's forward pass and key/value cache; bench: [512]"},
    [OPT_ENCODER_SEQ] = {"encoder-seq", COUNT, "N", NULL, WIDTH, SECTION_SHAPE, ON_PARAMS,
        "beside --seq: tokens that the encoder reads, to which the decoder attends [of the configuration, or --seq]"},
    [OPT_RANKS] = {"ranks", COUNT, "P", NULL, RANGE(1, 1 << 20), SECTION_SHAPE, ON_PARAMS,
        "processes that share the attention of a model over --seq tokens [4096]: what each holds and sends"},
    [OPT_MACHINE] = {"machine", TEXT, "F,M,L,B[,C,N]", NULL, ANY, SECTION_MACHINE, ON_PARAMS,
        "beside --ranks, the time: GFLOP/s of a rank, GB/s read, us of a message, GB/s of a link; node's cores, ranks"},
    [OPT_RUN] = {"run", FLAG, NULL, NULL, ANY, SECTION_MACHINE, ON_HEADS,
        "also runs the attention layers of the model"},
    [OPT_WEIGHTS] = {"weights", FILE_NAME, "FILE", NULL, ANY, SECTION_SOURCE, ON_CALL | ON_PARAMS,
        "weights of a public checkpoint or with mha's own names; needs --heads or a config.json beside it"},
    [OPT_LAYER] = {"layer", TEXT, "PREFIX", NULL, ANY, SECTION_SOURCE, ON_CALL,
        "which attention layer of the file or model: the beginning of its tensors' names"},
    [OPT_ORIENTATION] = {"orientation", CHOICE, "in-out|out-in", NULL, ANY, SECTION_SOURCE, ON_CALL,
        "order of the axes of the file's matrices, where names and shapes do not show it"},
    [OPT_INPUT] = {"input", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SECTION_SOURCE, ON_CALL,
        "query input, (B, T, d_q) or (T, d_q); keys and values too unless given"},
    [OPT_KEY_INPUT] = {"key-input", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SECTION_SOURCE, ON_CALL,
        "key input; values too unless given"},
    [OPT_VALUE_INPUT] = {"value-input", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SECTION_SOURCE, ON_CALL,
        "value input"},
    [OPT_SEED] = {"seed", COUNT, "N", "0", RANGE(0, INT64_MAX), SECTION_SOURCE, ON_DRAWN,
        "seed of random weights and inputs"},
    [OPT_POSITION_OFFSET] = {"position-offset", COUNTS, "N,N,...", NULL, ANY, SECTION_MEANING, ON_SETTINGS,
        "position of query 0 of each batch row, or of all, for causal, window, ALiBi and rope [0]"},
    [OPT_WINDOW] = {"window", INTEGERS, "L,R", NULL, RANGE(-1, INT64_MAX), SECTION_MEANING, ON_SETTINGS,
        "a query at position p sees keys p-L to p+R; -1 is open"},
    [OPT_ALIBI] = {"alibi", FLAG, NULL, NULL, ANY, SECTION_MEANING, ON_SETTINGS,
        "adds -slope (distance from query to key) to the scores, with the slopes of Press et al."},
    [OPT_SIGMOID] = {"sigmoid", REAL, "X", NULL, ANY, SECTION_MEANING, ON_SETTINGS,
        "weights are 1 / (1 + exp(-(score + X))), each key by itself, in place of a softmax"},
    [OPT_SINKS] = {"sinks", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SECTION_MEANING, ON_CALL,
        "one more logit of each head in the denominator of its softmax, (heads)"},
    [OPT_EXPECTED] = {"expected", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SECTION_COMPARED, ON_RECORDED,
        "a recorded output for --weights and --input, in place of a case file"},
    [OPT_RTOL] = {"rtol", REAL, "X", "0", RANGE(0, INT64_MAX), SECTION_COMPARED, ON_COMPARE | ON_POWER,
        "a and b agree when |a - b| <= atol + rtol |b|; power: [what mha check allows]"},
    [OPT_ATOL] = {"atol", REAL, "X", "0", RANGE(0, INT64_MAX), SECTION_COMPARED, ON_COMPARE | ON_POWER,
        "see --rtol"},
    [OPT_NMSE] = {"nmse", REAL, "X", NULL, RANGE(0, INT64_MAX), SECTION_COMPARED, ON_POWER,
        "the test accepts a normalised mean squared error up to X, in place of --rtol and --atol"},
    [OPT_COSINE] = {"cosine", REAL, "X", NULL, RANGE(-1, INT64_MAX), SECTION_COMPARED, ON_POWER,
        "the test accepts a cosine similarity from X on, in place of --rtol and --atol"},
    [OPT_PRECISION] = {"precision", CHOICE, "f32|tf32|f16|bf16", "f32", ANY, SECTION_COMPARED,
        ON_POWER | ON_RECORDED,
        "type in which the tested implementation computes: rounding to it is no bug; a case says so itself"},
    [OPT_RUN_PRECISION] = {"precision", CHOICE, "f32|tf32|f16|bf16", "f32", ANY, SECTION_MACHINE,
        ON_FORWARD | ON_BENCH,
        "inputs, projections, weights of values, output are rounded to it; --path exact, or --dtype bf16 for bf16"},
    [OPT_SUGGEST] = {"suggest", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_POWER,
        "writes a case with inputs that show as much as possible, for the given sizes and options"},
    [OPT_WITH] = {"with", TEXT,
        "mask|keeps|padding|lengths|empty|poison|past|sinks|norms", NULL, ANY, SECTION_RESULT, ON_POWER,
        "what the suggested inputs have, with commas between"},
    [OPT_KIND] = {"kind", CHOICE, "mha|sdpa", "mha", ANY, SECTION_RESULT, ON_POWER,
        "suggest a whole layer, or query, key and value for each head"},
    [OPT_SHAPE] = {"shape", TEXTS,
        "NAME|B,Tq,Tk,d_model,h[,kv=N][,dk=N][,docs=N][,causal][,nobias][,shared]", NULL, ANY, SECTION_SHAPE, ON_BENCH,
        "what to measure; may be given several times; \"list\" lists the names, \"standard\" is a set [bert1x512]"},
    [OPT_PART] = {"part", CHOICE, "all|both|layer|core|proj", "layer", ANY, SECTION_SHAPE, ON_BENCH,
        "the whole layer; attention alone, with Q, K, V given; the projections alone; both: the first two"},
    [OPT_ROUNDS] = {"rounds", COUNT, "N", "5", RANGE(1, 1000), SECTION_MACHINE, ON_BENCH,
        "number of rounds; each round runs all paths and thread counts"},
    [OPT_SECONDS] = {"seconds", COUNT, "N", "5", RANGE(0, 3600), SECTION_MACHINE, ON_BENCH,
        "time after which a part of a shape gets no third or later round"},
    [OPT_CSV] = {"csv", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_BENCH | ON_PARAMS, "as --format csv"},
    [OPT_TENSOR] = {"tensor", TEXT, "NAME", NULL, ANY, SECTION_COMPARED, ON_DIAGNOSE,
        "the tensor to explain: expected.output, or the name of a stage [the output; if it is right, "
        "the first wrong stage]"},
    [OPT_STAGE] = {"stage", TEXT, "NAME", NULL, ANY, SECTION_COMPARED,
        ON_FORWARD | ON_SHOW | ON_RECORDED | ON_POWER,
        "the only stage to check, show, or write with --trace; with --expected: the stage in its file; of power also a "
        "gradient, or gradients: all that a case has [the output]"},
    [OPT_GROUP] = {"group", CHOICE, "role|layer|dtype|part", NULL, ANY, SECTION_RESULT, ON_PARAMS,
        "show the sums of a model or file by this property"},
    [OPT_DEPTH] = {"depth", COUNT, "N", NULL, WIDTH, SECTION_RESULT, ON_PARAMS,
        "show the sums by the first N components of the names"},
    [OPT_ONLY] = {"only", CHOICE, "attention|ffn|norm|embedding|head", NULL, ANY, SECTION_RESULT, ON_PARAMS,
        "show only this part of a model"},
    [OPT_SORT] = {"sort", CHOICE, "elements|name", NULL, ANY, SECTION_RESULT, ON_PARAMS,
        "order of the rows [the checkpoint's]"},
    [OPT_ALL_ROWS] = {"all", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_PARAMS,
        "every row of a model: blocks are not folded"},
    [OPT_PER_HEAD] = {"per-head", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_PARAMS,
        "also show each head's slice of every weight"},
    [OPT_FORMAT] = {"format", CHOICE, "table|json|csv|markdown|latex", "table", ANY, SECTION_RESULT,
        ON_BENCH | ON_PARAMS, "how the table is written"},
    [OPT_HEAD] = {"head", COUNT, "N", NULL, RANGE(0, INT32_MAX), SECTION_RESULT, ON_FORWARD | ON_SHOW,
        "the head whose attention is shown, counted from 0 [the first ones]"},
    [OPT_QUERY] = {"query", COUNT, "N", NULL, RANGE(0, INT32_MAX), SECTION_RESULT, ON_FORWARD | ON_SHOW,
        "the query whose attention is shown, counted from 0 [forward: a few; show: all]"},
    [OPT_ROWS] = {"rows", TEXT, "A:B", NULL, ANY, SECTION_RESULT, ON_SHOW, "the queries A to B - 1 alone"},
    [OPT_KEYS] = {"keys", TEXT, "A:B", NULL, ANY, SECTION_RESULT, ON_SHOW, "the keys A to B - 1 alone"},
    [OPT_TOKENS] = {"tokens", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_SHOW,
        "the names of the tokens: a line for each, or a JSON array; or a GGUF, whose vocabulary names recorded ids"},
    [OPT_PICTURE] = {"picture", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT,
        ON_SHOW | ON_FORWARD | ON_RECORDED | ON_COMPARE,
        "writes a picture: .html, a page that needs nothing but a browser; .svg; .png"},
    [OPT_AREAS] = {"picture", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_PARAMS,
        "draws who has how many parameters, each storage once: .svg, .html"},
    [OPT_BARS] = {"picture", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_BENCH,
        "draws the fastest paths beside the machine's limits; --wide: every path: .svg, .html"},
    [OPT_LOG] = {"log", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_SHOW,
        "colours stand for six decades of weights: .svg, .png, terminal"},
    [OPT_OUTPUT] = {"output", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_FORWARD,
        "writes the output: .npy or .safetensors"},
    [OPT_TRACE] = {"trace", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_FORWARD,
        "writes every stage, by name: .safetensors"},
    [OPT_SAVE_CASE] = {"save-case", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_FORWARD,
        "writes inputs, weights and every stage as a case for mha check"},
    [OPT_WIDE] = {"wide", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_REPORT,
        "tables of all columns, however wide the terminal is"},
    [OPT_JSON] = {"json", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_REPORT, "one JSON object instead of text"},
    [OPT_QUIET] = {"quiet", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_REPORT, "no text: only files and the exit code"},
    [OPT_HELP] = {"help", FLAG, NULL, NULL, ANY, SECTION_RESULT, ON_ALL, "this text"},
    [OPT_WRITE] = {"write", TEXT, "DIR", NULL, ANY, SECTION_RESULT, ON_CONFORM,
        "writes the test cases into DIR/cases, with the exact results, and DIR/index.json"},
    [OPT_CHECK] = {"check", TEXT, "DIR", NULL, ANY, SECTION_COMPARED, ON_CONFORM,
        "checks the results in DIR/results: NAME.safetensors or NAME.npz with output, and where asked lse, d_query, "
        "d_key, d_value; NAME.npy"},
    [OPT_LEVEL] = {"level", CHOICE, "smoke|full|large", "full", ANY, SECTION_COMPARED, ON_CONFORM,
        "how much is asked: smoke takes seconds, full minutes, large has sequences of 65,537 keys"},
    [OPT_ASKED_DTYPE] = {"dtype", CHOICE, "f32|f16|bf16", "f32", ANY, SECTION_COMPARED, ON_CONFORM,
        "what the kernel computes in; the numbers of the test cases are exact in it"},
    [OPT_HAS] = {"has", TEXT, "WORDS", NULL, ANY, SECTION_COMPARED, ON_CONFORM,
        "what the kernel has, as \"causal,gqa,window\": only test cases that need no more [everything]"},
    [OPT_ASKED_ONLY] = {"only", TEXT, "TEXT", NULL, ANY, SECTION_COMPARED, ON_CONFORM,
        "test cases whose names have this text in them [all]"},
    [OPT_CONVENTION] = {"convention", TEXT, "NAME=CHOICE,...", NULL, ANY, SECTION_COMPARED, ON_CONFORM,
        "how the kernel understands what others read differently, as \"alignment=bottom-right\" [found by asking]"},
    [OPT_JUNIT] = {"junit", FILE_NAME, "FILE", NULL, ANY, SECTION_RESULT, ON_CONFORM,
        "with --check: writes the verdicts as JUnit's XML"},
    [OPT_SAMPLE] = {"sample", COUNT, "N", NULL, RANGE(1, INT64_MAX), SECTION_COMPARED, ON_RECORDED,
        "query rows of each batch row that are computed exactly [all; 256 of a large case]"},
    [OPT_TIME_LIMIT] = {"time-limit", REAL, "SECONDS", "60", RANGE(0, INT64_MAX), SECTION_MACHINE, ON_DIAGNOSE,
        "how long known bugs are tried; then it reports what it knows, and how many are left"},
    [OPT_MEMORY_LIMIT] = {"memory-limit", REAL, "GB", "1.5", RANGE(0, INT64_MAX), SECTION_MACHINE, ON_DIAGNOSE,
        "memory for trying known bugs; those that need more are left"},
    [OPT_PATH] = {"path", CHOICE, "auto|fast|blas|exact", "auto", ANY, SECTION_MACHINE, ON_COMPUTES,
        "how to compute (mha help paths); exact is float64 in plain loops"},
    [OPT_ISA] = {"isa", TEXT, "NAME", NULL, ANY, SECTION_MACHINE, ON_COMPUTES | ON_INFO,
        "instruction set of the kernels [the best]"},
    [OPT_THREADS] = {"threads", COUNT, "N", NULL, RANGE(1, 1024), SECTION_MACHINE, ON_COMPUTES | ON_DIAGNOSE | ON_POWER,
        "threads [all that are available]"},
    [OPT_NO_PACK] = {"no-pack", FLAG, NULL, NULL, ANY, SECTION_MACHINE, ON_FORWARD | ON_BENCH,
        "no packed copies of the weights: the fast path projects by BLAS"},
    [OPT_JOBS] = {"jobs", COUNT, "N", "1", RANGE(1, 1024), SECTION_MACHINE, ON_CHECK,
        "cases checked at a time; with more than one, each case runs on one thread unless --threads says otherwise"},
};

bool is_spelt(const char *option, size_t n, const char *name, size_t length)
{
    size_t same = 0;
    while (same < n && same < length && name[same] == (option[same] == '_' ? '-' : option[same]))
        same++;
    return same == n && n == length;
}

bool is_own_option(const char *name, size_t length)
{
    for (option_code own = 0; own < OPTION_COUNT; own++)
        if (own_options[own].name[0] == *name && /* most differ there */
            is_spelt(name, length, own_options[own].name, strlen(own_options[own].name)))
            return true;
    return false;
}
