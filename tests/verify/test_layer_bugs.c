/* Bugs of a layer's backward, planted in one in float32 that shares nothing with src, are named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/gradients.h"
#include "support/float_layer.h"
#include "support/unit.h"

enum { FOUND = 16, MOST_SHOWN = 2 };
#define COUNT(x) (sizeof(x) / sizeof *(x))

typedef struct setting {
    const char *name;
    float_layer of; /* its sizes */
    bool bias;
} setting;

static const setting settings[] = {
    {"self", {.B = 2, .T = 5, .S = 5, .E_q = 12, .E_k = 12, .E_v = 12, .E_o = 10, .h = 4, .h_kv = 2, .d_k = 4,
              .d_v = 4}, true},
    {"square", {.B = 2, .T = 4, .S = 4, .E_q = 8, .E_k = 8, .E_v = 8, .E_o = 8, .h = 2, .h_kv = 2, .d_k = 4, .d_v = 4},
     false},
    {"cross", {.B = 2, .T = 4, .S = 4, .E_q = 8, .E_k = 8, .E_v = 8, .E_o = 6, .h = 2, .h_kv = 2, .d_k = 4, .d_v = 6,
               .key_given = true, .value_given = true}, true},
    {"keys", {.B = 2, .T = 4, .S = 6, .E_q = 8, .E_k = 10, .E_v = 10, .E_o = 6, .h = 4, .h_kv = 2, .d_k = 4, .d_v = 4,
              .key_given = true}, false},
    {"gates", {.B = 2, .T = 4, .S = 4, .E_q = 8, .E_k = 8, .E_v = 8, .E_o = 6, .h = 2, .h_kv = 2, .d_k = 4, .d_v = 4,
               .gates = 8}, true},
    {"gates of heads", {.B = 2, .T = 4, .S = 4, .E_q = 8, .E_k = 8, .E_v = 8, .E_o = 6, .h = 2, .h_kv = 1, .d_k = 4,
                        .d_v = 4, .gates = 2}, false},
    {"latents", {.B = 2, .T = 4, .S = 4, .E_q = 10, .E_k = 10, .E_v = 10, .E_o = 8, .h = 2, .h_kv = 2, .d_k = 6,
                 .d_v = 4, .kv_rank = 5, .d_r = 2}, false},
    {"latents of both", {.B = 2, .T = 4, .S = 4, .E_q = 10, .E_k = 10, .E_v = 10, .E_o = 8, .h = 2, .h_kv = 2, .d_k = 6,
                         .d_v = 4, .kv_rank = 5, .q_rank = 6, .d_r = 2}, true},
    {"long", {.B = 1, .T = 140, .S = 3, .E_q = 2, .E_k = 3, .E_v = 3, .E_o = 2, .h = 1, .h_kv = 1, .d_k = 2, .d_v = 2,
              .key_given = true}, true},
};

/* A layer, its inputs and its gradients. */
typedef struct planted {
    float_layer f;
    mha_layer *layer;
    mha_call call;
    mha_gradients found;
    float x[3][FL_MOST], dO[FL_MOST], d_x[3][FL_MOST], weights[MHA_WEIGHT_COUNT][FL_MOST],
        gradients[MHA_WEIGHT_COUNT][FL_MOST];
} planted;

static void fill(float *x, size_t n, uint64_t *state, float size, float more)
{
    for (size_t e = 0; e < n; e++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        x[e] = more + size * (float)((double)(*state >> 11) * 0x1p-52 - 1);
    }
}

static mha_config config_of(const setting *s)
{
    const float_layer *f = &s->of;
    return (mha_config){.d_model = f->E_o, .n_heads = f->h, .kv_heads = f->h_kv, .d_k = f->d_k, .d_v = f->d_v,
                        .d_q = f->E_q, .d_kin = f->E_k, .d_vin = f->E_v, .d_out = f->E_o,
                        .bias_q = s->bias && !f->kv_rank, .bias_k = s->bias && !f->kv_rank,
                        .bias_v = s->bias && !f->kv_rank, .bias_o = s->bias, .bias_latent = s->bias && f->kv_rank,
                        .gate = f->gates == 0 ? MHA_GATE_NONE : f->gates == f->h ? MHA_GATE_HEAD : MHA_GATE_FEATURE,
                        .bias_gate = s->bias && f->gates, .q_rank = f->q_rank, .kv_rank = f->kv_rank, .d_rope = f->d_r};
}

/* The layer of a setting and its call; the gradients are those that the layer in float32 writes. */
static void build(const setting *s, uint64_t seed, planted *p)
{
    const float_layer *f = &s->of;
    const size_t rows[3] = {f->T, f->S, f->S}, widths[3] = {f->E_q, f->E_k, f->E_v};
    const bool given[3] = {true, f->key_given, f->value_given};
    mha_config c = config_of(s);
    mha_error error;
    uint64_t state = seed;
    p->f = *f, p->call = (mha_call){.threads = 1}, p->found = (mha_gradients){.keep_count = 0};
    assert_ok(mha_config_resolve(&c, &error), error);
    assert_ok(mha_layer_create(&c, NULL, NULL, &p->layer, &error), error);
    for (int i = 0; i < 3; i++) {
        const size_t shape[3] = {f->B, rows[i], widths[i]};
        fill(p->x[i], f->B * rows[i] * widths[i], &state, 1, 0);
        if (!given[i])
            continue;
        *(i == 0 ? &p->call.query : i == 1 ? &p->call.key : &p->call.value) = mha_view_of(p->x[i], MHA_F32, 3, shape);
        p->found.of[i] = mha_view_of(p->d_x[i], MHA_F32, 3, shape);
        p->f.d_x[i] = p->d_x[i];
    }
    p->f.x_q = p->x[0], p->f.x_k = given[1] ? p->x[1] : p->f.x_q, p->f.x_v = given[2] ? p->x[2] : p->f.x_k;
    for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
        size_t shape[2];
        const int rank = mha_config_weight_shape(&c, (mha_weight)w, shape, NULL);
        const bool scales = w == MHA_QA_NORM || w == MHA_KVA_NORM;
        if (rank == 0)
            continue;
        const mha_view of = mha_view_of(p->weights[w], MHA_F32, rank, shape);
        fill(p->weights[w], mha_view_elements(&of), &state, scales ? 0.5f : 0.7f, scales ? 1 : 0);
        assert_ok(mha_layer_set(p->layer, (mha_weight)w, &of, &error), error);
        p->f.weight[w] = p->weights[w], p->f.d_weight[w] = p->gradients[w];
        p->found.of[MHA_D_WEIGHTS + w] = mha_view_of(p->gradients[w], MHA_F32, rank, shape);
    }
    fill(p->dO, f->B * f->T * f->E_o, &state, 1, 0);
    p->f.dO = p->dO;
    p->found.d_output = mha_view_of(p->dO, MHA_F32, 3, (size_t[]){f->B, f->T, f->E_o});
}

static bool is_named(const planted *p, const char *name, bool *right, size_t *count, const char **first)
{
    mha_gradient_match list[FOUND];
    mha_error error;
    const size_t length = strlen(name), both = length > 2 ? length - 2 : 0; /* "-q" and "-k": only one norm */
    bool named = false;
    assert_ok(mha_gradient_explain(p->layer, &p->call, &p->found, 0x1p-24, list, FOUND, count, right, &error), error);
    for (size_t i = 0; i < *count && i < FOUND; i++)
        named |= strcmp(list[i].name, name) == 0 ||
                 (strncmp(name, "norm-", 5) == 0 && strncmp(list[i].name, name, both) == 0 && !list[i].name[both]);
    *first = *count ? list[0].name : "nothing";
    return named;
}

static void right_layers_need_no_match(void **state)
{
    planted *p = calloc(1, sizeof *p);
    (void)state;
    for (size_t i = 0; i < COUNT(settings); i++) {
        bool right;
        size_t count;
        const char *first;
        build(&settings[i], 5 + i, p);
        assert_true(float_layer_run(&p->f, ""));
        is_named(p, "", &right, &count, &first);
        if (!right || count > 0)
            fail_msg("%s: right gradients are taken for %s", settings[i].name, first);
        mha_layer_destroy(p->layer);
    }
    free(p);
}

/* After two norms and sharp weights the errors of single numbers tell zeros from right gradients, where norms of whole
 * rows do not. */
static void zeros_of_sharp_latents_are_wrong(void **state)
{
    static const setting sharp = {"sharp", {.B = 1, .T = 16, .S = 16, .E_q = 24, .E_k = 24, .E_v = 24, .E_o = 8, .h = 2,
                                            .h_kv = 2, .d_k = 12, .d_v = 8, .kv_rank = 16, .q_rank = 12, .d_r = 4},
                                  false};
    planted *p = calloc(1, sizeof *p);
    mha_error error;
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        bool right;
        size_t count;
        const char *first;
        build(&sharp, seed, p);
        for (int w = 0; w < MHA_WEIGHT_COUNT; w++) {
            const mha_view of = p->found.of[MHA_D_WEIGHTS + w];
            const mha_view weight = mha_view_of(p->weights[w], MHA_F32, of.rank, of.shape);
            for (size_t e = 0; (w == MHA_W_Q || w == MHA_W_KVB) && e < mha_view_elements(&of); e++)
                p->weights[w][e] *= 1.7f;
            if (of.data)
                assert_ok(mha_layer_set(p->layer, (mha_weight)w, &weight, &error), error);
        }
        assert_true(float_layer_run(&p->f, ""));
        is_named(p, "", &right, &count, &first);
        assert_true(right);
        memset(p->gradients[MHA_W_QA], 0, sizeof p->gradients[MHA_W_QA]);
        is_named(p, "", &right, &count, &first);
        assert_false(right);
        mha_layer_destroy(p->layer);
    }
    free(p);
}

/* The names of only a layer, and some of heads and norms. */
static bool is_of_layer(const char *name)
{
    static const char *const begins[] = {"heads-un",   "heads-of-other", "heads-gated", "gate-", "latent-", "input-",
                                         "parameter-", "d-missing", "result-of-another", "norm-unweighted",
                                         "norm-skipped", "norm-second-term-missing"};
    for (size_t i = 0; i < COUNT(begins); i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return strstr(name, "weighted-") == NULL || strstr(name, "term") == NULL;
    return false;
}

static void planted_bugs_of_layers_are_named(void **state)
{
    planted *p = calloc(1, sizeof *p);
    const mha_gradient_bug *row;
    size_t names = 0, plants = 0, alone = 0, wrong = 0, silent = 0;
    (void)state;
    for (size_t m = 0; (row = mha_gradient_bug_at(m)) != NULL; m++) {
        size_t shown = 0;
        bool made = false;
        if (!is_of_layer(row->name))
            continue;
        for (size_t i = 0; i < COUNT(settings) && shown < MOST_SHOWN; i++) {
            bool right;
            size_t count;
            const char *first;
            build(&settings[i], 100 * m + i, p);
            made |= float_layer_run(&p->f, row->name);
            const bool named = is_named(p, row->name, &right, &count, &first);
            mha_layer_destroy(p->layer);
            if (right)
                continue;
            shown++, plants++, alone += named && count == 1;
            if (!named && ++wrong < 20)
                print_error("%s in %s: explained by %s (%zu)\n", row->name, settings[i].name, first, count);
        }
        names++;
        if (!made || shown == 0)
            print_error("%s: %s\n", row->name, made ? "shows in no layer" : "the planted backward does not make it");
        silent += !made || shown == 0;
    }
    free(p);
    print_message("%zu bugs planted in %zu layers: %zu named alone, %zu not named\n", names, plants, alone, wrong);
    assert_int_equal(wrong, 0);
    assert_int_equal(silent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_layers_need_no_match),
                                       cmocka_unit_test(zeros_of_sharp_latents_are_wrong),
                                       cmocka_unit_test(planted_bugs_of_layers_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
