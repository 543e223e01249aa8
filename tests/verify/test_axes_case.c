/* Cases of rotations by positions of several axes: read, checked, written again; what is wrong in a file is named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mha/lab.h"
#include "support/axes.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "verify/case/record.h"

enum { B = 2, T = 6, HEADS = 2, WIDTH = 10, PAIRS = 4, AXES = 3, FAR = 1 << 20 };

static const mha_rope_axes orders[] = {{MHA_ROPE_AXES_BLOCKS, 3, {2, 1, 1}},
                                       {MHA_ROPE_AXES_INTERLEAVED, 3, {1, 2, 1}},
                                       {MHA_ROPE_AXES_REPEATED, 2, {2, 2}},
                                       {MHA_ROPE_AXES_DEALT, 2, {2, 2}}};
static const char *const words[] = {"blocks", "interleaved", "repeated", "dealt"};

/* q, k, v of two heads, half split, base 100; what a kernel computes that turns them by these axes. */
typedef struct scene {
    float x[3][B * T * HEADS * WIDTH];
    int64_t places[AXES * B * T], sections[AXES];
    double frequencies[PAIRS], cosines[B * T * PAIRS], sines[B * T * PAIRS], output[B * T * HEADS * WIDTH];
    mha_rope_axes axes;
    mha_call call;
    mha_keep keep;
} scene;

static void scene_make(scene *s, size_t order, bool scaled)
{
    const size_t shape[4] = {B, T, HEADS, WIDTH}, table[3] = {B, T, PAIRS};
    mha_error error;
    memset(s, 0, sizeof *s);
    s->axes = orders[order];
    for (size_t i = 0; i < 3; i++) {
        const mha_view v = mha_view_of(s->x[i], MHA_F32, 4, shape);
        mha_random_fill(&v, 3, i, -2, 2);
    }
    for (size_t e = 0; e < s->axes.axes * B * T; e++)
        s->places[e] = (int64_t)(mha__random_bits(4, 1, e) % FAR);
    for (size_t a = 0; a < s->axes.axes; a++)
        s->sections[a] = (int64_t)s->axes.sections[a];
    for (size_t j = 0; j < PAIRS; j++)
        s->frequencies[j] = 0.75 / (double)(j + 1);
    axes_fill(&s->axes, scaled ? s->frequencies : NULL, 100, s->places, B, T, s->cosines, s->sines);
    s->call = (mha_call){.query = mha_view_of(s->x[0], MHA_F32, 4, shape),
                         .key = mha_view_of(s->x[1], MHA_F32, 4, shape),
                         .value = mha_view_of(s->x[2], MHA_F32, 4, shape),
                         .output = mha_view_of(s->output, MHA_F64, 4, shape),
                         .path = MHA_PATH_EXACT,
                         .semantics.visible.causal = true};
    s->call.semantics.qkv.rope = (mha_rope){.kind = MHA_ROPE_HALF_SPLIT, .dim = 2 * PAIRS, .base = 100,
                                        .cos_table = mha_view_of(s->cosines, MHA_F64, 3, table),
                                        .sin_table = mha_view_of(s->sines, MHA_F64, 3, table)};
    assert_ok(mha_run(NULL, &s->call, &error), error);
}

static mha_rope_origin origin_of(scene *s, bool scaled)
{
    const size_t n = s->axes.kind == MHA_ROPE_AXES_REPEATED ? PAIRS / 2 : PAIRS;
    return (mha_rope_origin){.axes = s->axes,
                             .positions = mha_view_of(s->places, MHA_I64, 3, (size_t[]){s->axes.axes, B, T}),
                             .frequencies = scaled ? mha_view_of(s->frequencies, MHA_F64, 1, &n) : (mha_view){0}};
}

/* A key or a tensor of the file; a key without value and a tensor without data are left out. */
typedef struct entry {
    const char *key, *value;
    mha_view tensor;
} entry;

/* The scene as a file that says where tokens are and not how far they turn; `other` replaces entries of its name. */
static const char *written(scene *s, bool scaled, const entry *other, size_t count)
{
    const char *path = scratch_path("axes.safetensors");
    const mha_rope_origin o = origin_of(s, scaled);
    const size_t rows[3] = {B, T, HEADS * WIDTH};
    mha_writer *writer;
    mha_error error;
    entry entries[16] = {
        {"num_heads", "2", {0}}, {"causal", "1", {0}}, {"rope", "half_split", {0}}, {"rope_dim", "8", {0}},
        {"rope_base", "100", {0}}, {"rope_axes", words[s->axes.kind], {0}},
        {"query", NULL, mha_view_of(s->x[0], MHA_F32, 3, rows)}, {"key", NULL, mha_view_of(s->x[1], MHA_F32, 3, rows)},
        {"value", NULL, mha_view_of(s->x[2], MHA_F32, 3, rows)},
        {"expected64.output", NULL, mha_view_of(s->output, MHA_F64, 3, rows)},
        {"rope_positions", NULL, o.positions}, {"rope_frequencies", NULL, o.frequencies},
        {"rope_sections", NULL, mha_view_of(s->sections, MHA_I64, 1, &s->axes.axes)}};
    size_t n = 13;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < n && strcmp(entries[at].key, other[i].key) != 0)
            at++;
        entries[at] = other[i];
        n += at == n;
    }
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].value)
            assert_ok(mha_writer_add_metadata(writer, entries[i].key, entries[i].value, &error), error);
        if (entries[i].tensor.data)
            assert_ok(mha_writer_add(writer, entries[i].key, &entries[i].tensor, &error), error);
    }
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    return path;
}

static void is_checked(const mha_case *c, mha_outcome wanted)
{
    static const mha_path paths[] = {MHA_PATH_EXACT, MHA_PATH_BLAS, MHA_PATH_FAST};
    mha_error error;
    for (size_t p = 0; p < 3; p++) {
        mha_verdict v;
        assert_ok(mha_case_check(c, paths[p], NULL, 1, &v, &error), error);
        if (v.outcome != wanted)
            fail_msg("%s: %s %s", mha_path_name(paths[p]), mha_outcome_name(v.outcome), v.reason);
        mha_verdict_clear(&v);
    }
}

/* In every order, with frequencies of its own and without; far away, where the last bits of an angle show in float64
 * results, a right kernel passes, and one that exchanges two axes does not. */
static void files_say_where_tokens_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        const bool scaled = i >= 4;
        scene s;
        mha_case *c;
        mha_error error;
        scene_make(&s, i % 4, scaled);
        assert_ok(mha_case_open(written(&s, scaled, NULL, 0), NULL, &c, &error), error);
        is_checked(c, MHA_OUTCOME_PASSED);
        mha_case_close(c);
        for (size_t e = 0; e < B * T; e++) {
            const int64_t first = s.places[e];
            s.places[e] = s.places[B * T + e], s.places[B * T + e] = first;
        }
        assert_ok(mha_case_open(written(&s, scaled, NULL, 0), NULL, &c, &error), error);
        is_checked(c, MHA_OUTCOME_FAILED);
        mha_case_close(c);
    }
}

/* A call that says of what its tables were made is saved so, and read again says the same. */
static void calls_keep_where_tokens_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        const char *path = scratch_path("saved.safetensors");
        scene s;
        mha_case *c;
        mha_error error;
        mha_difference d;
        scene_make(&s, i % 4, i >= 4);
        const mha_case_notes notes = {.rope_origin = origin_of(&s, i >= 4)};
        assert_ok(mha_case_save(path, NULL, &s.call, &notes, &error), error);
        assert_ok(mha_case_open(path, NULL, &c, &error), error);
        const mha_rope_origin *found = &c->origin;
        assert_int_equal(found->axes.kind, s.axes.kind);
        assert_int_equal(found->axes.axes, s.axes.axes);
        assert_memory_equal(found->axes.sections, s.axes.sections, sizeof s.axes.sections);
        assert_ok(mha_compare(&found->positions, &notes.rope_origin.positions, 0, 0, &d, &error), error);
        assert_int_equal(d.mismatches, 0);
        assert_int_equal(found->frequencies.data != NULL, i >= 4);
        assert_null(mha_case_call(c).semantics.qkv.rope.frequencies.data);
        is_checked(c, MHA_OUTCOME_PASSED);
        mha_case_close(c);
    }
}

static void what_is_wrong_in_a_file_is_named(void **state)
{
    (void)state;
    scene s;
    scene_make(&s, 0, false);
    int64_t four[] = {1, 1, 1, 1, 1}, none[] = {2, 0, 2};
    double three[] = {1, 2, 3};
    const mha_view short_places = mha_view_of(s.places, MHA_I64, 3, (size_t[]){3, B, T - 1}),
                   two = mha_view_of(s.places, MHA_I64, 3, (size_t[]){2, B, T});
#define SECTIONS(values, count) {"rope_sections", NULL, mha_view_of(values, MHA_I64, 1, (size_t[]){count})}
    const struct {
        entry other;
        const char *name, *what;
    } cases[] = {
        {{"rope_sections", NULL, {0}}, "rope_sections", "expected one with rope_positions, found none"},
        {{"rope_positions", NULL, {0}}, "rope_positions", "expected one with rope_sections, found none"},
        {{"position_ids", NULL, two}, "rope_q_positions", "rank 2"},
        {{"rope", "none", {0}}, "rope", "expected interleaved or half_split"},
        {{"rope_axes", "dealt", {0}}, "sections", "as many pairs for each axis"},
        {{"rope_positions", NULL, short_places}, "rope_positions", "which queries and new keys share"},
        {{"rope_positions", NULL, two}, "rope_positions", "expected (3, 6) or (3, 2, 6)"},
        {SECTIONS(four, 5), "rope_sections", "found 5 axes"},
        {SECTIONS(none, 3), "rope_sections", "found 3 axes with 2"},
        {SECTIONS(s.sections, 2), "rope_sections", "found 2 axes with 3"},
        {{"rope_frequencies", NULL, mha_view_of(three, MHA_F64, 1, (size_t[]){3})}, "rope_frequencies", "4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_case *c = NULL;
        mha_error error = {.name = ""};
        const mha_status status = mha_case_open(written(&s, false, &cases[i].other, 1), NULL, &c, &error);
        if (status != MHA_INVALID || !strstr(error.name, cases[i].name) || !strstr(error.message, cases[i].what))
            fail_msg("%zu: %s, %s: %s", i, mha__status_name(status), error.name, error.message);
    }
    const entry others[] = {{"rope_positions", NULL, {0}}, {"rope_sections", NULL, {0}}};
    mha_case *c = NULL;
    mha_error error;
    const entry beside = {"rope_q_positions", NULL, mha_view_of(s.places, MHA_I64, 2, (size_t[]){B, T})};
    assert_ok(mha_case_open(written(&s, false, &beside, 1), NULL, &c, &error), error);
    is_checked(c, MHA_OUTCOME_PASSED); /* tables say where rows are; these are for a scale by position */
    mha_case_close(c);
    assert_refused(mha_case_open(written(&s, false, others, 2), NULL, &c, &error), MHA_INVALID, error, "rope_axes",
                   "expected rope_positions with it");
}

static void what_is_wrong_in_notes_is_named(void **state)
{
    (void)state;
    scene s;
    mha_error error;
    mha_case *c;
    scene_make(&s, 2, true);
    const mha_rope_origin right = origin_of(&s, true);
    for (size_t i = 0; i < 9; i++) {
        mha_case_notes notes = {.rope_origin = right};
        mha_rope_origin *o = &notes.rope_origin;
        static const char *const names[] = {"rope_origin", "rope_origin", "rope_sections", "rope_sections"};
        const char *name = i < 4 ? names[i] : i < 7 ? "rope_positions" : "rope_axes_frequencies";
        if (i == 0)
            o->axes.kind = MHA_ROPE_AXES_COUNT;
        if (i == 1)
            o->axes.axes = MHA_ROPE_MAX_AXES + 1;
        if (i == 2)
            o->axes.sections[1] = 1;
        if (i == 3)
            o->axes.axes = 0;
        if (i == 4)
            o->positions.data = NULL;
        if (i == 5)
            o->positions.shape[2] = T - 1;
        if (i == 6)
            o->positions.dtype = MHA_F64;
        if (i == 7)
            o->frequencies.shape[0] = PAIRS;
        if (i == 8)
            o->frequencies.dtype = MHA_I64;
        assert_refused(mha_case_of_call(NULL, &s.call, NULL, 0, &notes, &c, &error), MHA_INVALID, error, name,
                       i == 3 || i == 4 ? "expected one with" : "expected");
    }
    mha_case_notes notes = {.rope_origin = right};
    assert_ok(mha_case_of_call(NULL, &s.call, NULL, 0, &notes, &c, &error), error);
    mha_case_close(c);
    notes.rope_origin = (mha_rope_origin){.frequencies = right.frequencies};
    assert_refused(mha_case_of_call(NULL, &s.call, NULL, 0, &notes, &c, &error), MHA_INVALID, error,
                   "rope_axes_frequencies", "rope_positions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_say_where_tokens_are), cmocka_unit_test(calls_keep_where_tokens_are),
        cmocka_unit_test(what_is_wrong_in_a_file_is_named), cmocka_unit_test(what_is_wrong_in_notes_is_named)};
    return cmocka_run_group_tests_name("axes cases", tests, NULL, NULL);
}
