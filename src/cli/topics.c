/* mha help TOPIC: explains the program's special words, in a few sentences each. */
#include <string.h>

#include "cli/help.h"
#include "cli/text/print.h"

static void print_case(void)
{
    static const char *const titles[] = {"word", "form", "meaning"};
    const char *group = "";
    table *t = NULL;
    mha_case_word w;
    for (size_t i = 0; mha_case_word_at(i, &w); i++) {
        if (strcmp(w.group, group) != 0) {
            if (t)
                table_print(t);
            say("\n%s%s%s\n", bold(), w.group, plain());
            t = table_create(TABLE_TEXT, sizeof titles / sizeof *titles, titles);
            group = w.group;
        }
        table_format(t, "%s%s%s", w.name, *w.also ? ", " : "", w.also);
        table_cell(t, w.form);
        table_format(t, "%s%s%s", w.meaning, *w.missing ? "; without it: " : "", w.missing);
    }
    if (t)
        table_print(t);
    say("\nFrom numpy:\n\n  np.savez(\"case.npz\", query=x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o, output=y, "
           "num_heads=4)\n\n");
    write_prose(
        "\"mha forward --save-case mine.safetensors\" writes a case in which only expected.output has to be replaced "
        "by what you computed. Without a case file: mha check --weights FILE --heads 4 --causal --input x.npy "
        "--expected y.npy.");
}

static void print_architectures(void)
{
    char line[2000];
    size_t used = (size_t)snprintf(line, sizeof line, "Built in:");
    for (size_t i = 0; mha_architecture_at(i) && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s %s", i > 0 ? "," : "", mha_architecture_at(i));
    say("\n");
    write_prose(line);
}

static void print_bugs(void)
{
    static const char *const titles[] = {"bug", "what it does"};
    table *t = table_create(TABLE_TEXT, 2, titles);
    say("\n");
    for (size_t i = 0; i < mha_bug_count(); i++) {
        table_cell(t, mha_bug_at(i)->name);
        table_cell(t, mha_bug_at(i)->help);
    }
    table_print(t);
}

static void print_stages(void)
{
    say("\nThey are called");
    for (mha_stage s = 0; s < MHA_STAGE_COUNT; s++)
        say(s % 8 ? " %s" : "\n  %s", mha_stage_at(s)->name);
    say("\n\nand those of a backward\n");
    for (mha_backward_stage s = 0; s < MHA_BACKWARD_STAGE_COUNT; s++)
        say("  %-9s  %s\n", mha_backward_stage_at(s)->name, mha_backward_stage_at(s)->meaning);
}

static const struct {
    const char *name, *text;
    void (*more)(void); /* prints more from the library's tables; NULL: nothing */
} topics[] = {
    {"inert",
     "A parameter is inert when no value of it can change the output. The key bias b_K is: it adds the same number "
     "to all scores of a query, and a number added to all scores does not change their softmax. It is not inert with "
     "a rotation, a key norm or a softcap between b_K and softmax, or with sinks or an extra key row in the softmax. "
     "Inert parameters are counted like all others; \"mha params\" says how many there are, and why.",
     NULL},
    {"storage",
     "A storage is one block of memory that holds a tensor. A total counts every storage once, so that tied weights, "
     "which are two names for one storage (the second is an alias), are not counted twice. A head's slice of a "
     "weight is a view: it has no storage of its own and is in no total.",
     NULL},
    {"derived",
     "Derived memory is built from parameters: weights that a model makes of others when it is loaded, like the table "
     "of biases of Swin v2, which an MLP makes, gradients, and packed copies of matrices that are there as they were, "
     "too. It is shown in bytes and never counted as parameters. A packed matrix lies in the order in which the "
     "kernels read it, which saves time (\"mha forward --no-pack\" does without); of F32, F16 and BF16 it is no copy, "
     "but all there is of the weight until somebody reads it.",
     NULL},
    {"stage",
     "A stage is a named intermediate result on the way from the inputs to the output, in the order data flows: q, k "
     "and v are the projected inputs, scores are scale * Q K^T, weights are their softmax over the keys, heads are "
     "weights V side by side, output is heads W_O + b_O. Layers with latents have q_latent and kv_latent before q, a "
     "layer with a gate has gated before output. \"mha forward --trace FILE\" writes all of them, \"mha "
     "check\" compares the stages recorded in a case and marks the first that diverges. A backward has stages, too, "
     "from the gradient of the heads to those of q_rot, k_rot and v; of a case with a d_output \"mha check\" compares "
     "them and \"mha show --stage d_scores CASE\" draws them.",
     print_stages},
    {"paths",
     "A path is a way to compute the same forward. exact: float64 in plain loops, by which the others are checked. "
     "blas: the paper step by step, with SGEMM for the projections and for the products of each head. fast: packed "
     "projections, and a core that reads the keys block by block and never stores all scores or weights. auto: the "
     "fastest path that can compute what is asked for; the program says which. fast and blas compute in float32; "
     "each gives the same bits on every run and for any number of threads.",
     NULL},
    {"masks",
     "A mask says which keys a query sees. --causal hides the keys after the query, --window all but those near it, "
     "--lengths the end of each batch row, --cu-seqlens the other sequences of a packed row. --mask takes a tensor "
     "that is broadcast from the right to (B, h, T_q, S): numbers to add to the scores (-inf hides), or booleans, "
     "with --mask-kind saying whether true keeps a key or hides it. A query that sees no key gets weights 0, or NaN "
     "with --empty-rows nan.",
     NULL},
    {"ranks",
     "A rank is one of several processes that share a layer, each with memory of its own. Heads are shared by tensor "
     "(every rank has its columns of W_Q, W_K, W_V and rows of W_O, and all outputs are added) and, between two "
     "exchanges, by ulysses; rows of the inputs by ulysses, ring (keys and values go from rank to rank) and zigzag "
     "(the same with two chunks of rows, which a causal mask loads evenly). A key/value head that several ranks need "
     "is stored by each: a replica, as is what makes latents, of which tensor shares W_KVB. Latents are cached where "
     "one more token is decoded: whole on each rank by heads, in parts by rows. "
     "\"mha params --preset llama-2-70b --ranks 8 --seq 4096\" shows the share of one rank. Caches keep what windows "
     "leave; pairs and messages are those of all keys. With --machine F,M,L,B it shows "
     "also how long the attention layers take by a model of cost. Ranks compute F GFLOP/s, read M GB/s from memory, "
     "and pay L microseconds for a message and 1/B of its GB for its bytes. With --machine F,M,L,B,C,N a node of C "
     "cores has N ranks, and the cores copy the messages; mpirun -n P mha-mpi bench measures these numbers where it "
     "runs.",
     NULL},
    {"architectures",
     "An architecture says what a config.json means: which key is which size, which tensors a checkpoint has and how "
     "large they are, which layers are attention. It is a text in JSON; for a model type that is not built in, "
     "--architecture FILE takes one of yours. A new one may begin with {\"like\": \"llama\", ...} and say only "
     "what is different. Keys of a config.json that it neither reads nor names in \"no_effect\" are refused where a "
     "number may depend on them, and listed elsewhere.",
     print_architectures},
    {"case",
     "A case is a file of named tensors and texts (safetensors, or npz): the inputs and weights of one call of "
     "attention, its settings, and recorded results, as expected.output or another stage. "
     "\"mha check\" checks it, \"mha diagnose\" looks for the bug.",
     print_case},
    {"bugs",
     "A known bug is a named way in which attention goes wrong, or a convention of other programs. \"mha diagnose\" "
     "computes a case with each of them, with pairs of them, and with other numbers of heads, and shows which "
     "reproduce the recorded result. Where none does, it says what the difference looks like: which heads, rows or "
     "columns differ, or what connects the two. \"mha power\" shows which bugs a test would take for right.",
     print_bugs},
};

const char *topic_name(size_t index)
{
    return index < sizeof topics / sizeof *topics ? topics[index].name : NULL;
}

bool help_topic(const char *name)
{
    size_t i = 0;
    while (topic_name(i) && strcmp(topic_name(i), name) != 0)
        i++;
    if (!topic_name(i))
        return false;
    write_prose(topics[i].text);
    if (topics[i].more)
        topics[i].more();
    return true;
}
