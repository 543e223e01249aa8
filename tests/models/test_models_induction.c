/* The trained model of two layers on words that it has never seen: what its heads look at, and what it says next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/lab.h"
#include "support/unit.h"

enum { LETTERS = 27, T = 32, WIDTH = 32, HEADS = 4, WORDS = 40 };

typedef struct model {
    mha_file *file;
    mha_params *table;
    mha_layer *layers[2];
    float token[LETTERS * WIDTH], position[T * WIDTH], readout[LETTERS * WIDTH], bias[LETTERS];
} model;

static void read_tensor(const mha_file *file, const char *name, float *data, size_t elements)
{
    mha_error error;
    const mha_file_tensor *tensor = mha_file_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->elements, elements);
    const mha_view view = mha_view_of(data, MHA_F32, tensor->rank, tensor->shape);
    assert_ok(mha_file_read(file, tensor, &view, &error), error);
}

static void open_model(model *m)
{
    mha_error error;
    assert_ok(mha_file_open("weights/induction/model.safetensors", &m->file, &error), error);
    assert_int_equal(mha_params_create(NULL, &m->table, NULL), MHA_OK);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "layers.1.self_attn" : "layers.0.self_attn";
        const mha_load_options options = {.layer = name, .n_heads = HEADS, .row_prefix = name};
        assert_ok(mha_model_load_layer(m->file, &options, m->table, &m->layers[i], NULL, &error), error);
    }
    read_tensor(m->file, "token_embedding.weight", m->token, LETTERS * WIDTH);
    read_tensor(m->file, "position_embedding.weight", m->position, T * WIDTH);
    read_tensor(m->file, "readout.weight", m->readout, LETTERS * WIDTH);
    read_tensor(m->file, "readout.bias", m->bias, LETTERS);
}

static void close_model(model *m)
{
    for (int i = 0; i < 2; i++)
        mha_layer_destroy(m->layers[i]);
    mha_params_destroy(m->table);
    mha_file_close(m->file);
}

/* A word of 5 to 13 letters, none twice, behind up to 11 other letters, written until the line is full. */
typedef struct line {
    int letter[T];
    size_t start, length;
} line;

static void write_line(line *l, uint64_t seed)
{
    int order[LETTERS];
    for (int i = 0; i < LETTERS; i++)
        order[i] = i;
    for (size_t i = LETTERS - 1; i > 0; i--) {
        const size_t other = mha__random_bits(seed, 1, i) % (i + 1);
        const int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    l->start = seed % 12;
    l->length = 5 + seed % 9;
    for (size_t t = 0; t < T; t++)
        l->letter[t] = order[t < l->start ? t : l->start + (t - l->start) % l->length];
}

/* Runs both layers: weights (2, HEADS, T, T), and the letter that comes next, by the model, at each place. */
static void run_model(const model *m, const line *l, float weights[2][HEADS * T * T], int next[T])
{
    mha_error error;
    float x[T * WIDTH], y[T * WIDTH];
    for (size_t i = 0; i < T * WIDTH; i++)
        x[i] = m->token[(size_t)l->letter[i / WIDTH] * WIDTH + i % WIDTH] + m->position[i];
    for (int i = 0; i < 2; i++) {
        mha_keep keep = {MHA_STAGE_WEIGHTS, mha_view_of(weights[i], MHA_F32, 4, (size_t[]){1, HEADS, T, T}), 0};
        mha_call call = {.query = mha_rows(x, 1, T, WIDTH),
                         .output = mha_rows(y, 1, T, WIDTH),
                         .semantics.visible.causal = true,
                         .keep = &keep,
                         .keep_count = 1};
        assert_ok(mha_run(m->layers[i], &call, &error), error);
        for (size_t k = 0; k < T * WIDTH; k++)
            x[k] += y[k];
    }
    for (size_t t = 0; t < T; t++) {
        double largest = -INFINITY;
        for (int letter = 0; letter < LETTERS; letter++) {
            double logit = m->bias[letter];
            for (size_t k = 0; k < WIDTH; k++)
                logit += (double)m->readout[(size_t)letter * WIDTH + k] * x[t * WIDTH + k];
            if (logit > largest) {
                largest = logit;
                next[t] = letter;
            }
        }
    }
}

static double largest_of(const double *numbers, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, numbers[i]);
    return largest;
}

static void heads_look_at_the_letter_before_and_behind_the_same_letter(void **state)
{
    (void)state;
    static model m;
    static float weights[2][HEADS * T * T];
    double previous[HEADS] = {0}, behind[HEADS] = {0};
    size_t firsts = 0, again = 0, right = 0;
    open_model(&m);
    for (uint64_t seed = 0; seed < WORDS; seed++) {
        line l;
        int next[T];
        write_line(&l, seed);
        run_model(&m, &l, weights, next);
        for (size_t q = 1; q + 1 < T; q++) {
            const bool is_first = q < l.start + l.length, is_again = q >= l.start + l.length;
            firsts += is_first;
            again += is_again;
            right += is_again && next[q] == l.letter[q + 1];
            for (size_t h = 0; h < HEADS; h++) {
                previous[h] += is_first ? weights[0][(h * T + q) * T + q - 1] : 0;
                for (size_t k = 1; is_again && k <= q; k++)
                    behind[h] += l.letter[k - 1] == l.letter[q] ? weights[1][(h * T + q) * T + k] : 0;
            }
        }
    }
    close_model(&m);
    /* Nine tenths of the attention; chance would be a few hundredths. */
    const double in_first = largest_of(previous, HEADS) / (double)firsts;
    const double in_second = largest_of(behind, HEADS) / (double)again;
    if (in_first < 0.9 || in_second < 0.9 || right < again * 98 / 100)
        fail_msg("previous letter %.3f, behind the same letter %.3f, %zu of %zu letters right", in_first, in_second,
                 right, again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_look_at_the_letter_before_and_behind_the_same_letter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
