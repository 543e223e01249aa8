/* The caches of a model, counted by kind where they are allocated; and a log of an engine, compared with them. */
#include "cli/commands/counting/counting.h"

enum { NEEDED, PAGED, LLAMA_CPP, TABLES };

/* How the three tables are allocated. */
static const struct {
    const char *field;
    size_t page, ahead;
} tables[TABLES] = {{"bytes", 1, 0}, {"bytes_in_pages", 16, 0}, {"bytes_llama_cpp", 256, 512}};

/* Adds the bytes of a kind, or of all caches, in each table. */
static json_t *with_bytes(json_t *record, mha_params *const made[TABLES], const char *kind)
{
    for (int t = 0; t < TABLES; t++)
        record_with(record, tables[t].field, J(mha_params_totals(made[t], kind).buffer_bytes), NULL);
    return record;
}

/* Layers of a kind, rows of a sequence, and elements of a row in the first layer. */
static json_t *kind_record(mha_params *const made[TABLES], const char *kind)
{
    size_t layers = 0, rows = 0, elements = 0;
    for (size_t i = 0; i < mha_params_count(made[NEEDED]); i++) {
        const mha_tensor_info info = mha_tensor_info_of(mha_params_at(made[NEEDED], i));
        if (strcmp(info.group, kind) != 0)
            continue;
        layers += strcmp(info.role, "values") != 0;
        rows = info.shape[2];
        elements += layers == 1 ? info.shape[1] * info.shape[3] : 0;
    }
    return with_bytes(record_of("cache", J(kind), "layers", J(layers), "rows", J(rows), "elements", J(elements), NULL),
                      made, kind);
}

static int add_log(const arguments *args, const mha_model *model, mha_model_pass *pass, json_t *root)
{
    mha_error error;
    mha_log_split split;
    const char *path = text_for(args, OPT_ENGINE_LOG);
    TRY(done_or_refuse(mha_model_split_log(model, path, pass, dtype_of(args, OPT_LEDGER_DTYPE), &split, &error), "",
                       &error));
    json_t *parts = json_array(), *part = NULL;
    for (size_t i = 0; i < split.count; i++)
        json_array_append_new(
            parts, part = record_of("part", J(split.parts[i].name), "bytes", J(split.parts[i].bytes), NULL));
    record_with(part, "~then", record_of("part", json_words("the log of %s", split.engine), "bytes", J(split.bytes),
                                         NULL), NULL);
    record_with(root, "log", record_of("engine", J(split.engine), "bytes", J(split.bytes), "parts", parts, NULL), NULL);
    return EXIT_DONE;
}

int caches_get(const arguments *args, const mha_model *model, json_t **record)
{
    const mha_allocator allocator = mha__regions_allocator(keep(obtain(1, sizeof(mha__regions))));
    const mha_dtype dtype = dtype_of(args, OPT_LEDGER_DTYPE);
    mha_params **made = keep(obtain(TABLES, sizeof *made));
    mha_model_pass pass = model_pass(args, 0);
    mha_error error = {0};
    json_t *kind = NULL, *root = *record = keep_json(json_object());
    if (given(args, OPT_ENGINE_LOG))
        TRY(add_log(args, model, &pass, root));
    for (int t = 0; t < TABLES; t++) {
        TRY(done_or_refuse(mha_params_create(&allocator, &made[t], &error), "", &error));
        TRY(done_or_refuse_field(
            mha_model_add_caches(model, &pass, dtype, tables[t].page, tables[t].ahead, made[t], &error), "", &error));
    }
    json_t *kinds = json_array();
    for (size_t i = 0; mha_cache_kind_at(i); i++)
        if (mha_params_totals(made[NEEDED], mha_cache_kind_at(i)).buffer_bytes)
            json_array_append_new(kinds, kind = kind_record(made, mha_cache_kind_at(i)));
    if (kind)
        record_with(kind, "~then", with_bytes(record_of("cache", J("total"), NULL), made, NULL), NULL);
    record_with(root, "batch", J(pass.batch), "seq", J(pass.seq), "dtype", J(text_for(args, OPT_LEDGER_DTYPE)),
                "kinds", kinds, NULL);
    with_bytes(root, made, NULL);
    return EXIT_DONE;
}

void caches_print(const json_t *record)
{
    const char *const kinds[] = {
        "cache: cache", ">layers: layers", ">rows: rows", "?>elements of a row: elements",
        text_of(">needed, %s: bytes: %%B", json_string_value(json_object_get(record, "dtype"))),
        ">in pages of 16: bytes_in_pages: %B", ">llama.cpp: bytes_llama_cpp: %B"};
    static const char *const parts[] = {"part: part", ">bytes: bytes"};
    const json_t *list = json_object_get(record, "kinds"), *log = json_object_get(record, "log");
    if (json_array_size(list) > 0) {
        say("\n");
        REPORT_TABLE(list, kinds);
    }
    if (log) {
        say("\n");
        REPORT_TABLE(json_object_get(log, "parts"), parts);
    }
}
