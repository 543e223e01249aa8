/* How far ahead keys are fetched that a few query rows read: products take turns, and the fastest distance is kept. */
#include "compute/kernels/fetching.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* In groups of keys. A second-level cache of 512 KiB holds seven groups of 16 keys of 128 floats seven times over. */
static const size_t groups_of[MHA_FETCH_CHOICES] = {0, 3, 7};
static const size_t usual = 0; /* until it is measured */
static const float worth = 0.98f;

enum {
    SAMPLES = (MHA_FETCH_IN_A_ROW - MHA_FETCH_LEFT_OUT) * MHA_FETCH_ROUNDS, /* of each distance */
    TURNS = MHA_FETCH_CHOICES * MHA_FETCH_IN_A_ROW * MHA_FETCH_ROUNDS
};

static float times[MHA_FETCH_CHOICES * SAMPLES];
static atomic_uint begun, ended; /* products, and those whose time was taken */
static atomic_int chosen = MHA_FETCH_AUTO;
static atomic_bool by_time;

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

size_t mha__fetch_choice(const float *seconds, size_t samples)
{
    float middle[MHA_FETCH_CHOICES], least = 0;
    for (size_t c = 0; c < MHA_FETCH_CHOICES; c++) {
        middle[c] = median(seconds + c * samples, samples);
        least = c == 0 || middle[c] < least ? middle[c] : least;
    }
    size_t nearest = 0;
    while (nearest + 1 < MHA_FETCH_CHOICES && middle[nearest] * worth > least)
        nearest++;
    return groups_of[nearest];
}

bool mha__fetch_read(const char *text, int *groups)
{
    char *end;
    const bool digit = text[0] >= '0' && text[0] <= '9';
    const unsigned long number = digit ? strtoul(text, &end, 10) : 0;
    if (strcmp(text, "auto") == 0) {
        *groups = MHA_FETCH_AUTO;
        return true;
    }
    if (!digit || *end || number > MHA_FETCH_MOST)
        return false;
    *groups = (int)number;
    return true;
}

static void read_environment(void)
{
    const char *text = getenv("MHA_FETCH");
    int groups;
    if (text && mha__fetch_read(text, &groups))
        atomic_store(&chosen, groups);
}

static int decided(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return atomic_load_explicit(&chosen, memory_order_acquire);
}

void mha__fetch_choose(int groups)
{
    decided(); /* the environment comes before, not after */
    atomic_store(&begun, 0);
    atomic_store(&ended, 0);
    atomic_store(&by_time, false);
    atomic_store(&chosen, groups);
}

bool mha__fetch_tries(void)
{
    return decided() == MHA_FETCH_AUTO;
}

size_t mha__fetch_groups(bool *measured)
{
    const int groups = decided();
    *measured = atomic_load(&by_time);
    return groups == MHA_FETCH_AUTO ? usual : (size_t)groups;
}

/* Distances take turns by some products in a row, so that most read what was fetched at their own distance. */
mha__fetch mha__fetch_begin(size_t key_bytes)
{
    const int groups = decided();
    if (groups != MHA_FETCH_AUTO)
        return (mha__fetch){.groups = (size_t)groups, .sample = -1};
    const unsigned turn = key_bytes < MHA_FETCH_LEAST_KEYS ? TURNS : atomic_fetch_add(&begun, 1);
    if (turn >= TURNS) /* the last ones still run */
        return (mha__fetch){.groups = usual, .sample = -1};
    const unsigned run = turn / MHA_FETCH_IN_A_ROW, in_run = turn % MHA_FETCH_IN_A_ROW;
    const unsigned choice = run % MHA_FETCH_CHOICES, round = run / MHA_FETCH_CHOICES;
    const unsigned place = round * (MHA_FETCH_IN_A_ROW - MHA_FETCH_LEFT_OUT) + in_run - MHA_FETCH_LEFT_OUT;
    return (mha__fetch){.groups = groups_of[choice],
                        .sample = in_run < MHA_FETCH_LEFT_OUT ? -1 : (int)(choice * SAMPLES + place),
                        .start = mha__clock_seconds()};
}

void mha__fetch_end(const mha__fetch *fetch, size_t bytes)
{
    if (fetch->sample < 0)
        return;
    times[fetch->sample] = (float)((mha__clock_seconds() - fetch->start) / (double)bytes);
    if (atomic_fetch_add(&ended, 1) + 1 != MHA_FETCH_CHOICES * SAMPLES)
        return;
    atomic_store(&by_time, true);
    int none = MHA_FETCH_AUTO; /* a choice that was made meanwhile stays */
    atomic_compare_exchange_strong(&chosen, &none, (int)mha__fetch_choice(times, SAMPLES));
}
