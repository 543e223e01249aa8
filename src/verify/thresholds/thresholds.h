/* The thresholds that decide which bug is printed, each once, with the false positives that were measured.
 *
 * NOISE_RESULTS=200 python3 -m pytest tests/python/test_noise.py draws small calls. With these values no bug is named
 * for 252 right and 148 noise results, nor for 150 right and 150 noise backwards. A line ends with a value that makes
 * its threshold loose, and what mha then says of noise results: bugs that are named + low precisions that explain it
 * + bugs that come near or are closest + clues. With all values as they are this is 0+5+0+1 of 34; of backwards, where
 * only names count, 0 of 75. */
#ifndef MHA_VERIFY_THRESHOLDS_THRESHOLDS_H
#define MHA_VERIFY_THRESHOLDS_THRESHOLDS_H

/* A match reproduces a tensor. */
#define MHA__NEARER 0.9       /* part of the largest difference that a bug leaves at most; 1e300: 0+10+0+1 of 34 */
#define MHA__NEARER_FREE 0.25 /* the same, of a bug with a free number and of an unnamed change; 1e300: 0+5+0+1 of 34 */
#define MHA__AS_GOOD 16.0     /* largest difference by that of the best candidate; 4096: 0+5+0+1 of 34 */
#define MHA__MOST_ROUNDINGS 64.0 /* roundings of the largest number in noise that a bug makes; 65536: 0+5+0+1 of 34 */
#define MHA__LEAST_APART 32      /* wrong numbers that an unnamed change or a pair needs; 1: 0+5+0+1 of 34 */
#define MHA__LEAST_IN_PLACES 8   /* wrong numbers that a bug in some places needs; 1: 0+5+0+1 of 34 */

/* Rounding to a low precision explains a tensor: the size of what remains, by that of rounding. */
#define MHA__FEW 64          /* least count of numbers that tell the size of their errors; 1: 0+10+0+4 of 39 */
#define MHA__LOW_LEAST 0.25  /* least rms; 0: 0+8+0+1 of 34 */
#define MHA__LOW_MOST 2.0    /* largest rms; 1e300: 0+7+0+1 of 34 */
#define MHA__LOW_LARGEST 4.0 /* largest error; 1e300: 0+5+0+1 of 34 */
#define MHA__LOW_LEAN 0.5    /* largest mean, by the rms; 1e300: 0+5+0+1 of 34 */
#define MHA__LOW_ALIKE 1.1   /* rms of bugs that are named together, by the least; 1e300: 0+5+0+1 of 34 */

/* A match comes near, or is the closest. */
#define MHA__MOST_LEFT 0.5 /* part of the rms that a bug leaves at most; 1: 0+5+29+1 of 34 */
#define MHA__NEAR 0.02     /* largest rms of what remains, by that of the tensor; 1: 0+5+1+1 of 34 */
#define MHA__NEAR_BEST 2.0 /* the same, by that of the best candidate; 1e300: 0+5+0+1 of 34 */
#define MHA__CLEARLY 0.95  /* part that a pair leaves of what each of its bugs leaves; 1: 0+5+0+1 of 34 */
#define MHA__DATA 2        /* numbers of the tensor for each that a match is free to choose; 0: 0+5+0+1 of 34 */
#define MHA__CHANCE 1e-9   /* probability that noise is named as one rounding; 1: 0+5+0+1 of 34 */

/* Work of the search of pairs, in multiply-adds, which no clock changes: that of one pair, on top of a forward of the
 * rows that are looked at first; of all pairs, an eighth of it if there are clues. */
#define MHA__PAIR_WORK 0x1p15
#define MHA__PAIRS_WORK 0x1p32

/* Clues, and numbers that are equal. */
#define MHA__CLEAR 8.0          /* least difference by what rounding explains; 1: 0+5+0+2 of 34 */
#define MHA__CLUE_ROUNDINGS 2.0 /* roundings that a clue's factor leaves at most; 64: 0+2+0+7 of 34 */
#define MHA__SAME_NUMBER 1e-3   /* relative difference of equal numbers of a bug; 0.1: 0+5+0+1 of 34 */
#define MHA__PIVOT 0x1p-40      /* least relative pivot of independent rows; 0: 0+5+0+1 of 34 */
#define MHA__NOTHING 0x1p-40    /* relative change that is none; 0: 0+5+0+1 of 34 */

/* Gradients, by error bound or by the largest number. */
#define MHA__PART 0x1p10        /* roundoffs that a bug changes at least, and that it may be off by; 1048576: 0 of 75 */
#define MHA__LOOSE 16.0         /* error bounds of a first look; 1e6: 0 of 75 */
#define MHA__LOOSE_PART 0x1p-4  /* part of the largest number, of a first look; 1: 0 of 75 */
#define MHA__MAP_PART 0x1p-3    /* the same, of one map; 1: 0 of 75 */
#define MHA__STEP_PART 0x1p-6   /* the same, of rows of dQ that an unnamed step makes; 1: 0 of 75 */
#define MHA__READ_PART 0x1p-8   /* the same, of a number that another index reads; 1: 0 of 75 */
#define MHA__PRODUCT_ERRORS 4.0 /* error bounds of an unnamed product; 1000: 12 of 75 */
#define MHA__TELLS 16.0         /* largest number by the error, to tell a factor from another; 1: 0 of 75 */
#define MHA__FACTOR_APART 0x1p-8 /* least difference of a found factor from 1; 0: 0 of 75 */
#define MHA__OTHER_SCALE 0x1p-20 /* least relative difference of two scales; 0: 0 of 75 */

#endif
