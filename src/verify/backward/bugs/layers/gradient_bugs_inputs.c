/* Bugs of a layer around its heads: of the gradients of its heads, gates, latents and inputs. */
#include <math.h>
#include <string.h>

#include "attention/layer/layer.h"
#include "base/base.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/mutate/formula.h"

/* ---------------------------------------------------------------- heads */

/* clang-format off */
APPLIES(is_layer, b->r->layer != NULL)

enum { UNPROJECTED, UNTRANSPOSED, BY_TIME, UNGATED, GATED_TWICE };
/* clang-format on */

static bool has_heads(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__sizes *p = &b->r->plan;
    const int how = bug->mutation.arg;
    if (!is_layer(b, bug) || how >= UNGATED)
        return is_layer(b, bug) && b->gates.data;
    return !b->gates.data && (how == BY_TIME ? p->h > 1 && p->T_q > 1 : p->h * p->d_v == p->d_out);
}

/* Element c of row i of dy W_O^T. */
static double projected(const mha__backward *b, size_t i, size_t c)
{
    double sum = 0;
    for (size_t k = 0; k < b->d_output.shape[1]; k++)
        sum += mha__matrix_row(&b->d_output, i)[k] * mha__matrix_row(&b->matrix[MHA_W_O], c)[k];
    return sum;
}

/* Element c of row i of d heads by mistake. */
static double head_at(const mha__backward *b, int how, size_t i, size_t c, double right)
{
    const mha__sizes *p = &b->r->plan;
    const size_t all = p->h * p->d_v, T = b->r->query.shape[1],
                 at = (c / p->d_v * T + i % T) * p->d_v + c % p->d_v; /* of (heads, T, d_v) */
    double sum = 0;
    switch (how) {
    case UNPROJECTED: return mha__matrix_row(&b->d_output, i)[c];
    case UNTRANSPOSED:
        for (size_t k = 0; k < all; k++)
            sum += mha__matrix_row(&b->d_output, i)[k] * mha__matrix_row(&b->matrix[MHA_W_O], k)[c];
        return sum;
    case BY_TIME: return projected(b, i / T * T + at / all, at % all);
    case UNGATED: return mha__matrix_row(&b->d_gated, i)[c];
    default: return right / (1 + exp(-mha__matrix_row(&b->gates, i)[c / (all / b->gates.shape[1])]));
    }
}

static void change_heads(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    (void)map;
    for (size_t i = 0; i < b->d_heads.shape[0]; i++)
        for (size_t c = 0; c < b->d_heads.shape[1]; c++) {
            double *d = &mha__matrix_row(&b->d_heads, i)[c];
            *d = head_at(b, bug->mutation.arg, i, c, *d);
        }
}

/* ---------------------------------------------------------------- gates */

/* A row of gates; each is that of `each` features. */
typedef struct gated {
    const mha__backward *b;
    mha_view heads;
    size_t row, each;
} gated;

static void read_gate(const void *context, const char *name, double *to)
{
    const gated *x = context;
    for (size_t c = 0; c < x->heads.shape[1]; c++) {
        const double z = mha__matrix_row(&x->b->gates, x->row)[c / x->each];
        to[c] = *name == 'd'   ? mha__matrix_row(&x->b->d_gated, x->row)[c]
                : *name == 'h' ? mha__matrix_row(&x->heads, x->row)[c]
                : *name == 'z' ? z
                               : 1 / (1 + exp(-z));
    }
}

/* Puts other gradients of the gates in place of the right ones, of which what follows is a sum. Right is
 * dz = sum(dy h) s (1 - s), s = sigmoid(z), over the features h of a head. */
void mha__gate_by_formula(mha__backward *b, const mha__gradient_bug *bug)
{
    const mha_allocator a = mha__allocator_default();
    gated x = {.b = b, .heads = mha__as_matrix(&b->stages[MHA_STAGE_HEADS])};
    const size_t n = x.heads.shape[1], bytes = n * (MHA__FORMULA_ROOM * sizeof(double) + sizeof(size_t)) + 1;
    double *room = mha__allocate(&a, bytes);
    size_t *line = room ? (size_t *)(void *)(room + MHA__FORMULA_ROOM * n) : NULL;
    const mha__elements_of all = {n, line, NULL, read_gate, &x};
    x.each = n / b->gates.shape[1];
    for (size_t c = 0; room && c < n; c++)
        line[c] = c / x.each;
    for (int turn = 0; room && turn < 2; turn++) { /* what the bug adds, then what it makes */
        for (x.row = 0; x.row < x.heads.shape[0]; x.row++) {
            double *d = mha__matrix_row(&b->d_gates, x.row);
            mha__formula(&all, bug->formula, room);
            for (size_t g = 0; g < b->gates.shape[1]; g++)
                d[g] = room[g * x.each] - (turn > 0 ? 0 : d[g]);
        }
        if (turn == 0)
            mha__matrix_back(b, MHA_W_G, &b->x[0], &b->d_gates, &b->d_x[0]);
    }
    mha__release(&a, room, room ? bytes : 0);
}

bool mha__has_gates(const mha__backward *b, const mha__gradient_bug *bug)
{
    return b->gates.data && (!bug->mutation.read || b->gates.shape[1] < b->gated.shape[1]);
}

/* ---------------------------------------------------------------- latents: dk = [d k_n, d k_r], head by head */

/* Parts of a head: of the rotated one what a part of the heads adds counts, or a mean; or none of the other one. */
enum { ROTATED, ROTATED_MEAN, ROTATED_MISSING, KEYS_MISSING };

static void change_latents(mha__backward *b, mha__map *map, const mha__gradient_bug *bug)
{
    const mha__mutation *m = &bug->mutation;
    const mha_view dk = mha__as_matrix(&b->d[MHA_D_KEY]);
    const size_t h = b->r->plan.h, d = b->r->plan.d_k, d_n = d - b->r->latent.d_r;
    (void)map;
    for (size_t i = 0; i < dk.shape[0]; i++)
        for (size_t c = 0; c < h * d; c++) {
            const bool counts = m->site == ROTATED && mha__part_has((mha__axis_part)m->arg, 1, c / d, h);
            if ((c % d >= d_n) == (m->site != KEYS_MISSING) && !counts)
                mha__matrix_row(&dk, i)[c] *= m->site == ROTATED_MEAN ? 1 / (double)h : 0;
        }
}

/* ---------------------------------------------------------------- inputs */

/* What one projection gives an input: dx = dy W^T. */
enum { OF_Q = 1, OF_K = 2, OF_V = 4, OF_GATE = 8 };

typedef struct way {
    mha_weight W;
    mha_view dy;
    size_t input;
} way;

/* False: the layer has no such path. */
static bool find_way(const mha__backward *b, int which, way *x)
{
    const mha__latent_rows *l = &b->latents;
    const bool latents = b->r->latent.kv_rank > 0, of_q = latents && b->r->latent.q_rank > 0;
    if (which == OF_GATE)
        *x = (way){MHA_W_G, b->d_gates, 0};
    else if (which == OF_Q)
        *x = (way){of_q ? MHA_W_QA : MHA_W_Q, of_q ? l->d_q : mha__as_matrix(&b->d[MHA_D_QUERY]), 0};
    else if (which == OF_K)
        *x = (way){latents ? MHA_W_KVA : MHA_W_K, latents ? l->d_kv : mha__as_matrix(&b->d[MHA_D_KEY]), 1};
    else
        *x = (way){MHA_W_V, mha__as_matrix(&b->d[MHA_D_VALUE]), 2};
    return b->matrix[x->W].data && x->dy.data;
}

/* Adds `times` what a path gives, by the matrix of this or of another path, or by the transpose of it. */
static void add_way(const mha__backward *b, const way *x, mha_weight by, bool transposed, double times)
{
    const mha_view *W = &b->matrix[by], *dx = &b->d_x[x->input];
    for (size_t i = 0; i < x->dy.shape[0]; i++)
        for (size_t k = 0; k < dx->shape[1]; k++)
            for (size_t c = 0; c < x->dy.shape[1]; c++)
                mha__matrix_row(dx, i)[k] +=
                    times * mha__matrix_row(&x->dy, i)[c] * mha__matrix_row(W, transposed ? c : k)[transposed ? k : c];
}

/* Sites are paths that are lost, that count twice, or whose matrix is taken for its transpose or for that of the other
 * one of keys and values. */
enum { LOST, TWICE, TRANSPOSED, OF_OTHER };

/* The matrix that a bug takes for that of a path. */
static mha_weight other_matrix(int how, int which, const way *x)
{
    return how == TRANSPOSED ? x->W : which == OF_V ? MHA_W_K : MHA_W_V;
}

/* Whether the layer has all paths of a row. The other matrix has the same shape. Lost or doubled paths share an input
 * with a path that stays right: otherwise the bug has another name. */
bool mha__has_ways(const mha__backward *b, const mha__gradient_bug *bug)
{
    const int how = bug->mutation.arg;
    const bool others = how >= TRANSPOSED, transposed = how == TRANSPOSED;
    bool has = is_layer(b, bug) && !(others && b->r->latent.kv_rank > 0), shares = others;
    for (int which = OF_Q; which <= OF_GATE && has; which *= 2) {
        way x, y;
        if (!(bug->mutation.site & which))
            continue;
        has = find_way(b, which, &x);
        for (int beside = OF_Q; beside <= OF_GATE && has; beside *= 2)
            shares |= !(bug->mutation.site & beside) && find_way(b, beside, &y) &&
                      b->d_x[y.input].data == b->d_x[x.input].data;
        if (!has || !others)
            continue;
        const mha_view *W = &b->matrix[x.W], *other = &b->matrix[other_matrix(how, which, &x)];
        has = b->d_x[x.input].shape[1] > 0 && W->shape[0] == other->shape[transposed] &&
              W->shape[1] == other->shape[!transposed];
    }
    return has && shares;
}

void mha__change_ways(mha__backward *b, const mha__mutation *m)
{
    for (int which = OF_Q; which <= OF_GATE; which *= 2) {
        way x;
        if (!(m->site & which) || !find_way(b, which, &x))
            continue;
        add_way(b, &x, x.W, false, m->arg == TWICE ? 1 : -1);
        if (m->arg >= TRANSPOSED)
            add_way(b, &x, other_matrix(m->arg, which, &x), m->arg == TRANSPOSED, 1);
    }
}

/* clang-format off */
APPLIES(has_latents, b->r->latent.kv_rank > 0 && (bug->mutation.site == KEYS_MISSING || b->r->latent.d_r > 0))

#define ROW(name, what, applies, stage, function, ...) \
    {{name, what, false}, applies, MHA__BACKWARD_##stage, function, NULL, 0, .mutation = {__VA_ARGS__}}
#define HEADS(name, what, how) \
    ROW("heads-" name, "the gradient of the heads is " what, has_heads, OUTPUT, change_heads, .arg = how)
#define GATE(name, what, text, heads) \
    MHA__BY_FORMULA("gate-" name, "the gradient of a gate z, s = sigmoid(z), " what, OUTPUT, 0, 0, text, \
        .op = MHA__GATES, .read = heads)
#define LATENT(name, what, ...) ROW("latent-" name, what, has_latents, HEADS, change_latents, .site = __VA_ARGS__)
#define INPUT(name, what, which, how) \
    MHA__ROW("input-" name, "the gradient of an input " what, INPUTS, 0, WAYS, .site = which, .arg = how)
#define MATRIX(name, what, which, how) INPUT(name, "is " what, which, how)

static const mha__gradient_bug rows[] = {
    HEADS("unprojected", "dy, without W_O", UNPROJECTED),
    HEADS("untransposed", "dy W_O, without the transpose of W_O", UNTRANSPOSED),
    HEADS("of-other-order", "read as (heads, T, width) and is (T, heads, width)", BY_TIME),
    HEADS("ungated", "not multiplied by the gate", UNGATED),
    HEADS("gated-twice", "multiplied by the gate twice", GATED_TWICE),
    GATE("slope-missing", "lacks the slope s (1 - s)", "sum(dy*h)", 0),
    GATE("slope-of-s", "has the slope s, not s (1 - s)", "sum(dy*h)*s", 0),
    GATE("slope-of-1-less-s", "has the slope 1 - s, not s (1 - s)", "sum(dy*h)*(1-s)", 0),
    GATE("slope-of-silu", "has the slope of z sigmoid(z)", "sum(dy*h)*s*(1+z*(1-s))", 0),
    GATE("slope-of-tanh", "has the slope of a tanh, 1 - s^2", "sum(dy*h)*(1-s^2)", 0),
    GATE("slope-of-z", "has the slope z (1 - z), not s (1 - s)", "sum(dy*h)*z*(1-z)", 0),
    GATE("of-gated-heads", "is made of heads that are gated already", "sum(dy*h)*s^2*(1-s)", 0),
    GATE("without-heads", "is made without the heads", "sum(dy)*s*(1-s)", 0),
    GATE("mean-of-head", "of a head is a mean over its features, not a sum", "sum(dy*h)/sum(1)*s*(1-s)", 1),
    GATE("detached", "is 0", "0", 0),
    LATENT("rotated-of-first-head", "the gradient of the rotated part of latent keys is that of the first head alone",
           ROTATED, MHA__BY(THE_FIRST, H, 0)),
    LATENT("rotated-of-last-head", "the gradient of the rotated part of latent keys is that of the last head alone",
           ROTATED, MHA__BY(THE_LAST, H, 0)),
    LATENT("rotated-mean", "the gradient of the rotated part of latent keys is a mean over the heads, not a sum",
           ROTATED_MEAN),
    LATENT("rotated-missing", "the gradient of the rotated part of latent keys is 0", ROTATED_MISSING),
    LATENT("keys-missing", "the gradient of a latent lacks that of the keys' part which is not rotated", KEYS_MISSING),
    INPUT("without-queries", "lacks what it gets through the queries", OF_Q, LOST),
    INPUT("without-keys", "lacks what it gets through the keys", OF_K, LOST),
    INPUT("without-values", "lacks what it gets through the values", OF_V, LOST),
    INPUT("without-gate", "lacks what it gets through the gate", OF_GATE, LOST),
    INPUT("of-queries", "is that of the queries alone", OF_K | OF_V, LOST),
    INPUT("of-keys", "is that of the keys alone", OF_Q | OF_V, LOST),
    INPUT("of-values", "is that of the values alone", OF_Q | OF_K, LOST),
    INPUT("queries-twice", "has what it gets through the queries twice", OF_Q, TWICE),
    INPUT("keys-twice", "has what it gets through the keys twice", OF_K, TWICE),
    INPUT("values-twice", "has what it gets through the values twice", OF_V, TWICE),
    MATRIX("untransposed", "dy W, without the transposes of W_Q, W_K and W_V", OF_Q | OF_K | OF_V, TRANSPOSED),
    MATRIX("untransposed-q", "made of dq W_Q, without the transpose of W_Q", OF_Q, TRANSPOSED),
    MATRIX("untransposed-k", "made of dk W_K, without the transpose of W_K", OF_K, TRANSPOSED),
    MATRIX("untransposed-v", "made of dv W_V, without the transpose of W_V", OF_V, TRANSPOSED),
    MATRIX("exchanged", "made with W_V for W_K and W_K for W_V", OF_K | OF_V, OF_OTHER),
    MATRIX("keys-by-values", "made with W_V for W_K", OF_K, OF_OTHER),
};
MHA__GRADIENT_BUGS(inputs)
/* clang-format on */
