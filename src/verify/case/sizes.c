/* Reads the sizes of a case from the shapes of its tensors; where the metadata states them, too, both must agree. */
#include <string.h>

#include "base/base.h"
#include "verify/case/record.h"

/* Checks a size found in the shapes of the tensors: where the metadata states the size too, both must agree. */
static mha_status agree(const mha_case *c, const char *key, size_t found, mha_error *error)
{
    int64_t stated;
    TRY(mha__case_whole(c, key, 0, (int64_t)found, &stated, error));
    if ((uint64_t)stated != found)
        return mha__fail(error, MHA_INVALID, key, "expected %zu, as the shapes of tensors say, found %lld", found,
                         (long long)stated);
    return MHA_OK;
}

/* ---------------------------------------------------------------- inputs */

/* Sizes of an input. E is the width of a row with all heads side by side; heads is 0 when the layout has no axis for
 * heads. */
typedef struct input_sizes {
    size_t B, T, heads, E;
} input_sizes;

/* Refuses an input whose rank is that of another layout, and names the layouts that have it. */
static mha_status refuse_rank(const mha_case *c, const char *name, const mha_view *v, int rank, mha_error *error)
{
    static const char *const layouts[] = {[2] = ": rank 2 is layout TE", [3] = ": rank 3 is layout BTE or TBE",
                                          [4] = ": rank 4 is layout BHTD or BTHD"};
    char shape[128];
    return mha__fail(error, MHA_INVALID, name, "expected rank %d in layout %s%s, found shape %s%s", rank,
                     mha__layout_name(c->layout), mha_file_metadata(c->file, "layout") ? "" : " (the file states none)",
                     mha__shape_text(shape, sizeof shape, v->shape, v->rank),
                     v->rank == 4 && c->kind == CASE_MHA ? "" : layouts[v->rank]); /* whose inputs have no heads */
}

static mha_status read_input(const mha_case *c, case_tensor which, input_sizes *sizes, mha_error *error)
{
    const char *name = mha__case_tensor_name(which);
    const mha_view *v = &c->tensors[which];
    if (!v->data)
        return mha__fail(error, MHA_INVALID, name, "expected one, found none");
    const int rank = c->layout == MHA_TE ? 2 : c->layout == MHA_BTE || c->layout == MHA_TBE ? 3 : 4;
    if (v->rank != rank)
        return refuse_rank(c, name, v, rank, error);
    const size_t *s = v->shape;
    switch (c->layout) {
    case MHA_TBE: *sizes = (input_sizes){s[1], s[0], 0, s[2]}; break;
    case MHA_TE: *sizes = (input_sizes){1, s[0], 0, s[1]}; break;
    case MHA_BHTD: *sizes = (input_sizes){s[0], s[2], s[1], s[1] * s[3]}; break;
    case MHA_BTHD: *sizes = (input_sizes){s[0], s[1], s[2], s[2] * s[3]}; break;
    default: *sizes = (input_sizes){s[0], s[1], 0, s[2]}; break;
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- heads */

/* The widths that num_heads and kv_heads must divide: those of q, k and v with all heads side by side. */
typedef struct head_widths {
    const char *names[3];
    size_t q, k, v;
} head_widths;

static mha_status projection_width(const mha_case *c, mha_weight weight, size_t *width, mha_error *error)
{
    const mha_view *w = &c->weights[CASE_RECORDED][weight];
    const char *name = mha__case_weight_name(weight);
    if (!w->data)
        return mha__fail(error, MHA_INVALID, name, "expected one for kind mha, found none");
    if (w->rank != 2 || w->shape[0] == 0 || w->shape[1] == 0) {
        char shape[128];
        return mha__fail(error, MHA_INVALID, name, "expected a matrix, input dimension first, found shape %s",
                         mha__shape_text(shape, sizeof shape, w->shape, w->rank));
    }
    *width = w->shape[1];
    return MHA_OK;
}

static mha_status read_widths(const mha_case *c, const input_sizes inputs[3], head_widths *widths, mha_error *error)
{
    *widths = (head_widths){{"query", "key", "value"}, inputs[0].E, inputs[1].E, inputs[2].E};
    if (c->kind != CASE_MHA)
        return MHA_OK;
    static const mha_weight weights[] = {MHA_W_Q, MHA_W_K, MHA_W_V};
    size_t *to[] = {&widths->q, &widths->k, &widths->v}, unused;
    for (size_t i = 0; i < 3; i++) {
        widths->names[i] = mha__case_weight_name(weights[i]);
        TRY(projection_width(c, weights[i], to[i], error));
    }
    return projection_width(c, MHA_W_O, &unused, error);
}

/* The sizes of latent attention, whose number of heads must be stated. */
static mha_status read_latents(mha_case *c, mha_error *error)
{
    const mha_view *w = c->weights[CASE_RECORDED];
    size_t q, latent, wide, q_rank, output;
    int64_t h, kv;
    TRY(projection_width(c, MHA_W_Q, &q, error));
    TRY(projection_width(c, MHA_W_KVA, &latent, error));
    TRY(projection_width(c, MHA_W_KVB, &wide, error));
    TRY(projection_width(c, MHA_W_O, &output, error));
    if (w[MHA_W_QA].data)
        TRY(projection_width(c, MHA_W_QA, &q_rank, error));
    if (!w[MHA_KVA_NORM].data || (w[MHA_W_QA].data && !w[MHA_QA_NORM].data))
        return mha__fail(error, MHA_INVALID, w[MHA_KVA_NORM].data ? "qa_norm_weight" : "kva_norm_weight",
                         "expected the weight of the norm between the two steps (ones, if it has none), found none");
    TRY(mha__case_whole(c, "num_heads", 1, 0, &h, error));
    TRY(mha__case_whole(c, "kv_heads", 1, h, &kv, error));
    const size_t rank = w[MHA_W_KVB].shape[0], H = (size_t)h;
    if (latent < rank)
        return mha__fail(error, MHA_INVALID, mha__case_weight_name(MHA_W_KVA),
                         "expected %zu columns or more, as W_kvb has rows, found %zu", rank, latent);
    const size_t d_k = H ? q / H : 0, d_rope = latent - rank, d = H ? wide / H : 0;
    if (H == 0 || q % H != 0 || wide % H != 0 || d_rope >= d_k || d <= d_k - d_rope)
        return mha__fail(error, MHA_INVALID, "num_heads",
                         "expected a number of heads for W_q of %zu columns, W_kvb of %zu, and %zu features of W_kva "
                         "behind the latent, found %lld", q, wide, d_rope, (long long)h);
    if (kv != h)
        return mha__fail(error, MHA_INVALID, "kv_heads", "expected num_heads %lld, as latent attention has, found %lld",
                         (long long)h, (long long)kv);
    c->q_rank = w[MHA_W_QA].data ? w[MHA_W_QA].shape[1] : 0;
    c->kv_rank = rank, c->d_rope = d_rope;
    c->H = c->H_kv = H;
    c->d_k = d_k, c->d_v = d - (d_k - d_rope);
    return MHA_OK;
}

size_t mha__kv_heads_of(size_t q, size_t k, size_t v, size_t h)
{
    if (h == 0 || q % h != 0 || q == 0)
        return 0;
    const size_t d_k = q / h, h_kv = k / d_k;
    const bool whole = h_kv > 0 && k % d_k == 0 && v % h_kv == 0;
    return whole && h % h_kv == 0 ? h_kv : 0;
}

/* Lists the head counts that fit, as "1, 2, 4 or 8" ("": none); h_kv > 0: only those with h_kv key/value heads. */
static void list_heads(char *text, size_t size, const head_widths *w, size_t h_kv)
{
    enum { MOST = 12, FARTHEST = 1 << 16 };
    size_t fitting[MOST], n = 0;
    bool more = false;
    for (size_t h = 1; h <= w->q && h <= FARTHEST && !more; h++) {
        const size_t goes_with = mha__kv_heads_of(w->q, w->k, w->v, h);
        if (goes_with == 0 || (h_kv > 0 && goes_with != h_kv))
            continue;
        more = n == MOST;
        if (!more)
            fitting[n++] = h;
    }
    *text = '\0';
    for (size_t i = 0; i < n; i++) {
        const size_t used = strlen(text);
        const char *before = i == 0 ? "" : i + 1 == n && !more ? " or " : ", ";
        mha__text_print(text + used, size - used, "%s%zu%s", before, fitting[i], i + 1 == n && more ? ", ..." : "");
    }
}

/* Refuses a number of heads that is missing (`found` is 0) or does not divide the widths, and lists the numbers that
 * would fit; h_kv > 0: the number of key/value heads that the file states. */
static mha_status refuse_heads(const head_widths *w, size_t h_kv, size_t found, mha_error *error)
{
    char heads[160], widths[200], kv_heads[48] = "", stated[32] = "none";
    list_heads(heads, sizeof heads, w, h_kv);
    if (!*heads && h_kv > 0)
        list_heads(heads, sizeof heads, w, h_kv = 0);
    if (h_kv > 0)
        mha__text_print(kv_heads, sizeof kv_heads, " and kv_heads is %zu", h_kv);
    if (w->q == w->k && w->k == w->v)
        mha__text_print(widths, sizeof widths, "%s, %s and %s are %zu wide", w->names[0], w->names[1], w->names[2],
                        w->q);
    else
        mha__text_print(widths, sizeof widths, "%s is %zu wide, %s %zu, %s %zu", w->names[0], w->q, w->names[1], w->k,
                        w->names[2], w->v);
    if (found)
        mha__text_print(stated, sizeof stated, "%zu", found);
    if (!*heads)
        return mha__fail(error, MHA_INVALID, "num_heads", "expected widths that heads can share, but %s, found %s",
                         widths, stated);
    return mha__fail(error, MHA_INVALID, "num_heads", "expected %s, as %s%s, found %s", heads, widths, kv_heads,
                     stated);
}

/* When the layout has an axis for heads, its extent must equal the number of heads in the metadata. */
static mha_status check_layout_heads(const mha_case *c, const input_sizes inputs[3], size_t h, size_t h_kv,
                                   mha_error *error)
{
    static const case_tensor tensors[] = {CASE_QUERY, CASE_KEY, CASE_VALUE};
    const size_t expected[] = {h, h_kv, h_kv}, count = c->kind == CASE_ROPE ? 1 : 3;
    for (size_t i = 0; i < count; i++)
        if (inputs[i].heads > 0 && inputs[i].heads != expected[i])
            return mha__fail(error, MHA_INVALID, mha__case_tensor_name(tensors[i]),
                             "expected %zu heads in layout %s, found %zu", expected[i], mha__layout_name(c->layout),
                             inputs[i].heads);
    return MHA_OK;
}

/* Finds h and h_kv: from the layout when it has an axis for heads, else from the metadata. If neither states h_kv, it
 * follows from the widths. */
static mha_status read_heads(mha_case *c, const input_sizes inputs[3], const head_widths *w, mha_error *error)
{
    const bool has_axis = inputs[0].heads > 0;
    int64_t stated, stated_kv;
    TRY(mha__case_whole(c, "num_heads", 1, (int64_t)inputs[0].heads, &stated, error));
    TRY(mha__case_whole(c, "kv_heads", 1, has_axis && c->kind != CASE_ROPE ? (int64_t)inputs[1].heads : 0, &stated_kv,
                        error));
    const size_t h = (size_t)stated, fitting = mha__kv_heads_of(w->q, w->k, w->v, h);
    const size_t h_kv = stated_kv > 0 ? (size_t)stated_kv : fitting;
    if (has_axis)
        TRY(check_layout_heads(c, inputs, h, h_kv, error));
    if (fitting == 0 && has_axis && h_kv > 0 && h % h_kv == 0)
        return mha__fail(error, MHA_INVALID, "key",
                         "expected heads as wide as those of query, which are %zu, found %zu", w->q / h, w->k / h_kv);
    if (fitting == 0 && (!has_axis || h_kv == 0))
        return refuse_heads(w, (size_t)stated_kv, h, error);
    if (h % h_kv != 0)
        return mha__fail(error, MHA_INVALID, "kv_heads", "expected a divisor of num_heads %zu, found %zu", h, h_kv);
    if (fitting != h_kv)
        return mha__fail(error, MHA_INVALID, "kv_heads", "expected %zu, as %s is %zu wide and one head %zu, found %zu",
                         fitting, w->names[1], w->k, w->q / h, h_kv);
    c->H = h;
    c->H_kv = h_kv;
    return MHA_OK;
}

/* ---------------------------------------------------------------- the whole */

mha_status mha__case_read_sizes(mha_case *c, mha_error *error)
{
    input_sizes in[3];
    head_widths w;
    TRY(read_input(c, CASE_QUERY, &in[0], error));
    in[1] = in[2] = in[0];
    if (c->kind != CASE_ROPE) {
        TRY(read_input(c, CASE_KEY, &in[1], error));
        TRY(read_input(c, CASE_VALUE, &in[2], error));
    }
    if (in[1].B != in[0].B || in[2].B != in[0].B || in[2].T != in[1].T)
        return mha__fail(
            error, MHA_INVALID, "key",
            "expected the batch of query and the length of value, found batches %zu, %zu, %zu of query, key,"
            " value and lengths %zu, %zu of key and value",
            in[0].B, in[1].B, in[2].B, in[1].T, in[2].T);
    const bool latent = c->kind == CASE_MHA && (c->weights[CASE_RECORDED][MHA_W_KVA].data ||
                                                c->weights[CASE_RECORDED][MHA_W_KVB].data);
    if (latent) {
        TRY(read_latents(c, error));
    } else {
        TRY(read_widths(c, in, &w, error));
        TRY(read_heads(c, in, &w, error));
        c->d_k = w.q / c->H;
        c->d_v = w.v / c->H_kv;
    }
    c->B = in[0].B;
    c->T_q = in[0].T;
    c->T_k = in[1].T;
    c->E_q = in[0].E;
    c->E_k = in[1].E;
    c->E_v = in[2].E;
    c->E_out = c->kind == CASE_MHA ? c->weights[CASE_RECORDED][MHA_W_O].shape[1] : c->H * c->d_v;
    if (c->kind == CASE_ROPE)
        return agree(c, "d_k", c->d_k, error);
    const mha_view *past = &c->tensors[CASE_PAST_KEY];
    c->P = past->data ? past->shape[2] : 0;

    const struct {
        const char *key;
        size_t found;
        bool ragged_too; /* compared in ragged batches too; the other keys count sequences there */
    } sizes[] = {{"d_k", c->d_k, true},    {"d_v", c->d_v, true},  {"d_model", c->E_out, true},
                 {"past_len", c->P, true}, {"batch", c->B, false}, {"q_len", c->T_q, false},
                 {"kv_len", c->T_k, false}};
    const bool ragged = c->semantics.place.cu_seqlens_q != NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!ragged || sizes[i].ragged_too)
            TRY(agree(c, sizes[i].key, sizes[i].found, error));
    return MHA_OK;
}
