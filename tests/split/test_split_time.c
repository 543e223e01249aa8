/* The time of split layers: by hand, and within the limits of a machine that does one thing after the other. */
#include <math.h>

#include "mha/lab.h"
#include "support/unit.h"

static const mha_machine plain = {1e9, 1e10, 1e-5, 1e8, 0, 0};

static mha_split_work work_of(mha_split_scheme scheme, size_t ranks, size_t T, bool causal)
{
    const mha_config config = {.d_model = 64, .n_heads = 16, .kv_heads = 8, .d_v = 6};
    mha_split_work w = {.split = {scheme, ranks, config, 2, T, T, MHA_F32, 0, 0, false}, .causal = causal};
    mha_error error;
    assert_ok(mha_split_check(&w.split, &error), error);
    return w;
}

static mha_split_time modelled(const mha_split_work *w, const mha_machine *m)
{
    mha_error error;
    mha_split_time time;
    assert_ok(mha_split_time_of(w, m, &time, &error), error);
    return time;
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fabs(b))) /* sums of less than 2^12 terms, each rounded to 2^-53 */
        fail_msg("%.17g is not %.17g", a, b);
}

/* By hand: 4 ranks, 64 tokens of width 64, 16 heads of 4 and 6, 8 of them of keys and values, two batch rows. */
static void test_numbers(void **state)
{
    (void)state;
    const mha_machine m = {2, 1e300, 3, 4, 0, 0}; /* a multiply-add each second */
    mha_split_work w = work_of(MHA_SPLIT_TENSOR, 4, 64, false);
    mha_split_time t = modelled(&w, &m);
    assert_near(t.project, 2 * 64 * 64.0 * (16 * 4 + 8 * 10 + 16 * 6) / 4);
    assert_near(t.attend, 2 * 64 * 64.0 * 16 * 10 / 4);
    assert_near(t.exchange, 6 * 3 + 2 * 3 * (2 * 64 * 64 / 4));
    assert_near(t.total, t.project + t.attend + t.exchange);
    w = work_of(MHA_SPLIT_RING, 4, 64, true);
    t = modelled(&w, &m);
    assert_near(t.attend, 2.0 * 16 * 10 * (48 * 16 + 16 * 17 / 2.0)); /* the last rank sees nearly all */
    assert_near(t.exchange, 3 * 3 + 2 * 48 * 8 * 10);
    assert_near(t.total, t.project + t.attend / 4 + fmax(t.attend * 3 / 4, t.exchange));
    w = work_of(MHA_SPLIT_ZIGZAG, 4, 64, true);
    assert_near(modelled(&w, &m).attend, 2.0 * 16 * 10 * (64 * 65 / 2) / 4);
    /* One token behind 63 that are cached: weights and cache are read from memory. */
    const mha_machine slow = {1e300, 4, 0, 1e300, 0, 0}; /* a number each second */
    w = work_of(MHA_SPLIT_CACHE, 4, 64, false);
    w.split.T_q = 1, w.cached = 63;
    t = modelled(&w, &slow);
    assert_near(t.project, 64 * (16 * 4 + 8 * 10 + 16 * 6));
    assert_near(t.attend, 2 * 16 * 8 * 10);
    w.split.scheme = MHA_SPLIT_TENSOR;
    assert_near(modelled(&w, &slow).attend, 2 * 64 * 2 * 10);
    w.split.dtype = MHA_F64;
    assert_near(modelled(&w, &slow).attend, 2 * 2 * 64 * 2 * 10);
}

static void test_uneven_ranks(void **state)
{
    (void)state;
    const mha_machine free_links = {1e6, 1e300, 0, 1e300, 0, 0};
    for (int scheme = MHA_SPLIT_RING; scheme < MHA_SPLIT_COUNT; scheme++)
        for (size_t ranks = 1; ranks <= 7; ranks++)
            for (size_t T = 1; T < 60; T += 19)
                for (int causal = 0; causal < 2; causal++) {
                    const mha_split_work w = work_of((mha_split_scheme)scheme, ranks, T, causal);
                    const mha_split_time t = modelled(&w, &plain);
                    const double least = fmax(t.attend, fmax(t.exchange, t.project));
                    assert_true(t.total >= least * (1 - 1e-12));
                    const double most = t.project + t.join + t.attend + t.exchange; /* one after the other */
                    assert_true(t.total <= most * (1 + 1e-12));
                }
    /* The last rank of a causal ring is never idle; zigzag ends in half of its time. */
    const mha_split_work ring = work_of(MHA_SPLIT_RING, 6, 96, true), zigzag = work_of(MHA_SPLIT_ZIGZAG, 6, 96, true);
    const mha_split_time t = modelled(&ring, &free_links);
    assert_near(t.total, t.project + t.attend);
    const double halved = modelled(&zigzag, &free_links).attend / t.attend;
    assert_true(halved > 0.5 && halved < 0.56);
}

/* One token behind 63 that are cached, and links alone take time: latencies of 3 s, a number each second. */
static void test_decoding(void **state)
{
    (void)state;
    const mha_machine links = {1e300, 1e300, 3, 4, 0, 0}, products = {2, 1e300, 0, 1e300, 0, 0};
    static const struct {
        mha_split_scheme scheme;
        double sent, attend; /* numbers of a rank; pairs of the rank with most, times d_k + d_v */
    } by[] = {{MHA_SPLIT_CACHE, 3.0 / 4 * 2 * 16 * (2 * 6 + 1), 2 * 16 * 16 * 10.0},
              {MHA_SPLIT_TENSOR, 2 * 3.0 / 4 * 2 * 64, 2 * 4 * 64 * 10.0}};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        mha_split_work w = work_of(by[i].scheme, 4, 64, false);
        w.split.T_q = 1, w.cached = 63;
        assert_near(modelled(&w, &links).exchange, 6 * 3 + by[i].sent);
        assert_near(modelled(&w, &products).attend, by[i].attend);
    }
    /* In a ring the only query waits on rank 0 for the keys of the others. */
    mha_split_work ring = work_of(MHA_SPLIT_RING, 4, 64, false);
    ring.split.T_q = 1, ring.cached = 63;
    assert_near(modelled(&ring, &products).attend, 2 * 16 * 64 * 10.0);
}

/* Ranks that share a node: 4 ranks of which each core runs two in turn; all that they do takes a core's time. */
static void test_nodes(void **state)
{
    (void)state;
    mha_machine m = {2, 4, 3, 4, 2, 4};
    for (int scheme = 0; scheme < MHA_SPLIT_COUNT; scheme++) { /* even ranks: twice the time of one of them */
        const mha_split_work w = work_of((mha_split_scheme)scheme, 4, 64, scheme == MHA_SPLIT_ZIGZAG);
        const mha_split_time t = modelled(&w, &m);
        assert_near(t.total, 2 * (t.project + t.attend + t.exchange + t.join));
    }
    /* A causal ring: what the first ranks leave undone, the others get of the cores. */
    const mha_split_work ring = work_of(MHA_SPLIT_RING, 4, 64, true), zigzag = work_of(MHA_SPLIT_ZIGZAG, 4, 64, true);
    const mha_machine products = {2, 1e300, 0, 1e300, 2, 4}, cores = {2, 1e300, 0, 1e300, 4, 4},
                      pairs_of_ranks = {2, 1e300, 0, 1e300, 0, 2};
    assert_near(modelled(&ring, &products).total, modelled(&zigzag, &products).total);
    const mha_split_time apart = modelled(&ring, &cores);
    assert_near(apart.total, apart.project + apart.attend); /* a core for each: the last rank is the last */
    assert_near(modelled(&ring, &pairs_of_ranks).total, apart.total);
    assert_true(modelled(&ring, &products).total > 1.2 * apart.total);
    /* Moved bytes, with a number read each second: adding up 4 parts of 1/4 of all outputs, and writing the sum. */
    m = (mha_machine){1e300, 4, 0, 1e300, 0, 0};
    const mha_split_work tensor = work_of(MHA_SPLIT_TENSOR, 4, 64, false);
    assert_near(modelled(&tensor, &m).join, 2 * 64 * 64 * 1.25);
    /* Ring, rank 3 of 4: 16 rows of keys and values read and written once; 16 queries meet 4 chunks, of which a merge
     * reads a float and a double and writes a double for each of 16 x 6 features. */
    assert_near(modelled(&ring, &m).join, 2 * (2 * 16 * 8 * 10 + 5 * 16 * 4 * 16 * 6));
    const mha_split_work ulysses = work_of(MHA_SPLIT_ULYSSES, 4, 64, false);
    assert_near(modelled(&ulysses, &m).join, 2 * 2 * 2 * 64 * (4 * 10 + 2 * 10));
    assert_near(modelled(&tensor, &m).total,
                modelled(&tensor, &m).project + modelled(&tensor, &m).attend + modelled(&tensor, &m).join);
}

static void test_many_ranks(void **state)
{
    (void)state;
    const mha_split_work w = work_of(MHA_SPLIT_RING, 65536, 1 << 17, true);
    assert_true(modelled(&w, &plain).total > 0);
}

static void test_wrong_machines(void **state)
{
    (void)state;
    const mha_split_work w = work_of(MHA_SPLIT_RING, 2, 8, true);
    static const mha_machine wrong[] = {{0, 1, 0, 1, 0, 0},   {1, -1, 0, 1, 0, 0},       {1, 1, -1, 1, 0, 0},
                                        {1, 1, 0, NAN, 0, 0}, {INFINITY, 1, 0, 1, 0, 0}, {1, 1, INFINITY, 1, 0, 0}};
    mha_split_time time;
    mha_error error;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refused(mha_split_time_of(&w, &wrong[i], &time, &error), MHA_INVALID, error, "expected a");
    mha_split_work more = w;
    more.cached = 9;
    assert_refused(mha_split_time_of(&more, &plain, &time, &error), MHA_INVALID, error, "at most the 8 keys");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_uneven_ranks), cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_nodes),   cmocka_unit_test(test_many_ranks),   cmocka_unit_test(test_wrong_machines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
