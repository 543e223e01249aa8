/* The same numbers lying in other places: with gaps between the rows, at other alignments, alone or between the
 * rows of a batch. Every path gives the same bits for them. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mha/mha.h"
#include "support/call.h"
#include "support/unit.h"
#include "support/stages.h"

/* One core forward: sizes, and how its arrays lie. */
typedef struct sizes {
    size_t T, S, d;
} sizes;

enum { GAPS = 5, MOST = 70 * 20, ROOM = MOST * 8 + 64 };

/* Rows of `width` features of the same (1, T, 1, width) numbers: close together, with gaps, shifted. */
static mha_view lay(float *memory, size_t T, size_t width, int way, uint64_t stream)
{
    static const size_t spread[GAPS] = {1, 2, 3, 7, 1}, plus[GAPS] = {0, 1, 0, 5, 0}, shift[GAPS] = {0, 1, 3, 0, 5};
    const size_t stride = width * spread[way] + plus[way];
    mha_view v = mha_view_of(memory + shift[way], MHA_F32, 4, (size_t[]){1, T, 1, width});
    v.stride[0] = (ptrdiff_t)(T * stride), v.stride[1] = (ptrdiff_t)stride, v.stride[2] = (ptrdiff_t)width;
    assert_true(shift[way] + T * stride <= ROOM);
    mha_random_fill(&v, 5, stream, -1, 1);
    return v;
}

static void run(mha_path path, sizes n, int way, float *output, float *weights)
{
    static float q[ROOM], k[ROOM], v[ROOM];
    mha_call call = {.path = path, .threads = 1, .query = lay(q, n.T, n.d, way, 1), .key = lay(k, n.S, n.d, way, 2),
                     .value = lay(v, n.S, n.d, (way + 2) % GAPS, 3)};
    call.output = mha_view_of(output, MHA_F32, 3, (size_t[]){1, n.T, n.d});
    mha_keep list[MHA_STAGE_COUNT];
    stages_list(&call, list);
    if (weights)
        *stage_view(&call, MHA_STAGE_WEIGHTS) = mha_view_of(weights, MHA_F32, 4, (size_t[]){1, 1, n.T, n.S});
    run_call(NULL, &call);
}

static void strides_change_no_bit(void **state)
{
    (void)state;
    static const size_t T[] = {1, 2, 3, 5}, S[] = {1, 2, 3, 4, 7, 16, 17, 33, 64, 69},
                        d[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 20};
    static float first[MOST], again[MOST], weights[MOST], weights_again[MOST];
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (size_t a = 0; a < sizeof T / sizeof *T; a++)
            for (size_t b = 0; b < sizeof S / sizeof *S; b++)
                for (size_t c = 0; c < sizeof d / sizeof *d; c++) {
                    const sizes n = {T[a], S[b], d[c]};
                    run((mha_path)path, n, 0, first, weights);
                    for (int way = 0; way < GAPS; way++) {
                        run((mha_path)path, n, way, again, way ? weights_again : NULL); /* kept or not */
                        if (memcmp(first, again, n.T * n.d * sizeof *first) != 0)
                            fail_msg(
                                "%s, %zu queries, %zu keys of width %zu: laid out in way %d the output has other bits",
                                mha_path_name((mha_path)path), n.T, n.S, n.d, way);
                        if (way && memcmp(weights, weights_again, n.T * n.S * sizeof *weights) != 0)
                            fail_msg("%s, %zu queries, %zu keys of width %zu: laid out in way %d the weights have "
                                     "other bits",
                                     mha_path_name((mha_path)path), n.T, n.S, n.d, way);
                    }
                }
}

/* Time-major rows, (T, B, h, d): a batch row is contiguous by itself, and is not among others. */
static void a_row_of_a_time_major_batch_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    enum { B = 3, S = 37, d = 4 };
    static float key[S * B * d], value[S * B * d], query[B * d], alone[2][S * d], together[B * d], single[d];
    mha_view all = mha_view_of(key, MHA_F32, 1, (size_t[]){S * B * d});
    mha_random_fill(&all, 1, 1, -1, 1);
    all.data = value;
    mha_random_fill(&all, 1, 2, -1, 1);
    all = mha_view_of(query, MHA_F32, 1, (size_t[]){B * d});
    mha_random_fill(&all, 1, 3, -1, 1);
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (int b = -1; b < B; b++) { /* -1: all of them */
            const size_t rows = b < 0 ? B : 1;
            mha_view k = mha_view_of(key, MHA_F32, 4, (size_t[]){rows, S, 1, d}), v = k;
            v.data = value;
            if (b < 0)
                k.stride[0] = v.stride[0] = d, k.stride[1] = v.stride[1] = B * d;
            else {
                for (size_t t = 0; t < S; t++) {
                    memcpy(alone[0] + t * d, key + (t * B + (size_t)b) * d, d * sizeof(float));
                    memcpy(alone[1] + t * d, value + (t * B + (size_t)b) * d, d * sizeof(float));
                }
                k.data = alone[0], v.data = alone[1];
            }
            mha_call call = {.path = (mha_path)path, .threads = 2, .key = k, .value = v,
                             .query = mha_view_of(query + (b < 0 ? 0 : b) * d, MHA_F32, 4, (size_t[]){rows, 1, 1, d})};
            call.output = mha_view_of(b < 0 ? together : single, MHA_F32, 3, (size_t[]){rows, 1, d});
            run_call(NULL, &call);
            if (b >= 0)
                assert_memory_equal(single, together + b * d, sizeof single);
        }
}

/* ---------------------------------------------------------------- rows that are gigabytes apart */

/* Address space for `rows` rows `stride` floats apart; memory is only what is written to. NULL when there is none. */
static float *wide_open(size_t rows, size_t stride)
{
    void *memory = mmap(NULL, rows * stride * sizeof(float), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

enum { FAR_T = 3, FAR_HEADS = 2, FAR_D = 4, FAR_WIDTH = FAR_HEADS * FAR_D, FAR_ALL = FAR_T * FAR_WIDTH };

typedef struct far_input {
    float q[FAR_ALL], k[FAR_ALL], v[FAR_ALL];
} far_input;

static far_input far_inputs(void)
{
    far_input in;
    for (size_t i = 0; i < FAR_ALL; i++) {
        in.q[i] = mha__random_unit(4, 1, i);
        in.k[i] = mha__random_unit(4, 2, i) - 0.5f;
        in.v[i] = mha__random_unit(4, 3, i);
    }
    return in;
}

/* The output, and any other stage, may have rows that are farther apart than CBLAS counts. */
static void stages_may_have_rows_beyond_the_reach_of_an_int(void **state)
{
    (void)state;
    static const size_t strides[] = {FAR_WIDTH,
                                     INT_MAX,
                                     (size_t)INT_MAX + 1,
                                     ((size_t)1 << 31) + 8,
                                     ((size_t)1 << 32) + 3,
                                     ((size_t)1 << 32) + 8};
    static const mha_stage stages[] = {MHA_STAGE_OUTPUT, MHA_STAGE_HEADS, MHA_STAGE_Q_ROT};
    const mha_config config = {.d_model = FAR_WIDTH, .n_heads = FAR_HEADS};
    far_input in = far_inputs();
    mha_params *table;
    mha_layer *layer;
    mha_error error;
    assert_ok(mha_params_create(NULL, &table, NULL), error);
    assert_ok(mha_layer_create(&config, table, "", &layer, &error), error);
    mha_layer_init(layer, 1);
    for (int kind = 0; kind < 3; kind++) { /* only the core, a layer, a layer with packed weights */
        if (kind == 2)
            assert_ok(mha_layer_pack(layer, &error), error);
        for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
            for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
                float first[FAR_ALL];
                for (size_t n = 0; n < sizeof strides / sizeof *strides; n++) {
                    mha_call call = {.path = (mha_path)path, .threads = 1};
                    mha_keep list[MHA_STAGE_COUNT];
                    stages_list(&call, list);
                    const size_t rows[3] = {1, FAR_T, FAR_WIDTH}, heads[4] = {1, FAR_T, FAR_HEADS, FAR_D};
                    call.query = mha_view_of(in.q, MHA_F32, kind ? 3 : 4, kind ? rows : heads);
                    call.key = mha_view_of(in.k, MHA_F32, kind ? 3 : 4, kind ? rows : heads);
                    call.value = mha_view_of(in.v, MHA_F32, kind ? 3 : 4, kind ? rows : heads);
                    float *y = wide_open(FAR_T, strides[n]);
                    if (!y) {
                        print_message("no address space for rows %zu floats apart\n", strides[n]);
                        continue;
                    }
                    *stage_view(&call, stages[s]) = mha_view_of(y, MHA_F32, 3, rows);
                    stage_view(&call, stages[s])->stride[1] = (ptrdiff_t)strides[n];
                    run_call(kind ? layer : NULL, &call);
                    for (size_t t = 0; t < FAR_T; t++)
                        if (n == 0)
                            memcpy(first + t * FAR_WIDTH, y + t * strides[n], FAR_WIDTH * sizeof *y);
                        else if (memcmp(first + t * FAR_WIDTH, y + t * strides[n], FAR_WIDTH * sizeof *y) != 0)
                            fail_msg("%s, kind %d: row %zu of stage %s is another one with rows %zu floats apart",
                                     mha_path_name((mha_path)path), kind, t, mha_stage_at(stages[s])->name, strides[n]);
                    munmap(y, FAR_T * strides[n] * sizeof *y);
                }
            }
    }
    mha_layer_destroy(layer);
    mha_params_destroy(table);
}

/* The stride of a single row means nothing; other rows may be as far apart as an int counts. Scores are kept, so that
 * every float path asks BLAS for them. */
static void strides_of_one_row_and_of_far_rows_change_no_bit(void **state)
{
    (void)state;
    enum { KEYS = 5 };
    static const ptrdiff_t one_row[] = {FAR_WIDTH, 0, 1, -3, (ptrdiff_t)1 << 33};
    static const ptrdiff_t far[] = {FAR_WIDTH, FAR_WIDTH + 1, INT_MAX / 2, INT_MAX / 2 + 1, INT_MAX / 2 + 8, INT_MAX};
    const size_t shape[4] = {1, 1, FAR_HEADS, FAR_D}, scores_shape[4] = {1, FAR_HEADS, 1, KEYS + 1};
    far_input in = far_inputs();
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (size_t keys = 1; keys <= KEYS; keys++) {
            const size_t ways = keys == 1 ? sizeof one_row / sizeof *one_row : sizeof far / sizeof *far;
            float y[2][FAR_WIDTH], scores[2][FAR_HEADS * (KEYS + 1)] = {{0}};
            for (size_t way = 0; way < ways * ways; way++) {
                const ptrdiff_t *const steps = keys == 1 ? one_row : far;
                const ptrdiff_t strides[2] = {steps[way / ways], steps[way % ways]};
                mha_call call = {.path = (mha_path)path, .threads = 1, .semantics.softmax.zero_row = true};
                mha_keep list[MHA_STAGE_COUNT];
                stages_list(&call, list);
                mha_view *const rows[2] = {&call.key, &call.value};
                float *memory[2] = {NULL, NULL};
                bool room = true;
                for (size_t i = 0; i < 2; i++) {
                    const float *from = i ? in.v : in.k;
                    const size_t apart = keys == 1 ? FAR_WIDTH : (size_t)strides[i];
                    *rows[i] = mha_view_of(memory[i] = wide_open(keys, apart), MHA_F32, 4, shape);
                    rows[i]->shape[1] = keys, rows[i]->stride[1] = strides[i];
                    room &= memory[i] != NULL;
                    for (size_t j = 0; room && j < keys; j++)
                        memcpy(memory[i] + j * apart, from + j % FAR_T * FAR_WIDTH, FAR_WIDTH * sizeof *from);
                }
                call.query = mha_view_of(in.q, MHA_F32, 4, shape);
                call.query.stride[1] = one_row[way % (sizeof one_row / sizeof *one_row)];
                call.output = mha_view_of(y[way > 0], MHA_F32, 4, shape);
                *stage_view(&call, MHA_STAGE_SCORES) = mha_view_of(scores[way > 0], MHA_F32, 4, scores_shape);
                stage_view(&call, MHA_STAGE_SCORES)->shape[3] = keys + 1;
                if (room)
                    run_call(NULL, &call);
                else
                    print_message("no address space for rows %td and %td floats apart\n", strides[0], strides[1]);
                if (room && way > 0 &&
                    (memcmp(y[0], y[1], sizeof *y) != 0 || memcmp(scores[0], scores[1], sizeof *scores) != 0))
                    fail_msg("%s, %zu keys: other bits with strides of %td (keys), %td (values) and %td (query)",
                             mha_path_name((mha_path)path), keys, strides[0], strides[1], call.query.stride[1]);
                for (size_t i = 0; i < 2; i++)
                    if (memory[i])
                        munmap(memory[i], keys * (keys == 1 ? FAR_WIDTH : (size_t)strides[i]) * sizeof(float));
            }
        }
}

/* Where there is nothing, strides mean nothing; numpy gives such arrays strides of 0. */
static void views_of_no_elements_may_have_any_strides(void **state)
{
    (void)state;
    float y[FAR_WIDTH] = {0};
    for (int path = MHA_PATH_FAST; path <= MHA_PATH_EXACT; path++)
        for (ptrdiff_t stride = -1; stride <= 2; stride++) {
            mha_call call = {.path = (mha_path)path, .threads = 1};
            float q[FAR_WIDTH] = {1};
            call.query = mha_view_of(q, MHA_F32, 4, (size_t[]){1, 1, FAR_HEADS, FAR_D});
            call.key = call.value = mha_view_of(NULL, MHA_F32, 4, (size_t[]){1, 0, FAR_HEADS, FAR_D});
            for (int k = 0; k < 4; k++)
                call.key.stride[k] = call.value.stride[k] = stride;
            call.output = mha_view_of(y, MHA_F32, 3, (size_t[]){1, 1, FAR_WIDTH});
            y[3] = 1;
            run_call(NULL, &call);
            assert_true(y[3] == 0); /* a query that sees no key */
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_change_no_bit),
        cmocka_unit_test(a_row_of_a_time_major_batch_has_the_bits_it_has_alone),
        cmocka_unit_test(stages_may_have_rows_beyond_the_reach_of_an_int),
        cmocka_unit_test(strides_of_one_row_and_of_far_rows_change_no_bit),
        cmocka_unit_test(views_of_no_elements_may_have_any_strides),
    };
    return cmocka_run_group_tests_name("strides", tests, NULL, NULL);
}
