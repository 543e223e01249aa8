/* Summarises an array of three axes in a few numbers. */
#ifndef MHA_CLI_OUTPUT_SUMMARY_H
#define MHA_CLI_OUTPUT_SUMMARY_H

#include "mha/lab.h"

typedef struct summary {
    double mean, rms, max_abs; /* NaN or infinite if an element is */
    size_t non_finite, first_non_finite[3];
} summary;

summary summarise(const mha_view *view);
/* The least first. */
void sort_numbers(double *numbers, size_t n);

#endif
