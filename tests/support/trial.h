/* One forward as a test wants it: described in a few plain fields, built in guarded memory, run on any
 * path, held against the oracle. */
#ifndef TEST_TRIAL_H
#define TEST_TRIAL_H

#include "mha/attention.h"
#include "support/guard.h"
#include "support/oracle.h"
#include "support/stages.h"

enum { TRIAL_MAX_BATCH = 8 };

typedef enum trial_inputs {
    TRIAL_CROSS = 0, /* query, key and value are three arrays */
    TRIAL_SELF,      /* key and value are left out */
    TRIAL_KEY_VALUE  /* value is left out */
} trial_inputs;

/* The description of a forward. Zero is the plain case. trial_build makes the arrays that semantics borrow from the
 * seed: a mask or padding where the kind of semantics.mask, key_padding, pattern.query_padding or pattern.blocks is set
 * (values NULL), others by flags. */
typedef struct trial {
    uint64_t seed;
    mha_config config; /* with bare only n_heads, kv_heads, d_k, d_v, biases, extras and norms matter */
    bool bare;         /* no layer: Q, K, V are given per head */
    trial_inputs inputs;
    size_t B, T_q, T_k;
    size_t past;       /* > 0: rows in a cache; use_cache with past 0: an empty one */
    bool use_cache;
    mha_layout layout; /* of inputs and output: BTE or TBE; with bare also BHTD and BTHD */
    size_t gap;        /* elements of poison between rows */
    double amplitude;  /* of the inputs; 0: 1 */
    mha_semantics semantics;
    bool offset_each, lengths, alibi, rope_positions, rope_key_positions;
    bool rope_frequencies; /* without tables */
    bool rope_axes;    /* tables by row are those of several axes */
    int rope_tables;   /* 0 none, 2 by position, 3 by row */
    int mask_rank;     /* 1 to 4; 0: 4 */
    unsigned mask_ones; /* bit k: extent k (counted from the right) of the mask is 1 */
    size_t mask_short; /* keys the mask does not reach */
    int segments;      /* 0 none; 1 in order, 2 in any order; 3: keys have those of the queries, where they can */
    size_t listed;     /* > 0: lists of so many keys */
    unsigned pattern_ones; /* bits: which extents of the pattern are 1 */
    size_t sequences;  /* > 0: ragged; B is 1, T_q and T_k are totals */
    double dropout;    /* > 0: p of a dropout, on the exact path; bits of pattern_ones say what is broadcast */
    bool others;       /* arrays that trial_build has no hand for, by their rows alone */
    bool poison;       /* NaN and infinity in keys and values of rows that no query may see */
    mha_dtype input_dtype; /* of the inputs; others than F32 for the exact path */
    guard_side side;
} trial;

/* A trial that trial_build has made. Everything but stages and workspace may be made read-only. */
typedef struct rig {
    trial t;
    mha_params *table;
    mha_layer *layer;
    mha_call call;
    mha_cache *cache;
    oracle_past past;
    mha_view weights[MHA_WEIGHT_COUNT]; /* of the layer, or of the call without one */
    mha_keep keep[MHA_STAGE_COUNT];     /* the call's list */
    oracle expected[2]; /* for float and for double; computed when first asked for */
    bool has_expected[2];
    void *inputs[32]; /* guarded blocks that, like the weights, are protected while a forward runs */
    size_t n_inputs;
    uint64_t random;
} rig;

enum { TRIAL_ALL_STAGES = (1 << MHA_STAGE_COUNT) - 1, TRIAL_OUTPUT = 1 << MHA_STAGE_OUTPUT };

void trial_build(const trial *t, rig *r);
void trial_release(rig *r);

/* Runs the call with the stages of `keep` (a bit for each) in fresh guarded memory of `dtype`, exactly
 * plan.workspace_bytes of workspace, the cache as it was. Stages that the call lacks are passed over. On refusal
 * returns the status and the message.
 * stage_view(&r->call, stage) shows a kept stage until the next run. */
mha_status trial_run(rig *r, mha_path path, int threads, unsigned keep, mha_dtype dtype, mha_error *error);
/* Stages that a run may be asked for: all but what a ragged batch has no room for and a sigmoid lacks. */
unsigned trial_stages(const rig *r);
/* Holds every kept stage of the last run against the oracle. */
bool trial_check(rig *r, mha_path path, char *text, size_t size);
/* Build, run on every path that takes it, check, release; the test fails with the trial in words. */
void trial_assert(const trial *t, const char *file, int line);
#define assert_trial(t) trial_assert((t), __FILE__, __LINE__)

/* The trial in words, and a random one from the whole space of options. */
void trial_text(const trial *t, char *text, size_t size);
trial trial_draw(uint64_t seed);
/* Whether something is wrong with it; `text` says what. */
typedef bool (*trial_failure)(const trial *t, char *text, size_t size);
/* A smaller trial that still fails, by switching one thing off after another. */
trial trial_shrink(const trial *t, trial_failure fails);
/* True when a path differs from the oracle or refuses (the fast path may). */
bool trial_fails(const trial *t, char *text, size_t size);
/* Draws n trials from seed `first` on, with inputs of size `amplitude` (0: as drawn), until five have failed: they
 * are shown, with the smallest trial that fails likewise. Returns how many failed. */
size_t trials_that_fail(uint64_t first, uint64_t n, double amplitude, trial_failure fails);
/* A number from the environment. */
uint64_t trial_number(const char *name, uint64_t otherwise);
/* True if this run takes entry i of a long list: each share-th, from a start that DRAW_SEED gives; with DRAW_ALL
 * (`make test-long`) every entry. The first call prints DRAW_SEED. */
bool trial_drawn(uint64_t share, uint64_t i);
uint64_t trial_draw_seed(void);
/* How many trials to draw: what the environment says by this name, else `usual`, divided by TRIALS_DIVISOR where the
 * environment has one: for runs in which each trial takes several times as long, and finds other things. */
uint64_t trial_count(const char *name, uint64_t usual);

#endif
