/* The list of benchmark shapes, reading shapes from text, and their operations and bytes. */
#include "bench/shapes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/visibility/visibility.h"

#define FLOATS(...) {__VA_ARGS__, MHA_F32, MHA_F32, MHA_F32, false, 0}
#define MASKED(docs, ...) {__VA_ARGS__, MHA_F32, MHA_F32, MHA_F32, false, docs}

/* Name, B, T_q, T_k, d_model, heads, key/value heads, d_k, causal, bias. The standard shapes come first. */
static const bench_shape shapes[] = {
    FLOATS("tiny16", 1, 16, 16, 256, 4, 4, 64, false, false),
    FLOATS("bert1x128", 1, 128, 128, 768, 12, 12, 64, false, true),
    FLOATS("bert8x128", 8, 128, 128, 768, 12, 12, 64, false, true),
    FLOATS("bert1x512", 1, 512, 512, 768, 12, 12, 64, false, true),
    FLOATS("bert8x512", 8, 512, 512, 768, 12, 12, 64, false, true),
    FLOATS("gpt2_1024", 1, 1024, 1024, 768, 12, 12, 64, true, true),
    FLOATS("llama512", 1, 512, 512, 4096, 32, 32, 128, true, false),
    FLOATS("llama3_1024", 1, 1024, 1024, 4096, 32, 8, 128, true, false),
    FLOATS("long8192", 1, 8192, 8192, 512, 8, 8, 64, true, true),
    FLOATS("cross", 4, 64, 2048, 768, 12, 12, 64, false, true),
    FLOATS("decode2048", 1, 1, 2048, 4096, 32, 32, 128, false, false),
    FLOATS("decode8x4096", 8, 1, 4096, 4096, 32, 8, 128, false, false),
    FLOATS("vit197", 3, 197, 197, 384, 6, 6, 64, false, true),
    FLOATS("llama2048", 1, 2048, 2048, 4096, 32, 32, 128, true, false),
    FLOATS("long16384", 1, 16384, 16384, 512, 8, 8, 64, true, true),
    FLOATS("width40", 1, 512, 512, 320, 8, 8, 40, false, true),
    FLOATS("width80", 1, 512, 512, 640, 8, 8, 80, false, true),
    FLOATS("width96", 1, 512, 512, 768, 8, 8, 96, false, true),
    FLOATS("width128", 1, 512, 512, 1024, 8, 8, 128, false, true),
    FLOATS("width256", 1, 512, 512, 2048, 8, 8, 256, false, true),
    FLOATS("tiny8", 1, 8, 8, 256, 4, 4, 64, false, false),
    FLOATS("bert1x127", 1, 127, 127, 768, 12, 12, 64, false, true),
    FLOATS("decode2047", 1, 1, 2047, 4096, 32, 32, 128, false, false),
    FLOATS("few4x2047", 1, 4, 2047, 4096, 32, 32, 128, false, false),
    FLOATS("few8x127", 1, 8, 127, 4096, 32, 32, 128, false, false),
    FLOATS("few8x2047", 1, 8, 2047, 4096, 32, 32, 128, false, false),
    MASKED(1, "mask2048", 1, 2048, 2048, 768, 12, 12, 64, false, true),
    MASKED(8, "docs8x256", 1, 2048, 2048, 768, 12, 12, 64, false, true),
};

const char *bench_part_name(bench_part part)
{
    static const char *const names[BENCH_PARTS] = {
        [BENCH_LAYER] = "layer", [BENCH_CORE] = "core", [BENCH_PROJ] = "proj"};
    return names[part];
}

const bench_shape *bench_shape_at(size_t index)
{
    return index < sizeof shapes / sizeof *shapes ? &shapes[index] : NULL;
}

static bool read_size(const char **at, size_t *value)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    unsigned long long n = strtoull(*at, &end, 10);
    if (n == 0 || n > 1u << 24)
        return false;
    *value = n;
    *at = end;
    return *end == ',' || *end == '\0';
}

static bool read_word(const char **at, const char *word)
{
    size_t n = strlen(word);
    bool there = strncmp(*at, word, n) == 0;
    *at += there ? n : 0;
    return there;
}

/* Reads one word after the five sizes, "kv=N" for example, each word at most once. */
static bool read_option(const char **at, bench_shape *s)
{
    if (!s->causal && read_word(at, "causal"))
        return s->causal = true;
    if (s->bias && read_word(at, "nobias"))
        return !(s->bias = false);
    if (!s->shared && read_word(at, "shared"))
        return s->shared = true;
    return (!s->h_kv && read_word(at, "kv=")) ? read_size(at, &s->h_kv)
         : (!s->d_k && read_word(at, "dk="))  ? read_size(at, &s->d_k)
                                              : !s->docs && read_word(at, "docs=") && read_size(at, &s->docs);
}

/* The contradiction between two numbers of a shape; NULL: none. */
static const char *disagreement(const bench_shape *s)
{
    if (s->h % s->h_kv != 0)
        return "expected key/value heads that divide the heads";
    if (!s->d_k && s->d_model % s->h != 0)
        return "expected heads that divide d_model, or dk=N";
    if (s->shared && !bench_decodes(s))
        return "expected one query and a cache to share: Tq 1 and Tk above 1";
    if (s->docs && s->T_q != s->T_k)
        return "expected as many queries as keys where there are documents";
    return s->docs > s->T_k ? "expected at most one document for each token" : NULL;
}

const char *bench_shape_fault(const char *text, bench_shape *shape)
{
    static const char form[] = "expected B,Tq,Tk,d_model,h[,kv=N][,dk=N][,docs=N][,causal][,nobias][,shared] or a name";
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, text) == 0) {
            *shape = shapes[i];
            return NULL;
        }
    bench_shape s = {.name = text, .bias = true};
    size_t *const sizes[] = {&s.B, &s.T_q, &s.T_k, &s.d_model, &s.h};
    const char *at = text;
    for (size_t i = 0; i < 5; i++)
        if ((i && *at++ != ',') || !read_size(&at, sizes[i]))
            return form;
    while (*at == ',') {
        at++;
        if (!read_option(&at, &s))
            return form;
    }
    s.h_kv = s.h_kv ? s.h_kv : s.h;
    const char *fault = *at ? form : disagreement(&s);
    if (fault)
        return fault;
    s.d_k = s.d_k ? s.d_k : s.d_model / s.h;
    s.causal = s.causal && !bench_decodes(&s); /* one new token sees all of its cache */
    *shape = s;
    return NULL;
}

char *bench_shape_text(char text[BENCH_SHAPE_TEXT], const bench_shape *s)
{
    char kv[32] = "", docs[32] = "";
    if (s->docs)
        snprintf(docs, sizeof docs, ",docs=%zu", s->docs);
    if (s->h_kv != s->h)
        snprintf(kv, sizeof kv, ",kv=%zu", s->h_kv);
    snprintf(text, BENCH_SHAPE_TEXT, "%zu,%zu,%zu,%zu,%zu%s%s%s%s%s", s->B, s->T_q, s->T_k, s->d_model, s->h, kv, docs,
             s->causal ? ",causal" : "", s->bias ? "" : ",nobias", s->shared ? ",shared" : "");
    return text;
}

/* The pairs of a query and a key that it sees, of a batch row. */
static double visible_pairs(const bench_shape *s)
{
    const mha_semantics semantics = {.visible.causal = s->causal};
    const mha__visibility visible = mha__visibility_of(&semantics, 0);
    const int64_t offset = bench_decodes(s) ? (int64_t)s->T_k - 1 : 0;
    double pairs = 0;
    if (s->docs == 0)
        return (double)mha__visible_pairs(&visible, offset, s->T_q, s->T_k);
    for (size_t first = 0, n; first < s->T_k; first += n) {
        n = s->T_k - first < bench_document(s) ? s->T_k - first : bench_document(s);
        pairs += (double)mha__visible_pairs(&visible, 0, n, n);
    }
    return pairs;
}

double bench_flops(const bench_shape *s, bench_part part)
{
    double B = (double)s->B, T_q = (double)s->T_q, T_k = (double)s->T_k, d = (double)s->d_model;
    double wide = (double)(s->h * s->d_k), narrow = (double)(s->h_kv * s->d_k);
    double core = 4 * B * wide * visible_pairs(s);
    double new_keys = bench_decodes(s) ? T_q : T_k;
    double projections = 4 * B * T_q * d * wide + 4 * B * new_keys * d * narrow;
    return (part != BENCH_PROJ ? core : 0) + (part != BENCH_CORE ? projections : 0);
}

static double bytes_of(mha_dtype dtype)
{
    enum { ELEMENTS = 256 }; /* whole blocks of every type */
    size_t bytes = 0;
    (void)mha_dtype_bytes(dtype, ELEMENTS, &bytes, NULL);
    return (double)bytes / ELEMENTS;
}

double bench_bytes(const bench_shape *s, bench_part part)
{
    const double scale = s->cache == MHA_I8 ? sizeof(float) : 0; /* of a row */
    const size_t rows = s->shared ? s->T_k - 1 + s->B : s->B * s->T_k;
    double cache = 2.0 * (double)(rows * s->h_kv) * ((double)s->d_k * bytes_of(s->cache) + scale);
    double weights = 2.0 * (double)(s->d_model * (s->h + s->h_kv) * s->d_k) * bytes_of(s->weights);
    return (part != BENCH_PROJ ? cache : 0) + (part != BENCH_CORE ? weights : 0);
}

double bench_least_bytes(const bench_shape *s, bench_part part)
{
    const double B = (double)s->B, T_q = (double)s->T_q, new_keys = bench_decodes(s) ? 1 : (double)s->T_k;
    const double wide = (double)(s->h * s->d_k), narrow = (double)(s->h_kv * s->d_k), d = (double)s->d_model;
    const double ends = 2 * B * T_q * (part == BENCH_CORE ? wide : d); /* the first input, and the output */
    const double keys = bench_crosses(s) && part != BENCH_CORE ? B * new_keys * d : 0; /* another input than queries */
    const double heads = 2 * B * (T_q * wide + new_keys * narrow);                     /* Q, K, V and what W_O reads */
    const double floats = ends + keys + (part == BENCH_PROJ ? heads : 0);
    const double given_keys = part == BENCH_CORE && !bench_decodes(s) ? 2 * B * new_keys * narrow : 0;
    const double mask = s->docs > 0 && part != BENCH_PROJ ? T_q * (double)s->T_k : 0;
    const double cache = bench_decodes(s) && part != BENCH_PROJ ? bench_bytes(s, BENCH_CORE) : 0;
    const double weights = part != BENCH_CORE ? bench_bytes(s, BENCH_PROJ) : 0;
    return sizeof(float) * (floats + given_keys) + mask + cache + weights;
}
