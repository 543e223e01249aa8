/* The fields of a layer's configuration, each once, in the order of mha_config. Everything that reads, writes, lists or
 * compares configurations is a loop over these rows. */
#include <limits.h>
#include <string.h>

#include "mha/setting.h"

#define FIELD(f) (((mha_config *)0)->f)
/* The kind of an enum cannot be told from its type, which is int or unsigned: CHOICE and TYPE name it. */
#define KIND(f) _Generic(&FIELD(f), size_t *: MHA_CONFIG_SIZE, bool *: MHA_CONFIG_SWITCH)
#define PLACE(f, w) .name = #f, .word = (w), .at = offsetof(mha_config, f), .bytes = sizeof FIELD(f)
#define SIZE(f, w, limit) PLACE(f, w), .kind = KIND(f), .most = (limit)
#define WIDTH(f) SIZE(f, #f, INT_MAX) /* CBLAS counts in int */
#define COUNT(f) SIZE(f, #f, SIZE_MAX)
#define ROWS(f) SIZE(f, #f, 65536)
#define SWITCH(f) PLACE(f, #f), .kind = KIND(f)
#define CHOICE(f, words) PLACE(f, #f), .kind = MHA_CONFIG_CHOICE, .choices = (words)
#define TYPE(f, k) PLACE(f, #f), .kind = (k)

#define NORMS "none|head|row|each_head"

static const mha_config_field rows[] = {
    {WIDTH(d_model), .unset = "512", .meaning = "width of the model"},
    {SIZE(n_heads, "heads", SIZE_MAX), .unset = "8", .meaning = "query heads"},
    {COUNT(kv_heads), .unset = "n_heads", .meaning = "key/value heads, which divide the query heads"},
    {COUNT(d_k), .unset = "d_model / n_heads", .meaning = "width of one head of Q and K"},
    {COUNT(d_v), .unset = "d_k if that is given, else d_model / n_heads", .meaning = "width of one head of V"},
    {WIDTH(d_q), .unset = "d_model", .meaning = "width of the query input"},
    {SIZE(d_kin, "kdim", INT_MAX), .unset = "d_model", .meaning = "width of the key input"},
    {SIZE(d_vin, "vdim", INT_MAX), .unset = "d_kin", .meaning = "width of the value input"},
    {WIDTH(d_out), .unset = "d_model", .meaning = "width of the output"},
    {SWITCH(bias_q), .meaning = "with b_Q"},
    {SWITCH(bias_k), .meaning = "with b_K"},
    {SWITCH(bias_v), .meaning = "with b_V"},
    {SWITCH(bias_o), .meaning = "with b_O"},
    {SWITCH(bias_kv), .meaning = "one learned key and value row after all real keys"},
    {SWITCH(sinks), .meaning = "one learned logit for each query head in the softmax denominator"},
    {CHOICE(q_norm, NORMS), .meaning = "norm of q over each head, with one weight or a weight each, or over the row"},
    {CHOICE(k_norm, NORMS), .meaning = "norm of k, as q_norm"},
    {SWITCH(norm_bias), .meaning = "each of these norms adds a bias"},
    {ROWS(bias_rows), .meaning = "rows of the table of biases by position, which the setting bias_rule adds"},
    {ROWS(relative_k_rows), .meaning = "rows of relative_k, (n, d_k), which the setting relative_rule reads"},
    {ROWS(relative_column_rows), .meaning = "rows of relative_columns, the same by the columns of a grid"},
    {ROWS(relative_q_rows), .meaning = "rows of relative_q, which keys are multiplied with"},
    {SWITCH(relative_by_head), .meaning = "the relative tables have columns for each head: (n, h*d_k)"},
    {TYPE(dtype, MHA_CONFIG_TYPE), .meaning = "type of the weights; a quantised one: of the matrices alone"},
    {CHOICE(gate, "none|feature|head"), .meaning = "factor sigmoid(query W_G + b_G) of the heads before W_O"},
    {SWITCH(bias_gate), .meaning = "with b_G"},
    {WIDTH(q_rank), .meaning = "width of the latent of queries"},
    {COUNT(kv_rank), .meaning = "latent attention: width of the latent of keys and values"},
    {COUNT(d_rope), .meaning = "features of a key that are one row for all heads"},
    {SWITCH(bias_latent), .meaning = "with b_KVA, and with q_rank b_QA"},
    {TYPE(matrix_dtype, MHA_CONFIG_TYPES), .meaning = "quantised type of each matrix in place of dtype"},
};

const mha_config_field *mha_config_field_at(size_t index)
{
    return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}

bool mha_config_same(const mha_config *a, const mha_config *b)
{
    for (const mha_config_field *f = rows; f < rows + sizeof rows / sizeof *rows; f++)
        if (memcmp((const char *)a + f->at, (const char *)b + f->at, f->bytes) != 0)
            return false;
    return true;
}
