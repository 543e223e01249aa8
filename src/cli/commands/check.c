/* mha check: checks case files, comparing every recorded stage. */
#include <pthread.h>

#include "cli/commands/commands.h"
#include "picture/sheet.h"

/* Checks a case, and draws it where it is to be drawn. */
static mha_status check_case(const mha_case *c, mha_path path, const char *stage, int threads, mha__picture *picture,
                             mha_verdict *verdict, mha_error *error)
{
    const mha__picture_choice choice = {.path = path, .threads = threads};
    return picture ? mha__picture_check(picture, c, &choice, stage, verdict, error)
                   : mha_case_check(c, path, stage, threads, verdict, error);
}

/* Writes the picture of --picture with what is said of the case; NULL: none is asked for. */
static int write_picture(mha__picture *picture, const checked_case *c, const arguments *args)
{
    const mha_verdict *v = &c->verdict;
    if (!picture || c->open_error.status != MHA_OK)
        return EXIT_DONE;
    const char *note = text_of("%s%s%s", mha_outcome_name(v->outcome), *v->reason ? ": " : "", v->reason);
    picture->title = text_of("%s, checked", c->name);
    return picture->sheet_count ? picture_file_write(picture, note, args)
                                : refuse("--picture", "expected tensors to draw, found none: %s", note);
}

enum { FEW = 8 }; /* cases that need no line of progress */

/* The cases to be checked and the next one to take; shared by the threads. */
typedef struct case_queue {
    const case_list *list;
    checked_case *cases;
    mha_path path;
    const char *stage;
    int threads;
    size_t sample;
    mha__picture *picture; /* of the only case; NULL without --picture */
    pthread_mutex_t lock;
    size_t next, done;
    mha_error error; /* the first error in the request itself, which applies to every case */
} case_queue;

/* Notes how many query rows were compared, and from how many the tolerance follows. */
static void count_rows(const mha_case *of, checked_case *c)
{
    c->rows_checked = mha_case_rows(of, c->verdict.path, &c->rows);
    c->rows_exact = mha_case_rows(of, MHA_PATH_EXACT, &c->rows);
}

static void check(case_queue *queue, const char *path, checked_case *c, mha_error *error)
{
    mha_case *opened = NULL;
    c->path = path;
    c->open_error.status = mha_case_open(path, NULL, &opened, &c->open_error);
    if (c->open_error.status == MHA_OK) {
        c->name = text_of("%s", mha_case_name(opened));
        mha_case_sample(opened, queue->sample);
        error->status =
            check_case(opened, queue->path, queue->stage, queue->threads, queue->picture, &c->verdict, error);
        count_rows(opened, c);
    } else {
        const char *slash = strrchr(path, '/');
        c->name = text_of("%s", slash ? slash + 1 : path);
        c->verdict.outcome = MHA_OUTCOME_FAILED;
        c->verdict.path = queue->path;
        c->obstacle = file_error_text(path, &c->open_error);
    }
    mha_case_close(opened);
}

static void *work(void *context)
{
    case_queue *queue = context;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        size_t mine = queue->error.status == MHA_OK ? queue->next++ : queue->list->n;
        pthread_mutex_unlock(&queue->lock);
        if (mine >= queue->list->n)
            return NULL;
        mha_error error = {0};
        check(queue, queue->list->paths[mine], &queue->cases[mine], &error);
        pthread_mutex_lock(&queue->lock);
        queue->done++;
        if (error.status != MHA_OK && queue->error.status == MHA_OK)
            queue->error = error;
        progress_show(queue->done, queue->list->n);
        pthread_mutex_unlock(&queue->lock);
    }
}

/* Checks all cases on up to `jobs` threads, this thread included; on fewer when the system refuses to start more. */
static void check_all(case_queue *queue, size_t jobs)
{
    pthread_t *helpers = keep(obtain(jobs, sizeof *helpers));
    size_t n = 0;
    while (n + 1 < jobs && n + 1 < queue->list->n && pthread_create(&helpers[n], NULL, work, queue) == 0)
        n++;
    work(queue);
    while (n > 0)
        pthread_join(helpers[--n], NULL);
    progress_end();
}

static int show(const checked_case *cases, size_t n, const arguments *args)
{
    size_t count[3] = {0};
    for (size_t i = 0; i < n; i++)
        count[cases[i].verdict.outcome]++;
    if (n == 1 && cases[0].open_error.status != MHA_OK)
        return refuse_error(cases[0].path, &cases[0].open_error);
    json_t *root = keep_json(verdicts_report(cases, n, count));
    if (report_is_text(args, root))
        verdicts_print(root, cases, n, count);
    return count[MHA_OUTCOME_FAILED] ? EXIT_NO : count[MHA_OUTCOME_SKIPPED] ? EXIT_UNCHECKED : EXIT_DONE;
}

/* Checks case files, and directories of case files. */
static int check_files(const arguments *args)
{
    case_list list = {0};
    TRY(case_list_read(&list, args));
    if (given(args, OPT_PICTURE) && list.n > 1)
        return refuse_option(OPT_PICTURE, "expected one case, found %zu", list.n);
    size_t jobs = count_of(args, OPT_JOBS);
    case_queue queue = {.list = &list,
                        .cases = keep(obtain(list.n, sizeof *queue.cases)),
                        .stage = text_for(args, OPT_STAGE),
                        .threads = jobs > 1 && !given(args, OPT_THREADS) ? 1 : (int)count_of(args, OPT_THREADS),
                        .sample = count_of(args, OPT_SAMPLE),
                        .picture = given(args, OPT_PICTURE) ? keep(obtain(1, sizeof *queue.picture)) : NULL,
                        .lock = PTHREAD_MUTEX_INITIALIZER};
    mha_path_find(text_for(args, OPT_PATH), &queue.path);
    if (list.n > FEW)
        progress_begin(args, "cases");
    check_all(&queue, jobs);
    if (queue.error.status != MHA_OK)
        return refuse_field("", &queue.error);
    TRY(write_picture(queue.picture, queue.cases, args));
    return show(queue.cases, list.n, args);
}

/* Checks --expected with weights and inputs. */
static int check_expected(const arguments *args)
{
    request *r = keep(obtain(1, sizeof *r));
    mha_case **c = keep(obtain(1, sizeof *c));
    mha_error error = {0};
    mha_path path = MHA_PATH_AUTO;
    mha__picture *picture = given(args, OPT_PICTURE) ? keep(obtain(1, sizeof *picture)) : NULL;
    checked_case *one = keep(obtain(1, sizeof *one));
    mha_path_find(text_for(args, OPT_PATH), &path);
    TRY(recorded_open(r, args, c));
    mha_case_sample(*c, count_of(args, OPT_SAMPLE));
    if (check_case(*c, path, NULL, (int)count_of(args, OPT_THREADS), picture, &one->verdict, &error) != MHA_OK)
        return refuse_field("--expected", &error);
    one->name = mha_case_name(*c);
    count_rows(*c, one);
    TRY(write_picture(picture, one, args));
    return show(one, 1, args);
}

int run_check(const arguments *args)
{
    TRY(recorded_check(args));
    TRY(picture_file_check(args, OPT_PICTURE));
    return given(args, OPT_EXPECTED) ? check_expected(args) : check_files(args);
}
