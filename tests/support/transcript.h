/* Transcripts: what the program, and code, say, as a person sees it, in files of prose. */
#ifndef MHA_TEST_TRANSCRIPT_H
#define MHA_TEST_TRANSCRIPT_H

#include <jansson.h>
#include <stddef.h>

/* Runs each command of a file and checks what it says; fails with the command and the line that was not said. Returns
 * how many were run. Lines that are indented by four blanks are transcripts, all others are prose.
 *
 * Commands. @name is a file in the scratch folder, everywhere; a line that ends with \ goes on in the next:
 *
 *     $ mha params --only 'W Q' <@in   a command of the shell, in which the program is "mha"
 *     $ mha check @a --path {fast|blas}   runs once for each word; {1} is the word of the first braces, {2} of the next
 *     $ cat >@config.json              writes what follows, up to an empty line
 *     $ page @a.html >@a.json          says the description in a page of --picture, as JSON; ">" writes it as well
 *     $ tensors >@a.npy                writes tensors and metadata, as the lines up to an empty line say:
 *     x F32 (2,3) = 1 2 3                 numbers, again from the first one where there are fewer than elements
 *     x F32 (2,3) ~ 7 -1 1                random numbers of seed 7 from -1 to 1
 *     < @file                             all of a file
 *     x < @file:y                         a tensor of a file
 *     - expected                          none of the tensors so far whose names begin so
 *     x[7] += 0.25                        one element; "x += 1" and "x *= 2": all of them
 *     name: value                         metadata; without a value: not this one. Names and values may be JSON texts
 *
 * Answers, in lines that follow the command:
 *
 *     some ... line                    standard output has this line, after those found before; "..." is any text,
 *                                      several blanks or a tab are one
 *     ...                              any lines
 *     ~ some words ... more            standard output has these words, wherever its lines break
 *     (nothing)                        standard output is empty
 *     2> some ... line                 a line of standard error, which is empty where nothing is said of it
 *     ! some text                      no line of standard output holds this text
 *     .keys[0].name == "W_Q"           standard output is a JSON object, in which this is so: transcript_claim
 *     ? 2                              the exit code, 0 without this line; of a command with ";", "&&" or "|" the
 *                                      first that is not 0
 *     [exit code 2]                    the same, where users read it
 *     ? 2 some words * more            a refusal: this code, nothing on standard output, one line on standard error
 *                                      that holds the words
 *
 * Code between fences runs, too: of Python behind all that stands before it on the page, where indented lines below are
 * what it prints; of sh the lines that begin with "mha", whose exit code is 0 unless a comment says "exit code N".
 * Names after "python" or "sh" are modules without which the block is left out, in the Python $PEER_PYTHON; with
 * $MHA_NO_SKIPS set that is a failure. Everything runs in the present folder. */
size_t transcript_check(const char *file);

/* Whether a claim is so of a JSON value; if not, `why` says what was found. A claim is a path, a relation and a value:
 *
 *     .a.b[0] == "text"      ==, !=, <, <=, >, >= a JSON value, or what is at another path
 *     .a == FILE .b          ... or in the JSON object of another file
 *     .a * 2 == .b - 4*5     sums and products of numbers and paths, blanks around their signs but between numbers
 *     .a ~ 3.14 within 1e-2  a number that is so near, relatively; 1e-6 where it is not said
 *     .a[*].b > 0            of each element; there is one at least
 *     .a[name=W_Q].b         the first element whose name is "W_Q", or the first whose number of that name is so
 *     sum(.a .b)             the sum of the b of all elements of a, null is 0
 *     .a size 3              an array or object of 3
 *     .a has b,c             an object with these keys
 *     .a holds X             a text with these words; an array or object with this value, however deep
 *     .a lacks X             the opposite
 *     .a == 1 and .b == 2    both
 */
int transcript_claim(const json_t *root, const char *claim, char why[200]);

/* Writes a file of tensors as lines say, from `text` up to an empty line; names of files are paths already. */
void transcript_tensors(const char *path, const char *text);

#endif
