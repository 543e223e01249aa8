/* Transcripts: what the program, and code, say, as a person sees it, in files of prose. */
#ifndef MHA_TEST_TRANSCRIPT_H
#define MHA_TEST_TRANSCRIPT_H

#include <stddef.h>

/* Runs each command of a file and checks what it says; fails with the command and the line that was not said. Returns
 * how many were run. Lines that are indented by four blanks are transcripts, all others are prose:
 *
 *     $ mha params --only 'W Q' <@in   runs the program; words may be quoted; @in is a scratch file
 *     $ mha params \                   the same; a command goes on behind a backslash
 *     $ NAME=value mha params          the same with a variable of the environment; "NAME=" takes it away
 *     $ cat >@config.json              writes what follows, up to an empty line, to a scratch file
 *     some ... line                    standard output has this line, behind those found before; "..." is any text,
 *                                      several blanks are one
 *     ...                              any lines
 *     2> some ... line                 the same of standard error
 *     ! some text                      no line of standard output holds this text
 *     .keys[0].name == "W_Q"           standard output is a JSON object, in which this is so: ==, !=, <, <=, >, >= a
 *                                      JSON value, or the number found at another path;
 *     .keys size 3                     an array or object of 3; "has a,b": an object with these keys; "holds X": a text
 *                                      with these words, an array with this value
 *     ? 2                              the exit code, 0 without this line (0 or 1 where `lenient`)
 *     ? 2 some words * more            a refusal: this code, nothing on standard output, one line on standard error
 *                                      that holds the words
 *
 * Code between fences runs, too: of Python behind all that stands before it on the page, where indented lines below are
 * what it prints; of sh the lines that begin with "mha". Names behind "python" or "sh" are modules without which the
 * block is left out, in the Python $PEER_PYTHON. Everything runs in the present folder. */
size_t transcript_check(const char *file, int lenient);

#endif
