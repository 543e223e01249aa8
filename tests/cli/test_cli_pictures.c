/* Pictures that the program draws without a browser: .svg and .png of mha show. */
#include <stdlib.h>
#include <string.h>

#include "support/program.h"
#include "support/scratch.h"
#include "support/unit.h"

#define SMALL "--seq", "6", "--d-model", "8", "--heads", "2", "--causal", "--quiet"

static void the_ending_chooses_the_form(void **state)
{
    (void)state;
    static const struct {
        const char *name, *begins;
    } forms[] = {{"a.svg", "<svg xmlns="}, {"a.png", "\x89PNG\r\n"}};
    for (size_t i = 0; i < 2; i++) {
        unsigned char *drawn[3];
        size_t count[3];
        for (size_t n = 0; n < 3; n++) { /* twice the same on other numbers of threads, then on another scale */
            const char *path = scratch(forms[i].name);
            program_result r =
                RUN("show", SMALL, "--picture", path, "--threads", n ? "2" : "1", n == 2 ? "--log" : NULL);
            assert_int_equal(r.code, 0);
            program_free(&r);
            drawn[n] = scratch_read(path, &count[n]);
            assert_memory_equal(drawn[n], forms[i].begins, strlen(forms[i].begins));
        }
        assert_int_equal(count[0], count[1]);
        assert_memory_equal(drawn[0], drawn[1], count[0]);
        assert_true(count[0] != count[2] || memcmp(drawn[0], drawn[2], count[0]) != 0);
        for (size_t n = 0; n < 3; n++)
            free(drawn[n]);
    }
    assert_program_refuses(RUN("show", SMALL, "--picture", "a.gif"), 2, "ends in .html, .svg, .png*found \"a.gif\"");
}

/* The picture in weights/README.md is the one that its command draws. */
static void the_picture_in_the_tree_is_drawn_as_its_page_says(void **state)
{
    (void)state;
    const char *path = scratch("heads.svg");
    program_result r = RUN("show", "weights/induction/recorded.safetensors", "--head", "1", "--tokens",
                           "weights/induction/tokens.txt", "--picture", path, "--quiet");
    assert_int_equal(r.code, 0);
    program_free(&r);
    size_t count[2];
    unsigned char *drawn = scratch_read(path, &count[0]),
                  *kept = scratch_read("weights/induction/heads.svg", &count[1]);
    if (count[0] != count[1] || memcmp(drawn, kept, count[0]) != 0)
        fail_msg("weights/induction/heads.svg differs from what mha show draws of recorded.safetensors with --head 1");
    free(drawn);
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ending_chooses_the_form),
        cmocka_unit_test(the_picture_in_the_tree_is_drawn_as_its_page_says),
    };
    return cmocka_run_group_tests_name("cli_pictures", tests, NULL, scratch_remove);
}
