/* How far ahead memory is fetched: products take turns, and the fastest distance is kept. One row for each kind. */
#include "compute/kernels/fetching.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "compute/kernels/kernels.h"

enum {
    SAMPLES = (MHA_FETCH_IN_A_ROW - MHA_FETCH_LEFT_OUT) * MHA_FETCH_ROUNDS, /* of each distance */
    TURNS = MHA_FETCH_CHOICES * MHA_FETCH_IN_A_ROW * MHA_FETCH_ROUNDS
};

/* A second-level cache of 512 KiB holds seven groups of 16 keys of 128 floats seven times over. Weights of less than 4
 * MiB may stay in a cache between two tokens. */
static const struct {
    const char *name, *unit;
    size_t least, choices[MHA_FETCH_CHOICES]; /* the nearest first */
} kinds[MHA__FETCHED_COUNT] = {
    [MHA__FETCHED_KEYS] = {"keys", "groups", (size_t)512 << 10, {0, 3, 7}},
    [MHA__FETCHED_ROW] = {"row", "KiB", (size_t)4 << 20, {0, 8, 16}},
    [MHA__FETCHED_ROWS] = {"rows", "KiB", (size_t)4 << 20, {0, 8, 16}},
    [MHA__FETCHED_HALF] = {"half", "KiB", (size_t)4 << 20, {0, 8, 48}},
    [MHA__FETCHED_BLOCKS] = {"blocks", "KiB", (size_t)4 << 20, {1, 2, 4}},
};
static const float worth = 0.98f;

static struct {
    float times[MHA_FETCH_CHOICES * SAMPLES];
    atomic_uint begun, ended; /* products, and those whose time was taken */
    atomic_int chosen;
    atomic_bool by_time;
} states[MHA__FETCHED_COUNT];

/* Until it is measured. */
static size_t usual(mha__fetched what)
{
    const mha__kernels *kernels = mha__kernels_get();
    const size_t of[MHA__FETCHED_COUNT] = {[MHA__FETCHED_ROW] = kernels->row_ahead,
                                           [MHA__FETCHED_ROWS] = 8,
                                           [MHA__FETCHED_HALF] = 48,
                                           [MHA__FETCHED_BLOCKS] = kernels->blocks_ahead};
    return of[what];
}

const char *mha__fetched_name(mha__fetched what)
{
    return kinds[what].name;
}

const char *mha__fetched_unit(mha__fetched what)
{
    return kinds[what].unit;
}

size_t mha__fetch_least(mha__fetched what)
{
    return kinds[what].least;
}

/* ---------------------------------------------------------------- by time */

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median(const float *seconds, size_t n)
{
    float sorted[SAMPLES];
    memcpy(sorted, seconds, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_size);
    return sorted[n / 2];
}

size_t mha__fetch_choice(mha__fetched what, const float *seconds, size_t samples)
{
    const size_t *choices = kinds[what].choices;
    float middle[MHA_FETCH_CHOICES], least = 0;
    for (size_t c = 0; c < MHA_FETCH_CHOICES; c++) {
        middle[c] = median(seconds + c * samples, samples);
        least = c == 0 || middle[c] < least ? middle[c] : least;
    }
    for (size_t c = 0; c < MHA_FETCH_CHOICES; c++)
        if (choices[c] == usual(what) && middle[c] * worth <= least)
            return choices[c];
    size_t nearest = 0;
    while (nearest + 1 < MHA_FETCH_CHOICES && middle[nearest] * worth > least)
        nearest++;
    return choices[nearest];
}

/* ---------------------------------------------------------------- by a text */

/* A number up to MHA_FETCH_MOST or "auto", from `text` up to `end`. */
static bool read_distance(const char *text, const char *end, int *ahead)
{
    const size_t length = (size_t)(end - text);
    if (length == 4 && memcmp(text, "auto", 4) == 0) {
        *ahead = MHA_FETCH_AUTO;
        return true;
    }
    int number = 0;
    for (const char *c = text; c < end; c++) {
        if (*c < '0' || *c > '9' || number > MHA_FETCH_MOST)
            return false;
        number = 10 * number + (*c - '0');
    }
    *ahead = number;
    return length > 0 && number <= MHA_FETCH_MOST;
}

static mha__fetched named(const char *text, size_t length)
{
    int what = 0;
    while (what < MHA__FETCHED_COUNT &&
           (strlen(kinds[what].name) != length || memcmp(kinds[what].name, text, length) != 0))
        what++;
    return (mha__fetched)what;
}

bool mha__fetch_read(const char *text, int ahead[MHA__FETCHED_COUNT])
{
    int found[MHA__FETCHED_COUNT];
    const char *end = text + strlen(text);
    memcpy(found, ahead, sizeof found);
    if (!strchr(text, '=')) {
        if (!read_distance(text, end, &found[MHA__FETCHED_KEYS]))
            return false;
        for (int what = 0; what < MHA__FETCHED_COUNT && found[MHA__FETCHED_KEYS] == MHA_FETCH_AUTO; what++)
            found[what] = MHA_FETCH_AUTO;
    }
    for (const char *part = strchr(text, '=') ? text : NULL, *stop; part; part = *stop ? stop + 1 : NULL) {
        stop = part + strcspn(part, ",");
        const size_t length = strcspn(part, "=,");
        const mha__fetched what = named(part, length);
        if (what == MHA__FETCHED_COUNT || part[length] != '=' || !read_distance(part + length + 1, stop, &found[what]))
            return false;
    }
    memcpy(ahead, found, sizeof found);
    return true;
}

/* ---------------------------------------------------------------- chosen */

static void set(mha__fetched what, int ahead)
{
    atomic_store(&states[what].begun, 0);
    atomic_store(&states[what].ended, 0);
    atomic_store(&states[what].by_time, false);
    atomic_store(&states[what].chosen, ahead);
}

static void read_environment(void)
{
    const char *text = getenv("MHA_FETCH");
    int ahead[MHA__FETCHED_COUNT];
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        ahead[what] = MHA_FETCH_AUTO;
    if (text)
        (void)mha__fetch_read(text, ahead);
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        set((mha__fetched)what, ahead[what]);
}

static int decided(mha__fetched what)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return atomic_load_explicit(&states[what].chosen, memory_order_acquire);
}

void mha__fetch_choose(mha__fetched what, int ahead)
{
    decided(what); /* the environment comes before, not after */
    set(what, ahead);
}

void mha__fetch_renew(void)
{
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        if (decided((mha__fetched)what) == MHA_FETCH_AUTO || atomic_load(&states[what].by_time))
            set((mha__fetched)what, MHA_FETCH_AUTO);
}

bool mha__fetch_tries(mha__fetched what)
{
    return decided(what) == MHA_FETCH_AUTO;
}

size_t mha__fetch_ahead(mha__fetched what, bool *measured)
{
    const int ahead = decided(what);
    *measured = atomic_load(&states[what].by_time);
    return ahead == MHA_FETCH_AUTO ? usual(what) : (size_t)ahead;
}

/* ---------------------------------------------------------------- products */

/* Distances take turns by some products in a row, so that most read what was fetched at their own distance. */
mha__fetch mha__fetch_begin(mha__fetched what, size_t bytes)
{
    const int ahead = decided(what);
    mha__fetch fetch = {.ahead = (size_t)ahead, .what = what, .sample = -1};
    if (ahead != MHA_FETCH_AUTO)
        return fetch;
    const unsigned turn = bytes < kinds[what].least ? TURNS : atomic_fetch_add(&states[what].begun, 1);
    if (turn >= TURNS) { /* the last ones still run */
        fetch.ahead = usual(what);
        return fetch;
    }
    const unsigned run = turn / MHA_FETCH_IN_A_ROW, in_run = turn % MHA_FETCH_IN_A_ROW;
    const unsigned choice = run % MHA_FETCH_CHOICES, round = run / MHA_FETCH_CHOICES;
    const unsigned place = round * (MHA_FETCH_IN_A_ROW - MHA_FETCH_LEFT_OUT) + in_run - MHA_FETCH_LEFT_OUT;
    fetch.ahead = kinds[what].choices[choice];
    fetch.sample = in_run < MHA_FETCH_LEFT_OUT ? -1 : (int)(choice * SAMPLES + place);
    fetch.start = mha__clock_seconds();
    return fetch;
}

void mha__fetch_end(const mha__fetch *fetch, size_t read)
{
    if (fetch->sample < 0)
        return;
    const mha__fetched what = fetch->what;
    states[what].times[fetch->sample] = (float)((mha__clock_seconds() - fetch->start) / (double)read);
    if (atomic_fetch_add(&states[what].ended, 1) + 1 != MHA_FETCH_CHOICES * SAMPLES)
        return;
    atomic_store(&states[what].by_time, true);
    int none = MHA_FETCH_AUTO; /* a choice that was made meanwhile stays */
    atomic_compare_exchange_strong(&states[what].chosen, &none,
                                   (int)mha__fetch_choice(what, states[what].times, SAMPLES));
}

mha_status mha__fetch_select(const char *text)
{
    int ahead[MHA__FETCHED_COUNT];
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        ahead[what] = MHA_FETCH_MOST + 1; /* not named */
    if (!text || !mha__fetch_read(text, ahead))
        return MHA_INVALID;
    for (int what = 0; what < MHA__FETCHED_COUNT; what++)
        if (ahead[what] <= MHA_FETCH_MOST)
            mha__fetch_choose((mha__fetched)what, ahead[what]);
    return MHA_OK;
}
