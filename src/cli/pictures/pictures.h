/* Maps of attention: files of --picture, and text for a terminal. */
#ifndef MHA_CLI_PICTURES_PICTURES_H
#define MHA_CLI_PICTURES_PICTURES_H

#include "cli/setup/request.h"
#include "picture/origin.h"
#include "picture/picture.h"

/* Where a picture comes from: the command line, and the SHA-256 of every file that it names. */

/* Files that a set of weights consists of are listed one by one. A stream is not read a second time, and what is beyond
 * 4 GiB in all is not read: both are listed with the reason. Returns 0, or the exit code after one line about a file
 * that cannot be read again. */
int origin_of(const arguments *args, mha__origin *origin);

/* --picture: writes a picture to a file whose ending says the form. */

/* Both return 0, or the exit code after one line on standard error; without the option they do nothing. */

/* Refuses an ending that is not known and a file that cannot be written, before anything is computed. An option other
 * than OPT_PICTURE draws labels, which no .png has. */
int picture_file_check(const arguments *args, option_code option);
/* Sets picture->origin for that time. `note`: a sentence to add; NULL: none. */
int picture_file_write(mha__picture *picture, const char *note, const arguments *args);

/* Draws the maps of heads on a terminal, or as text where colours have no place. */

/* Prints the heads of each layer side by side, as many as fit into two lines of maps: in characters, coloured on a
 * terminal of at least 256 colours unless NO_COLOR is set. No line is wider than the terminal. Rows and columns that do
 * not fit are joined: the largest weight is shown, and a line says so. */
void terminal_map_print(const mha__picture *picture);

/* Prints attention weights: the strongest keys of a few queries, and the matrices of a few heads as pictures. */

enum { STRONGEST = 4 };

typedef struct strongest_key {
    size_t key;
    double weight;
} strongest_key;

/* Finds the largest of `count` weights, largest first, without those of weight 0, hidden or NaN. Returns how many. */
size_t strongest_keys(const double *weights, size_t count, strongest_key found[STRONGEST]);
/* Ends a line with them: "  looks at key 3 (97.0 %)", and the names of keys. `broken`: some weights are NaN. */
void strongest_print(const strongest_key *found, size_t n, bool broken, const char *const *names, size_t n_names);

/* Checks that the head of --head and the query of --query exist. Returns 0, or the exit code after one line. */
int attention_map_check(const request *r, const arguments *args);
/* Runs the request again with its weights kept, and prints those of the first batch row or sequence: the strongest
 * keys of --query, or of a few queries, under --head or the first head; then a picture of that head or of the first
 * heads. If the weights are too large to keep, a line says it. Returns 0, or the exit code after one line. */
int attention_map_print(request *r, const arguments *args);

#endif
