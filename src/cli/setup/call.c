/* Makes the call of a layer from options: inputs, semantics, outputs; and runs it. */
#include "cli/setup/request.h"

#include "bench/work.h"

enum { QUERY_STREAM = 32, KEY_STREAM, VALUE_STREAM };

/* ---------------------------------------------------------------- memory */

static int obtain_array(request *r, mha_view *view, mha_dtype dtype, int rank, const size_t *shape)
{
    size_t bytes;
    mha_view sized = mha_view_of(NULL, dtype, rank, shape);
    const size_t elements = mha_view_elements(&sized);
    if (elements == SIZE_MAX || mha_dtype_bytes(dtype, elements, &bytes, NULL) != MHA_OK)
        return refuse("", "expected arrays that fit in memory, found one of shape %s", shape_text(rank, shape));
    *view = obtain_view(&r->memory, dtype, rank, shape);
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- inputs */

static int random_input(request *r, const arguments *args, uint64_t stream, size_t T, size_t width, mha_view *view)
{
    const float root_3 = 1.7320508f;
    TRY(obtain_array(r, view, MHA_F32, 3, (size_t[]){count_of(args, OPT_BATCH), T, width}));
    mha_random_fill(view, count_of(args, OPT_SEED), stream, -root_3, root_3);
    return EXIT_DONE;
}

/* Reads an input: as recorded for the checker, in float64 for the exact path, else in float32. */
static int read_input(request *r, const arguments *args, option_code option, size_t width, mha_view *view)
{
    const bool wide = strcmp(text_for(args, OPT_PATH), "exact") == 0 || given(args, OPT_EXPECTED) ||
                      args->command == CMD_POWER || args->command == CMD_SHOW;
    TRY(tensor_of_option(args, option, wide ? WIDE_FLOATS : FLOATS, &r->memory, view));
    if ((view->rank != 2 && view->rank != 3) || view->shape[view->rank - 1] != width)
        return refuse_option(option, "expected shape (B, T, %zu) or (T, %zu), found %s", width, width,
                             shape_text(view->rank, view->shape));
    if (view->rank == 2) {
        r->unbatched |= option == OPT_INPUT;
        *view = mha_view_of(view->data, view->dtype, 3, (size_t[]){1, view->shape[0], width});
    }
    return EXIT_DONE;
}

/* Refuses an option for a length that a file decides, unless both agree. */
static int agree(const arguments *args, option_code option, size_t found, const char *where)
{
    if (!given(args, option) || count_of(args, option) == found)
        return EXIT_DONE;
    return refuse_option(option, "expected %zu as in %s, found %zu", found, where, count_of(args, option));
}

static int query_input(request *r, const arguments *args, size_t width)
{
    mha_view *query = &r->call.query;
    if (!given(args, OPT_INPUT))
        return random_input(r, args, QUERY_STREAM, count_of(args, OPT_SEQ), width, query);
    TRY(read_input(r, args, OPT_INPUT, width, query));
    TRY(agree(args, OPT_BATCH, query->shape[0], "--input"));
    return agree(args, OPT_SEQ, query->shape[1], "--input");
}

static int other_input(request *r, const arguments *args, option_code option, uint64_t stream, size_t T, size_t width,
                       mha_view *view)
{
    if (given(args, option))
        return read_input(r, args, option, width, view);
    if (given(args, OPT_INPUT))
        return refuse_option(option, "expected a file of width %zu with --input, found none", width);
    return random_input(r, args, stream, T, width, view);
}

static int make_inputs(request *r, const arguments *args)
{
    const mha_config *c = mha_layer_config(r->layer);
    TRY(query_input(r, args, c->d_q));
    size_t T_k = given(args, OPT_KV_SEQ) ? count_of(args, OPT_KV_SEQ) : r->call.query.shape[1];
    if (given(args, OPT_KEY_INPUT) || given(args, OPT_KV_SEQ) || c->d_kin != c->d_q) {
        TRY(other_input(r, args, OPT_KEY_INPUT, KEY_STREAM, T_k, c->d_kin, &r->call.key));
        T_k = r->call.key.shape[1];
    }
    if (given(args, OPT_KEY_INPUT))
        TRY(agree(args, OPT_KV_SEQ, T_k, "--key-input"));
    if (given(args, OPT_VALUE_INPUT) || c->d_vin != c->d_kin)
        TRY(other_input(r, args, OPT_VALUE_INPUT, VALUE_STREAM, T_k, c->d_vin, &r->call.value));
    r->random_inputs = !given(args, OPT_INPUT);
    r->random = random_words(args, r->random_weights, r->random_inputs);
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- semantics */

/* Computes the frequencies of the configuration's rotation for the positions of the call, as the options place it. */
static int stretch(request *r, const arguments *args)
{
    mha_error error = {0};
    mha_semantics asked = {0};
    const mha_view *keys = r->call.key.data ? &r->call.key : &r->call.query;
    TRY(settings_of_options(args, &asked));
    const option_value *offsets = &args->option[OPT_POSITION_OFFSET];
    const int64_t part = asked.place.key_offset;
    int64_t before = asked.place.offset;
    for (size_t i = 0; i < offsets->n_numbers; i++)
        before = offsets->numbers[i] > before ? offsets->numbers[i] : before;
    const size_t to_query = r->call.query.shape[1] + (size_t)(before > 0 ? before : 0),
                 to_key = keys->shape[1] + (size_t)(part > 0 ? part : 0);
    if (asked.qkv.rope.dim > 0)
        r->facts.semantics.qkv.rope.dim = asked.qkv.rope.dim;
    if (asked.qkv.rope.base > 0)
        r->facts.semantics.qkv.rope.base = asked.qkv.rope.base;
    const mha_status status = mha_model_extend_context(&r->facts, to_query > to_key ? to_query : to_key, &error);
    return done_or_refuse_field(status, "", &error);
}

/* The segments of the windows of shifted images, which are the batch rows. */
static int make_windows(request *r)
{
    const mha_model_facts *f = &r->facts;
    const size_t area = f->semantics.added.bias.height * f->semantics.added.bias.width, rows = r->call.query.shape[0];
    const size_t windows =
        f->image_height / f->semantics.added.bias.height * (f->image_width / f->semantics.added.bias.width);
    mha_view *segments = &r->call.semantics.visible.pattern.q_segments;
    mha_error error = {0};
    if (rows % windows != 0 || r->call.query.shape[1] != area || r->call.key.data)
        return refuse("--input", "expected self-attention in windows of %zu tokens, %zu of them for each image, which "
                                 "the layer shifts by %zu; found %zu batch rows of %zu",
                      area, windows, f->shift, rows, r->call.query.shape[1]);
    *segments = obtain_view(&r->memory, MHA_I64, 2, (size_t[]){rows, area});
    int64_t *at = segments->data;
    TRY(done_or_refuse_field(mha_window_segments(f->image_height, f->image_width, f->semantics.added.bias.height,
                                                 f->shift, at, &error),
                             "--config", &error));
    for (size_t row = windows; row < rows; row++)
        memcpy(at + row * area, at + (row - windows) * area, area * sizeof *at);
    return EXIT_DONE;
}

static int make_semantics(request *r, const arguments *args)
{
    mha_semantics *s = &r->call.semantics;
    if (r->facts_from && !r->facts.has_semantics && !options_state_attention(args))
        return refuse("--weights", "expected a model that is described, found '%s' in its %s: mask, rotation and "
                                   "scale are not known; --config FILE says them, or options do (--causal, "
                                   "--rope, --window, --scale, ...)",
                      *r->facts.model_type ? r->facts.model_type : "no model_type", r->facts_from);
    if (r->facts_from && r->facts.semantics.qkv.rope.kind != MHA_ROPE_NONE)
        TRY(stretch(r, args));
    if (r->facts_from) /* options are read later and override the configuration */
        *s = mha_model_semantics(&r->facts);
    if (r->facts_from && r->facts.shift > 0)
        TRY(make_windows(r));
    TRY(settings_of_options(args, s));
    return arrays_of_options(r, args);
}

/* ---------------------------------------------------------------- running */

/* Makes a cache with room for all keys. The forward appends all keys to it and attends to them there. */
static mha_status make_cache(request *r, const arguments *args, mha_error *error)
{
    const mha_config *c = mha_layer_config(r->layer);
    const mha_view *key = r->call.key.data ? &r->call.key : &r->call.query;
    const mha_cache_spec spec = {.batch = key->shape[0],
                                 .kv_heads = c->kv_heads,
                                 .d_k = c->d_k,
                                 .d_v = c->d_v,
                                 .capacity = key->shape[1],
                                 .dtype = dtype_of(args, OPT_CACHE_DTYPE)};
    mha_status status = mha_cache_create(&spec, NULL, &r->cache, error);
    r->call.cache = r->cache;
    return status;
}

int request_call(request *r, const arguments *args, const mha_config *config)
{
    TRY(request_layer(r, args, config));
    TRY(make_inputs(r, args));
    TRY(make_semantics(r, args));
    mha_error error = {0};
    if (given(args, OPT_CACHE_DTYPE) && make_cache(r, args, &error) != MHA_OK)
        return refuse_error("--cache-dtype", &error);
    const bool recorded = given(args, OPT_EXPECTED); /* the checker then chooses the path */
    mha_path_find(recorded ? "exact" : text_for(args, OPT_PATH), &r->call.path);
    r->call.threads = (int)count_of(args, OPT_THREADS);
    r->call.precision = mha_precision_of(dtype_of(args, recorded ? OPT_PRECISION : OPT_RUN_PRECISION));
    TRY(done_or_refuse(mha_layer_mark_inert(r->layer, &r->call.semantics, &error), "", &error));
    return done_or_refuse_field(mha_plan_call(r->layer, &r->call, &r->plan, &error), "", &error);
}

int request_keep(request *r, mha_stage stage)
{
    mha_dtype dtype = r->plan.path == MHA_PATH_EXACT ? MHA_F64 : MHA_F32;
    free(r->workspace); /* its size depends on the kept stages */
    r->workspace = NULL;
    size_t shape[4];
    const int rank = mha_plan_stage(&r->plan, stage, shape);
    return obtain_array(r, request_stage(r, stage), dtype, rank, shape);
}

mha_view *request_stage(request *r, mha_stage stage)
{
    for (int s = 0; s < MHA_STAGE_COUNT; s++)
        r->keep[s].stage = (mha_stage)s;
    r->call.keep = r->keep;
    r->call.keep_count = MHA_STAGE_COUNT;
    return stage == MHA_STAGE_OUTPUT ? &r->call.output : &r->keep[stage].view;
}

int request_run(request *r, double *milliseconds)
{
    mha_error error = {0};
    mha_status status = MHA_OK;
    if (r->cache)
        mha_cache_clear(r->cache);
    if (!r->workspace) {
        status = mha_plan_call(r->layer, &r->call, &r->plan, &error); /* kept stages may need more workspace */
        r->workspace = obtain(1, r->plan.workspace_bytes);
    }
    double start = mha__clock_ms();
    if (status == MHA_OK)
        status = mha_forward(&r->plan, r->workspace, r->plan.workspace_bytes, &error);
    *milliseconds = mha__clock_ms() - start;
    return done_or_refuse(status, "", &error);
}

void request_free(request *r)
{
    free(r->workspace);
    mha_cache_destroy(r->cache);
    mha_layer_destroy(r->layer);
    mha_params_destroy(r->table);
    mha__arena_free(&r->memory);
    *r = (request){0};
}

/* Multiply-adds of the matrices, for so many rows of queries and of new keys. */
static double projections_of(const request *r, double queries, double keys)
{
    const mha_config *c = mha_layer_config(r->layer);
    double sum = 0;
    size_t shape[2];
    for (mha_weight w = 0; w < MHA_WEIGHT_COUNT; w++) {
        const mha_weight_info *info = mha_weight_at(w);
        const bool absorbed = r->call.absorbed && w == MHA_W_KVB; /* it multiplies queries and heads */
        if (info->kind == MHA_WEIGHT_MATRIX && mha_config_weight_shape(c, w, shape, NULL) > 0)
            sum += (info->side == MHA_WEIGHT_KEYS && !absorbed ? keys : queries) * (double)shape[0] * (double)shape[1];
    }
    return sum;
}

double request_flops(const request *r)
{
    const mha_plan *p = &r->plan;
    const mha_view *query = &r->call.query, *key = r->call.key.data ? &r->call.key : query;
    const double rows = (double)(query->shape[0] * query->shape[1]), keys = (double)(key->shape[0] * key->shape[1]);
    const mha_config *c = mha_layer_config(r->layer);
    const double widths = (double)(r->call.absorbed ? 2 * c->kv_rank + c->d_rope : p->d_k + p->d_v);
    return 2 * (projections_of(r, rows, keys) + (double)mha__plan_pairs(p) * (double)p->h * widths);
}
