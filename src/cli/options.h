/* The commands and options of the program: two tables from which parsing, help and completion follow. */
#ifndef MHA_CLI_OPTIONS_H
#define MHA_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arguments arguments;

/* ---------------------------------------------------------------- commands */

/* Code, name, operands, how many of them (least, most), the function that runs it, one line of help. */
#define COMMAND_LIST(X)                                                                                                \
    X(FORWARD, "forward", "", 0, 0, run_forward, "run a layer: random inputs, or real weights and inputs")             \
    X(PARAMS, "params", "", 0, 0, run_params, "the parameter table of a layer, counted from what was allocated")       \
    X(HEADS, "heads", "", 0, 0, run_heads, "one width, many head counts: allocate, run, compare the totals")           \
    X(CHECK, "check", "FILE-or-DIRECTORY...", 1, SIZE_MAX, run_check,                                                  \
      "judge case files: every stage against what was expected")                                                       \
    X(COMPARE, "compare", "A[:TENSOR] B[:TENSOR]", 2, 2, run_compare,                                                  \
      "two tensors, or two files of tensors, and everything about their difference")                                   \
    X(DIAGNOSE, "diagnose", "FILE", 1, 1, run_diagnose,                                                                \
      "somebody's output in a case file: which named variant of attention produces it")                                \
    X(CLAIMS, "claims", "", 0, 0, run_claims,                                                                          \
      "published statements about parameter counts, held against what is allocated")                                   \
    X(BENCH, "bench", "", 0, 0, run_bench, "throughput, against the machine's limit")                                  \
    X(INFO, "info", "", 0, 0, run_info, "version, instruction set, BLAS, threads")                                     \
    X(COMPLETION, "completion", "SHELL", 1, 1, run_completion, "completion script for a shell (bash)")

typedef enum command_code {
#define COMMAND_ENUM(code, name, operands, least, most, run, help) CMD_##code,
    COMMAND_LIST(COMMAND_ENUM)
#undef COMMAND_ENUM
    COMMAND_COUNT
} command_code;

typedef struct command_row {
    const char *name, *operands;
    size_t least, most;
    int (*run)(const arguments *args); /* gives the exit code */
    const char *help;
} command_row;

extern const command_row commands[COMMAND_COUNT];

#define COMMAND_FUNCTION(code, name, operands, least, most, run, help) int run(const arguments *args);
COMMAND_LIST(COMMAND_FUNCTION)
#undef COMMAND_FUNCTION

enum {
#define COMMAND_BIT(code, name, operands, least, most, run, help) ON_##code = 1 << CMD_##code,
    COMMAND_LIST(COMMAND_BIT)
#undef COMMAND_BIT
    ON_ALL = (1 << COMMAND_COUNT) - 1,
    ON_REPORT = ON_ALL & ~ON_COMPLETION,
    ON_RUN = ON_FORWARD | ON_HEADS,               /* commands that run a layer */
    ON_JUDGE = ON_RUN | ON_CHECK | ON_BENCH,      /* commands that run something */
    ON_LAYER = ON_FORWARD | ON_PARAMS | ON_HEADS, /* commands that make one */
    ON_ONE_LAYER = ON_FORWARD | ON_PARAMS         /* commands that make exactly one */
};

/* ---------------------------------------------------------------- options */

typedef enum option_type {
    FLAG,     /* no argument */
    COUNT,    /* a whole number */
    COUNTS,   /* whole numbers between commas */
    INTEGER,  /* a whole number, perhaps negative */
    INTEGERS, /* two of them with a comma between */
    REAL,     /* a finite number */
    CHOICE,   /* one word of those its form lists */
    TEXT,     /* a name */
    TEXTS,    /* a name, as often as one likes */
    FILE_NAME /* a file, perhaps with :TENSOR behind it */
} option_type;

#define SECTION_LIST(X)                                                                                                \
    X(SHAPE, "Shape of the layer")                                                                                     \
    X(SOURCE, "Weights and inputs")                                                                                    \
    X(MEANING, "Which keys a query sees, and how")                                                                     \
    X(COMPARED, "What is compared")                                                                                    \
    X(RESULT, "What is written")                                                                                       \
    X(MACHINE, "How it is run")

typedef enum section {
#define SECTION_ENUM(code, title) SECTION_##code,
    SECTION_LIST(SECTION_ENUM)
#undef SECTION_ENUM
    SECTION_COUNT
} section;

extern const char *const section_titles[SECTION_COUNT];

#define RANGE(low, high) low, high
#define ANY RANGE(INT64_MIN, INT64_MAX)
#define WIDTH RANGE(1, INT32_MAX) /* CBLAS counts in int */

/* Code, name, type, form of the argument, default (NULL: none, or computed), smallest and largest
 * value (reals have no largest), section, commands that take it, help. A name has two rows where commands read it differently. */
#define OPTION_LIST(X)                                                                                                 \
    X(D_MODEL, "d-model", COUNT, "N", "768", WIDTH, SHAPE, ON_LAYER, "width of the model")                             \
    X(HEADS, "heads", COUNT, "N", "12", WIDTH, SHAPE, ON_ONE_LAYER, "query heads")                                     \
    X(HEAD_LIST, "heads", COUNTS, "N,N,...", NULL, WIDTH, SHAPE, ON_HEADS,                                             \
      "head counts to compare [those of 1,2,3,4,6,8,12 that divide d_model]")                                          \
    X(KV_HEADS, "kv-heads", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "key/value heads; must divide heads [heads]")    \
    X(D_K, "d-k", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "width of one head of Q and K [d_model / heads]")          \
    X(D_V, "d-v", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "width of one head of V [d_k]")                            \
    X(D_Q, "d-q", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "width of the query input [d_model]")                      \
    X(KDIM, "kdim", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "width of the key input [d_model]")                      \
    X(VDIM, "vdim", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "width of the value input [kdim]")                       \
    X(D_OUT, "d-out", COUNT, "N", NULL, WIDTH, SHAPE, ON_LAYER, "width of the output [d_model]")                       \
    X(BIAS, "bias", FLAG, NULL, NULL, ANY, SHAPE, ON_LAYER, "with b_Q, b_K, b_V and b_O (the default)")                \
    X(NO_BIAS, "no-bias", FLAG, NULL, NULL, ANY, SHAPE, ON_LAYER, "without them")                                      \
    X(BATCH, "batch", COUNT, "N", "1", WIDTH, SHAPE, ON_RUN, "batch rows")                                             \
    X(SEQ, "seq", COUNT, "N", "128", WIDTH, SHAPE, ON_RUN, "queries in each batch row")                                \
    X(KV_SEQ, "kv-seq", COUNT, "N", NULL, WIDTH, SHAPE, ON_RUN,                                                        \
      "keys in each batch row: cross-attention [self-attention: as many as queries]")                                  \
    X(MERGED_QK, "merged-qk", FLAG, NULL, NULL, ANY, SHAPE, ON_FORWARD | ON_PARAMS,                                    \
      "one matrix per head in place of W_Q and W_K: its cost, its rank, the same scores")                              \
    X(PRESET, "preset", TEXT, "NAME", NULL, ANY, SOURCE, ON_LAYER,                                                     \
      "a model that is built in: gpt2, bert-base-uncased, llama-2-70b, ...; \"list\" lists them")                        \
    X(CONFIG, "config", FILE_NAME, "FILE", NULL, ANY, SOURCE, ON_LAYER, "the model of a config.json")             \
    X(CLASS, "class", TEXT, "NAME", NULL, ANY, SOURCE, ON_PARAMS | ON_HEADS,                                           \
      "its head: BertForMaskedLM, MaskedLM, pooler, ... [what its configuration names]")                               \
    X(DTYPE, "dtype", CHOICE, "f32|f64|f16|bf16", "f32", ANY, SOURCE, ON_LAYER, "type the weights are stored in")       \
    X(BENCH_DTYPE, "dtype", CHOICE, "f32|f16|bf16", "f32", ANY, SHAPE, ON_BENCH, "type the weights are stored in")     \
    X(CACHE_DTYPE, "cache-dtype", CHOICE, "f32|f16|bf16", NULL, ANY, SHAPE, ON_FORWARD | ON_BENCH,                     \
      "type of the key/value cache [bench, where it decodes: f32; forward: no cache]")                                 \
    X(TOUCH, "touch", FLAG, NULL, NULL, ANY, SOURCE, ON_PARAMS, "writes the model's weights, so that the memory is used")\
    X(COST_BATCH, "batch", COUNT, "N", "1", WIDTH, SHAPE, ON_PARAMS, "sequences, for the cost of a pass (--seq)")      \
    X(COST_SEQ, "seq", COUNT, "N", NULL, WIDTH, SHAPE, ON_PARAMS,                                                      \
      "length: shows what a forward pass and the key/value cache of a model cost")                                     \
    X(RUN, "run", FLAG, NULL, NULL, ANY, MACHINE, ON_HEADS, "runs the attention layers of the model, too")             \
    X(WEIGHTS, "weights", FILE_NAME, "FILE", NULL, ANY, SOURCE, ON_FORWARD | ON_PARAMS,                                 \
      "weights of a public checkpoint or of our own names; --heads or a config.json beside it")                        \
    X(LAYER, "layer", TEXT, "PREFIX", NULL, ANY, SOURCE, ON_FORWARD,                                                   \
      "which attention layer of the file or model: how the names of its tensors begin")                                \
    X(ORIENTATION, "orientation", CHOICE, "in-out|out-in", NULL, ANY, SOURCE, ON_FORWARD,                              \
      "how matrices lie in the file, where names and shapes do not tell")                                              \
    X(INPUT, "input", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SOURCE, ON_FORWARD,                                       \
      "query input, (B, T, d_q) or (T, d_q); keys and values too unless given")                                        \
    X(KEY_INPUT, "key-input", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SOURCE, ON_FORWARD,                               \
      "key input; values too unless given")                                                                            \
    X(VALUE_INPUT, "value-input", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, SOURCE, ON_FORWARD, "value input")            \
    X(SEED, "seed", COUNT, "N", "0", RANGE(0, INT64_MAX), SOURCE, ON_RUN, "seed of random weights and inputs")         \
    X(CAUSAL, "causal", FLAG, NULL, NULL, ANY, MEANING, ON_RUN, "query i sees key j only if j <= i + offset")          \
    X(POSITION_OFFSET, "position-offset", INTEGER, "N", NULL, ANY, MEANING, ON_FORWARD,                                \
      "position of query 0 for causal, window and rope [0]")                                                           \
    X(WINDOW, "window", INTEGERS, "L,R", NULL, RANGE(-1, INT64_MAX), MEANING, ON_FORWARD,                              \
      "a query at position p sees keys p-L to p+R; -1 is open")                                                        \
    X(SCALE, "scale", REAL, "X", NULL, ANY, MEANING, ON_FORWARD, "factor on Q K^T [1/sqrt(d_k)]")                      \
    X(SOFTCAP, "softcap", REAL, "X", NULL, RANGE(0, INT64_MAX), MEANING, ON_FORWARD,                                   \
      "scores become X tanh(score / X) before keys are hidden; 0 is off")                                              \
    X(ROPE, "rope", CHOICE, "interleaved|half", NULL, ANY, MEANING, ON_FORWARD,                                        \
      "rotate Q and K by position, in this pairing")                                                                   \
    X(ROPE_DIM, "rope-dim", COUNT, "N", NULL, WIDTH, MEANING, ON_FORWARD, "features of each head rotated [d_k]")       \
    X(ROPE_BASE, "rope-base", REAL, "X", NULL, RANGE(1, INT64_MAX), MEANING, ON_FORWARD,                               \
      "base of the rotation's angles [10000]")                                                                         \
    X(MASK, "mask", FILE_NAME, "FILE[:TENSOR]", NULL, ANY, MEANING, ON_FORWARD,                                        \
      "mask, broadcast from the right to (B, h, T_q, S)")                                                              \
    X(MASK_KIND, "mask-kind", CHOICE, "additive|keeps|hides", NULL, ANY, MEANING, ON_FORWARD,                          \
      "numbers to add, or true where a key stays or goes [additive for numbers]")                                      \
    X(LENGTHS, "lengths", COUNTS, "N,N,...", NULL, RANGE(0, INT64_MAX), MEANING, ON_FORWARD,                           \
      "keys that are real, one number for each batch row; later ones are hidden")                                      \
    X(EMPTY_ROWS, "empty-rows", CHOICE, "zero|nan", "zero", ANY, MEANING, ON_FORWARD,                                  \
      "weights of a query that sees no key")                                                                           \
    X(HIDDEN_VALUES, "hidden-values", CHOICE, "ignore|propagate", "ignore", ANY, MEANING, ON_FORWARD,                  \
      "a hidden key's value row: left out, or times 0, which keeps its NaN")                                           \
    X(RTOL, "rtol", REAL, "X", "0", RANGE(0, INT64_MAX), COMPARED, ON_COMPARE,                                         \
      "a and b agree when |a - b| <= atol + rtol |b|")                                                                 \
    X(ATOL, "atol", REAL, "X", "0", RANGE(0, INT64_MAX), COMPARED, ON_COMPARE, "see --rtol")                           \
    X(SHAPE, "shape", TEXTS, "NAME|B,Tq,Tk,d_model,h[,kv=N][,dk=N][,causal][,nobias]", NULL, ANY, SHAPE, ON_BENCH,       \
      "what to measure, as often as one likes; \"list\" lists the names [a standard set]")                              \
    X(PART, "part", CHOICE, "all|both|layer|core|proj", "all", ANY, SHAPE, ON_BENCH,                                   \
      "the whole layer; attention alone, with Q, K, V given; the projections alone; both: the first two")             \
    X(ROUNDS, "rounds", COUNT, "N", "5", RANGE(1, 1000), MACHINE, ON_BENCH, "rounds in which all take turns")          \
    X(SECONDS, "seconds", COUNT, "N", "5", RANGE(0, 3600), MACHINE, ON_BENCH,                                          \
      "no third or later round of a part of a shape after this")                                                       \
    X(CSV, "csv", FLAG, NULL, NULL, ANY, RESULT, ON_BENCH, "comma-separated values")                                   \
    X(PLOT, "plot", FILE_NAME, "FILE.svg", NULL, ANY, RESULT, ON_BENCH,                                                \
      "draws throughput and roofline with gnuplot")                                                                    \
    X(TENSOR, "tensor", TEXT, "NAME", NULL, ANY, COMPARED, ON_DIAGNOSE,                                                \
      "the tensor to explain: expected.output, or a stage alone [the output]")                                         \
    X(STAGE, "stage", TEXT, "NAME", NULL, ANY, COMPARED, ON_CHECK, "judge this stage only")                            \
    X(GROUP, "group", CHOICE, "role|layer|dtype|part", NULL, ANY, RESULT, ON_PARAMS, "sums of a model or file by this")\
    X(DEPTH, "depth", COUNT, "N", NULL, WIDTH, RESULT, ON_PARAMS, "sums by the first N components of the names")       \
    X(ONLY, "only", CHOICE, "attention|ffn|norm|embedding|head", NULL, ANY, RESULT, ON_PARAMS, "this part alone")      \
    X(SORT, "sort", CHOICE, "elements|name", NULL, ANY, RESULT, ON_PARAMS, "in this order [the checkpoint's]")         \
    X(ALL_ROWS, "all", FLAG, NULL, NULL, ANY, RESULT, ON_PARAMS, "every row of a model: blocks are not folded")        \
    X(PER_HEAD, "per-head", FLAG, NULL, NULL, ANY, RESULT, ON_PARAMS, "each head's slice of every weight, too")        \
    X(FORMAT, "format", CHOICE, "table|json|csv|markdown", "table", ANY, RESULT, ON_PARAMS,                            \
      "how the table is written")                                                                                      \
    X(OUTPUT, "output", FILE_NAME, "FILE", NULL, ANY, RESULT, ON_FORWARD, "writes the output: .npy or .safetensors")   \
    X(TRACE, "trace", FILE_NAME, "FILE", NULL, ANY, RESULT, ON_FORWARD, "writes every stage, by name: .safetensors")   \
    X(SAVE_CASE, "save-case", FILE_NAME, "FILE", NULL, ANY, RESULT, ON_FORWARD,                                        \
      "writes inputs, weights and every stage as a case for mha check")                                                \
    X(JSON, "json", FLAG, NULL, NULL, ANY, RESULT, ON_REPORT, "one JSON object instead of text")                       \
    X(QUIET, "quiet", FLAG, NULL, NULL, ANY, RESULT, ON_REPORT, "no text: only files and the exit code")               \
    X(HELP, "help", FLAG, NULL, NULL, ANY, RESULT, ON_ALL, "this text")                                                \
    X(PATH, "path", CHOICE, "auto|fast|blas|exact", "auto", ANY, MACHINE, ON_JUDGE,                                    \
      "which arithmetic; exact is float64 in plain loops")                                                             \
    X(ISA, "isa", TEXT, "NAME", NULL, ANY, MACHINE, ON_JUDGE | ON_INFO, "instruction set of the kernels [the best]")     \
    X(THREADS, "threads", COUNT, "N", NULL, RANGE(1, 1024), MACHINE, ON_JUDGE, "threads [all that are available]") \
    X(NO_PACK, "no-pack", FLAG, NULL, NULL, ANY, MACHINE, ON_FORWARD | ON_BENCH,                                        \
      "no packed copies of the weights: the fast path projects by BLAS")                                               \
    X(JOBS, "jobs", COUNT, "N", "1", RANGE(1, 1024), MACHINE, ON_CHECK,                                                \
      "cases judged at a time; more than one share no threads inside a case")

typedef enum option_code {
#define OPTION_ENUM(code, name, type, form, fallback, range, section, commands, help) OPT_##code,
    OPTION_LIST(OPTION_ENUM)
#undef OPTION_ENUM
    OPTION_COUNT
} option_code;

typedef struct option_row {
    const char *name;
    option_type type;
    const char *form, *fallback;
    int64_t low, high;
    section section;
    unsigned commands;
    const char *help;
} option_row;

extern const option_row option_rows[OPTION_COUNT];

/* Word `index` of a choice's form, cut out of it into `word`; false past the last. */
bool option_choice(const option_row *row, size_t index, char word[32]);

/* What was given for one option, read as its type asks; defaults are filled in the same way. */
typedef struct option_value {
    bool given;
    const char *text;  /* as written, or the default's; NULL when neither */
    int64_t number;    /* COUNT, INTEGER */
    double real;       /* REAL */
    size_t choice;     /* CHOICE: number of the word in the form */
    int64_t *numbers;  /* COUNTS, INTEGERS */
    size_t n_numbers;
    const char **texts; /* TEXTS: all that were given */
    size_t n_texts;
} option_value;

struct arguments {
    command_code command;
    option_value option[OPTION_COUNT];
    const char **operands;
    size_t n_operands;
};

/* Reads argv[1..] of a command. Gives 0, or the exit code after one line on standard error. */
int arguments_parse(arguments *args, command_code command, int argc, char **argv);
/* An option that means nothing without `other` is refused alone. Gives 0 or the exit code. */
int arguments_need(const arguments *args, option_code option, option_code other);
void arguments_free(arguments *args);

static inline bool given(const arguments *args, option_code option) { return args->option[option].given; }
/* The number or its default; 0 when there is neither. */
static inline size_t count_of(const arguments *args, option_code option) { return (size_t)args->option[option].number; }

#endif
