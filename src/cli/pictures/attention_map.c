/* Prints attention weights: the strongest keys of a few queries, and the matrices of a few heads as pictures. */
#include "cli/pictures/pictures.h"

#include <math.h>

size_t strongest_keys(const double *weights, size_t count, strongest_key found[STRONGEST])
{
    size_t n = 0;
    for (size_t key = 0; key < count; key++) {
        size_t at = n;
        while (at > 0 && weights[key] > found[at - 1].weight)
            at--;
        if (!(weights[key] > 0) || at == STRONGEST)
            continue;
        n += n < STRONGEST;
        for (size_t i = n - 1; i > at; i--)
            found[i] = found[i - 1];
        found[at] = (strongest_key){key, weights[key]};
    }
    return n;
}

void strongest_print(const strongest_key *found, size_t n, bool broken, const char *const *names, size_t n_names)
{
    say("  looks at");
    if (n == 0)
        say(broken ? " NaN" : " no key");
    for (size_t i = 0; i < n; i++) {
        const bool named = names && found[i].key < n_names;
        say_harmless("%s key %zu%s%s (%.1f %%)", i ? "," : "", found[i].key, named ? " " : "",
                     named ? names[found[i].key] : "", 100 * found[i].weight);
    }
    say("\n");
}

static void print_query(const mha_view *weights, size_t head, size_t query)
{
    mha_view row = *weights;
    const size_t starts[] = {0, head, query};
    for (int i = 0; i < 3; i++)
        row = mha_view_slice(&row, i, starts[i], 1);
    double *numbers = keep(obtain(row.shape[3] + 1, sizeof *numbers));
    for (size_t key = 0; key < row.shape[3]; key++)
        numbers[key] = mha_view_get(&row, (size_t[]){0, 0, 0, key});
    strongest_key found[STRONGEST] = {{0}};
    const size_t n = strongest_keys(numbers, row.shape[3], found);
    say("  query %5zu", query);
    strongest_print(found, n, row.shape[3] > 0 && isnan(numbers[0]), NULL, 0);
}

/* Draws the maps of the first batch row or sequence, which are computed anew: with what is hidden. */
static int draw_maps(const request *r, const arguments *args)
{
    mha_error error = {0};
    mha__picture *picture = keep(obtain(1, sizeof *picture));
    const mha__picture_choice choice = {
        .one_sequence = true, .one_head = given(args, OPT_HEAD), .head = count_of(args, OPT_HEAD)};
    mha_call call = r->call;
    call.output = (mha_view){0};
    call.cache = NULL; /* it holds these keys already; its type rounds them by less than a colour shows */
    call.keep = NULL;
    call.keep_count = 0;
    TRY(done_or_refuse(mha__picture_add_call(picture, "", r->layer, &call, NULL, &choice, &error), "", &error));
    say("\n");
    terminal_map_print(picture);
    return EXIT_DONE;
}

static void print_queries(const mha_view *weights, bool sum_is_1, const arguments *args)
{
    const size_t T = weights->shape[2], head = count_of(args, OPT_HEAD);
    say("\n%sWhat head %zu looks at%s (each query has %zu weights%s)\n", bold(), head, plain(),
           weights->shape[3], sum_is_1 ? ", their sum is 1" : "");
    if (given(args, OPT_QUERY))
        print_query(weights, head, count_of(args, OPT_QUERY));
    else
        for (size_t i = 0; i < 3 && i < T; i++)
            print_query(weights, head, T < 3 ? i : i * (T - 1) / 2);
}

int attention_map_check(const request *r, const arguments *args)
{
    const size_t T =
        r->call.semantics.place.cu_seqlens_q ? (size_t)r->call.semantics.place.cu_seqlens_q[1] : r->plan.T_q;
    if (count_of(args, OPT_HEAD) >= r->plan.h)
        return refuse_option(OPT_HEAD, "expected a head from 0 to %zu, found %zu", r->plan.h - 1,
                             count_of(args, OPT_HEAD));
    if (given(args, OPT_QUERY) && count_of(args, OPT_QUERY) >= T)
        return refuse_option(OPT_QUERY, "expected one of %zu queries, counted from 0, found %zu", T,
                             count_of(args, OPT_QUERY));
    return EXIT_DONE;
}

int attention_map_print(request *r, const arguments *args)
{
    const size_t most = (size_t)1 << 22; /* 16 MiB of weights */
    const mha_semantics *s = &r->call.semantics;
    size_t shape[4];
    double ms;
    const int rank = mha_plan_stage(&r->plan, MHA_STAGE_WEIGHTS, shape);
    const mha_view sized = mha_view_of(NULL, MHA_F32, rank, shape);
    const size_t elements = mha_view_elements(&sized);
    if (elements == 0)
        return EXIT_DONE;
    if (elements > most) {
        say("\n%s weights are too many to keep for a look at them; with fewer --seq or --batch they are shown.\n",
            count_text(elements));
        return EXIT_DONE;
    }
    if (!request_stage(r, MHA_STAGE_WEIGHTS)->data) {
        r->call.path = r->plan.path == MHA_PATH_EXACT ? MHA_PATH_EXACT : MHA_PATH_AUTO;
        TRY(request_keep(r, MHA_STAGE_WEIGHTS));
        TRY(request_run(r, &ms));
    }
    mha_view weights = *request_stage(r, MHA_STAGE_WEIGHTS);
    if (s->place.cu_seqlens_q) { /* the first sequence alone, up to its end */
        weights = mha_view_slice(&weights, 2, 0, (size_t)s->place.cu_seqlens_q[1]);
        weights = mha_view_slice(&weights, 3, 0, (size_t)s->place.cu_seqlens_q[1] + r->plan.S_extra);
    }
    if (mha_view_elements(&weights) == 0)
        return EXIT_DONE;
    print_queries(&weights, r->call.semantics.softmax.normaliser == MHA_SOFTMAX, args);
    if (given(args, OPT_QUERY))
        return EXIT_DONE;
    TRY(draw_maps(r, args));
    if (!given(args, OPT_HEAD))
        say(
            "\n  --head N shows one head, --query N one query; \"mha show\" all of them, also as pictures in files.\n");
    return EXIT_DONE;
}
