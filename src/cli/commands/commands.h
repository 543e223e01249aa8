/* The commands: each reads its arguments, does its work, and returns the exit code. */
#ifndef MHA_CLI_COMMANDS_COMMANDS_H
#define MHA_CLI_COMMANDS_COMMANDS_H

#include "cli/options/options.h"

int run_forward(const arguments *args);
int run_params(const arguments *args);
int run_heads(const arguments *args);
int run_show(const arguments *args);
int run_check(const arguments *args);
int run_compare(const arguments *args);
int run_diagnose(const arguments *args);
int run_power(const arguments *args);
int run_conform(const arguments *args);
int run_claims(const arguments *args);
int run_bench(const arguments *args);
int run_info(const arguments *args);
int run_completion(const arguments *args);
/* Writes what may stand last among the words of a line behind `mha`: a word and a text between tabs for each line, or
 * ":files", or ":form" and how an argument is written. */
void completion_words(int count, char **words);

/* A part of params: a whole model or a file of weights. */
int run_model_params(const arguments *args);

#endif
