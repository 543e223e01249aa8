/* What the settings of a call mean, in words. */
#ifndef MHA_CLI_SETUP_MEANING_H
#define MHA_CLI_SETUP_MEANING_H

#include "mha/attention.h"

enum { MEANING_TEXT = 2000 };

/* What a layer and its model add to the words. */
typedef struct meaning_of {
    const mha_semantics *semantics;
    bool normed;         /* the layer has weights of a q/k norm */
    bool latent;         /* ... or of norms of latents */
    size_t d_k;          /* features of a head */
    size_t bias_rows;    /* of its table of biases by position */
    const char *scaling; /* of the rotation's frequencies, in words; NULL: none */
} meaning_of;

/* Writes words for every setting that differs from plain attention, with commas between them; "" for none. */
void meaning_text(const meaning_of *of, char text[MEANING_TEXT]);

#endif
