/* Groups of any size: random AWQ, GPTQ and compressed-tensors, packed by the test, have the values that went in where
 * the size of their groups is said or can be known, and are listed as they are otherwise. Blocks of F8 likewise. */
#include <stdlib.h>
#include <string.h>

#include "mha/random.h"
#include "support/quantised.h"
#include "support/scratch.h"
#include "support/unit.h"

enum { GPTQ, GPTQ_V2, AWQ, COMPRESSED, KINDS };
enum { NO_INDEX, IN_ORDER, SHUFFLED };
enum { NOTHING, CONFIG, QUANTIZE, QUANT, METADATA, ALSO_ANOTHER, ANOTHER, TWO_THAT_FIT, WAYS };

typedef struct drawn {
    int kind, bits, index, said;
    size_t in, out, group, groups;
    uint64_t seed, drawn;
    unsigned *codes, *zeros; /* (in, out), (groups, out) */
    float *scales;           /* (groups, out) */
    int32_t *group_of;       /* (in) */
} drawn;

static size_t below(drawn *d, size_t limit)
{
    return (size_t)(mha__random_bits(d->seed, 1, d->drawn++) % limit);
}

static size_t groups_by(size_t in, size_t group)
{
    return (in + group - 1) / group;
}

static bool is_power(size_t n)
{
    return (n & (n - 1)) == 0;
}

static bool is_gptq(const drawn *d)
{
    return d->kind == GPTQ || d->kind == GPTQ_V2;
}

/* Whether it can be known which inputs are of one group. Where nothing says it, groups are not cut; but GPTQ's may be,
 * of which in / groups is only taken for a power of two. */
static bool is_known(const drawn *d)
{
    if (d->index != NO_INDEX || d->groups == 1 || d->groups == d->in)
        return true;
    const bool alike = d->in % d->groups == 0;
    return d->said == NOTHING ? alike && (!is_gptq(d) || is_power(d->in / d->groups)) : d->said <= ALSO_ANOTHER;
}

static void draw_shape(drawn *d)
{
    static const size_t sizes[] = {12, 20, 24, 40, 48, 16, 32, 64, 128};
    const size_t number = below(d, 2 * sizeof sizes / sizeof *sizes);
    d->kind = (int)below(d, KINDS);
    d->bits = d->kind == AWQ ? 4 : d->kind == COMPRESSED ? 4 << below(d, 2) : 2 << below(d, 3);
    d->index = d->kind == AWQ ? NO_INDEX : (int)below(d, 3);
    d->said = (int)below(d, WAYS);
    d->group = number < sizeof sizes / sizeof *sizes ? sizes[number] : 8 + below(d, 121);
    d->out = 16 + 16 * below(d, 3);
    /* Nothing tells a cut group of another size from groups that are alike, so that such files must say it. */
    const bool may_cut = d->said != NOTHING || d->index != NO_INDEX || (is_gptq(d) && is_power(d->group));
    const size_t unit = is_gptq(d) ? 32 / (size_t)d->bits : 1;
    do {
        d->in = may_cut ? 8 + below(d, 4 * d->group) : d->group * (1 + below(d, 12));
    } while (d->in % unit != 0);
    d->groups = groups_by(d->in, d->group);
}

static void draw_numbers(drawn *d)
{
    d->codes = calloc(d->in * d->out, sizeof *d->codes);
    d->zeros = calloc(d->groups * d->out, sizeof *d->zeros);
    d->scales = calloc(d->groups * d->out, sizeof *d->scales);
    d->group_of = calloc(d->in, sizeof *d->group_of);
    for (size_t i = 0; i < d->in * d->out; i++)
        d->codes[i] = (unsigned)below(d, (size_t)1 << d->bits);
    for (size_t i = 0; i < d->groups * d->out; i++) {
        d->zeros[i] = (unsigned)below(d, (size_t)1 << d->bits);
        d->scales[i] = (float)(1 + below(d, 4096)) / 512;
    }
    for (size_t i = 0; i < d->in; i++)
        d->group_of[i] = (int32_t)(i / d->group);
    for (size_t i = d->in - 1; d->index == SHUFFLED && i > 0; i--) {
        const size_t other = below(d, i + 1);
        const int32_t kept = d->group_of[i];
        d->group_of[i] = d->group_of[other];
        d->group_of[other] = kept;
    }
}

/* Puts `code` behind the `index` ones before it in the words first, first + step ... */
static void put_code(uint32_t *words, size_t first, size_t step, int bits, size_t index, unsigned code)
{
    words[first + index * (size_t)bits / 32 * step] |= (uint32_t)code << index * (size_t)bits % 32;
}

static void add(mha_writer *writer, const char *name, mha_dtype dtype, void *data, size_t rows, size_t columns)
{
    mha_error error;
    const mha_view view = mha_view_of(data, dtype, columns ? 2 : 1, (size_t[]){rows, columns});
    assert_ok(mha_writer_add(writer, name, &view, &error), error);
}

/* Codes and zero points, which the caller frees when the file is written. */
static void add_words(mha_writer *writer, const char *const names[2], const drawn *d, uint32_t *words[2])
{
    static const unsigned place[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* of an output in a word of AWQ */
    const size_t bits = (size_t)d->bits, in = d->in, out = d->out, groups = d->groups;
    const size_t in_words = (in * bits + 31) / 32, out_words = (out * bits + 31) / 32;
    uint32_t *codes = words[0] = calloc(in * out, sizeof *codes);
    uint32_t *zeros = words[1] = calloc(groups * out, sizeof *zeros);
    for (size_t i = 0; i < in; i++)
        for (size_t o = 0; o < out; o++)
            if (d->kind == AWQ)
                put_code(codes, i * out / 8 + o / 8, 1, 4, place[o % 8], d->codes[i * out + o]);
            else
                put_code(codes, d->kind == COMPRESSED ? o * in_words : o, d->kind == COMPRESSED ? 1 : out, d->bits, i,
                         d->codes[i * out + o]);
    for (size_t g = 0; g < groups; g++)
        for (size_t o = 0; o < out; o++)
            if (d->kind == AWQ)
                put_code(zeros, g * out / 8 + o / 8, 1, 4, place[o % 8], d->zeros[g * out + o]);
            else
                put_code(zeros, d->kind == COMPRESSED ? g : g * out_words, d->kind == COMPRESSED ? groups : 1, d->bits,
                         o, d->zeros[g * out + o]);
    if (d->kind == COMPRESSED) {
        add(writer, names[0], MHA_I32, codes, out, in_words);
        add(writer, names[1], MHA_I32, zeros, out_words, groups);
    } else {
        add(writer, names[0], MHA_I32, codes, d->kind == AWQ ? in : in_words, d->kind == AWQ ? out / 8 : out);
        add(writer, names[1], MHA_I32, zeros, groups, out_words);
    }
}

static const char *write_drawn(const drawn *d)
{
    mha_error error;
    mha_writer *writer = NULL;
    const char *path = scratch_path("drawn.safetensors");
    const size_t out = d->out, groups = d->groups;
    float *turned = calloc(groups * out, sizeof *turned);
    uint32_t *words[2];
    int32_t shape[2] = {(int32_t)out, (int32_t)d->in};
    char size[24];
    for (size_t i = 0; i < groups * out; i++)
        turned[i % out * groups + i / out] = d->scales[i];
    assert_ok(mha_writer_create(path, &writer, &error), error);
    if (d->kind == COMPRESSED) {
        add_words(writer, (const char *const[]){"x.weight_packed", "x.weight_zero_point"}, d, words);
        add(writer, "x.weight_scale", MHA_F32, turned, out, groups);
        add(writer, "x.weight_shape", MHA_I32, shape, 2, 0);
    } else {
        add_words(writer, (const char *const[]){"x.qweight", "x.qzeros"}, d, words);
        add(writer, "x.scales", MHA_F32, d->scales, groups, out);
    }
    if (d->index != NO_INDEX)
        add(writer, d->kind == COMPRESSED ? "x.weight_g_idx" : "x.g_idx", MHA_I32, d->group_of, d->in, 0);
    if (is_gptq(d))
        assert_ok(mha_writer_add_metadata(writer, "checkpoint_format", d->kind == GPTQ ? "gptq" : "gptq_v2", &error),
                  error);
    snprintf(size, sizeof size, "%zu", d->group);
    if (d->said == METADATA)
        assert_ok(mha_writer_add_metadata(writer, "gptq_group_size", size, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    free(turned);
    free(words[0]);
    free(words[1]);
    return path;
}

/* A size that makes another number of groups, or (fits) the same number. */
static size_t another(const drawn *d, bool fits)
{
    size_t size = d->group;
    do {
        size = size == 1 ? 2 * d->in : size - 1;
    } while ((groups_by(d->in, size) == d->groups) != fits || size == d->group);
    return size;
}

/* The file beside the weights; NULL: there is none. */
static const char *write_sidecar(const drawn *d)
{
    static const char *const names[] = {[CONFIG] = "config.json",       [QUANTIZE] = "quantize_config.json",
                                        [QUANT] = "quant_config.json",  [METADATA] = NULL,
                                        [ALSO_ANOTHER] = "config.json", [ANOTHER] = "quantize_config.json",
                                        [TWO_THAT_FIT] = "config.json"};
    char text[400];
    const size_t other = d->said >= ALSO_ANOTHER ? another(d, d->said == TWO_THAT_FIT) : 0;
    switch (d->said) {
    case CONFIG:
        snprintf(text, sizeof text,
                 "{\"group_size\": 7, \"quantization_config\": {\"config_groups\": {\"group_0\": {\"weights\": "
                 "{\"group_size\": %zu}, \"input_activations\": {\"group_size\": %zu}}}}}",
                 d->group, d->group + 1);
        break;
    case QUANTIZE: snprintf(text, sizeof text, "{\"bits\": 4, \"group_size\": %zu}", d->group); break;
    case QUANT: snprintf(text, sizeof text, "{\"q_group_size\": %zu, \"zero_point\": true}", d->group); break;
    case ALSO_ANOTHER:
    case TWO_THAT_FIT:
        snprintf(text, sizeof text,
                 "{\"quantization_config\": {\"group_size\": %zu, \"dynamic\": {\"y\": {\"group_size\": %zu}}}}", other,
                 d->group);
        break;
    case ANOTHER: snprintf(text, sizeof text, "{\"group_size\": %zu}", other); break;
    default: return NULL;
    }
    return scratch_write(names[d->said], text, strlen(text));
}

static void check_values(const drawn *d, const mha_file *file)
{
    static const float offsets[KINDS] = {[GPTQ] = 1};
    float *found = read_values(file, mha_file_find(file, "x.weight"));
    float *expected = calloc(d->in * d->out, sizeof *expected);
    for (size_t o = 0; o < d->out; o++)
        for (size_t i = 0; i < d->in; i++) {
            const size_t at = (size_t)d->group_of[i] * d->out + o;
            expected[o * d->in + i] =
                d->scales[at] * ((float)d->codes[i * d->out + o] - (float)d->zeros[at] - offsets[d->kind]);
        }
    assert_same_values("x.weight", found, expected, d->in * d->out);
    free(found);
    free(expected);
}

static void groups_of_any_size_are_right_or_listed_as_they_are(void **state)
{
    (void)state;
    size_t read[KINDS][2] = {{0}}; /* as they are, decoded */
    for (uint64_t seed = 0; seed < 1000; seed++) {
        mha_error error;
        mha_file *file = NULL;
        drawn d = {.seed = seed};
        draw_shape(&d);
        if (d.said == TWO_THAT_FIT && (d.groups == 1 || groups_by(d.in, d.group - 1) != d.groups))
            d.said = ANOTHER;
        draw_numbers(&d);
        const char *beside = write_sidecar(&d);
        assert_ok(mha_file_open(write_drawn(&d), &file, &error), error);
        const bool known = is_known(&d), listed = mha_file_find(file, "x.weight") != NULL;
        if (listed != known)
            fail_msg("seed %d: kind %d, %zu inputs in groups of %zu, index %d, said %d: %s", (int)seed, d.kind, d.in,
                     d.group, d.index, d.said, listed ? "decoded" : "listed as it is");
        if (listed)
            check_values(&d, file);
        read[d.kind][listed]++;
        mha_file_close(file);
        if (beside)
            remove(beside);
        free(d.codes);
        free(d.zeros);
        free(d.scales);
        free(d.group_of);
    }
    for (int kind = 0; kind < KINDS; kind++)
        assert_true(read[kind][0] > 10 && read[kind][1] > 100);
}

static mha_file *open_f8(const char *sidecar)
{
    mha_error error;
    mha_writer *writer = NULL;
    mha_file *file = NULL;
    static unsigned char codes[192 * 160];
    float scales[4] = {1, 2, 4, 8};
    memset(codes, 0x38, sizeof codes); /* 1 in F8_E4M3 */
    const char *path = scratch_path("blocks.safetensors"), *beside = NULL;
    if (sidecar)
        beside = scratch_write("config.json", sidecar, strlen(sidecar));
    assert_ok(mha_writer_create(path, &writer, &error), error);
    add(writer, "x.weight", MHA_F8_E4M3, codes, 192, 160);
    add(writer, "x.weight_scale_inv", MHA_F32, scales, 2, 2);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    assert_ok(mha_file_open(path, &file, &error), error);
    if (beside)
        remove(beside);
    return file;
}

/* Of 192 x 160 in 2 x 2 blocks: 128 where nothing is said. */
static void blocks_have_the_size_that_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *sidecar;
        size_t rows, columns; /* 0: listed as it is */
    } cases[] = {
        {NULL, 128, 128},
        {"{\"quantization_config\": {\"weight_block_size\": [96, 80]}}", 96, 80},
        {"{\"quantization_config\": {\"a\": {\"weights\": {\"block_structure\": [100, 90]}}}}", 100, 90},
        {"{\"quantization_config\": {\"weight_block_size\": [64, 80]}}", 0, 0},
        {"{\"quantization_config\": {\"weight_block_size\": [96, -1]}}", 0, 0},
        {"{\"quantization_config\": {\"weight_block_size\": [96]}}", 128, 128},
        {"{\"quantization_config\": {\"weight_block_size\": [96, 80.5]}}", 128, 128},
        {"{\"quantization_config\": {\"weight_block_size\": [\"96\", 80]}}", 128, 128},
        {"{\"quantization_config\": {\"weight_block_size\": null, \"group_size\": \"80\"}}", 128, 128},
        {"{\"weight_block_size\": [96, 80]}", 128, 128},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_file *file = open_f8(cases[i].sidecar);
        const mha_file_tensor *weight = mha_file_find(file, "x.weight");
        if ((weight->packing != NULL) != (cases[i].rows > 0))
            fail_msg("case %zu: %s", i, weight->packing ? "decoded" : "listed as it is");
        float *values = read_values(file, weight);
        for (size_t e = 0; e < weight->elements && weight->packing; e++) {
            const bool below = e / 160 >= cases[i].rows, right = e % 160 >= cases[i].columns;
            assert_true(values[e] == (below ? 4.0f : 1.0f) * (right ? 2.0f : 1.0f));
        }
        free(values);
        mha_file_close(file);
    }
}

static void more_sizes_than_are_kept_are_refused(void **state)
{
    (void)state;
    mha_error error;
    mha_file *file = NULL;
    drawn d = {.kind = AWQ, .bits = 4, .in = 48, .out = 16, .group = 24, .groups = 2};
    draw_numbers(&d);
    for (int sizes = 15; sizes <= 17; sizes++) { /* beside 24, which is said twice */
        char text[800] = "{\"quantization_config\": {\"group_size\": 24, \"dynamic\": {\"again\": {\"group_size\": 24}";
        for (int i = 1; i < sizes; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), ", \"%d\": {\"group_size\": %d}", i, 50 + i);
        strcat(text, "}}}");
        const char *beside = scratch_write("config.json", text, strlen(text)), *path = write_drawn(&d);
        if (sizes == 17)
            assert_refused(mha_file_open(path, &file, &error), MHA_FORMAT, error, "config.json", "at most 16 sizes");
        else {
            assert_ok(mha_file_open(path, &file, &error), error);
            check_values(&d, file);
            mha_file_close(file);
        }
        remove(beside);
    }
    free(d.codes);
    free(d.zeros);
    free(d.scales);
    free(d.group_of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_any_size_are_right_or_listed_as_they_are),
        cmocka_unit_test(blocks_have_the_size_that_is_said),
        cmocka_unit_test(more_sizes_than_are_kept_are_refused),
    };
    return cmocka_run_group_tests_name("groups of packed formats", tests, NULL, NULL);
}
