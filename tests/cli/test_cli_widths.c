/* No line that the program writes is wider than the terminal, or than 100 columns where there is none. */
#include <string.h>

#include "support/program.h"
#include "support/unit.h"

enum { PIPED = 100, MOST_WORDS = 12 };

#define LOOKUP "weights/lookup/recorded.safetensors"
#define WRONG "weights/lookup/wrong_port.safetensors"
#define HEADS_OF "weights/induction/recorded.safetensors"

static const char *const commands[][MOST_WORDS] = {
    {"--help"},
    {"help", "inert"},
    {"help", "storage"},
    {"help", "derived"},
    {"help", "stage"},
    {"help", "paths"},
    {"help", "masks"},
    {"help", "ranks"},
    {"help", "architectures"},
    {"help", "case"},
    {"help", "bugs"},
    {"help", "forward"},
    {"help", "params"},
    {"help", "heads"},
    {"help", "show"},
    {"help", "check"},
    {"help", "compare"},
    {"help", "diagnose"},
    {"help", "power"},
    {"help", "claims"},
    {"help", "bench"},
    {"help", "info"},
    {"help", "completion"},
    {"params", "--per-head"},
    {"params", "--preset", "gpt2", "--seq", "1024"},
    {"params", "--preset", "mixtral-8x7b", "--seq", "4096"},
    {"params", "--preset", "gpt2", "--per-head"},
    {"params", "--preset", "gpt2", "--group", "role"},
    {"params", "--preset", "list"},
    {"params", "--preset", "llama-2-70b", "--ranks", "7", "--machine", "1000,100,5,10"},
    {"params", "--weights", WRONG},
    {"forward", "--d-model", "48", "--seq", "40", "--causal", "--kv-heads", "4"},
    {"check", WRONG},
    {"check", "tests/conventions"},
    {"check", "tests/vectors"},
    {"diagnose", WRONG},
    {"diagnose", "tests/vectors/jax_window.safetensors"},
    {"power", WRONG, "--rtol", "0.1", "--atol", "0.2"},
    {"power", WRONG},
    {"claims"},
    {"show", HEADS_OF},
    {"show", HEADS_OF, "--head", "1", "--query", "7"},
    {"show", HEADS_OF, "--stage", "layers.0.weights"},
    {"show", "--d-model", "48", "--seq", "70"},
    {"compare", LOOKUP, WRONG},
    {"compare", LOOKUP, LOOKUP},
    {"bench", "--shape", "1,4,4,8,2", "--shape", "1,1,4,8,2", "--rounds", "1", "--threads", "1"},
    {"bench", "--shape", "list"},
    {"heads", "--d-model", "24", "--seq", "4"},
    {"heads", "--preset", "gpt2"},
    {"info"},
};

/* The longest line, without what chooses colours; a line of progress counts from where it was last begun. */
static size_t longest(const char *text, const char **line)
{
    size_t most = 0, width = 0;
    const char *begun = text;
    *line = text;
    for (const char *at = text; *at; at++) {
        if (*at == '\033')
            at += strcspn(at, "mK");
        else if (*at == '\n' || *at == '\r')
            begun = at + 1, width = 0;
        else if (((unsigned char)*at & 0xC0) != 0x80 && ++width > most)
            most = width, *line = begun;
    }
    return most;
}

static void every_line_fits(void **state)
{
    (void)state;
    static const unsigned short wide[] = {80, 100, 120};
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        const unsigned short widths[] = {60, wide[c % 3], 0};
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            const char *line;
            const size_t most = widths[w] ? widths[w] : PIPED;
            program_result r = widths[w] ? program_run_on_terminals(widths[w], commands[c]) : program_run(commands[c]);
            const size_t found = longest(r.out, &line);
            if (r.code > 1 || found == 0 || found > most)
                fail_msg("mha %s %s: exit code %d, %zu columns of %zu: %.*s", commands[c][0],
                         commands[c][1] ? commands[c][1] : "", r.code, found, most, (int)strcspn(line, "\r\n"), line);
            program_free(&r);
        }
    }
}

/* A narrow terminal names the columns that it omits; --wide shows them. */
static void what_is_left_out_is_named(void **state)
{
    (void)state;
    program_result r = RUN_ON_TERMINALS(60, "params", "--preset", "gpt2");
    assert_non_null(strstr(r.out, "not shown for want of room: type, each, "));
    program_free(&r);
    r = RUN_ON_TERMINALS(60, "params", "--preset", "gpt2", "--wide");
    assert_null(strstr(r.out, "not shown"));
    assert_non_null(strstr(r.out, "each  times    elements      %     bytes"));
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_fits),
        cmocka_unit_test(what_is_left_out_is_named),
    };
    return cmocka_run_group_tests_name("cli_widths", tests, NULL, scratch_remove);
}
