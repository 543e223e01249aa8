/* The dialects: what kernels understand differently, and what each reading makes of a question. */
#include <math.h>
#include <string.h>

#include "verify/conform/conform.h"

/* ---------------------------------------------------------------- where they matter */

static bool empty_matters(const mha_question *q)
{
    const mha_semantics *s = &q->call.semantics;
    return strstr(q->row.settings, "=empty") || (s->visible.causal && s->place.has_offset && s->place.offset < 0);
}

static bool alignment_matters(const mha_question *q)
{
    const mha_semantics *s = &q->call.semantics;
    return (s->visible.causal || s->visible.window) && q->row.T_q != q->row.T_k && q->row.P == 0 &&
           q->page_size == 0 && !s->place.has_offset;
}

static bool window_matters(const mha_question *q)
{
    return q->call.semantics.visible.window_left > 0;
}

static bool mask_matters(const mha_question *q)
{
    return q->call.semantics.visible.mask.kind == MHA_MASK_KEEPS;
}

static bool hidden_matters(const mha_question *q)
{
    return isnan(q->regime->hidden);
}

static bool softcap_matters(const mha_question *q)
{
    return q->call.semantics.softmax.softcap > 0 && q->call.semantics.visible.mask.kind == MHA_MASK_ADDITIVE;
}

static bool lse_matters(const mha_question *q)
{
    return q->lse;
}

/* ---------------------------------------------------------------- what readings make of a question */

static void empty_read(mha_question *q, size_t reading)
{
    if (reading == 1)
        q->call.semantics.softmax.empty_rows = MHA_EMPTY_NAN;
    if (reading == 2)
        q->variants[q->variant_count++] = "fill-lowest";
}

static void alignment_read(mha_question *q, size_t reading)
{
    q->call.semantics.place.has_offset = reading == 1;
    q->call.semantics.place.offset = reading == 1 ? (int64_t)q->row.T_k - (int64_t)q->row.T_q : 0;
}

static void window_read(mha_question *q, size_t reading)
{
    q->call.semantics.visible.window_left -= (int64_t)reading;
}

static void mask_read(mha_question *q, size_t reading)
{
    q->call.semantics.visible.mask.kind = reading == 1 ? MHA_MASK_HIDES : MHA_MASK_KEEPS;
}

static void hidden_read(mha_question *q, size_t reading)
{
    q->call.semantics.softmax.hidden_values = reading == 1 ? MHA_HIDDEN_PROPAGATE : MHA_HIDDEN_IGNORE;
}

static void softcap_read(mha_question *q, size_t reading)
{
    if (reading == 1)
        q->variants[q->variant_count++] = "softcap-after-mask";
}

static void lse_read(mha_question *q, size_t reading)
{
    if (reading == 1)
        q->variants[q->variant_count++] = "lse-base-2";
    if (reading == 2 && q->weights[MHA_SINKS].data)
        q->variants[q->variant_count++] = "lse-without-sinks";
}

/* ---------------------------------------------------------------- the table */

typedef struct dialect {
    mha_conform_dialect row;
    bool (*matters)(const mha_question *q);
    void (*read)(mha_question *q, size_t reading);
} dialect;

/* Alignment comes before empty: it decides which queries see no key. */
static const dialect dialects[MHA_CONFORM_DIALECTS] = {
    {{"alignment",
      "causal and windows of numbers of queries and keys that differ",
      2,
      {{"top-left", "query i is at position i"}, {"bottom-right", "the last query is at the last key's position"}},
      "probe-alignment"},
     alignment_matters, alignment_read},
    {{"empty",
      "what a query gives that sees no key",
      3,
      {{"zero", "zeros"}, {"nan", "NaN"}, {"mean", "the mean of all values"}},
      "probe-empty"},
     empty_matters, empty_read},
    {{"window",
      "what a window of W to the left keeps",
      2,
      {{"w-plus-1", "W keys and the query's own"}, {"w", "W keys, the query's own among them"}},
      "probe-window"},
     window_matters, window_read},
    {{"mask",
      "what true says in a boolean mask",
      2,
      {{"keeps", "the key takes part"}, {"hides", "the key is hidden"}},
      "probe-mask"},
     mask_matters, mask_read},
    {{"hidden",
      "what NaN does in the value of a hidden key",
      2,
      {{"ignored", "nothing"}, {"propagates", "0 times NaN reaches the output"}},
      "probe-hidden"},
     hidden_matters, hidden_read},
    {{"softcap",
      "where the softcap stands beside an additive mask",
      2,
      {{"before-mask", "the mask is added to capped scores"}, {"after-mask", "scores with the mask are capped"}},
      "probe-softcap"},
     softcap_matters, softcap_read},
    {{"lse",
      "what the log-sum-exp is",
      3,
      {{"natural", "to base e, sinks counted"},
       {"base-2", "to base 2"},
       {"without-sinks", "to base e, of the keys alone"}},
      "probe-lse"},
     lse_matters, lse_read},
};

const mha_conform_dialect *mha_conform_dialect_at(size_t index)
{
    return index < MHA_CONFORM_DIALECTS ? &dialects[index].row : NULL;
}

mha_status mha__conform_read(mha_question *q, mha_error *error)
{
    for (size_t i = 0; i < MHA_CONFORM_DIALECTS; i++) {
        const size_t reading = q->readings.of[i];
        if (reading >= dialects[i].row.count)
            return mha__fail(error, MHA_INVALID, dialects[i].row.name, "expected a reading below %zu, found %zu",
                             dialects[i].row.count, reading);
        q->differs[i] = dialects[i].matters(q);
        if (q->differs[i])
            dialects[i].read(q, reading);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- readings by name */

/* The names of the readings of a dialect, or of all dialects, with commas between. */
static char *names(const mha_conform_dialect *d, char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < (d ? d->count : MHA_CONFORM_DIALECTS); i++) {
        const size_t used = strlen(text);
        mha__text_print(text + used, size - used, "%s%s", i ? ", " : "",
                        d ? d->readings[i].name : dialects[i].row.name);
    }
    return text;
}

static mha_status put(const char *name, const char *value, mha_conform_readings *readings, mha_error *error)
{
    char text[200];
    for (size_t i = 0; i < MHA_CONFORM_DIALECTS; i++) {
        const mha_conform_dialect *d = &dialects[i].row;
        if (strcmp(d->name, name) != 0)
            continue;
        for (size_t r = 0; r < d->count; r++)
            if (strcmp(d->readings[r].name, value) == 0) {
                readings->of[i] = r;
                return MHA_OK;
            }
        return mha__fail(error, MHA_INVALID, d->name, "expected one of %s, found \"%s\"", names(d, text, sizeof text),
                         value);
    }
    return mha__fail(error, MHA_INVALID, "dialect", "expected one of %s, with = and a reading, found \"%s\"",
                     names(NULL, text, sizeof text), name);
}

mha_status mha_conform_readings_put(const char *text, mha_conform_readings *readings, mha_error *error)
{
    mha_conform_readings found = *readings;
    while (*text) {
        char name[48], value[48];
        const size_t length = strcspn(text, ","), middle = strcspn(text, ",=");
        mha__text_print(name, sizeof name, "%.*s", (int)middle, text);
        mha__text_print(value, sizeof value, "%.*s", middle < length ? (int)(length - middle - 1) : 0,
                        text + (middle < length ? middle + 1 : middle));
        TRY(put(name, value, &found, error));
        text += length + (text[length] == ',');
    }
    *readings = found;
    return MHA_OK;
}
