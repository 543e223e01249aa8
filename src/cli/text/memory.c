/* Memory of the program, kept until it ends or freed earlier; texts and values of JSON in it. */
#include "cli/text/print.h"

#include <math.h>
#include <pthread.h>

static const char *program = "mha";

void speak_as(const char *name)
{
    program = name;
}

const char *spoken_as(void)
{
    return program;
}

/* Large requests are compared with the free memory, because the system grants more than it has and later ends the
 * program that uses it. */
bool memory_allows(size_t bytes)
{
    const size_t large = (size_t)1 << 28;
    return bytes < large || bytes <= mha__memory_at_hand();
}

void *obtain_more(void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return items;
    *capacity = n ? 2 * n : 64;
    void *more = obtain(*capacity, size);
    if (n)
        memcpy(more, items, n * size);
    free(items);
    return more;
}

static _Noreturn void give_up(size_t count, size_t size)
{
    fprintf(stderr, "%s: no memory: expected %zu x %zu bytes, found none\n", program, count, size);
    exit(EXIT_MACHINE);
}

void *obtain(size_t count, size_t size)
{
    const bool fits = !size || (count <= SIZE_MAX / size && memory_allows(count * size));
    void *memory = fits ? calloc(count ? count : 1, size) : NULL;
    if (!memory)
        give_up(count, size);
    return memory;
}

mha_view obtain_view(mha__arena *arena, mha_dtype dtype, int rank, const size_t *shape)
{
    size_t bytes = SIZE_MAX;
    mha_view view = mha_view_of(NULL, dtype, rank, shape);
    const size_t elements = mha_view_elements(&view);
    if (!arena->allocator.allocate)
        arena->allocator = mha__allocator_default();
    if (elements == SIZE_MAX || mha_dtype_bytes(dtype, elements, &bytes, NULL) != MHA_OK || !memory_allows(bytes) ||
        !(view.data = mha__arena_take(arena, bytes)))
        give_up(elements, bytes / (elements ? elements : 1));
    return view;
}

/* ---------------------------------------------------------------- kept */

static struct {
    void **list;
    size_t count, room;
    pthread_mutex_t lock;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

void *keep(void *memory)
{
    pthread_mutex_lock(&kept.lock);
    kept.list = obtain_more(kept.list, kept.count, &kept.room, sizeof *kept.list);
    kept.list[kept.count++] = memory;
    pthread_mutex_unlock(&kept.lock);
    return memory;
}

size_t kept_count(void)
{
    return kept.count;
}

void drop_kept(size_t from)
{
    while (kept.count > from)
        free(kept.list[--kept.count]);
}

json_t *keep_json(json_t *root)
{
    static json_t *roots;
    if (!roots)
        roots = json_array();
    json_array_append_new(roots, root);
    return root;
}

char *text_of_list(const char *format, va_list values)
{
    va_list again;
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = obtain((size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, values);
    return text;
}

const char *text_of(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const char *text = keep(text_of_list(format, values));
    va_end(values);
    return text;
}

const char *harmless(const char *text)
{
    return mha__text_harmless(mha__unconst(text_of("%s", text)));
}

const char *shell_word(const char *word)
{
    static const char plain_ones[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=+-";
    if (*word && !word[strspn(word, plain_ones)])
        return word;
    const char *text = "'";
    for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1)
        text = text_more(text, "%.*s'\\''", (int)(quote - word), word);
    return text_more(text, "%s'", word);
}

/* ---------------------------------------------------------------- JSON */

static void *json_memory(size_t bytes)
{
    return obtain(bytes, 1);
}

void json_mind_memory(void)
{
    json_set_alloc_funcs(json_memory, free);
}

/* Values of a tree that represent NaN, infinity and minus infinity. */
static const char *const no_numbers[] = {"nan", "inf", "-inf"};
static json_t *no_number[sizeof no_numbers / sizeof *no_numbers];

const char *json_word_of(const json_t *value)
{
    for (size_t i = 0; value && i < sizeof no_numbers / sizeof *no_numbers; i++)
        if (value == no_number[i])
            return no_numbers[i];
    return NULL;
}

json_t *json_number(double x)
{
    if (isfinite(x))
        return json_real(x);
    const size_t which = isnan(x) ? 0 : x > 0 ? 1 : 2;
    if (!no_number[which])
        no_number[which] = json_string(no_numbers[which]);
    return json_incref(no_number[which]);
}

json_t *json_milliseconds(double ms)
{
    return json_number(round(ms * 1e6) / 1e6);
}

json_t *json_count(size_t n)
{
    return json_integer((json_int_t)n);
}

json_t *json_shape(int rank, const size_t *shape)
{
    json_t *list = json_array();
    for (int i = 0; i < rank; i++)
        json_array_append_new(list, json_count(shape[i]));
    return list;
}

json_t *json_text(const char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (value)
        return value;
    char *copy = mha__unconst(text_of("%s", text));
    for (char *c = copy; *c; c++)
        *c = (unsigned char)*c > 126 ? '?' : *c;
    return json_string(copy);
}

/* Removes from a tree all that JSON lacks: fields only for text go, NaN and infinities become null. */
static void strip(json_t *node)
{
    const char *name;
    void *next;
    size_t i;
    json_t *value;
    json_object_foreach_safe(node, next, name, value)
    {
        if (*name == '~')
            json_object_del(node, name);
        else if (json_word_of(value))
            json_object_set_new(node, name, json_null());
        else
            strip(value);
    }
    json_array_foreach(node, i, value)
    {
        if (json_word_of(value))
            json_array_set_new(node, i, json_null());
        else
            strip(value);
    }
}

void json_print(json_t *root)
{
    strip(root);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII);
    json_decref(root);
    puts(text);
    free(text);
}
