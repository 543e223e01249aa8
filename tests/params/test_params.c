/* The parameter table's honesty: what it reports is what the allocator handed out, and nothing else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/base.h"
#include "mha/params.h"
#include "mha/random.h"
#include "support/counted.h"
#include "support/sanitizer.h"
#include "support/unit.h"
#include "params/params.h"

static mha_tensor *add(counted *f, mha_tensor_spec spec)
{
    mha_error error;
    mha_tensor *tensor = NULL;
    assert_ok(mha_params_add(f->table, &spec, &tensor, &error), error);
    assert_non_null(tensor);
    return tensor;
}

/* Walks the rows and the allocator's own record: every storage's bytes, each once, nothing more. */
static void assert_honest(const counted *f)
{
    size_t bytes = 0, storages = 0, parameters = 0, trainable = 0, buffers = 0, derived = 0, derived_storages = 0,
           aliases = 0;
    for (size_t i = 0; i < mha_params_count(f->table); i++) {
        mha_tensor_info info = mha_tensor_info_of(mha_params_at(f->table, i));
        assert_ptr_equal(mha_params_find(f->table, info.name), mha_params_at(f->table, i));
        if (info.alias_of) {
            aliases++;
            assert_ptr_equal(mha_tensor_info_of(mha_params_find(f->table, info.alias_of)).data, info.data);
            continue;
        }
        assert_int_equal(failing_bytes_at(&f->memory, info.data), info.bytes);
        storages += info.kind != MHA_TENSOR_DERIVED;
        derived_storages += info.kind == MHA_TENSOR_DERIVED;
        bytes += info.bytes;
        parameters += info.kind == MHA_TENSOR_PARAMETER ? info.elements : 0;
        trainable += info.trainable ? info.elements : 0;
        buffers += info.kind == MHA_TENSOR_BUFFER ? info.elements : 0;
        derived += info.kind == MHA_TENSOR_DERIVED ? info.bytes : 0;
    }
    mha_totals totals = mha_params_totals(f->table, NULL);
    assert_int_equal(totals.bytes_allocated, bytes);
    assert_int_equal(totals.parameter_bytes + totals.buffer_bytes + totals.derived_bytes, bytes);
    assert_int_equal(totals.storages, storages);
    assert_int_equal(totals.derived_storages, derived_storages);
    assert_int_equal(totals.parameters, parameters);
    assert_int_equal(totals.trainable, trainable);
    assert_int_equal(totals.buffers, buffers);
    assert_int_equal(totals.derived_bytes, derived);
    assert_int_equal(totals.aliases, aliases);
    assert_int_equal(totals.tensors, mha_params_count(f->table));
    assert_null(mha_params_at(f->table, mha_params_count(f->table)));
}

static void an_empty_table_counts_nothing(void **state)
{
    counted *f = *state;
    mha_totals totals = mha_params_totals(f->table, NULL), zero = {0};
    assert_memory_equal(&totals, &zero, sizeof zero);
    assert_null(mha_params_find(f->table, "W_Q"));
    assert_null(mha_params_at(f->table, 0));
    mha__params_remove(f->table, NULL);
    mha_params_destroy(NULL);
}

static void a_tensor_is_a_named_zeroed_allocation(void **state)
{
    counted *f = *state;
    char name[] = "layer.W_Q", role[] = "W_Q", group[] = "attention"; /* copied, so may change afterwards */
    mha_tensor *t = add(f, (mha_tensor_spec){.name = name, .role = role, .group = group, .rank = 2, .shape = {5, 7}});
    memset(name, 'x', sizeof name - 1), memset(role, 'x', sizeof role - 1), memset(group, 'x', sizeof group - 1);
    mha_tensor_info info = mha_tensor_info_of(t);
    assert_string_equal(info.name, "layer.W_Q");
    assert_string_equal(info.role, "W_Q");
    assert_string_equal(info.group, "attention");
    assert_int_equal(info.dtype, MHA_F32);
    assert_int_equal(info.source_dtype, MHA_F32);
    assert_int_equal(info.rank, 2);
    assert_true(info.shape[0] == 5 && info.shape[1] == 7);
    assert_int_equal(info.elements, 35);
    assert_int_equal(info.bytes, 140);
    assert_true(info.trainable);
    assert_null(info.alias_of);
    assert_string_equal(info.inert_why, "");
    assert_int_equal((uintptr_t)info.data % 64, 0);
    for (size_t i = 0; i < 35; i++)
        assert_true(((float *)info.data)[i] == 0.0f);
    mha_view view = mha_tensor_view(t);
    assert_ptr_equal(view.data, info.data);
    assert_true(view.rank == 2 && view.shape[0] == 5 && view.shape[1] == 7 && mha__view_is_contiguous(&view));
    assert_honest(f);
}

static void totals_change_by_exactly_one_tensor(void **state)
{
    counted *f = *state;
    mha_totals before = mha_params_totals(f->table, NULL);
    for (int d = 0; d < MHA_DTYPE_COUNT; d++)
        for (int kind = MHA_TENSOR_PARAMETER; kind <= MHA_TENSOR_DERIVED; kind++)
            for (int frozen = 0; frozen < 2; frozen++) {
                char name[64];
                size_t bytes, live = f->memory.live_bytes, calls = f->memory.calls;
                snprintf(name, sizeof name, "%s.%d.%d", mha_dtype_name((mha_dtype)d), kind, frozen);
                assert_int_equal(mha_dtype_bytes((mha_dtype)d, 3 * 256, &bytes, NULL), MHA_OK);
                mha_tensor *t = add(f, (mha_tensor_spec){.name = name,
                                                         .dtype = (mha_dtype)d,
                                                         .rank = 2,
                                                         .shape = {3, 256},
                                                         .kind = (mha_tensor_kind)kind,
                                                         .frozen = frozen});
                assert_true(f->memory.calls > calls && f->memory.live_bytes >= live + bytes);
                mha_totals after = mha_params_totals(f->table, NULL);
                assert_int_equal(after.parameters - before.parameters, kind == MHA_TENSOR_PARAMETER ? 768 : 0);
                assert_int_equal(after.parameter_bytes - before.parameter_bytes,
                                 kind == MHA_TENSOR_PARAMETER ? bytes : 0);
                assert_int_equal(after.trainable - before.trainable, kind == MHA_TENSOR_PARAMETER && !frozen ? 768 : 0);
                assert_int_equal(after.buffers - before.buffers, kind == MHA_TENSOR_BUFFER ? 768 : 0);
                assert_int_equal(after.buffer_bytes - before.buffer_bytes, kind == MHA_TENSOR_BUFFER ? bytes : 0);
                assert_int_equal(after.derived_bytes - before.derived_bytes, kind == MHA_TENSOR_DERIVED ? bytes : 0);
                assert_int_equal(after.bytes_allocated - before.bytes_allocated, bytes);
                assert_int_equal(after.storages - before.storages, kind != MHA_TENSOR_DERIVED);
                assert_int_equal(after.derived_storages - before.derived_storages, kind == MHA_TENSOR_DERIVED);
                assert_int_equal(after.tensors - before.tensors, 1);
                assert_int_equal(mha_tensor_info_of(t).trainable, kind == MHA_TENSOR_PARAMETER && !frozen);
                before = after;
            }
    assert_honest(f);
    /* and back again */
    while (mha_params_count(f->table)) {
        mha_tensor *t = mha_params_at(f->table, mha_params_count(f->table) / 2);
        size_t bytes = mha_tensor_info_of(t).bytes;
        before = mha_params_totals(f->table, NULL);
        mha__params_remove(f->table, t);
        assert_int_equal(before.bytes_allocated - mha_params_totals(f->table, NULL).bytes_allocated, bytes);
        assert_honest(f);
    }
}

static void an_alias_is_a_row_without_memory_of_its_own(void **state)
{
    counted *f = *state;
    mha_error error;
    add(f, (mha_tensor_spec){.name = "front"}); /* a row before it */
    mha_tensor *owner =
        add(f, (mha_tensor_spec){.name = "embedding", .dtype = MHA_F16, .rank = 2, .shape = {6, 4}, .frozen = true});
    mha_totals before = mha_params_totals(f->table, NULL);
    mha_tensor *head, *flat;
    mha_tensor_spec spec = {.name = "lm_head", .role = "output"};
    assert_ok(mha_params_alias(f->table, &spec, owner, &head, &error), error);
    spec = (mha_tensor_spec){.name = "flat", .rank = 1, .shape = {24}};
    assert_ok(mha_params_alias(f->table, &spec, head, &flat, &error), error);
    mha_totals after = mha_params_totals(f->table, NULL);
    assert_int_equal(after.tensors, before.tensors + 2);
    assert_int_equal(after.aliases, 2);
    after.tensors = before.tensors, after.aliases = before.aliases;
    assert_memory_equal(&after, &before, sizeof after);

    mha_tensor_info info = mha_tensor_info_of(head);
    assert_string_equal(info.alias_of, "embedding");
    assert_true(info.rank == 2 && info.shape[0] == 6 && info.shape[1] == 4);
    assert_int_equal(info.dtype, MHA_F16);
    assert_false(info.trainable);
    assert_int_equal(info.storage, mha_tensor_info_of(owner).storage);
    assert_string_equal(mha_tensor_info_of(flat).alias_of, "embedding");
    assert_honest(f);

    /* The owner goes: memory stays, the oldest remaining row owns it. */
    void *data = info.data;
    mha__params_remove(f->table, owner);
    assert_null(mha_params_find(f->table, "embedding"));
    assert_null(mha_tensor_info_of(head).alias_of);
    assert_string_equal(mha_tensor_info_of(flat).alias_of, "lm_head");
    assert_ptr_equal(mha_tensor_info_of(flat).data, data);
    assert_int_equal(mha_params_totals(f->table, NULL).bytes_allocated, 48 + 4);
    assert_honest(f);
    mha__params_remove(f->table, flat);
    assert_int_equal(failing_bytes_at(&f->memory, data), 48);
    assert_honest(f);
    mha__params_remove(f->table, head);
    assert_int_equal(failing_bytes_at(&f->memory, data), 0);
    assert_int_equal(mha_params_totals(f->table, NULL).storages, 1);
}

static void aliases_that_do_not_fit_are_refused(void **state)
{
    counted *f = *state;
    mha_error error;
    mha_params *other;
    mha_tensor *owner = add(f, (mha_tensor_spec){.name = "a", .rank = 2, .shape = {6, 4}}), *out = owner;
    mha_totals before = mha_params_totals(f->table, NULL);
    mha_tensor_spec spec = {.name = "b", .rank = 2, .shape = {5, 5}};
    assert_refused(mha_params_alias(f->table, &spec, owner, &out, &error), MHA_INVALID, error, "b", "24", "(5, 5)");
    spec = (mha_tensor_spec){.name = "a", .rank = 2, .shape = {6, 4}};
    assert_refused(mha_params_alias(f->table, &spec, owner, &out, &error), MHA_INVALID, error, "a");
    spec = (mha_tensor_spec){.name = ""};
    assert_refused(mha_params_alias(f->table, &spec, owner, &out, &error), MHA_INVALID, error, "name");
    assert_int_equal(mha_params_create(&f->allocator, &other, NULL), MHA_OK);
    spec.name = "c";
    assert_refused(mha_params_alias(other, &spec, owner, &out, &error), MHA_INVALID, error, "another table");
    mha_params_destroy(other);
    assert_ptr_equal(out, owner);
    mha_totals after = mha_params_totals(f->table, NULL);
    assert_memory_equal(&after, &before, sizeof after);
}

static void names_are_unique_and_found_among_thousands(void **state)
{
    counted *f = *state;
    mha_error error;
    char name[64];
    enum { N = 3000 };
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%d.self_attn.q_proj.weight", i);
        add(f, (mha_tensor_spec){.name = name, .rank = 1, .shape = {1}});
    }
    for (int i = 0; i < N; i += 2) {
        snprintf(name, sizeof name, "model.layers.%d.self_attn.q_proj.weight", i);
        mha__params_remove(f->table, mha_params_find(f->table, name));
        assert_null(mha_params_find(f->table, name));
    }
    assert_int_equal(mha_params_count(f->table), N / 2);
    for (size_t i = 0; i < N / 2; i++) { /* in the order they were added */
        snprintf(name, sizeof name, "model.layers.%zu.self_attn.q_proj.weight", 2 * i + 1);
        assert_string_equal(mha_tensor_info_of(mha_params_at(f->table, i)).name, name);
    }
    assert_honest(f);
    mha_tensor_spec again = {.name = name, .rank = 1, .shape = {2}};
    assert_refused(mha_params_add(f->table, &again, NULL, &error), MHA_INVALID, error, name);
    assert_string_equal(error.name, name);
    mha__params_remove(f->table, mha_params_find(f->table, name));
    assert_ok(mha_params_add(f->table, &again, NULL, &error), error);
}

static void impossible_tensors_are_refused_and_leave_no_trace(void **state)
{
    counted *f = *state;
    mha_error error;
    mha_tensor *out = NULL;
    add(f, (mha_tensor_spec){.name = "first", .rank = 1, .shape = {3}});
    mha_totals before = mha_params_totals(f->table, NULL);
    size_t live = f->memory.live_bytes;
    const struct {
        mha_tensor_spec spec;
        const char *word;
    } bad[] = {
        {{.rank = 1, .shape = {1}}, "name"},
        {{.name = "", .rank = 1, .shape = {1}}, "name"},
        {{.name = "first", .rank = 1, .shape = {1}}, "first"},
        {{.name = "r", .rank = 9}, "rank"},
        {{.name = "r", .rank = -1}, "rank"},
        {{.name = "x", .rank = 2, .shape = {SIZE_MAX, 2}}, "x"},
        {{.name = "x", .rank = 2, .shape = {SIZE_MAX / 4, 2}}, "x"},
        {{.name = "x", .dtype = MHA_F64, .rank = 1, .shape = {SIZE_MAX / 8}}, "x"}, /* fits size_t, not ptrdiff_t */
        {{.name = "x", .rank = 3, .shape = {(size_t)1 << 32, (size_t)1 << 16, (size_t)1 << 16}}, "4294967296"},
        {{.name = "x", .dtype = MHA_Q4_0, .rank = 1, .shape = {33}}, "Q4_0"},
        {{.name = "x", .dtype = MHA_DTYPE_COUNT, .rank = 1, .shape = {33}}, "x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_refused(mha_params_add(f->table, &bad[i].spec, &out, &error), MHA_INVALID, error, bad[i].word);
        assert_int_equal(mha_params_add(f->table, &bad[i].spec, NULL, NULL), MHA_INVALID);
    }
    assert_null(out);
    assert_int_equal(f->memory.live_bytes, live);
    mha_totals after = mha_params_totals(f->table, NULL);
    assert_memory_equal(&after, &before, sizeof after);
    f->memory.limit = 1000;
    mha_tensor_spec large = {.name = "large", .rank = 2, .shape = {16, 16}};
    assert_refused(mha_params_add(f->table, &large, &out, &error), MHA_NO_MEMORY, error, "large", "(16, 16)", "1024");
    assert_int_equal(f->memory.live_bytes, live);
    assert_honest(f);
}

static void empty_and_scalar_tensors_are_rows_too(void **state)
{
    counted *f = *state;
    mha_tensor *none = add(f, (mha_tensor_spec){.name = "none", .rank = 2, .shape = {0, 7}});
    mha_tensor *one = add(f, (mha_tensor_spec){.name = "one", .dtype = MHA_F64});
    mha_tensor_info info = mha_tensor_info_of(none);
    assert_true(info.elements == 0 && info.bytes == 0 && info.data == NULL);
    info = mha_tensor_info_of(one);
    assert_true(info.rank == 0 && info.elements == 1 && info.bytes == 8);
    assert_int_equal(mha_params_totals(f->table, NULL).parameters, 1);
    assert_int_equal(mha_params_totals(f->table, NULL).bytes_allocated, 8);
}

/* A table of a terabyte is made in no time and no memory: nobody wrote to it. */
static void large_tensors_cost_nothing_until_written(void **state)
{
    (void)state;
#if SIZE_MAX > UINT32_MAX && !ADDRESS_SANITIZER
    mha_params *table;
    mha_tensor *t;
    mha_error error;
    void *room = mmap(NULL, (size_t)2 << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED || munmap(room, (size_t)2 << 40) != 0) { /* as under ulimit -v, or in valgrind */
        print_message("no room for a terabyte of addresses\n");
        return;
    }
    mha_tensor_spec spec = {.name = "huge", .rank = 2, .shape = {(size_t)1 << 19, (size_t)1 << 19}};
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    assert_ok(mha_params_add(table, &spec, &t, &error), error);
    float *data = mha_tensor_info_of(t).data;
    assert_true(data[((size_t)1 << 38) - 1] == 0.0f && data[12345] == 0.0f);
    data[((size_t)1 << 38) - 1] = 1.0f;
    assert_true(mha_params_totals(table, NULL).parameter_bytes == (size_t)1 << 40);
    mha_params_destroy(table);
#endif
}

static mha_tensor *add_numbered(mha_params *table, size_t number, size_t elements)
{
    char name[32];
    mha_error error;
    mha_tensor *t = NULL;
    snprintf(name, sizeof name, "t%zu", number);
    mha_tensor_spec spec = {.name = name, .rank = 1, .shape = {elements}};
    assert_ok(mha_params_add(table, &spec, &t, &error), error);
    return t;
}

/* 20,000 tensors of 32 KiB, as a mixture of many small experts has them, are 640 MiB. */
static void small_tensors_cost_nothing_until_written(void **state)
{
    (void)state;
    mha__regions regions = {.count = 0};
    const mha_allocator allocator = mha__regions_allocator(&regions);
    const mha_allocator *const allocators[] = {NULL, &allocator};
    for (size_t a = 0; a < 2; a++) {
        mha_params *table;
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        assert_int_equal(mha_params_create(allocators[a], &table, NULL), MHA_OK);
        for (size_t i = 0; i < 20000; i++)
            add_numbered(table, i, (32 << 10) / sizeof(float));
        getrusage(RUSAGE_SELF, &after);
        print_message("%ld KiB for 640 MiB\n", after.ru_maxrss - before.ru_maxrss);
        assert_true(after.ru_maxrss - before.ru_maxrss < 96 << 10); /* KiB */
        mha_params_destroy(table);
    }
}

static void copy_numbers(const mha_view *plain, void *packed)
{
    memcpy(packed, plain->data, mha_view_elements(plain) * sizeof(float));
}

static void copy_back(const void *packed, const mha_view *plain)
{
    memcpy(plain->data, packed, mha_view_elements(plain) * sizeof(float));
}

/* Adds, packs, drops and removes tensors at random: each begins with zeros, on 64 bytes, and keeps its numbers. */
static void tensors_that_share_memory_keep_their_numbers(void **state)
{
    (void)state;
    enum { PLACES = 60, STEPS = 2000, MOST = 20000 };
    static const mha__packer packer = {copy_numbers, copy_back};
    mha_params *table;
    mha_tensor *held[PLACES] = {NULL};
    assert_int_equal(mha_params_create(NULL, &table, NULL), MHA_OK);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t place = mha__random_bits(7, 0, step) % PLACES;
        mha_tensor *t = held[place];
        if (!t) {
            t = held[place] = add_numbered(table, place, 1 + mha__random_bits(7, 1, step) % MOST);
            const mha_tensor_info info = mha_tensor_info_of(t);
            float *data = info.data;
            assert_int_equal((uintptr_t)data % MHA_ALIGNMENT, 0);
            bool zeros = true;
            for (size_t i = 0; i < info.elements; i++) {
                zeros &= data[i] == 0;
                data[i] = (float)(place + i);
            }
            assert_true(zeros);
            continue;
        }
        const mha_view view = mha_tensor_view(t);
        bool kept = true;
        for (size_t i = 0; i < view.shape[0]; i++)
            kept &= ((float *)view.data)[i] == (float)(place + i);
        assert_true(kept);
        if (mha__random_bits(7, 2, step) % 2) {
            mha__params_remove(table, t);
            held[place] = NULL;
        } else {
            assert_int_equal(mha__tensor_pack(t, view.shape[0] * sizeof(float), &packer), MHA_OK);
            assert_true(mha__tensor_drop_plain(t));
        }
    }
    mha_params_destroy(table);
}

static void groups_are_counted_on_their_own(void **state)
{
    counted *f = *state;
    mha_error error;
    mha_tensor *w = add(f, (mha_tensor_spec){.name = "w", .group = "attention", .rank = 1, .shape = {10}});
    add(f, (mha_tensor_spec){.name = "e", .group = "embedding", .rank = 1, .shape = {100}});
    add(f, (mha_tensor_spec){.name = "m", .group = "attention", .rank = 1, .shape = {7}, .kind = MHA_TENSOR_BUFFER});
    mha_tensor_spec spec = {.name = "tied", .group = "embedding"};
    assert_ok(mha_params_alias(f->table, &spec, w, NULL, &error), error);
    assert_int_equal(mha__tensor_set_inert(w, 4, "no effect"), MHA_OK);
    mha_totals attention = mha_params_totals(f->table, "attention"), all = mha_params_totals(f->table, NULL);
    assert_int_equal(attention.parameters, 10);
    assert_int_equal(attention.buffers, 7);
    assert_int_equal(attention.inert, 4);
    assert_int_equal(attention.storages, 2);
    assert_int_equal(mha_params_totals(f->table, "embedding").parameters, 100);
    assert_int_equal(mha_params_totals(f->table, "ffn").parameters, 0);
    assert_int_equal(all.parameters, 110);
    assert_int_equal(all.inert, 4);
}

static void inert_elements_carry_their_reason(void **state)
{
    counted *f = *state;
    mha_tensor *b = add(f, (mha_tensor_spec){.name = "b_K", .rank = 1, .shape = {8}});
    char why[] = "softmax ignores what all scores share";
    assert_int_equal(mha__tensor_set_inert(b, 9, why), MHA_INVALID);
    assert_int_equal(mha_tensor_info_of(b).inert_elements, 0);
    assert_int_equal(mha__tensor_set_inert(b, 8, why), MHA_OK);
    assert_int_equal(mha__tensor_set_inert(b, 5, why), MHA_OK); /* the earlier reason is given back */
    why[0] = '?';
    assert_int_equal(mha_tensor_info_of(b).inert_elements, 5);
    assert_string_equal(mha_tensor_info_of(b).inert_why, "softmax ignores what all scores share");
    f->memory.fail_at = f->memory.calls + 1;
    assert_int_equal(mha__tensor_set_inert(b, 1, "other"), MHA_NO_MEMORY);
    assert_int_equal(mha_tensor_info_of(b).inert_elements, 5);
    mha__tensor_set_source_dtype(b, MHA_BF16);
    assert_int_equal(mha_tensor_info_of(b).source_dtype, MHA_BF16);
    assert_int_equal(mha_tensor_info_of(b).dtype, MHA_F32);
    mha_tensor *w =
        add(f, (mha_tensor_spec){.name = "w", .rank = 1, .shape = {8}, .source_dtype = MHA_F16, .has_source = true});
    assert_int_equal(mha_tensor_info_of(w).source_dtype, MHA_F16);
}

/* The n-th allocation fails, for every n: the call says so, and the table is as it was before it. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t points = 0;
    for (size_t n = 1;; n++) {
        failing memory = {.fail_at = n};
        mha_allocator allocator = failing_allocator(&memory);
        mha_params *table = NULL;
        mha_error error;
        bool failed = false;
        mha_status status = mha_params_create(&allocator, &table, NULL);
        if (status != MHA_OK) {
            assert_int_equal(status, MHA_NO_MEMORY);
            assert_null(table);
            assert_int_equal(memory.live_blocks, 0);
            points++;
            continue;
        }
        char name[2][16];
        for (int i = 0; i < 40; i++) { /* the index grows twice on the way */
            for (int alias = 0; alias < 2; alias++) {
                snprintf(name[alias], sizeof name[alias], "%c%d", alias ? 'a' : 't', i);
                mha_tensor_spec spec = {.name = name[alias], .rank = 1, .shape = {16}};
                mha_totals before = mha_params_totals(table, NULL);
                mha_tensor *of = mha_params_find(table, name[0]);
                if (alias && !of)
                    continue;
                status = alias ? mha_params_alias(table, &spec, of, NULL, &error)
                               : mha_params_add(table, &spec, NULL, &error);
                mha_totals after = mha_params_totals(table, NULL);
                if (status != MHA_OK) {
                    assert_refused(status, MHA_NO_MEMORY, error, name[alias]);
                    assert_memory_equal(&before, &after, sizeof before);
                    assert_null(mha_params_find(table, name[alias]));
                    assert_false(failed);
                    failed = true;
                    points++;
                } else
                    assert_int_equal(after.tensors, before.tensors + 1);
            }
        }
        mha_params_destroy(table);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.bugs, 0);
        if (!failed)
            break;
    }
    print_message("%zu allocations failed in turn\n", points);
    assert_true(points > 40 * 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, counted_set_up, counted_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_empty_table_counts_nothing),
        TEST(a_tensor_is_a_named_zeroed_allocation),
        TEST(totals_change_by_exactly_one_tensor),
        TEST(an_alias_is_a_row_without_memory_of_its_own),
        TEST(aliases_that_do_not_fit_are_refused),
        TEST(names_are_unique_and_found_among_thousands),
        TEST(impossible_tensors_are_refused_and_leave_no_trace),
        TEST(empty_and_scalar_tensors_are_rows_too),
        TEST(large_tensors_cost_nothing_until_written),
        TEST(small_tensors_cost_nothing_until_written),
        TEST(tensors_that_share_memory_keep_their_numbers),
        TEST(groups_are_counted_on_their_own),
        TEST(inert_elements_carry_their_reason),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
