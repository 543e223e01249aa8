/* Reads the caches that a log of llama.cpp or vLLM states; splits their bytes into what a model needs, and the rest. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab.h"
#include "models/caches/caches.h"

enum { CACHES = 8, LIMIT = 1 << 30 }; /* LIMIT: of each number in a log */
static const double MiB = 1 << 20, GiB = 1 << 30;

/* One cache, as llama.cpp prints it. */
typedef struct log_cache {
    bool states;
    size_t cells, layers, streams; /* layers 0: not stated */
    mha_dtype types[2];
    double bytes;
} log_cache;

typedef struct engine_log {
    size_t count; /* of caches of llama.cpp */
    log_cache caches[CACHES];
    double workers; /* bytes of the smallest worker of vLLM; 0: another engine */
    size_t tokens, per_request, ranks, page; /* of vLLM; 0: not stated */
    mha_dtype type;
    bool has_type;
} engine_log;

/* ---------------------------------------------------------------- reading */

/* The type that a text begins with, by ggml's or vLLM's name; false: it is none. */
static bool read_type(const char *text, mha_dtype *type)
{
    char name[16];
    size_t n = 0;
    for (; n + 1 < sizeof name && (isalnum((unsigned char)text[n]) || text[n] == '_'); n++)
        name[n] = (char)toupper((unsigned char)text[n]);
    name[n] = '\0';
    return mha__dtype_find(strncmp(name, "FP8", 3) == 0 ? "F8_E4M3" : strcmp(name, "BFLOAT16") == 0 ? "BF16" : name,
                           type);
}

/* Reads the number after a text in a line, with or without commas, unless it is 0 or above the limit. */
static void read_count(const char *line, const char *text, size_t *count)
{
    const char *at = strstr(line, text);
    size_t n = 0;
    for (at = at ? at + strlen(text) : ""; isdigit((unsigned char)*at) || (n && *at == ','); at++)
        n = *at == ',' || n > LIMIT ? n : 10 * n + (size_t)(*at - '0');
    *count = n > 0 && n <= LIMIT ? n : *count;
}

/* "size = 18.00 MiB ( 768 cells, 12 layers, 1/1 seqs), K (f16): 9.00 MiB, V (f16): 9.00 MiB", where R and S in place of
 * K and V are states; of older versions "KV self size = 9.00 MiB, K (f16): ...", after a line with the cells. */
static bool read_cache(const char *line, size_t cells, log_cache *cache)
{
    double bytes = 0, counts[4] = {(double)cells, 0, 1, 0};
    char types[2][16];
    const char *at = strstr(line, "size "), *k = strstr(line, "), K ("), *r = strstr(line, "), R (");
    const char *old = strstr(line, "KV self size"), *of = r ? r : k ? k : old ? strstr(old, "MiB, K (") : NULL;
    if (!at || !of || sscanf(at, "size = %lf MiB (%lf cells, %lf layers, %lf / %lf", &bytes, &counts[0], &counts[1],
                             &counts[2], &counts[3]) < (old ? 1 : 4) ||
        sscanf(strchr(of, ','), ", %*c (%15[^)]): %*f MiB, %*c (%15[^)]", types[0], types[1]) < 2)
        return false;
    const double streams = r || counts[3] == 0 ? r ? counts[2] : 1 : counts[3];
    if (!(bytes >= 0 && bytes <= LIMIT && counts[0] >= 1 && counts[1] >= 0 && counts[1] <= MHA_BLOCK_LIMIT &&
          streams >= 1 && counts[0] * streams <= LIMIT))
        return false;
    *cache = (log_cache){.states = r != NULL, .cells = (size_t)counts[0], .layers = (size_t)counts[1],
                         .streams = (size_t)streams, .bytes = bytes * MiB};
    return read_type(types[0], &cache->types[0]) && read_type(types[1], &cache->types[1]);
}

static void read_vllm(const char *line, engine_log *log)
{
    double size;
    const char *at = strstr(line, "Available KV cache memory: "), *type = strstr(line, "kv_cache_dtype=");
    if (at && sscanf(at + 27, "%lf GiB", &size) == 1 && size > 0 && size <= LIMIT)
        log->workers = log->workers > 0 && log->workers < size * GiB ? log->workers : size * GiB;
    read_count(line, "GPU KV cache size: ", &log->tokens);
    read_count(line, "Maximum concurrency for ", &log->per_request);
    read_count(line, "tensor_parallel_size=", &log->ranks);
    read_count(line, "block_size=", &log->page);
    if (type)
        log->has_type = read_type(type + 15 + (type[15] == '\''), &log->type) || log->has_type;
}

static mha_status read_log(const char *path, engine_log *log, mha_error *error)
{
    char line[4096];
    size_t cells = 0, lines = 0;
    FILE *file = fopen(path, "r");
    *log = (engine_log){.page = 16};
    for (; file && fgets(line, sizeof line, file); lines++) {
        read_count(line, "kv_size = ", &cells);
        if (log->count < CACHES && read_cache(line, cells, &log->caches[log->count]))
            log->count++;
        read_vllm(line, log);
    }
    const int failed = file && !ferror(file) ? 0 : errno;
    if (file)
        fclose(file);
    if (failed)
        return mha__fail(error, failed == ENOENT || failed == EISDIR ? MHA_NOT_FOUND : MHA_IO, path,
                         "expected a file, found none: %s", strerror(failed));
    if (log->count == 0 && !(log->workers > 0 && log->tokens > 0))
        return mha__fail(error, MHA_FORMAT, path,
                         "expected 'size = ... MiB (... cells, ... layers, ... seqs)' of llama.cpp, or 'Available KV "
                         "cache memory' and 'GPU KV cache size' of vLLM, found neither in %zu lines", lines);
    return MHA_OK;
}

/* ---------------------------------------------------------------- parts */

/* A split in progress: the caches as they are allocated so far. */
typedef struct split {
    const mha_model *model;
    mha__cache_plan plan;
    int64_t bytes;
    size_t own[2]; /* layers with all keys, with a window */
    mha_log_split *made;
    mha_error *error;
} split;

static mha_status count(const split *s, const mha__cache_plan *plan, int64_t *bytes, size_t own[2], mha_error *error)
{
    mha__regions regions = {.count = 0};
    const mha_allocator allocator = mha__regions_allocator(&regions);
    mha_params *table = NULL;
    TRY(mha_params_create(&allocator, &table, error));
    const mha_status status = mha__caches_add(s->model, plan, table, own, error);
    *bytes = (int64_t)mha_params_totals(table, NULL).buffer_bytes;
    mha_params_destroy(table);
    return status;
}

static void put(split *s, const char *name, int64_t bytes)
{
    mha_log_split *made = s->made;
    if ((bytes != 0 || made->count == 0) && made->count < MHA_LOG_PARTS)
        made->parts[made->count++] = (mha_log_part){name, bytes};
}

/* Allocates the caches by the plan as it is now: the difference is a part. */
static mha_status step(split *s, const char *name)
{
    int64_t bytes = s->bytes;
    TRY(count(s, &s->plan, &bytes, NULL, s->error));
    put(s, name, bytes - s->bytes);
    s->bytes = bytes;
    return MHA_OK;
}

/* The same if the caches are then as large as the log prints; else the plan stays. */
static mha_status step_if_right(split *s, const char *name, const mha__cache_plan *plan, int64_t logged,
                                double rounding)
{
    int64_t bytes;
    if (fabs((double)(s->bytes - logged)) <= rounding || count(s, plan, &bytes, NULL, NULL) != MHA_OK ||
        fabs((double)(bytes - logged)) > rounding)
        return MHA_OK;
    s->plan = *plan;
    return step(s, name);
}

static mha_status split_llama(split *s, const engine_log *log, int64_t logged)
{
    const log_cache *kv[2] = {NULL, NULL}, *states = NULL;
    mha__cache_plan *plan = &s->plan;
    double others = 0;
    for (size_t i = 0; i < log->count; i++) {
        const log_cache *c = &log->caches[i];
        const bool second = kv[0] && s->own[0] && s->own[1];
        const log_cache **to = c->states ? &states : second ? &kv[1] : &kv[0];
        others += *to ? c->bytes : 0;
        *to = *to ? *to : c;
    }
    put(s, "caches of another context", (int64_t)others);
    logged -= (int64_t)others;
    if (kv[0]) {
        plan->types[0] = kv[0]->types[0], plan->types[1] = kv[0]->types[1];
        TRY(step(s, "type"));
        const bool shared = kv[0]->streams == 1 && plan->pass.batch > 1;
        plan->pass.batch = kv[0]->streams;
        if (!shared)
            TRY(step(s, "streams"));
        plan->rows[0] = kv[0]->cells;
        TRY(step(s, shared ? "cells of one buffer for all sequences" : "cells"));
        plan->rows[1] = kv[1] ? kv[1]->cells : kv[0]->cells;
        TRY(step(s, kv[1] ? "cells of window layers" : "window layers in full"));
        plan->layers[0] = kv[1] ? kv[0]->layers : kv[0]->layers > s->own[1] ? kv[0]->layers - s->own[1] : 0;
        plan->layers[1] = kv[1] ? kv[1]->layers : s->own[0] ? 0 : kv[0]->layers;
        TRY(step(s, "layers"));
    }
    plan->states = states ? states->cells : 0;
    TRY(step(s, states ? "sequences with states" : "states, not in the log"));
    mha__cache_plan latents = *plan, heads = *plan, columns = *plan;
    latents.latent_values = heads.of_heads = columns.column_less = true;
    TRY(step_if_right(s, "convolutions, one token less", &columns, logged, s->made->rounding));
    TRY(step_if_right(s, "values next to latents", &latents, logged, s->made->rounding));
    return step_if_right(s, "keys and values of all heads", &heads, logged, s->made->rounding);
}

static mha_status split_vllm(split *s, const engine_log *log, int64_t logged)
{
    mha__cache_plan *plan = &s->plan;
    if (log->has_type)
        plan->types[0] = plan->types[1] = log->type;
    TRY(step(s, "type"));
    plan->ranks = log->ranks;
    TRY(step(s, "share of one rank"));
    plan->page = log->page;
    TRY(step(s, "last pages"));
    plan->pass.batch = 1, plan->rows[0] = log->tokens;
    TRY(step(s, "room for more tokens"));
    mha__cache_plan full = *plan;
    full.rows[1] = log->tokens;
    return step_if_right(s, "window layers in full", &full, logged, s->made->rounding);
}

mha_status mha_model_split_log(const mha_model *model, const char *path, mha_model_pass *pass, mha_dtype dtype,
                               mha_log_split *made, mha_error *error)
{
    engine_log log;
    double logged = 0;
    TRY(read_log(path, &log, error));
    const bool vllm = log.count == 0;
    pass->seq = pass->seq ? pass->seq : vllm ? log.per_request : log.caches[0].cells;
    if (pass->seq == 0)
        return mha__fail(error, MHA_INVALID, "seq", "expected a length, found none, nor one in %s", path);
    for (size_t i = 0; i < log.count; i++)
        logged += log.caches[i].bytes;
    logged = round(vllm ? log.workers : logged);
    *made = (mha_log_split){.engine = vllm ? "vLLM" : "llama.cpp", .bytes = (int64_t)logged,
                            .rounding = vllm ? 0.005 * GiB : 0.005 * MiB * (double)log.count};
    split s = {.model = model, .made = made, .error = error,
               .plan = {.pass = *pass, .types = {dtype, dtype}, .states = pass->batch}};
    TRY(count(&s, &s.plan, &s.bytes, s.own, error));
    put(&s, "needed", s.bytes);
    TRY((vllm ? split_vllm : split_llama)(&s, &log, made->bytes));
    int64_t rest = made->bytes;
    for (size_t i = 0; i < made->count; i++)
        rest -= made->parts[i].bytes;
    put(&s, fabs((double)rest) <= made->rounding + 1 ? "rounding of the log" : "unexplained", rest);
    return MHA_OK;
}
