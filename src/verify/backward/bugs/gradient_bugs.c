/* The list of all bugs of a backward: changes, and points at which a kernel may round. */
#include <string.h>

#include "attention/call/definition.h"
#include "verify/backward/bugs/gradient_bugs.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* Points whose bound is of the size of what rounding there does; those of scores and of partial sums are much wider,
 * and would explain anything. `step`: the offset of the point in mha_backward_precision; `arg`: the type, or the
 * number of rows of a block. */
#define ROUNDS(point, name, what, type, word, leaves) \
    { \
        {name "-in-" word, what " is rounded to " word, true}, NULL, MHA__BACKWARD_READ, NULL, NULL, leaves, \
            .mutation = {.step = offsetof(mha_backward_precision, point), .arg = type} \
    }
#define LEAVES_Q_K (MHA__LEAVES_Q | MHA__LEAVES_K)
#define POINTS(type, word) \
    ROUNDS(gradients, "gradients", "what goes out", type, word, 0), \
        ROUNDS(probabilities, "probabilities", "P, where it meets dO,", type, word, LEAVES_Q_K), \
        ROUNDS(output, "output", "O in D = rowsum(dO O)", type, word, MHA__LEAVES_V), \
        ROUNDS(d_scores, "d-scores", "dS", type, word, MHA__LEAVES_V)
/* What is read in more than one place explains more. */
#define WIDER_POINTS(type, word) \
    ROUNDS(weights, "weights", "P, wherever it is read,", type, word, 0), \
        ROUNDS(d_weights, "d-weights", "dP", type, word, MHA__LEAVES_V)

/* The sums of PyTorch on CPUs. */
#define BLOCKS(rows) \
    { \
        {"gradients-in-blocks", "dK and dV are rounded after each block of queries", true}, NULL, MHA__BACKWARD_READ, \
            NULL, NULL, MHA__LEAVES_Q, \
            .mutation = {.step = offsetof(mha_backward_precision, block_rows), .arg = (rows)} \
    }

/* The finer type first: what it explains, the other one does, too. */
static const mha__gradient_bug rounded[] = {POINTS(MHA_F16, "float16"), POINTS(MHA_BF16, "bfloat16"),
                                            WIDER_POINTS(MHA_F16, "float16"), WIDER_POINTS(MHA_BF16, "bfloat16"),
                                            BLOCKS(32)};

const mha__gradient_bug *mha__gradient_bug_at(size_t index)
{
    const mha__gradient_bug_list lists[] = {
        mha__gradient_bugs_of_weights(), mha__gradient_bugs_of_visible(),  mha__gradient_bugs_of_reads(),
        mha__gradient_bugs_of_sums(),    mha__gradient_bugs_of_products(), mha__gradient_bugs_of_ways_back(),
        mha__gradient_bugs_of_added(),   mha__gradient_bugs_of_inputs(),   mha__gradient_bugs_of_parameters(),
        mha__gradient_bugs_of_results(), {rounded, COUNT(rounded)},        mha__gradient_bugs_of_forward(),
        mha__gradient_bugs_of_unknowns()};
    for (size_t i = 0; i < COUNT(lists); index -= lists[i++].count)
        if (index < lists[i].count)
            return &lists[i].rows[index];
    return NULL;
}

const mha_gradient_bug *mha_gradient_bug_at(size_t index)
{
    const mha__gradient_bug *row = mha__gradient_bug_at(index);
    return row ? &row->shown : NULL;
}

/* Something other than ALiBi is added to scores. */
static bool has_more_added(const mha_semantics *s)
{
    return s->visible.mask.kind == MHA_MASK_ADDITIVE || s->visible.key_padding.kind == MHA_MASK_ADDITIVE ||
           s->visible.has_padding_fill || s->added.bias.rule != MHA_BIAS_RULE_NONE ||
           s->added.relative.rule != MHA_RELATIVE_NONE;
}

bool mha__gradient_bug_applies(const mha__backward *b, const mha__gradient_bug *bug)
{
    const mha__resolved *r = b->r;
    const mha__mutation *m = &bug->mutation;
    const mha__sizes *p = &r->plan;
    const mha_semantics *s = mha__semantics_of(r);
    const mha_softmax *softmax = &s->softmax;
    const size_t block = (size_t)m->step, width = mha__width_of(b, m);
    const bool sinks = r->weight[MHA_SINKS].data, more = sinks || softmax->softmax_plus_one,
               no_relative = s->added.relative.rule == MHA_RELATIVE_NONE, adds_more = has_more_added(s),
               adds = adds_more || s->added.alibi_slopes, ragged = s->place.cu_seqlens_q,
               flags = s->visible.mask.kind && s->visible.mask.kind != MHA_MASK_ADDITIVE,
               has[] = {mha__is_softmax(b), sinks, more, !more, b->given->d_lse.data, softmax->softcap > 0,
                        p->scale != 1, p->B > 1, p->T_q > 1, p->h > 1, p->h > p->h_kv, p->h_kv > 1, p->T_q > block,
                        p->S > block, no_relative, p->S_extra == 0,
                        p->T_q == p->S && p->S_extra == 0 && p->T_q > 1 && !ragged, p->h == p->h_kv, p->d_k == p->d_v,
                        p->d_v > p->d_k, adds, adds_more, !b->given->whole.lse.data,
                        s->visible.causal, flags, m->step == 0 || (width > 0 && p->d_v > width),
                        block > 0 && (m->axis == MHA__T ? p->T_q : p->S) % block != 0,
                        m->op == MHA__OTHER_SCALE && mha__has_scale(b, (mha__other_scale)m->arg),
                        m->site < MHA_GRADIENT_COUNT && b->d[m->site].data,
                        b->d[MHA_D_MASK].data || b->d[MHA_D_ALIBI_SLOPES].data || b->d[MHA_D_KEY_PADDING].data};
    for (size_t i = 0; i < COUNT(has); i++)
        if (m->needs >> i & 1 && !has[i])
            return false;
    bool (*applies)(const mha__backward *b, const mha__gradient_bug *bug) = bug->applies;
    switch (bug->change || bug->result ? MHA__PUT : m->op) {
    case MHA__READS: applies = mha__reads_rows; break;
    case MHA__READS_NUMBERS: applies = mha__reads_numbers; break;
    case MHA__RECOMPUTES: applies = mha__recomputes; break;
    case MHA__TURNS_BY: applies = mha__has_angles; break;
    case MHA__NORMALISES: applies = mha__has_norms; break;
    case MHA__KEEPS_OF_NORM: applies = mha__has_norm_part; break;
    case MHA__GATES: applies = mha__has_gates; break;
    case MHA__WAYS: applies = mha__has_ways; break;
    case MHA__TURNS: return mha__semantics_of(r)->qkv.rope.kind != MHA_ROPE_NONE;
    case MHA__OUT_TIMES: return mha__factor_moves(m, r);
    default: break;
    }
    return !applies || applies(b, bug);
}

mha_backward_precision mha__gradient_bug_rounds(const mha__gradient_bug *bug, const mha_backward_precision *also)
{
    mha_backward_precision made = *also;
    const uint32_t to = (uint32_t)bug->mutation.arg; /* all fields are numbers of 32 bits */
    memcpy((char *)&made + bug->mutation.step, &to, sizeof to);
    return made;
}
