/* A checkpoint without a configuration: whose tensor names it has. */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/built.h"
#include "support/scratch.h"

enum { MOST = 200 };

/* Whether a name is of one of the first blocks and experts, which have all names that there are. */
static bool of_the_first(const char *name)
{
    for (; *name; name += strcspn(name, ".") + (strchr(name, '.') != NULL))
        if (strtoul(name, NULL, 10) > 3)
            return false;
    return true;
}

/* Writes a file of tensors with the names of a model, of one element each, and one more name unless it is NULL. Names
 * do without `less` where they begin with it. */
static mha_file *file_like(const char *type, const char *less, const char *more)
{
    mha_error error;
    char path[512], config[160];
    static float value;
    const mha_view one = mha_view_of(&value, MHA_F32, 1, (size_t[]){1});
    snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", type);
    built like;
    mha_writer *writer;
    mha_file *file;
    assert_ok(build_text(&like, config, NULL, NULL), like.error);
    snprintf(path, sizeof path, "%s", scratch_path("like.safetensors"));
    assert_ok(mha_writer_create(path, &writer, &error), error);
    for (size_t i = 0; i < mha_params_count(like.table); i++) {
        const char *name = mha_tensor_info_of(mha_params_at(like.table, i)).name;
        if (strncmp(name, less, strlen(less)) == 0)
            name += strlen(less);
        if (of_the_first(name))
            assert_ok(mha_writer_add(writer, name, &one, &error), error);
    }
    if (more)
        assert_ok(mha_writer_add(writer, more, &one, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    unbuild(&like);
    assert_ok(mha_file_open(path, &file, &error), error);
    return file;
}

static bool among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static void each_architecture_is_known_by_its_names(void **state)
{
    (void)state;
    const char *type, *names[MOST];
    for (size_t i = 0; (type = mha_architecture_at(i)); i++) {
        mha_file *file = file_like(type, "", NULL);
        const size_t count = mha_file_architectures(file, names, MOST);
        if (count > MOST || !among(type, names, count))
            fail_msg("%s is not among the %zu architectures of its own names", type, count);
        mha_file_close(file);
    }
}

static size_t like(const char *type, const char *less, const char *more, const char **names)
{
    mha_file *file = file_like(type, less, more);
    const size_t count = mha_file_architectures(file, names, 1);
    mha_file_close(file);
    return count;
}

static void names_of_one_alone_say_which(void **state)
{
    (void)state;
    const char *name = NULL;
    assert_int_equal(like("gpt2", "", NULL, &name), 1);
    assert_string_equal(name, "gpt2");
    /* A bare model of BERT and one of RoBERTa have the same names; with a prefix they differ. */
    const size_t bare = like("bert", "bert.", NULL, &name);
    assert_true(bare > like("bert", "", NULL, &name));
    assert_int_equal(like("gpt2", "", "rotary_emb.inv_freq", &name), 1); /* a buffer is nobody's */
    const char *names[MOST];
    mha_file *file = file_like("llama", "", NULL);
    const size_t count = mha_file_architectures(file, names, MOST);
    assert_true(count >= 2 && among("llama", names, count) && among("mistral", names, count));
    assert_false(among("gpt2", names, count));
    assert_false(among("gemma3_text", names, count)); /* has all of these, and always four norms more in each block */
    assert_int_equal(mha_file_architectures(file, NULL, 0), count);
    mha_file_close(file);
    /* Qwen3 has norms of queries and keys, for which others have a row that is never there. */
    file = file_like("qwen3", "", NULL);
    const size_t normed = mha_file_architectures(file, names, MOST);
    assert_true(among("qwen3", names, normed));
    assert_false(among("llama", names, normed) || among("smollm3", names, normed) || among("seed_oss", names, normed));
    mha_file_close(file);
}

static void other_names_are_nobody_s(void **state)
{
    (void)state;
    const char *name;
    assert_int_equal(like("gpt2", "", "h.0.attn.extra.weight", &name), 0);
    assert_int_equal(like("gpt2", "h.", NULL, &name), 0);
    assert_int_equal(like("gpt2", "", "h.3.attn.extra.weight", &name), 0);
    assert_int_equal(like("gpt2", "", "h.x.attn.c_attn.weight", &name), 0); /* a number is made of digits */
    /* Blocks beyond the first are not read again. */
    assert_int_equal(like("gpt2", "", "h.4.attn.extra.weight", &name), 1);
    assert_int_equal(like("gpt2", "", "h.11.attn.extra.weight", &name), 1);

    char path[512];
    mha_error error;
    mha_writer *writer;
    mha_file *file;
    float value = 0;
    const mha_view one = mha_view_of(&value, MHA_F32, 1, (size_t[]){1});
    snprintf(path, sizeof path, "%s", scratch_path("few.safetensors"));
    assert_ok(mha_writer_create(path, &writer, &error), error);
    assert_ok(mha_writer_add(writer, "wte.weight", &one, &error), error);
    assert_ok(mha_writer_add(writer, "h.0.attn.c_attn.weight", &one, &error), error);
    assert_ok(mha_writer_commit(writer, &error), error);
    mha_writer_destroy(writer);
    assert_ok(mha_file_open(path, &file, &error), error);
    assert_int_equal(mha_file_architectures(file, &name, 1), 0); /* two tensors are no model */
    mha_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_architecture_is_known_by_its_names),
        cmocka_unit_test(names_of_one_alone_say_which),
        cmocka_unit_test(other_names_are_nobody_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
