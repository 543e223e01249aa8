/* What the settings of a call mean, in words: all of mha_semantics, in the order data flows. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/setup/meaning.h"

typedef struct words {
    char *text;
    size_t used;
} words;

__attribute__((format(printf, 2, 3))) static void add(words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(w->text + w->used, MEANING_TEXT - w->used, format, arguments);
    va_end(arguments);
    w->used += length > 0 ? (size_t)length : 0;
    if (w->used >= MEANING_TEXT)
        w->used = MEANING_TEXT - 1;
}

/* Begins the words of the next setting. */
static void next(words *w)
{
    if (w->used > 0)
        add(w, ", ");
}

#define SAY(...) (next(w), add(w, __VA_ARGS__))

static const char *mask_words(mha_mask_kind kind)
{
    static const char *const kinds[] = {
        [MHA_MASK_ADDITIVE] = "", [MHA_MASK_KEEPS] = ", true keeps", [MHA_MASK_HIDES] = ", true hides"};
    return (unsigned)kind < sizeof kinds / sizeof *kinds && kinds[kind] ? kinds[kind] : "";
}

static void say_positions(words *w, const mha_semantics *s)
{
    if (s->has_offset || s->offset != 0)
        SAY("queries from position %lld on", (long long)s->offset);
    if (s->position_offset)
        SAY("queries from a position of each batch row on");
    if (s->has_key_offset || s->key_offset != 0)
        SAY("keys from position %lld on", (long long)s->key_offset);
    if (s->keys_only)
        SAY("keys alone in the denominator");
    if (s->causal)
        SAY("causal");
    if (s->prefix > 0)
        SAY("but for a prefix of %lld", (long long)s->prefix);
    if (s->window)
        SAY("window %lld,%lld", (long long)s->window_left, (long long)s->window_right);
    if (s->window_keep > 0)
        SAY("the first %lld always in it", (long long)s->window_keep);
    if (s->chunk > 0)
        SAY("chunks of %lld", (long long)s->chunk);
}

static void say_masks(words *w, const mha_semantics *s)
{
    const mha_pattern *p = &s->pattern;
    if (s->kv_lengths)
        SAY("lengths");
    if (s->cu_seqlens_q || s->n_sequences > 0)
        SAY("packed sequences");
    if (s->cu_seqlens_k)
        SAY("keys packed by their own lengths");
    if (s->key_padding.kind != MHA_MASK_NONE)
        SAY("key padding%s", mask_words(s->key_padding.kind));
    if (s->has_padding_fill || s->padding_fill != 0)
        SAY("hidden by adding %g", s->padding_fill);
    if (s->mask.kind != MHA_MASK_NONE)
        SAY("mask%s", mask_words(s->mask.kind));
    if (p->q_segments.data)
        SAY("segments");
    if (p->k_segments.data)
        SAY("segments of the keys");
    if (p->query_padding.kind != MHA_MASK_NONE)
        SAY("query padding%s", mask_words(p->query_padding.kind));
    if (p->key_lists.data)
        SAY("lists of keys");
    if (p->blocks.kind != MHA_MASK_NONE)
        SAY("mask of blocks of %zu x %zu%s", p->block_queries, p->block_keys, mask_words(p->blocks.kind));
}

static void say_bias(words *w, const meaning_of *of)
{
    const mha_bias *b = &of->semantics->bias;
    if (b->rule == MHA_BIAS_RULE_NONE)
        return;
    SAY("bias by position (");
    if (b->rule == MHA_BIAS_RULE_GRID)
        add(w, "a grid of %zu x %zu cells%s)", b->height, b->width, b->class_token ? " behind a class token" : "");
    else
        add(w, "%zu buckets%s, up to distance %zu)", of->bias_rows, b->one_way ? " for earlier keys" : "",
            b->max_distance ? b->max_distance : 128);
}

static void say_relative(words *w, const mha_relative *r)
{
    static const char *const rules[] = {[MHA_RELATIVE_DISTANCE] = "distance",
                                        [MHA_RELATIVE_LOG_BUCKETS] = "buckets of distances",
                                        [MHA_RELATIVE_GRID] = "lines and columns"};
    if (r->rule == MHA_RELATIVE_NONE)
        return;
    SAY("relative terms by %s", rules[r->rule]);
    if (r->rule == MHA_RELATIVE_LOG_BUCKETS)
        add(w, " up to %zu", r->max_distance ? r->max_distance : 512);
    if (r->rule == MHA_RELATIVE_GRID)
        add(w, " of %zu x %zu", r->height, r->width);
    add(w, "%s", r->reversed ? " from the key" : "");
    if (r->k_scale != 0)
        add(w, ", those of keys times %g", r->k_scale);
    if (r->q_scale != 0)
        add(w, ", those of queries times %g", r->q_scale);
}

static void say_rotation(words *w, const meaning_of *of)
{
    static const char *const pairing[] = {[MHA_ROPE_INTERLEAVED] = "interleaved", [MHA_ROPE_HALF_SPLIT] = "half-split"};
    const mha_rope *r = &of->semantics->rope;
    if (r->kind == MHA_ROPE_NONE)
        return;
    SAY("rotated by position (%s, base %g", pairing[r->kind], r->base > 0 ? r->base : 10000);
    if (r->frequencies.data && of->scaling)
        add(w, ", scaled: %s", of->scaling);
    else if (r->frequencies.data)
        add(w, ", frequencies of its own");
    if (r->dim > 0 && r->dim != of->d_k)
        add(w, ", %zu features", r->dim);
    if (r->last)
        add(w, ", the last ones");
    if (r->attention_factor != 0 && r->attention_factor != 1)
        add(w, ", times %g", r->attention_factor);
    add(w, "%s%s%s)", r->q_positions.data ? ", at given positions" : "",
        r->k_positions.data ? ", of keys too" : "", r->cos_table.data || r->sin_table.data ? ", by tables" : "");
}

static void say_norm(words *w, const meaning_of *of)
{
    static const char *const kinds[] = {
        [MHA_NORM_RMS] = "RMS", [MHA_NORM_LAYER] = "LayerNorm", [MHA_NORM_L2] = "L2"};
    const mha_semantics *s = of->semantics;
    const mha_norm_rule *n = &s->norm;
    if (of->normed || n->kind != MHA_NORM_RMS || n->plus_one || n->after_rope || n->unweighted)
        SAY("q/k norm (%s%s%s%s)", kinds[n->kind], n->unweighted ? ", without weights" : "",
            n->plus_one ? ", factor 1 + w" : "", n->after_rope ? ", behind the rotation" : "");
    if (s->norm_eps != 0 && (of->normed || of->latent || n->unweighted))
        SAY("epsilon of norms %g", s->norm_eps);
    if (s->query_scale.growth != 0)
        SAY("queries scaled by position (1 + %g log(1 + (p + %lld) / %lld))", s->query_scale.growth,
            (long long)s->query_scale.first, (long long)s->query_scale.every);
}

static void say_weights(words *w, const mha_semantics *s)
{
    if (s->zero_row)
        SAY("one more key of zeros");
    if (s->softmax_plus_one)
        SAY("softmax plus one");
    if (s->normaliser == MHA_SIGMOID)
        SAY("sigmoid");
    if (s->sigmoid_bias != 0)
        SAY("its bias %g", s->sigmoid_bias);
    if (s->empty_rows == MHA_EMPTY_NAN)
        SAY("NaN where a query sees nothing");
    if (s->hidden_values == MHA_HIDDEN_PROPAGATE)
        SAY("hidden values propagate");
}

void meaning_text(const meaning_of *of, char text[MEANING_TEXT])
{
    words start = {text, 0}, *w = &start;
    const mha_semantics *s = of->semantics;
    text[0] = '\0';
    say_positions(w, s);
    say_masks(w, s);
    if (s->alibi_slopes)
        SAY("ALiBi");
    say_bias(w, of);
    say_relative(w, &s->relative);
    if (s->has_scale || s->scale != 0)
        SAY("scale %g", s->scale);
    if (s->softcap > 0)
        SAY("softcap %g", s->softcap);
    if (s->clip_qkv > 0)
        SAY("q, k and v clipped to %g", s->clip_qkv);
    say_norm(w, of);
    say_rotation(w, of);
    say_weights(w, s);
}
