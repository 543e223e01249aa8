/* Attention as people write it, bugs included: one forward controlled by the knobs of a bug. */
#ifndef MHA_VERIFY_BUG_FORWARD_BUG_FORWARD_H
#define MHA_VERIFY_BUG_FORWARD_BUG_FORWARD_H

#include "verify/bug_forward/bug_inputs.h"

/* Memory for one thread's computation. */
typedef struct mha__bug_bench mha__bug_bench;

/* `needed`: the query rows (B, T_q) that later calls may ask for (NULL: all). `bytes`: the most memory for cached rows
 * and for the scores of rows that no call asks for; 0: few cached rows, all scores. NULL without memory. */
mha__bug_bench *mha__bug_bench_create(const mha__bug_inputs *inputs, const unsigned char *needed, size_t bytes);
void mha__bug_bench_destroy(mha__bug_bench *bench); /* NULL is allowed */
/* From now on it computes a case of the same inputs, weights and widths with not more query heads than the first one;
 * products with the weights are kept. */
void mha__bug_bench_turn_to(mha__bug_bench *bench, const mha__bug_inputs *inputs);
enum { MHA_BUG_WORKERS = 8 };
/* How many threads compute bugs when `threads` are asked for (0: all), and the memory for the cached rows of each.
 */
size_t mha__bug_workers(int threads, size_t *bytes);
/* Whether a change is no more than rounding in float64 of a result whose largest element is `largest`. */
static inline bool mha__bug_is_nothing(double change, double largest)
{
    return change <= 0x1p-40 * largest;
}
/* From now on only the first columns of the output are wanted, if there is a projection; 0: all. */
void mha__bug_bench_columns(mha__bug_bench *bench, size_t columns);

/* Computes `stage` into `result`, row-major: the numbers of the exact path when every knob is at the case's value.
 * `kept`: the wanted query rows (B, T_q) (NULL: all). Batch rows without a wanted row are skipped, and so are other
 * query rows when the stage is by query; the elements of skipped rows are unspecified. False without memory, and where
 * a bench would need more of it than it may have: never for knobs that mix no rows. */
bool mha__bug_run(mha__bug_bench *bench, const mha__knobs *knobs, mha_stage stage, const unsigned char *kept,
                  double *result);
/* Whether all heads hide the same keys and add the same terms. */
bool mha__bug_heads_see_alike(const mha__knobs *k);
/* Whether query row i of batch row b sees the same keys with the same added terms under both sets of knobs. */
bool mha__bug_sees_alike(const mha__bug_inputs *inputs, const mha__knobs *one, const mha__knobs *other, size_t b,
                         size_t i);
/* How many keys query row i of batch row b sees under the first head. */
size_t mha__bug_count_seen(const mha__bug_inputs *inputs, const mha__knobs *knobs, size_t b, size_t i);
/* Whether query row i of batch row b sees a key under the first head; `hidden`: whether one is hidden from it. */
bool mha__bug_sees(const mha__bug_inputs *inputs, const mha__knobs *knobs, size_t b, size_t i, bool hidden);

#endif
