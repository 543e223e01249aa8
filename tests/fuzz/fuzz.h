/* Shared code of the fuzzers. Each is one function in the form that libFuzzer calls; linked with replay.c
 * instead it is a plain program that runs the files it is given. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "mha/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file in memory that holds `head` and then `data`: its path, valid until the next call. */
const char *fuzz_file(const void *head, size_t head_bytes, const uint8_t *data, size_t size);
/* The same at a path of one's own, which begins with "fuzz:/"; path and data are borrowed. */
void fuzz_file_at(const char *path, const void *data, size_t size);
/* How many of them are open. */
int fuzz_open_descriptors(void);

/* Ends the program when something is not as it must be. */
void fuzz_require(int condition);
/* A refusal carries its status and one line. */
void fuzz_require_reason(mha_status status, const mha_error *error);

/* Opens the file at `path`, asks for everything in it and reads every tensor. What it says must be
 * consistent: the program is aborted otherwise. */
void fuzz_open_everything(const char *path);

#endif
