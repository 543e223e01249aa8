/* JSON objects from text and from small files. */
#ifndef MHA_MODELS_DESCRIBE_JSON_TEXT_H
#define MHA_MODELS_DESCRIBE_JSON_TEXT_H

#include <jansson.h>

#include "base/base.h"

/* Parses a text into a JSON object, which the caller releases with json_decref. `path` is for messages. */
mha_status mha__json_parse(const char *text, size_t length, const char *path, json_t **object, mha_error *error);
/* The same from a file. */
mha_status mha__json_read(const char *path, json_t **object, mha_error *error);
/* The same from a file, or from the config.json in a folder. */
mha_status mha__config_read(const char *path, json_t **object, mha_error *error);

#endif
