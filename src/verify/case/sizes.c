/* The sizes of a case: told by its tensors, and where the metadata tells them too, in agreement. */
#include "base/base.h"
#include "verify/case/record.h"

/* A size the tensors already tell: where the metadata names it too, both must agree. */
static mha_status agree(const mha_case *c, const char *key, size_t found, mha_error *error)
{
    int64_t stated;
    mha_status status = mha__case_whole(c, key, 0, (int64_t)found, &stated, error);
    if (status)
        return status;
    if ((uint64_t)stated != found)
        return mha__fail(error, MHA_INVALID, key, "metadata %s is %lld, but the tensors' shapes say %zu", key,
                        (long long)stated, found);
    return MHA_OK;
}

/* B, T and merged width E of an input as its layout lies in memory. */
static mha_status input_size(const mha_case *c, case_tensor which, size_t heads, size_t *B, size_t *T, size_t *E,
                             mha_error *error)
{
    const char *name = mha__case_tensor_name(which);
    const mha_view *v = &c->tensors[which];
    if (!v->data)
        return mha__fail(error, MHA_INVALID, name, "tensor %s is missing", name);
    int rank = c->layout == MHA_TE ? 2 : c->layout == MHA_BTE || c->layout == MHA_TBE ? 3 : 4;
    if (v->rank != rank)
        return mha__fail(error, MHA_INVALID, name, "tensor %s: expected rank %d in layout %s, found %d", name, rank,
                        mha_layout_name(c->layout), v->rank);
    const size_t *s = v->shape;
    size_t h = heads;
    switch (c->layout) {
    case MHA_BTE: *B = s[0], *T = s[1], *E = s[2]; break;
    case MHA_TBE: *B = s[1], *T = s[0], *E = s[2]; break;
    case MHA_TE: *B = 1, *T = s[0], *E = s[1]; break;
    case MHA_BHTD: *B = s[0], h = s[1], *T = s[2], *E = s[1] * s[3]; break;
    default: *B = s[0], *T = s[1], h = s[2], *E = s[2] * s[3]; break;
    }
    if (h != heads || (c->kind != CASE_MHA && *E % heads != 0)) {
        char shape[128];
        return mha__fail(error, MHA_INVALID, name, "tensor %s: expected %zu heads in layout %s, found shape %s", name,
                        heads, mha_layout_name(c->layout), mha__shape_text(shape, sizeof shape, s, v->rank));
    }
    return MHA_OK;
}

/* The width of one head from a projection's columns, a multiple of the number of heads. */
static mha_status head_width(const mha_case *c, mha_weight weight, size_t heads, size_t *width, mha_error *error)
{
    const mha_view *w = &c->weights[CASE_RECORDED][weight];
    const char *name = mha__case_weight_name(weight);
    if (!w->data)
        return mha__fail(error, MHA_INVALID, name, "tensor %s is missing", name);
    if (w->rank != 2 || w->shape[1] == 0 || w->shape[1] % heads != 0) {
        char shape[128];
        return mha__fail(error, MHA_INVALID, name, "tensor %s: expected columns for %zu heads, found shape %s", name,
                        heads, mha__shape_text(shape, sizeof shape, w->shape, w->rank));
    }
    *width = w->shape[1] / heads;
    return MHA_OK;
}

static mha_status read_heads(mha_case *c, mha_error *error)
{
    const mha_view *q = &c->tensors[CASE_QUERY], *k = &c->tensors[CASE_KEY];
    int axis = c->layout == MHA_BHTD ? 1 : c->layout == MHA_BTHD ? 2 : -1;
    bool told = axis >= 0 && q->data && q->rank == 4;
    if (!told && !mha_file_metadata(c->file, "num_heads"))
        return mha__fail(error, MHA_INVALID, "num_heads", "metadata num_heads is missing");
    int64_t h, h_kv;
    mha_status status = mha__case_whole(c, "num_heads", 1, told ? (int64_t)q->shape[axis] : 1, &h, error);
    bool told_kv = axis >= 0 && k->data && k->rank == 4;
    if (!status)
        status = mha__case_whole(c, "kv_heads", 1, told_kv ? (int64_t)k->shape[axis] : h, &h_kv, error);
    if (status)
        return status;
    if (h % h_kv != 0)
        return mha__fail(error, MHA_INVALID, "kv_heads",
                        "metadata kv_heads: expected a divisor of num_heads %lld, found %lld", (long long)h,
                        (long long)h_kv);
    c->H = (size_t)h;
    c->H_kv = (size_t)h_kv;
    return MHA_OK;
}

mha_status mha__case_read_sizes(mha_case *c, mha_error *error)
{
    mha_status status = read_heads(c, error);
    size_t B_k = 0, B_v = 0, T_v = 0;
    if (!status)
        status = input_size(c, CASE_QUERY, c->H, &c->B, &c->T_q, &c->E_q, error);
    if (c->kind == CASE_ROPE) {
        c->d_k = c->d_v = status ? 0 : c->E_q / c->H;
        c->T_k = c->T_q;
        c->E_out = c->E_q;
        return status ? status : agree(c, "d_k", c->d_k, error);
    }
    if (!status)
        status = input_size(c, CASE_KEY, c->H_kv, &B_k, &c->T_k, &c->E_k, error);
    if (!status)
        status = input_size(c, CASE_VALUE, c->H_kv, &B_v, &T_v, &c->E_v, error);
    if (status)
        return status;
    if (B_k != c->B || B_v != c->B || T_v != c->T_k)
        return mha__fail(error, MHA_INVALID, "key",
                        "query, key and value: batches %zu, %zu, %zu; lengths of key and value %zu, %zu", c->B, B_k,
                        B_v, c->T_k, T_v);
    c->d_k = c->E_k / c->H_kv;
    c->d_v = c->E_v / c->H_kv;
    c->E_out = c->H * c->d_v;
    if (c->kind == CASE_MHA) {
        const mha_view *o = &c->weights[CASE_RECORDED][MHA_W_O];
        status = head_width(c, MHA_W_K, c->H_kv, &c->d_k, error);
        if (!status)
            status = head_width(c, MHA_W_V, c->H_kv, &c->d_v, error);
        if (!status && (!o->data || o->rank != 2))
            status = mha__fail(error, MHA_INVALID, "W_o", "tensor W_o is missing or not a matrix");
        c->E_out = status ? 0 : o->shape[1];
    }
    const mha_view *past = &c->tensors[CASE_PAST_KEY];
    c->P = past->data ? past->shape[2] : 0;

    bool ragged = c->tensors[CASE_CU_Q].data != NULL;
    const struct {
        const char *key;
        size_t found;
        bool ragged_too; /* sequences and their lengths are not extents of the packed tensors */
    } sizes[] = {{"d_k", c->d_k, true},    {"d_v", c->d_v, true},  {"d_model", c->E_out, true},
                 {"past_len", c->P, true}, {"batch", c->B, false}, {"q_len", c->T_q, false},
                 {"kv_len", c->T_k, false}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        if (!ragged || sizes[i].ragged_too)
            status = agree(c, sizes[i].key, sizes[i].found, error);
    return status;
}
