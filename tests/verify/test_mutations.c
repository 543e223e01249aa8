/* Mutations of gradients: index maps and parts against loops of their own, operators at their sites, and readers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/gradient.h"
#include "support/unit.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/mutate/formula.h"
#include "verify/mutate/mutation.h"

#define COUNT(x) (sizeof(x) / sizeof *(x))

/* ---------------------------------------------------------------- index maps and parts */

enum { B = 3, T = 4, H = 6, C = 6, GROUP = 2, WIDTH = 3, ALL = B * T * H * C };

static const mha__extents extents = {{B, T, H, C}, MHA__BTHC, GROUP, WIDTH};

typedef struct mapped {
    const char *name;
    mha__mutation map;
    void (*by_hand)(size_t at[4]); /* b, t, h, c */
    int inverse;                   /* the row of the inverse map; -1: it is none of a permutation */
} mapped;

static void next_row(size_t at[4]) { at[1] = at[1] == T - 1 ? 0 : at[1] + 1; }
static void previous_row(size_t at[4]) { at[1] = at[1] == 0 ? T - 1 : at[1] - 1; }
static void first_head(size_t at[4]) { at[2] = 0; }
static void reversed_heads(size_t at[4]) { at[2] = H - 1 - at[2]; }
static void block_before(size_t at[4]) { at[1] = at[1] < 2 ? at[1] : at[1] - 2; }
static void first_block(size_t at[4]) { at[1] = at[1] < 3 ? at[1] : at[1] - 3; }
static void start_of_block(size_t at[4]) { at[1] = at[1] < 3 ? 0 : 3; }
static void group_of(size_t at[4]) { at[2] = at[2] / 2; }
static void first_of_group(size_t at[4]) { at[2] = at[2] & ~(size_t)1; }
static void last_of_group(size_t at[4]) { at[2] = at[2] | 1; }
static void inside(size_t at[4]) { at[2] = (const size_t[]){0, 3, 1, 4, 2, 5}[at[2]]; }
static void outside(size_t at[4]) { at[2] = (const size_t[]){0, 2, 4, 1, 3, 5}[at[2]]; }
static void halves(size_t at[4]) { at[3] = (at[3] + 3) % 6; }
static void pairs(size_t at[4]) { at[3] = at[3] % 2 ? at[3] - 1 : at[3] + 1; }
static void origin(size_t at[4]) { memset(at, 0, 4 * sizeof *at); }
static void by_heads(size_t at[4]) { const size_t n = at[1] * H + at[2]; at[2] = n / T, at[1] = n % T; }
static void by_time(size_t at[4]) { const size_t n = at[2] * T + at[1]; at[1] = n / H, at[2] = n % H; }
static void by_features(size_t at[4]) { const size_t n = at[1] * C + at[3]; at[3] = n / T, at[1] = n % T; }
static void by_batch(size_t at[4]) { const size_t n = at[0] * T + at[1]; at[1] = n / B, at[0] = n % B; }
static void to_pairs(size_t at[4]) { at[3] = (const size_t[]){0, 3, 1, 4, 2, 5}[at[3]]; }
static void to_halves(size_t at[4]) { at[3] = (const size_t[]){0, 2, 4, 1, 3, 5}[at[3]]; }
static void last_row(size_t at[4]) { at[1] = T - 1; }
static void held(size_t at[4]) { at[1] = at[1] > 2 ? 2 : at[1]; }
static void repeated(size_t at[4]) { at[1] = at[1] == 2 ? 1 : at[1]; }
static const double table[] = {3, 1, 0, 2, 1, 1, 2, 3, 0, 0, 3, 2}; /* (B, T) */
static void by_table(size_t at[4]) { at[1] = (size_t)table[at[0] * T + at[1]]; }

static void turned(size_t at[4])
{
    const size_t row = at[1] % 2;
    at[1] += at[3] % 2 - row, at[3] += row - at[3] % 2;
}

static void one_late(size_t at[4])
{
    const size_t n = (((at[0] * T + at[1]) * H + at[2]) * C + at[3] + ALL - 1) % ALL;
    at[0] = n / (T * H * C), at[1] = n / (H * C) % T, at[2] = n / C % H, at[3] = n % C;
}

static void other_width(size_t at[4])
{
    const size_t n = ((at[0] * H + at[2]) * T + at[1]) * WIDTH + at[3];
    at[0] = n / (T * H * C), at[2] = n / (T * C) % H, at[1] = n / C % T, at[3] = n % C;
}

/* clang-format off */
static const mapped maps[] = {
    {"next row", {MHA__NEXT(T)}, next_row, 1}, {"row before", {MHA__PREVIOUS(T)}, previous_row, 0},
    {"first head", {MHA__BY(FIRST, H, 0)}, first_head, -1},
    {"heads reversed", {MHA__BY(REVERSED, H, 0)}, reversed_heads, 3},
    {"block before", {MHA__BY(BLOCK_BEFORE, T, 2)}, block_before, -1},
    {"first block", {MHA__BY(FIRST_BLOCK, T, 3)}, first_block, -1},
    {"start of block", {MHA__BY(START_OF_BLOCK, T, 3)}, start_of_block, -1},
    {"group", {MHA__BY(GROUP, H, 0)}, group_of, -1},
    {"first of group", {MHA__BY(FIRST_OF_GROUP, H, 0)}, first_of_group, -1},
    {"last of group", {MHA__BY(LAST_OF_GROUP, H, 0)}, last_of_group, -1},
    {"groups inside", {MHA__BY(GROUPS_INSIDE, H, 0)}, inside, 11},
    {"groups outside", {MHA__BY(GROUPS_OUTSIDE, H, 0)}, outside, 10},
    {"halves", {MHA__BY(HALVES, C, 0)}, halves, 12}, {"pairs", {MHA__BY(PAIRS, C, 0)}, pairs, 13},
    {"origin", {.arg = MHA__ORIGIN}, origin, -1},
    {"by heads", {MHA__READ_AS(BTHC, BHTC)}, by_heads, 16}, {"by time", {MHA__READ_AS(BHTC, BTHC)}, by_time, 15},
    {"by features", {MHA__READ_AS(BHTC, BHCT)}, by_features, -1},
    {"by batch", {MHA__READ_AS(BTHC, TBHC)}, by_batch, -1},
    {"one late", {MHA__IN_ORDER(ONE_LATE, BTHC)}, one_late, -1},
    {"other width", {MHA__IN_ORDER(WIDTH, BHTC)}, other_width, -1},
    {"to pairs", {MHA__BY(TO_PAIRS, C, 0)}, to_pairs, 22}, {"to halves", {MHA__BY(TO_HALVES, C, 0)}, to_halves, 21},
    {"last row", {MHA__BY(LAST, T, 0)}, last_row, -1}, {"held", {MHA__BY(HELD, T, 2)}, held, -1},
    {"repeated", {MHA__BY(REPEATED, T, 2)}, repeated, -1},
    {"turned", {MHA__BY(TURNED, C, 2)}, turned, 26},
    {"table", {.arg = MHA__TABLE, .axis = MHA__T, .table = table}, by_table, -1},
};
/* clang-format on */

static size_t read_by(const mha__mutation *m, size_t e)
{
    return mha__join(&extents, MHA__BTHC, mha__map_element(m, &extents, mha__split(&extents, MHA__BTHC, e)));
}

static void maps_read_what_loops_read(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(maps); k++)
        for (size_t e = 0; e < ALL; e++) {
            mha__element expected = mha__split(&extents, MHA__BTHC, e);
            const mha__element found = mha__map_element(&maps[k].map, &extents, expected);
            maps[k].by_hand(expected.at);
            if (memcmp(&found, &expected, sizeof found) != 0)
                fail_msg("%s of element %zu", maps[k].name, e);
        }
    assert_int_equal(mha__map_element(&(mha__mutation){MHA__BY(REMAINDER, H, 0)}, &extents, (mha__element){{0, 0,
                H + 4, 0}}).at[2], 4);
}

/* <A x, y> = <x, A' y>, the adjoint of a permutation being its inverse. */
static void inverse_maps_are_adjoint(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(maps); k++) {
        size_t one = 0, other = 0; /* of x_e = 37 e mod 101 and y_e = 53 e mod 97 */
        for (size_t e = 0; e < ALL && maps[k].inverse >= 0; e++) {
            one += read_by(&maps[k].map, e) * 37 % 101 * (e * 53 % 97);
            other += e * 37 % 101 * (read_by(&maps[maps[k].inverse].map, e) * 53 % 97);
        }
        if (one != other)
            fail_msg("%s: %zu, %zu", maps[k].name, one, other);
    }
}

/* A map moves in a tensor where it reads any other element. */
static void maps_move_where_an_element_does(void **state)
{
    (void)state;
    for (size_t size = 0; size < 81; size++) {
        const mha__extents x = {{size % 3 + 1, size / 3 % 3 + 1, (size / 9 % 3 + 1) * 2, size / 27 + 1}, MHA__BTHC,
                    2, 1};
        for (size_t k = 0; k < COUNT(maps); k++) {
            bool any = false;
            for (size_t e = 0; e < mha__elements(&x) && !maps[k].map.table; e++) {
                const mha__element at = mha__split(&x, MHA__BTHC, e), of = mha__map_element(&maps[k].map, &x, at);
                any |= memcmp(&at, &of, sizeof at) != 0;
            }
            /* Of one group, or one block, it is the first index, which has a name of its own. */
            const bool first = (maps[k].by_hand == group_of && x.n[2] == 2) || maps[k].by_hand == start_of_block;
            if (mha__map_moves(&maps[k].map, &x) != any && !first && !maps[k].map.table)
                fail_msg("%s in %zu x %zu x %zu x %zu", maps[k].name, x.n[0], x.n[1], x.n[2], x.n[3]);
        }
    }
}

static void parts_have_what_loops_have(void **state)
{
    static const struct {
        mha__axis_part part;
        const char *in; /* of 7 elements, in blocks of 3 */
    } all[] = {{MHA__ALL, "1111111"}, {MHA__THE_FIRST, "1000000"}, {MHA__THE_LAST, "0000001"},
               {MHA__BUT_LAST, "1111110"}, {MHA__FIRST_HALF, "1110000"}, {MHA__IN_FIRST_BLOCK, "1110000"},
               {MHA__IN_LAST_BLOCK, "0000001"}, {MHA__FULL_BLOCKS, "1111110"}, {MHA__BUT_LAST_BLOCK, "1111110"},
               {MHA__OTHER_WIDTH, "1110000"}, {MHA__ODD, "0101010"}, {MHA__EVEN, "1010101"}};
    (void)state;
    for (size_t k = 0; k < COUNT(all); k++)
        for (size_t i = 0; i < 7; i++)
            assert_int_equal(mha__part_has(all[k].part, 3, i, 7), all[k].in[i] == '1');
    assert_true(mha__part_has(MHA__IN_LAST_BLOCK, 3, 3, 6) && mha__part_has(MHA__FULL_BLOCKS, 3, 5, 6));
    assert_false(mha__part_has(MHA__BUT_LAST_BLOCK, 3, 3, 6));
}

/* ---------------------------------------------------------------- formulas */

static void read_abc(const void *context, const char *name, double *to)
{
    const double *numbers = context;
    for (size_t e = 0; e < 4; e++)
        to[e] = *name == 'a' ? numbers[e] : *name == 'b' ? 2 : name[1] ? 7 : 0;
}

/* Ranks of operators, functions, names with ', and sums of the elements of a line that count. */
static void formulas_are_computed(void **state)
{
    static const double numbers[] = {3, 5, -1, 4};
    static const size_t line[] = {0, 0, 1, 1};
    static const unsigned char counts[] = {1, 1, 0, 1};
    static const struct {
        const char *text;
        double first, last;
    } all[] = {{"a+b*a^2", 21, 36}, {"-a*b-1", -7, -9}, {"a-b*a", -3, -4}, {"(a-b)/b/2", 0.25, 0.5}, {"a/c", 3, 4},
               {"c'-a", 4, 3}, {"sum(a)*b", 16, 8}, {"max(a-b)", 3, 2}, {"a-sum(1)", 1, 3},
               {"abs(b-a)+sqrt(4)*1.5", 4, 5}};
    const mha__elements_of x = {4, line, counts, read_abc, numbers};
    double room[4 * MHA__FORMULA_ROOM];
    (void)state;
    for (size_t k = 0; k < COUNT(all); k++) {
        mha__formula(&x, all[k].text, room);
        assert_true(fabs(room[0] - all[k].first) < 1e-15);
        assert_true(fabs(room[3] - all[k].last) < 1e-15);
    }
}

/* ---------------------------------------------------------------- operators at their sites */

/* A call of given heads, its backward, and copies of the matrices of its maps before and after a bug. */
typedef struct bed {
    graded g;
    mha__backward b;
    const mha__gradient_bug *bug;
    mha__map before;
    double memory[1 << 14];
    double (*expected)(const struct bed *bed, size_t e); /* of element e of a site of so many; NULL: not checked */
    const double *site;
    size_t size, checked;
} bed;

static const mha__gradient_bug *bug_of(const char *name)
{
    const mha__gradient_bug *row;
    for (size_t i = 0; (row = mha__gradient_bug_at(i)) != NULL; i++)
        if (strcmp(row->shown.name, name) == 0)
            return row;
    fail_msg("no bug %s", name);
    return NULL;
}

static void copy_map(bed *x, const mha__map *map)
{
    x->before = *map;
    const size_t bytes = mha__map_lay_out(x->b.r, (char *)x->memory, &x->before);
    assert_true(bytes <= sizeof x->memory);
    memcpy(x->memory, map->Q, bytes); /* the first of its matrices */
}

static void watch(void *context, mha__backward *b, mha__backward_step step, mha__map *map)
{
    bed *x = context;
    if (!x->bug || x->bug->step != step)
        return;
    if (x->expected)
        copy_map(x, map);
    mha__change(b, map, x->bug);
    for (size_t e = 0; x->expected && e < x->size; e++)
        if (!(fabs(x->site[e] - x->expected(x, e)) <= 0x1p-45 * (1 + fabs(x->site[e]))))
            fail_msg("%s: element %zu", x->bug->shown.name, e);
    x->checked++;
}

static bed *begin(const trial *t)
{
    bed *x = calloc(1, sizeof *x);
    mha_error error;
    graded_build(t, &x->g);
    assert_ok(mha__backward_begin(&x->b, x->g.r.layer, &x->g.r.call, &x->g.gradients, NULL, &error), error);
    x->b.watch = watch, x->b.context = x;
    return x;
}

static void end(bed *x)
{
    mha__again_end(&x->b), mha__backward_free(&x->b), graded_release(&x->g), free(x);
}

enum { D_K = 4, D_V = 3 };

static trial small_call(void)
{
    return (trial){.seed = 5, .bare = true, .B = 2, .T_q = 6, .T_k = 7,
                   .config = {.n_heads = 4, .kv_heads = 2, .d_k = D_K, .d_v = D_V}};
}

/* Element e of a bug's site, by a loop over the numbers before it. */
static double d_twice(const bed *x, size_t e) { return 2 * x->before.sums[e]; }
static double dlse_negated(const bed *x, size_t e) { return -x->before.d_lse[e]; }
static double next_key(const bed *x, size_t e) { return x->before.K[(e + D_K) % (x->before.n * D_K)]; }
static double last_of_two(const bed *x, size_t e) { return x->before.head % 2 == 1 ? x->before.dV[e] : 0; }

static double diagonal(const bed *x, size_t e)
{
    return x->before.weights[e] * (1 - x->before.weights[e]) * x->before.d_weights[e];
}

static double lse_of_first(const bed *x, size_t e)
{
    return x->before.weights[e] * exp(x->before.lse[e / x->before.n] - x->before.lse[0]);
}

static double sum_of_dp(const bed *x, size_t i)
{
    double sum = 0;
    for (size_t j = 0; j < x->before.n; j++)
        sum += x->before.d_weights[i * x->before.n + j];
    return sum;
}

static double over_largest(const bed *x, size_t e)
{
    double most = 0;
    for (size_t j = 0, n = x->before.n; j < n; j++)
        most = fmax(most, x->before.weights[e / n * n + j]);
    return x->before.weights[e] / most;
}

static double dp_of_next_value(const bed *x, size_t e)
{
    double sum = 0;
    for (size_t c = 0, n = x->before.n; c < D_V; c++)
        sum += x->before.dO[e / n * D_V + c] * x->before.V[(e % n + 1) % n * D_V + c];
    return sum;
}

static double of_squares(const bed *x, size_t e)
{
    double sum = 0;
    for (size_t i = 0; i < x->before.s.T_q; i++)
        sum += pow(x->before.weights[i * x->before.n + e / D_V], 2) * x->before.dO[i * D_V + e % D_V];
    return sum;
}

/* Each operator at a site makes of a map what a loop of its own makes. */
static void operators_change_their_sites(void **state)
{
    const trial t = small_call();
    bed *x = begin(&t);
    (void)state;
    const mha__map *m = &x->b.map;
    const size_t n = t.T_k, q = t.T_q;
    const struct {
        const char *bug;
        double (*expected)(const bed *, size_t);
        const double *site;
        size_t size;
    } all[] = {{"d-twice", d_twice, m->sums, q}, {"dlse-subtracted", dlse_negated, m->d_lse, q},
               {"d-unweighted", sum_of_dp, m->sums, q}, {"softmax-diagonal", diagonal, m->d_masked, q * n},
               {"lse-is-maximum", over_largest, m->weights, q * n}, {"lse-of-first-query", lse_of_first,
                   m->weights, q * n},
               {"values-of-next-key", dp_of_next_value, m->d_weights, q * n},
               {"dq-keys-of-next-key", next_key, m->K, n * D_K}, {"dv-of-squares", of_squares, m->dV, n * D_V},
               {"group-last-dv", last_of_two, m->dV, n * D_V}};
    for (size_t k = 0; k < COUNT(all); k++) {
        x->bug = bug_of(all[k].bug);
        assert_true(mha__gradient_bug_applies(&x->b, x->bug));
        x->expected = all[k].expected, x->site = all[k].site, x->size = all[k].size, x->checked = 0;
        mha__backward_run(&x->b);
        assert_int_equal(x->checked, t.B * t.config.n_heads);
    }
    end(x);
}

/* A bug leaves the gradients of rows that do not read it bit for bit as they are. */
static void bugs_leave_what_does_not_read_them(void **state)
{
    size_t left = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        trial t = seed == 1 ? small_call() : trial_draw(7 * seed);
        if (!graded_adapt(&t))
            continue;
        bed *x = begin(&t);
        double *right[3];
        mha__backward_run(&x->b);
        for (int g = 0; g < 3; g++) {
            const size_t bytes = mha_view_elements(&x->b.d[g]) * sizeof(double);
            right[g] = malloc(bytes + 1), memcpy(right[g], x->b.d[g].data, bytes);
        }
        for (size_t i = 0; (x->bug = mha__gradient_bug_at(i)) != NULL; i++) {
            if (!mha__changes(x->bug) || x->bug->shown.wide || !mha__gradient_bug_applies(&x->b, x->bug))
                continue;
            mha__backward_run(&x->b);
            for (int g = 0; g < 3; g++)
                if (x->bug->leaves >> g & 1 && (left++, memcmp(right[g], x->b.d[g].data,
                                                               mha_view_elements(&x->b.d[g]) * sizeof(double)) != 0))
                    fail_msg("seed %d: %s changes gradient %d", (int)seed, x->bug->shown.name, g);
        }
        free(right[0]), free(right[1]), free(right[2]), end(x);
    }
    assert_true(left > 1000);
}

/* A pair that a mask or a bias table has no element for stays hidden: its gradient would be written beyond them. */
static void shown_pairs_have_elements(void **state)
{
    (void)state;
    trial t = small_call();
    mha_error error;
    t.semantics.visible.mask.kind = MHA_MASK_ADDITIVE, t.mask_short = 2, t.semantics.visible.causal = true;
    bed *x = begin(&t);
    assert_ok(mha__again_begin(&x->b, &error), error);
    x->bug = bug_of("hidden-scores-zero");
    assert_true(mha__gradient_bug_applies(&x->b, x->bug));
    mha__backward_run(&x->b);
    assert_int_equal(x->b.map.seen[x->b.map.n - 3], MHA__SEEN);
    for (size_t i = 0, n = x->b.map.n; i < x->b.map.s.T_q; i++)
        for (size_t j = n - 2; j < n; j++)
            assert_int_equal(x->b.map.seen[i * n + j], MHA__HIDDEN);
    x->bug = bug_of("mask-overwritten"); /* a sanitizer sees a write beyond the mask */
    mha__backward_run(&x->b);
    end(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_read_what_loops_read),       cmocka_unit_test(inverse_maps_are_adjoint),
        cmocka_unit_test(maps_move_where_an_element_does), cmocka_unit_test(parts_have_what_loops_have),
        cmocka_unit_test(formulas_are_computed),           cmocka_unit_test(operators_change_their_sites),
        cmocka_unit_test(shown_pairs_have_elements),       cmocka_unit_test(bugs_leave_what_does_not_read_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
