/* Case files: the input is one in words, a line for each entry, so that most mutations still are case files:
 *   m KEY VALUE                  metadata
 *   t NAME DTYPE 2x3 1,-4,0      a tensor; its first elements, the others follow from their number
 * What opens is planned; now and then, when small, it is checked, which takes ten times as long. (Bytes that are no
 * safetensors file: fuzz_safetensors.c.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "fuzz/fuzz.h"
#include "lab/lab.h"
#include "mha/lab.h"

enum { LONGEST = 256, ROOM = 1 << 13, WORK = 1 << 9 }; /* a dozen lines: more only take longer */

/* The file being written: header and data. */
typedef struct sheet {
    char header[ROOM];
    unsigned char data[ROOM];
    size_t used, bytes;
} sheet;

static void put(sheet *s, const char *format, const char *a, const char *b)
{
    size_t left = sizeof s->header - s->used;
    int n = snprintf(s->header + s->used, left, format, a, b);
    if (n > 0 && (size_t)n < left)
        s->used += (size_t)n;
}

/* Nothing that JSON would have to spell differently. */
static char *word(char **rest, char until)
{
    char *from = *rest, *end = from + strcspn(from, until == ' ' ? " " : "");
    *rest = *end ? end + 1 : end;
    *end = '\0';
    for (char *c = from; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '_';
    return from;
}

static void put_element(sheet *s, mha_dtype dtype, double x)
{
    unsigned char *to = s->data + s->bytes;
    size_t size = 0;
    mha_dtype_bytes(dtype, 1, &size, NULL);
    memset(to, 0, size);
    float narrow = (float)x;
    int64_t whole = fabs(x) < 1e18 ? (int64_t)x : 0;
    if (dtype == MHA_F64)
        memcpy(to, &x, sizeof x);
    else if (dtype == MHA_F32)
        memcpy(to, &narrow, sizeof narrow);
    else if (dtype == MHA_BOOL)
        to[0] = whole & 1;
    else
        memcpy(to, &whole, size < sizeof whole ? size : sizeof whole);
    s->bytes += size;
}

static void put_tensor(sheet *s, char *rest)
{
    char shape[80] = "", span[48];
    char *name = word(&rest, ' '), *type = word(&rest, ' '), *extent = word(&rest, ' ');
    size_t elements = 1, begin = s->bytes, size = 0;
    mha_dtype dtype;
    if (!mha__dtype_find(type, &dtype) || mha_dtype_bytes(dtype, 1, &size, NULL) != MHA_OK)
        return;
    for (int rank = 0; *extent && rank < 6; rank++) {
        size_t n = (size_t)strtoul(extent, &extent, 10);
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%zu", rank ? "," : "", n);
        elements = n < ROOM ? elements * n : ROOM;
        if (elements >= ROOM || (size + 1) * elements > ROOM - s->bytes)
            return;
        extent += strcspn(extent, "0123456789");
    }
    for (size_t i = 0; i < elements; i++) {
        double x = sin((double)i + 1);
        if (*rest && *rest != '\n') {
            char *end;
            x = strtod(rest, &end);
            rest = *end ? end + 1 : end;
        } else if (dtype != MHA_F32 && dtype != MHA_F64)
            x = (double)(i % 5);
        put_element(s, dtype, x);
    }
    put(s, s->used > 1 ? ",\"%s\":{\"dtype\":\"%s\"," : "\"%s\":{\"dtype\":\"%s\",", name, type);
    snprintf(span, sizeof span, "%zu,%zu", begin, s->bytes);
    put(s, "\"shape\":[%s],\"data_offsets\":[%s]}", shape, span);
}

static const char *write_case(char *text)
{
    static sheet s;
    static char metadata[ROOM];
    unsigned char head[8];
    size_t n = 0;
    s.used = s.bytes = 0;
    metadata[0] = '\0';
    put(&s, "{%s%s", "", "");
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (line[0] == '\0' || line[1] == '\0')
            continue;
        char *rest = line + 2;
        if (line[0] == 't')
            put_tensor(&s, rest);
        if (line[0] == 'm') {
            char *key = word(&rest, ' '), *value = word(&rest, '\0');
            int written = snprintf(metadata + n, sizeof metadata - n, "%s\"%s\":\"%s\"", n ? "," : "", key, value);
            if (written > 0 && (size_t)written < sizeof metadata - n)
                n += (size_t)written;
            metadata[n] = '\0';
        }
    }
    if (n)
        put(&s, s.used > 1 ? ",\"__metadata__\":{%s}%s" : "\"__metadata__\":{%s}%s", metadata, "");
    put(&s, "}%s%s", "", "");
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)((uint64_t)s.used >> 8 * i);
    memmove(s.header + 8, s.header, s.used < sizeof s.header - 8 ? s.used : 0);
    memcpy(s.header, head, 8);
    return fuzz_file(s.header, 8 + s.used, s.data, s.bytes);
}

static void use(const mha_case *c, bool check)
{
    mha_view keys, values;
    mha_error error = {0};
    mha_plan plan = {.S = 1};
    bool rope = strcmp(mha_case_kind(c), "rope") == 0;
    fuzz_require(mha_case_name(c) != NULL);
    if (mha_case_skip_reason(c)) {
        const mha_call none = mha_case_call(c);
        fuzz_require(mha_case_skip_reason(c)[0] != '\0');
        fuzz_require(mha_plan_call(mha_case_layer(c), &none, &plan, &error) == MHA_INVALID);
        return;
    }
    mha_case_past(c, &keys, &values);
    mha_call call = mha_case_call(c);
    call.threads = 1;
    mha_status status = rope ? MHA_OK : mha_plan_call(mha_case_layer(c), &call, &plan, &error);
    if (status != MHA_OK)
        fuzz_require_reason(status, &error);
    else if (check && (rope || plan.B * plan.h * plan.T_q * (plan.S + plan.S_extra) * (plan.d_k + plan.d_v) <= WORK)) {
        mha_verdict verdict = {0};
        status = mha_case_check(c, MHA_PATH_BLAS, NULL, 1, &verdict, &error);
        if (status != MHA_OK)
            fuzz_require_reason(status, &error);
        mha_verdict_clear(&verdict);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size = size < LONGEST ? size : LONGEST;
    char *text = malloc(size + 1);
    fuzz_require(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    mha_case *c = NULL;
    mha_error error = {0};
    mha_status status = mha_case_open(write_case(text), NULL, &c, &error);
    if (status == MHA_OK)
        use(c, size % 16 == 0);
    else
        fuzz_require_reason(status, &error);
    mha_case_close(c);
    fuzz_require(fuzz_open_descriptors() == 0);
    free(text);
    return 0;
}
