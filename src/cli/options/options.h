/* The commands and options of the program: names, arguments, and the values given on a command line. */
#ifndef MHA_CLI_OPTIONS_OPTIONS_H
#define MHA_CLI_OPTIONS_OPTIONS_H

#include "cli/text/print.h"
#include "mha/setting.h"

/* ---------------------------------------------------------------- commands */

typedef enum command_code {
    CMD_FORWARD,
    CMD_PARAMS,
    CMD_EXPLAIN,
    CMD_HEADS,
    CMD_SHOW,
    CMD_CHECK,
    CMD_COMPARE,
    CMD_DIAGNOSE,
    CMD_POWER,
    CMD_CONFORM,
    CMD_CLAIMS,
    CMD_BENCH,
    CMD_INFO,
    CMD_COMPLETION,
    COMMAND_COUNT
} command_code;

typedef struct command_row {
    const char *name, *operands;
    size_t least, most; /* least and largest number of operands */
    const char *help;
    const char *common; /* names of the options that --help shows first, in this order */
} command_row;

extern const command_row command_rows[COMMAND_COUNT];

/* ---------------------------------------------------------------- options */

typedef enum option_type {
    FLAG,     /* no argument: its text is "1" */
    COUNT,    /* a whole number */
    COUNTS,   /* whole numbers separated by commas */
    INTEGER,  /* a whole number that may be negative */
    INTEGERS, /* two whole numbers separated by a comma */
    REAL,     /* a finite number */
    CHOICE,   /* one of the words in its form */
    TEXT,     /* a name */
    TEXTS,    /* names, one for each time the option is given */
    LIST,     /* numbers separated by commas, or a file as below */
    FILE_NAME /* a file, with an optional :TENSOR after it */
} option_type;

/* The headings of the help text. */
typedef enum section {
    SECTION_SHAPE,
    SECTION_SOURCE,
    SECTION_MEANING,
    SECTION_COMPARED,
    SECTION_RESULT,
    SECTION_MACHINE,
    SECTION_COUNT
} section;

extern const char *const section_titles[SECTION_COUNT];

typedef enum option_code {
    OPT_D_MODEL, OPT_HEADS, OPT_HEAD_LIST, OPT_KV_HEADS, OPT_D_K,
    OPT_BIAS, OPT_NO_BIAS, OPT_BATCH, OPT_BATCH_ROW, OPT_SEQ, OPT_KV_SEQ, OPT_PRESET, OPT_CONFIG,
    OPT_ARCHITECTURE, OPT_CLASS,
    OPT_DTYPE, OPT_BENCH_DTYPE, OPT_ROUND_DTYPE, OPT_CACHE_DTYPE, OPT_COST_SEQ, OPT_LEDGER_DTYPE, OPT_ENGINE_LOG,
    OPT_ENCODER_SEQ, OPT_RANKS,
    OPT_MACHINE, OPT_RUN, OPT_WEIGHTS,
    OPT_LAYER, OPT_ORIENTATION,
    OPT_INPUT, OPT_KEY_INPUT, OPT_VALUE_INPUT, OPT_SEED, OPT_POSITION_OFFSET, OPT_WINDOW, OPT_ALIBI, OPT_SIGMOID,
    OPT_SINKS, OPT_EXPECTED, OPT_RTOL, OPT_ATOL, OPT_NMSE, OPT_COSINE,
    OPT_PRECISION, OPT_RUN_PRECISION, OPT_SUGGEST, OPT_BENCHMARK, OPT_WITH, OPT_KIND, OPT_SHAPE, OPT_PART,
    OPT_ROUNDS, OPT_SECONDS, OPT_CSV, OPT_TENSOR, OPT_STAGE, OPT_GROUP, OPT_DEPTH, OPT_ONLY, OPT_SORT, OPT_ALL_ROWS,
    OPT_PER_HEAD, OPT_FORMAT, OPT_HEAD, OPT_QUERY, OPT_ROWS, OPT_KEYS, OPT_TOKENS,
    OPT_PICTURE, OPT_AREAS, OPT_BARS, OPT_LOG, OPT_OUTPUT, OPT_TRACE, OPT_SAVE_CASE, OPT_WIDE, OPT_JSON, OPT_QUIET,
    OPT_HELP, OPT_AGAINST, OPT_WRITE, OPT_CHECK, OPT_LEVEL, OPT_ASKED_DTYPE, OPT_HAS, OPT_ASKED_ONLY, OPT_CONVENTION,
    OPT_JUNIT,
    OPT_SAMPLE, OPT_TIME_LIMIT, OPT_MEMORY_LIMIT, OPT_PATH, OPT_ISA, OPT_THREADS, OPT_THREAD_LIST,
    OPT_NO_PACK, OPT_JOBS,
    OPTION_COUNT /* ends lists; options of settings, then of fields of a layer, have the codes from here on */
} option_code;

typedef struct option_row {
    const char *name;
    option_type type;
    const char *form, *fallback; /* of the argument; the default, NULL without one or when it is computed */
    int64_t low, high;           /* smallest and largest value; real numbers have no largest */
    section section;
    unsigned commands; /* the commands that take it: bit 1 << command_code */
    const char *help; /* see option_help */
} option_row;

/* Row of an option: one of the program's own, then one for each setting and for each field of a layer that they do not
 * name. A name that commands read differently has two rows. */
const option_row *option_at(option_code option);
/* The help of an option. A setting or a field has a kept text. */
const char *option_help(const option_row *row);
/* The setting that an option sets by its row; NULL: it is no setting, or several. */
const mha_setting *setting_of(option_code option);
/* The field of a layer that an option sets: a size, a switch or a choice; NULL: none. */
const mha_config_field *field_of(option_code option);
/* Number of options. */
option_code option_count(void);
/* The option of a command that has this name, of `length` letters, or this alias of its setting; option_count() for
 * none. */
option_code option_named(command_code command, const char *name, size_t length);
/* The option that sets a setting; option_count() when a word of the program's own does. */
option_code option_of(const mha_setting *s);

/* The option that sets a field, which is spelt like it, with '-' for '_'; option_count() when there is none. */
option_code option_of_field(const char *field);

static inline bool takes(command_code command, option_code option)
{
    return option_at(option)->commands & 1u << command;
}

/* Copies word `index` of a choice's form into `word`; false past the last. */
bool option_choice(const char *form, size_t index, char word[32]);

/* ---------------------------------------------------------------- values given */

/* The value of one option, converted to its type; defaults are converted likewise. */
typedef struct option_value {
    bool given;
    const char *text;   /* as written, else the default; NULL without either */
    int64_t number;     /* COUNT, INTEGER */
    double real;        /* REAL */
    size_t choice;      /* CHOICE: index of the word in the form */
    int64_t *numbers;   /* COUNTS, INTEGERS */
    size_t n_numbers;
    const char **texts; /* TEXTS: all texts given */
    size_t n_texts;
} option_value;

typedef struct arguments {
    command_code command;
    option_value *option; /* one for each option */
    const char **operands;
    size_t n_operands;
} arguments;

/* Whether the value of an option is the name of a file. */
bool names_file(option_code option, const char *text);

/* Reads argv[1..] of a command. Returns 0, or the exit code after one line on standard error. */
int arguments_parse(arguments *args, command_code command, int argc, char **argv);

static inline bool given(const arguments *args, option_code option) { return args->option[option].given; }
/* The text of an option or of its default; NULL without either. */
static inline const char *text_for(const arguments *args, option_code option) { return args->option[option].text; }
/* Gives the tables the style of --format, or of --csv or --json, which say a word of it each and must agree with it;
 * --json is then given for that word, too. */
int obey_format(arguments *args);
/* The first option that is given of these sections (bits 1 << section); option_count() for none. */
option_code given_of(const arguments *args, unsigned sections);
/* Sections of the options that say what is computed, in place of a file that says so itself. */
enum { SECTIONS_OF_CALL = 1 << SECTION_SHAPE | 1 << SECTION_SOURCE | 1 << SECTION_MEANING };
/* The number of an option or of its default; 0 without either. */
static inline size_t count_of(const arguments *args, option_code option) { return (size_t)args->option[option].number; }
/* The type that --dtype or --cache-dtype names; F32 without one. */
mha_dtype dtype_of(const arguments *args, option_code option);

/* ---------------------------------------------------------------- refusing */

/* Each of these writes one line on standard error, which begins with the option's name, and returns the exit code. */

int refuse_option_text(option_code option, const char *text);
#define refuse_option(option, ...) refuse_option_text(option, text_of(__VA_ARGS__))
/* Refuses the first of `options` (the list ends with OPTION_COUNT) that was given: "expected EXPECTED". Returns 0
 * when none was given. */
int refuse_each(const arguments *args, const option_code *options, const char *expected);
/* The same for every option that sets a field of a layer, except those of `kept`. */
int refuse_fields(const arguments *args, const option_code *kept, const char *expected);
/* Refuses an option given without `other`, which it needs. Returns 0 when both or neither were given. */
int refuse_alone(const arguments *args, option_code option, option_code other);
/* Prints an error of the library under the option that sets the field it names (kv_heads: --kv-heads); without such
 * an option, under the file or option `about` ("" for none) and the name in the error. */
int refuse_field(const char *about, const mha_error *error);
/* The exit code of a call: EXIT_DONE for MHA_OK, else that of refuse_field. */
int done_or_refuse_field(mha_status status, const char *about, const mha_error *error);

#endif
