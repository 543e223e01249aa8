/* The words of the case format: the page that documents them, the reader that takes them, messages that name them. */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/page.h"
#include "support/program.h"
#include "support/scratch.h"
#include "support/verdict.h"
#include "verify/case/words/words.h"

static const char page_path[] = "src/verify/case/CASES.md"; /* tests run where `make` does */

/* ---------------------------------------------------------------- the page */

static void put(char *text, size_t size, const char *piece)
{
    const size_t used = strlen(text);
    assert_true(used + strlen(piece) < size);
    memcpy(text + used, piece, strlen(piece) + 1);
}

/* Text in Markdown, where * would make it italic. */
static void put_plain(char *text, size_t size, const char *piece)
{
    for (; *piece; piece++) {
        const char one[] = {*piece, '\0'};
        put(text, size, *piece == '*' ? "\\*" : one);
    }
}

/* The lists of the page, each item "- `name`, `also` form [missing]: meaning". One item has all the gradients whose
 * shape and meaning follow from their names. */
static bytes lists(void)
{
    bytes page = {0};
    char gradients[2000] = "";
    const char *group = "";
    mha_case_word word;
    for (size_t i = 0; mha_case_word_at(i, &word); i++) {
        char item[2000] = "- `";
        if (strncmp(word.meaning, "gradient of ", 12) == 0 && strcmp(word.meaning + 12, word.form + 3) == 0) {
            put(gradients, sizeof gradients, *gradients ? ", `" : "- `expected.d_NAME` as NAME: gradient of NAME: `");
            put(gradients, sizeof gradients, word.form + 3);
            put(gradients, sizeof gradients, "`");
            continue;
        }
        if (strcmp(group, word.group) != 0) {
            if (*gradients)
                page_item(&page, gradients);
            *gradients = '\0';
            bytes_text(&page, "\n### ");
            bytes_text(&page, word.group);
            bytes_text(&page, "\n\n");
        }
        group = word.group;
        put(item, sizeof item, word.name);
        put(item, sizeof item, *word.also ? "`, `" : "` ");
        put(item, sizeof item, word.also);
        put(item, sizeof item, *word.also ? "` " : "");
        put_plain(item, sizeof item, word.form);
        put(item, sizeof item, *word.missing ? " [" : "");
        put_plain(item, sizeof item, word.missing);
        put(item, sizeof item, *word.missing ? "]: " : ": ");
        put_plain(item, sizeof item, word.meaning);
        page_item(&page, item);
    }
    bytes_add(&page, "\n", 2);
    return page;
}

static void the_page_holds_every_word_and_no_other(void **state)
{
    (void)state;
    bytes wanted = lists();
    page_holds(page_path, "words", (const char *)wanted.data);
    bytes_free(&wanted);
}

/* The block of Python on the page, at most a dozen statements, makes a case that passes and is diagnosed as right. */
static void the_example_of_the_page_makes_a_case(void **state)
{
    (void)state;
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0)
        skip_because("python3 with numpy runs the example of CASES.md");
    char *page = page_text(page_path), *from = strstr(page, "```python\n");
    assert_non_null(from);
    from += strlen("```python\n");
    char *to = strstr(from, "```\n");
    assert_non_null(to);
    size_t lines = 0;
    for (const char *at = from; at < to; at++)
        lines += *at == '\n' && at[1] != '\n';
    assert_true(lines <= 12);
    const char *script = scratch_write("example.py", from, (size_t)(to - from)), *file = scratch_path("case.npz");
    char command[1024], *folder = strdup(file);
    assert_non_null(folder);
    *strrchr(folder, '/') = '\0';
    snprintf(command, sizeof command, "cd '%s' && python3 '%s'", folder, script);
    assert_int_equal(system(command), 0);
    for (int path = 0; path < MHA_PATH_COUNT; path++) {
        mha_verdict v = check(file, (mha_path)path, NULL);
        if (v.outcome != MHA_OUTCOME_PASSED)
            fail_msg("%s: %s", mha_path_name((mha_path)path), v.reason);
        assert_int_equal(v.stage_count, 1);
        mha_verdict_clear(&v);
    }
    free(folder);
    free(page);
}

/* weights/mha_case.py, with a substitute for a module of torch: needs only numpy. */
static const char use_of_the_helper[] =
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "import numpy as np, mha_case\n"
    "from types import SimpleNamespace as N\n"
    "r = np.random.default_rng(1); f = lambda *s: r.normal(size=s).astype('float32')\n"
    "E, h, T = 8, 2, 3\n"
    "def run(x, Wi, bi, Wo, bo, extra):\n"
    "    q, k, v = ((x @ Wi[i*E:(i+1)*E].T + bi[i*E:(i+1)*E]) for i in range(3))\n"
    "    if extra is not None:\n"
    "        more = [np.broadcast_to(e.reshape(1, 1, E), (len(x), 1, E)) for e in extra]\n"
    "        k, v = (np.concatenate([a, e], 1) for a, e in zip((k, v), more))\n"
    "    s = lambda a: a.reshape(len(x), -1, h, E//h).swapaxes(1, 2)\n"
    "    w = np.exp(s(q) @ s(k).swapaxes(2, 3) / (E/h)**0.5); w /= w.sum(-1, keepdims=True)\n"
    "    return (w @ s(v)).swapaxes(1, 2).reshape(len(x), T, E) @ Wo.T + bo, w\n"
    "kinds = ((True, True, False, False), (False, False, False, True), (True, True, True, True))\n"
    "for n, (first, packed, extra, mean) in enumerate(kinds):\n"
    "    Wi, bi, Wo, bo, x = f(3*E, E), f(3*E), f(E, E), f(E), f(2, T, E)\n"
    "    e = (f(1, 1, E), f(1, 1, E)) if extra else None\n"
    "    y, w = run(x, Wi, bi, Wo, bo, e)\n"
    "    m = N(num_heads=h, batch_first=first, in_proj_weight=Wi if packed else None, in_proj_bias=bi,\n"
    "          out_proj=N(weight=Wo, bias=bo), q_proj_weight=Wi[:E], k_proj_weight=Wi[E:2*E],\n"
    "          v_proj_weight=Wi[2*E:], bias_k=e and e[0], bias_v=e and e[1], add_zero_attn=False)\n"
    "    t = (lambda a: a) if first else (lambda a: a.swapaxes(0, 1))\n"
    "    words = mha_case.from_torch(m, t(x), (t(y), w.mean(1) if mean else w), my_note='own')\n"
    "    for end in 'npz', 'safetensors': mha_case.save(f'{sys.argv[2]}/torch{n}.{end}', **words)\n"
    "    words['output'] = t(y)[..., ::-1]\n"
    "    mha_case.save(f'{sys.argv[2]}/wrong{n}.npz', **words)\n"
    "q = f(2, h, T, E)\n"
    "mha_case.save(f'{sys.argv[2]}/heads.npz', query=q, output=q, layout='BHTD')\n"
    "one = f(1, 1, h, E)\n" /* alibi is a key here, and a tensor of that name would be the slopes */
    "mha_case.save(f'{sys.argv[2]}/alibi.npz', query=one, output=one, layout='BTHD', alibi=True,\n"
    "              alibi_slopes=f(h))\n"
    "try: mha_case.save(f'{sys.argv[2]}/heads.npz', query=q, output=q)\n"
    "except ValueError as e: assert 'BHTD' in str(e) and 'BTHD' in str(e), e\n"
    "else: raise SystemExit('4 axes without a layout were taken')\n";

static void the_helper_writes_cases(void **state)
{
    (void)state;
    if (system("python3 -c 'import numpy' 2>/dev/null") != 0)
        skip_because("python3 with numpy runs weights/mha_case.py");
    const char *script = scratch_write("use.py", use_of_the_helper, strlen(use_of_the_helper));
    char command[1024], file[512], *folder = strdup(script);
    assert_non_null(folder);
    *strrchr(folder, '/') = '\0';
    snprintf(command, sizeof command, "PYTHONDONTWRITEBYTECODE=1 python3 '%s' weights '%s'", script, folder);
    assert_int_equal(system(command), 0);
    static const char *const names[] = {"torch%d.npz", "torch%d.safetensors", "wrong%d.npz"};
    for (int n = 0; n < 3; n++)
        for (int k = 0; k < 3; k++) {
            char name[32];
            snprintf(name, sizeof name, names[k], n);
            snprintf(file, sizeof file, "%s/%s", folder, name);
            mha_verdict v = check(file, MHA_PATH_EXACT, NULL);
            if (v.outcome != (k < 2 ? MHA_OUTCOME_PASSED : MHA_OUTCOME_FAILED))
                fail_msg("%s: %s", name, v.reason);
            assert_int_equal(v.stage_count, 2); /* the output and the weights */
            mha_verdict_clear(&v);
        }
    snprintf(file, sizeof file, "%s/alibi.npz", folder);
    mha_verdict v = check(file, MHA_PATH_EXACT, NULL);
    assert_int_equal(v.outcome, MHA_OUTCOME_PASSED);
    mha_verdict_clear(&v);
    free(folder);
}

/* The case of README: its heads are merged without a transpose. */
static void the_wrong_port_is_found_out(void **state)
{
    (void)state;
    static const char file[] = "weights/lookup/wrong_port.safetensors";
    for (int path = 0; path < MHA_PATH_COUNT; path++) {
        mha_verdict v = check(file, (mha_path)path, NULL);
        assert_int_equal(v.outcome, MHA_OUTCOME_FAILED);
        assert_int_equal(v.stage_count, 3);
        assert_string_equal(v.stages[0].name, "weights");
        assert_true(v.stages[0].ok);
        assert_int_equal(v.culprit, 1);
        assert_string_equal(v.stages[1].name, "heads");
        mha_verdict_clear(&v);
    }
    mha_case *c;
    mha_error error;
    mha_diagnosis d;
    assert_ok(mha_case_open(file, NULL, &c, &error), error);
    assert_ok(mha_case_diagnose(c, NULL, 0, NULL, &d, &error), error);
    assert_int_equal(d.match_count, 1);
    assert_true(d.matches[0].exact);
    assert_int_equal(d.matches[0].count, 1);
    assert_string_equal(d.matches[0].bugs[0], "merge-untransposed");
    mha_diagnosis_clear(&d);
    mha_case_close(c);
}

/* ---------------------------------------------------------------- the reader */

static void every_word_is_read(void **state)
{
    (void)state;
    bool tensors[CASE_TENSOR_COUNT] = {false}, weights[MHA_WEIGHT_COUNT] = {false},
         results[CASE_RESULT_COUNT] = {false};
    const mha__case_word *word;
    size_t n = 0;
    for (size_t i = 0; (word = mha__case_word_at(i)); i++, n++) {
        if (word->kind == WORD_SETTINGS)
            continue;
        assert_true(*word->shown.group && *word->shown.name && *word->shown.form && *word->shown.meaning);
        const char *names[] = {word->shown.name, word->shown.also};
        for (size_t k = 0; k < 2 && *names[k]; k++) {
            const mha__case_place place = mha__case_place_of(names[k]);
            const bool is_tensor = word->kind == WORD_TENSOR || word->kind == WORD_WEIGHT || word->kind == WORD_RESULT;
            if (is_tensor)
                assert_ptr_equal(place.word, word);
            else if (word->kind == WORD_KEY)
                assert_ptr_equal(mha__case_key(names[k]), word);
            if (is_tensor || word->kind == WORD_KEY)
                assert_int_equal(mha__case_knows_key(names[k]), word->kind == WORD_KEY);
            assert_int_equal(mha__case_is_own(names[k]), strncmp(names[k], "my", 2) == 0);
        }
        bool *seen = word->kind == WORD_TENSOR   ? &tensors[word->code]
                     : word->kind == WORD_WEIGHT ? &weights[word->code]
                     : word->kind == WORD_RESULT ? &results[word->code]
                                                 : NULL;
        assert_false(seen && *seen);
        if (seen)
            *seen = true;
    }
    const mha_setting *s;
    mha_case_word listed;
    size_t settings = 0, listed_settings = 0;
    for (; (s = mha_setting_at(settings)); settings++) {
        const bool is_key = !mha__setting_is_array(s);
        assert_ptr_equal(mha__case_setting(s->name, is_key), s);
        assert_null(mha__case_setting(s->name, !is_key));
        assert_int_equal(mha__case_knows_key(s->name), is_key);
    }
    for (size_t i = 0; mha_case_word_at(i, &listed); i++) {
        s = mha_setting_find(listed.name);
        listed_settings += s && strncmp(listed.group, "settings: ", 10) == 0;
        assert_true(*listed.group && *listed.name && *listed.form && *listed.meaning);
        assert_int_equal(mha_case_word_at(i + 1, &listed), i + 2 < n + settings);
    }
    assert_int_equal(listed_settings, settings);
    for (int i = 0; i < CASE_TENSOR_COUNT; i++)
        assert_true(tensors[i]);
    for (int i = 0; i < CASE_RESULT_COUNT; i++)
        assert_true(results[i]);
    for (int i = 0; i < MHA_GRADIENT_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "expected64%s", strchr(mha__case_gradient_name((mha_gradient)i), '.'));
        const mha__case_place place = mha__case_place_of(name);
        assert_true(place.word && place.word->kind == WORD_RESULT && place.word->code == CASE_GRADIENTS + i);
        assert_true(place.record == PLACE_DOUBLE);
        snprintf(name, sizeof name, "atol.%s", mha__case_gradient_name((mha_gradient)i));
        assert_true(mha__case_knows_key(name));
    }
    for (int i = 0; i < MHA_BACKWARD_STAGE_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "expected64.%s", mha_backward_stage_at((mha_backward_stage)i)->name);
        const mha__case_place place = mha__case_place_of(name);
        assert_true(place.word && place.word->kind == WORD_RESULT && place.word->code == CASE_BACKWARDS + i);
        snprintf(name, sizeof name, "atol.expected.%s", mha_backward_stage_at((mha_backward_stage)i)->name);
        assert_true(mha__case_knows_key(name));
    }
    for (int i = 0; i < MHA_STAGE_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "expected64.%s", mha_stage_at((mha_stage)i)->name);
        const mha__case_place place = mha__case_place_of(name);
        assert_true(place.word && place.word->code == i && place.record == PLACE_DOUBLE);
        snprintf(name, sizeof name, "atol.expected.%s", mha_stage_at((mha_stage)i)->name);
        assert_true(mha__case_knows_key(name));
    }
    for (int i = 0; i < MHA_WEIGHT_COUNT; i++) {
        char name[64];
        assert_true(weights[i]);
        assert_ptr_equal(mha__case_place_of(mha_weight_at((mha_weight)i)->name).word,
                         mha__case_place_of(mha__case_weight_name((mha_weight)i)).word); /* both spellings */
        snprintf(name, sizeof name, "repeated.%s", mha_weight_at((mha_weight)i)->name);
        assert_int_equal(mha__case_place_of(name).set, CASE_REPEATED);
        assert_non_null(mha__case_place_of(name).word);
    }
    char layouts[64] = "";
    for (int i = 0; i < MHA_LAYOUT_COUNT; i++) {
        put(layouts, sizeof layouts, i ? ", " : "");
        put(layouts, sizeof layouts, mha__layout_name((mha_layout)i));
    }
    assert_string_equal(mha__case_key("layout")->shown.form, layouts); /* read by its place in the list */
}

static void unknown_words_name_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool is_key;
        const char *says, *silent;
    } rows[] = {
        {"q", false, "unknown tensor q; did you mean query?", NULL},
        {"x", false, "did you mean query?", NULL},
        {"quary", false, "did you mean query?", NULL},
        {"QUERY", false, "did you mean query?", NULL},
        {"Wq", false, "did you mean W_q?", NULL},
        {"y", false, "did you mean expected.output?", NULL},
        {"attn_output", false, "did you mean expected.output?", NULL},
        {"expected.ouput", false, "did you mean expected.output?", NULL},
        {"expected64.wieghts", false, "did you mean expected64.weights?", NULL},
        {"permuted.W_x", false, "did you mean permuted.W_q?", NULL},
        {"in_proj_weight", false, "did you mean torch.in_proj_weight?", NULL},
        {"q_proj.weight", false, "did you mean W_q?", NULL},
        {"nothing_of_the_kind", false, "the known ones are query, key, value, W_q,", "did you mean"},
        {"num_heads", false, "unknown tensor num_heads: that is a metadata key", NULL},
        {"zzz", true, "the known ones are kind, layout, num_heads,", "did you mean"},
        {"outputs", false, "unknown tensor outputs; did you mean expected.output?", NULL},
        {"n_heads", true, "unknown metadata key n_heads; did you mean num_heads?", NULL},
        {"head_dim", true, "did you mean d_k?", NULL},
        {"is_causal", true, "did you mean causal?", NULL},
        {"casual", true, "did you mean causal?", NULL},
        {"atol.output", true, "unknown metadata key atol.output", NULL},
        {"atol.expected.ouput", true, "did you mean atol.expected.output?", NULL},
        {"query", true, "unknown metadata key query: that is a tensor, (B, T_q, d_q), by layout", NULL},
        {"a_name_that_is_much_longer_than_any_word_of_the_format_and_goes_on", false, "unknown tensor a_name",
         "goes_on"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[400];
        mha__case_explain_unknown(text, sizeof text, rows[i].name, rows[i].is_key);
        if (!strstr(text, rows[i].says) || (rows[i].silent && strstr(text, rows[i].silent)))
            fail_msg("%s: expected \"%s\", found \"%s\"", rows[i].name, rows[i].says, text);
        assert_true(strlen(text) < sizeof text - 1);
        assert_true(strstr(text, "my.") || strstr(text, "that is a"));
    }
}

/* Names of random letters, near to "query" and far from it, with and without dots. */
static void a_name_means_a_word_where_that_is_the_nearest(void **state)
{
    (void)state;
    static const char letters[] = "query.keyvalQXW_0", *const words[] = {"query", "key", "W_q"};
    size_t found = 0;
    for (uint64_t n = 0; n < 20000; n++) {
        char name[64] = "query";
        const size_t changes = 1 + mha__random_bits(5, 0, n) % 4, length = 1 + mha__random_bits(5, 1, n) % 45;
        if (n % 2)
            for (size_t i = 0; i < length; i++)
                name[i] = letters[mha__random_bits(6, n, i) % (sizeof letters - 1)];
        else
            for (size_t i = 0; i < changes; i++)
                name[mha__random_bits(7, n, i) % 5] = letters[mha__random_bits(8, n, i) % (sizeof letters - 1)];
        name[n % 2 ? length : 5] = '\0';
        const char *near = mha__case_nearest(name, false);
        for (size_t w = 0; w < 3; w++) {
            const bool meant = near && strcmp(near, words[w]) == 0;
            if (mha__case_means(name, words[w]) != meant)
                fail_msg("%s: nearest is %s, not compared with %s", name, near ? near : "none", words[w]);
            found += meant && strchr(name, '.');
        }
    }
    assert_true(found > 100); /* names with dots mean words, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_holds_every_word_and_no_other),
        cmocka_unit_test(the_example_of_the_page_makes_a_case),
        cmocka_unit_test(the_helper_writes_cases),
        cmocka_unit_test(the_wrong_port_is_found_out),
        cmocka_unit_test(every_word_is_read),
        cmocka_unit_test(unknown_words_name_the_nearest),
        cmocka_unit_test(a_name_means_a_word_where_that_is_the_nearest),
    };
    return cmocka_run_group_tests_name("case_page", tests, NULL, NULL);
}
