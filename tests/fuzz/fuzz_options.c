/* The command line: the input is a command's name and its words, one a line. What is refused is refused with
 * exit code 2 and one line on standard error. The last word is also read as what has a grammar of its own:
 * a shape of `mha bench`, an expression of a configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/shapes.h"
#include "cli/options/options.h"
#include "cli/text/print.h"
#include "fuzz/fuzz.h"
#include "models/describe/expression.h"

enum { WORDS = 16, ROOM = 1 << 15 }; /* of libFuzzer's 4096 bytes each may be shown as four */

static char said[ROOM];

/* The standard error of a run is caught. */
static int parse(arguments *args, command_code command, int argc, char **argv)
{
    static FILE *caught;
    FILE *standard = stderr;
    if (!caught) {
        caught = fmemopen(said, sizeof said, "w");
        fuzz_require(caught != NULL);
        setvbuf(caught, NULL, _IONBF, 0);
    }
    rewind(caught);
    memset(said, 0, strlen(said));
    stderr = caught;
    int code = arguments_parse(args, command, argc, argv);
    fflush(caught);
    stderr = standard;
    return code;
}

static void read_word(const char *word)
{
    mha__values values = {0};
    mha_error error = {0};
    int64_t result = 0;
    bench_shape shape;
    (void)bench_shape_fault(word, &shape);
    mha_status status = mha__values_parse(&values, word, &error);
    if (status != MHA_OK)
        fuzz_require_reason(status, &error);
    status = mha__expression_evaluate(word, &values, &result, &error);
    if (status != MHA_OK)
        fuzz_require_reason(status, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[WORDS + 1], *text = malloc(size + 1);
    int argc = 0;
    fuzz_require(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    for (char *word = strtok(text, "\n"); word && argc < WORDS; word = strtok(NULL, "\n"))
        argv[argc++] = word;
    argv[argc] = NULL;
    for (int c = 0; c < COMMAND_COUNT && argc > 0; c++) {
        arguments args;
        if (strcmp(command_rows[c].name, argv[0]) != 0)
            continue;
        int code = parse(&args, (command_code)c, argc, argv);
        size_t length = strnlen(said, sizeof said);
        fuzz_require(code == 0 ? length == 0 : code == 2 && length > 0 && strchr(said, '\n') == said + length - 1);
        drop_kept(0);
    }
    if (argc > 0)
        read_word(argv[argc - 1]);
    free(text);
    return 0;
}
