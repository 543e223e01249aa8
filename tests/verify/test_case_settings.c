/* Every setting of mha/setting.h is a word of a case: read by its name and its aliases, written by its name. */
#include <stdio.h>
#include <string.h>

#include "attention/call/settings/settings.h"
#include "base/base.h"
#include "mha/lab.h"
#include "support/scratch.h"
#include "support/unit.h"
#include "verify/case/record.h"

enum { B = 2, H = 3, N = 4 };

/* Memory of an array that is put: 1, 2, 3, 4. */
typedef struct numbers {
    int64_t whole[N];
    double real[N];
} numbers;

static numbers made = {{1, 2, 3, 4}, {1, 2, 3, 4}};

/* As many numbers as a call of B batch rows and H heads has. */
static mha_view array_of(const mha_setting *s)
{
    const bool real = s->kind == MHA_SETTING_REALS || s->kind == MHA_SETTING_VIEW;
    const size_t n = strcmp(s->shape, "(h)") == 0 ? H : strcmp(s->shape, "(B)") == 0 ? B : N;
    return mha_view_of(real ? (void *)made.real : made.whole, real ? MHA_F64 : MHA_I64, 1, &n);
}

/* A text that differs from the default. */
static const char *text_of(const mha_setting *s)
{
    return s->kind == MHA_SETTING_SWITCH   ? "1"
           : s->kind == MHA_SETTING_CHOICE ? strrchr(s->choices, '|') + 1
           : s->kind == MHA_SETTING_REAL   ? "0.3"
                                           : "5";
}

/* The first spelling of the last choice: the text ends at its '='. */
static void put_text(const mha_setting *s, char *text, size_t size)
{
    snprintf(text, size, "%s", text_of(s));
    text[strcspn(text, "=")] = '\0';
}

/* A file with one setting under one name. */
static const char *file_with(const mha_setting *s, const char *name)
{
    const char *path = scratch_path("setting.safetensors");
    char text[64];
    mha_writer *w;
    mha_error error;
    assert_ok(mha_writer_create(path, &w, &error), error);
    if (mha__setting_is_array(s)) {
        const mha_view v = array_of(s);
        assert_ok(mha_writer_add(w, name, &v, &error), error);
    } else {
        put_text(s, text, sizeof text);
        assert_ok(mha_writer_add_metadata(w, name, text, &error), error);
    }
    assert_ok(mha_writer_commit(w, &error), error);
    mha_writer_destroy(w);
    return path;
}

/* Reads the settings of a file, and nothing else of it; the caller releases the case. */
static mha_case settings_of(const char *path)
{
    mha_case c = {.B = B, .H = H};
    mha_error error;
    c.pool.allocator = mha__allocator_default();
    assert_ok(mha_file_open(path, &c.file, &error), error);
    assert_ok(mha__case_read_settings(&c, &error), error);
    assert_ok(mha__case_check_lengths(&c, &error), error);
    return c;
}

static void release(mha_case *c)
{
    mha__arena_free(&c->pool);
    mha_file_close(c->file);
}

/* The settings are those that file_with writes, and the number of sequences. */
static void is_read(const mha_case *c, const mha_setting *given, const char *name)
{
    const mha_setting *s;
    char text[64], found[64];
    for (size_t i = 0; (s = mha_setting_at(i)); i++) {
        const bool counts = strcmp(s->name, "n_sequences") == 0 && mha__setting_is_array(given);
        const bool other_side = !counts && s != given && s->given_at == given->given_at && s->given_at != SIZE_MAX;
        if (mha_setting_given(s, &c->semantics) != (s == given) && !counts && !other_side)
            fail_msg("%s: %s is %s", name, s->name, s == given ? "not read" : "read, too");
    }
    const mha_view array = mha__setting_view(given, &c->semantics, B, H);
    if (mha__setting_is_array(given)) {
        const size_t last = array.shape[array.rank - 1] - 1;
        assert_true(mha_view_get(&array, (size_t[]){array.rank > 1 ? 0 : last, last}) == (double)last + 1);
        return;
    }
    put_text(given, text, sizeof text);
    mha_semantics wanted = {.softmax.has_scale = false};
    mha_error error;
    assert_ok(mha_setting_put(given, text, &wanted, &error), error);
    mha_setting_text(given, &wanted, text, sizeof text);
    assert_string_equal(mha_setting_text(given, &c->semantics, found, sizeof found), text);
}

static void every_spelling_is_read(void **state)
{
    (void)state;
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)); i++) {
        char names[200], *rest = NULL;
        snprintf(names, sizeof names, "%s %s", s->name, s->aliases ? s->aliases : "");
        for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            mha_case c = settings_of(file_with(s, name));
            is_read(&c, s, name);
            release(&c);
        }
    }
}

static void every_setting_is_written_by_its_name(void **state)
{
    (void)state;
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)); i++) {
        const mha_case_notes none = {.name = NULL};
        const char *path = scratch_path("written.safetensors");
        mha_error error;
        mha_case c = settings_of(file_with(s, s->name));
        assert_ok(mha__case_write(&c, path, &none, &error), error);
        mha_case again = settings_of(path);
        is_read(&again, s, s->name);
        if (!mha__setting_is_array(s))
            assert_non_null(mha_file_metadata(again.file, s->name));
        else
            assert_non_null(mha_file_find(again.file, s->name));
        release(&c);
        release(&again);
    }
}

/* A text that no setting has is refused by the name that the file uses. */
static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"x", "", "1e300x", "0x1"};
    const mha_setting *s;
    for (size_t i = 0; (s = mha_setting_at(i)); i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong && !mha__setting_is_array(s); k++) {
            const char *path = scratch_path("wrong.safetensors");
            mha_writer *w;
            mha_error error;
            mha_case c = {.B = B};
            c.pool.allocator = mha__allocator_default();
            assert_ok(mha_writer_create(path, &w, &error), error);
            assert_ok(mha_writer_add_metadata(w, s->name, wrong[k], &error), error);
            assert_ok(mha_writer_commit(w, &error), error);
            mha_writer_destroy(w);
            assert_ok(mha_file_open(path, &c.file, &error), error);
            assert_refused(mha__case_read_settings(&c, &error), MHA_INVALID, error, s->name, "expected");
            release(&c);
        }
}

static void one_setting_in_two_spellings_is_refused(void **state)
{
    (void)state;
    const char *path = scratch_path("twice.safetensors");
    mha_writer *w;
    mha_error error;
    mha_case c = {.B = B};
    c.pool.allocator = mha__allocator_default();
    assert_ok(mha_writer_create(path, &w, &error), error);
    assert_ok(mha_writer_add_metadata(w, "zero_row", "0", &error), error);
    assert_ok(mha_writer_add_metadata(w, "add_zero_attn", "1", &error), error);
    assert_ok(mha_writer_commit(w, &error), error);
    mha_writer_destroy(w);
    assert_ok(mha_file_open(path, &c.file, &error), error);
    assert_refused(mha__case_read_settings(&c, &error), MHA_INVALID, error, "zero_row and add_zero_attn",
                   "one word");
    release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(every_setting_is_written_by_its_name),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(one_setting_in_two_spellings_is_refused),
    };
    return cmocka_run_group_tests_name("case_settings", tests, NULL, NULL);
}
