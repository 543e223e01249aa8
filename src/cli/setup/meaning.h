/* The settings of a call that differ from plain attention, by their rows: in words and as JSON. */
#ifndef MHA_CLI_SETUP_MEANING_H
#define MHA_CLI_SETUP_MEANING_H

#include <jansson.h>

#include "mha/attention.h"

enum { MEANING_TEXT = 4000 };

/* Terms of a layer and its model, in addition to the settings. */
typedef struct meaning_of {
    const mha_semantics *semantics;
    bool normed;         /* the layer has weights of a q/k norm */
    bool latent;         /* ... or of norms of latents */
    const char *scaling; /* of the rotation's frequencies, in words; NULL: none */
} meaning_of;

/* Writes the name and value of every setting that is given, with commas between them; "" for none. */
void meaning_text(const meaning_of *of, char text[MEANING_TEXT]);
/* The same as an object: true, numbers, words; of arrays their type or shape as a text. */
json_t *meaning_json(const meaning_of *of);

#endif
