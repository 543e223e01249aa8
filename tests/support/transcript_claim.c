/* Claims about a JSON object, as transcripts make them. */
#include "support/transcript.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

enum { CLAIM = 4000 };
static const char AND[] = " and ";

/* The first element with a text, or a number, of this name. */
static const json_t *element_with(const json_t *array, const char *name, const char *value)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *found = json_object_get(json_array_get(array, i), name);
        if (json_is_string(found) ? strcmp(json_string_value(found), value) == 0
                                  : json_is_number(found) && json_number_value(found) == atof(value))
            return json_array_get(array, i);
    }
    return NULL;
}

/* The value at a path; *at moves past it. NULL: there is none. */
static const json_t *value_at(const json_t *root, const char **at)
{
    while (**at == '.' || **at == '[') {
        char key[200];
        const size_t length = strcspn(*at + 1, **at == '.' ? ".[ )" : "]");
        snprintf(key, sizeof key, "%.*s", (int)length, *at + 1);
        char *equals = strchr(key, '=');
        if (**at == '.')
            root = *key ? json_object_get(root, key) : root;
        else if (equals) {
            *equals = '\0';
            root = element_with(root, key, equals + 1);
        } else
            root = json_array_get(root, strtoul(key, NULL, 10));
        *at += 1 + length + ((*at)[1 + length] == ']');
    }
    return root;
}

/* ---------------------------------------------------------------- arithmetic */

/* Where a sum is read; NAN: it has something that is no number. */
typedef struct reading {
    const json_t *root;
    const char *at;
} reading;

static double read_sum(reading *r);

static double read_total(reading *r)
{
    double sum = 0;
    r->at += sizeof "sum(" - 1;
    const json_t *array = value_at(r->root, &r->at);
    const char *path = r->at += strspn(r->at, " "), *at = path;
    for (size_t i = 0; i < json_array_size(array); i++) {
        at = path;
        const json_t *one = value_at(json_array_get(array, i), &at);
        sum += json_is_number(one) ? json_number_value(one) : json_is_null(one) ? 0 : NAN;
    }
    r->at = at + strcspn(at, ")");
    r->at += *r->at == ')';
    return json_is_array(array) ? sum : NAN;
}

static double read_atom(reading *r)
{
    r->at += strspn(r->at, " ");
    if (strncmp(r->at, "sum(", 4) == 0)
        return read_total(r);
    if (*r->at == '(') {
        r->at++;
        const double inside = read_sum(r);
        r->at += strcspn(r->at, ")");
        r->at += *r->at == ')';
        return inside;
    }
    if (*r->at == '.') {
        const json_t *value = value_at(r->root, &r->at);
        return json_is_number(value) ? json_number_value(value) : NAN;
    }
    char *end;
    const double number = strtod(r->at, &end);
    if (end == r->at)
        return NAN;
    r->at = end;
    return number;
}

static double read_product(reading *r)
{
    double product = read_atom(r);
    for (r->at += strspn(r->at, " "); *r->at == '*' || *r->at == '/'; r->at += strspn(r->at, " ")) {
        const char sign = *r->at++;
        const double factor = read_atom(r);
        product = sign == '*' ? product * factor : product / factor;
    }
    return product;
}

static double read_sum(reading *r)
{
    double sum = read_product(r);
    for (r->at += strspn(r->at, " "); *r->at == '+' || *r->at == '-'; r->at += strspn(r->at, " ")) {
        const char sign = *r->at++;
        const double term = read_product(r);
        sum += sign == '+' ? term : -term;
    }
    return sum;
}

/* Whether all of a text, but blanks, is one path. */
static bool is_path(const json_t *root, const char *text)
{
    const char *at = text;
    value_at(root, &at);
    return *text == '.' && at[strspn(at, " ")] == '\0';
}

/* A side of a claim: what is at a path, in this object or in that of a file, a JSON value, or a sum. NULL: none. */
static json_t *side(const json_t *root, const char *text)
{
    if (*text == '/') {
        char path[CLAIM];
        const size_t length = strcspn(text, " ");
        snprintf(path, sizeof path, "%.*s", (int)length, text);
        json_t *other = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
        json_t *value = other ? side(other, text + length + strspn(text + length, " ")) : NULL;
        json_decref(other);
        return value;
    }
    if (is_path(root, text))
        return json_deep_copy(value_at(root, &text));
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (value)
        return value;
    reading r = {root, text};
    const double number = read_sum(&r);
    return isnan(number) || r.at[strspn(r.at, " ")] != '\0' ? NULL : json_real(number);
}

/* ---------------------------------------------------------------- relations */

static bool same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

static bool holds(const json_t *value, const json_t *part)
{
    if (same(value, part))
        return true;
    if (json_is_string(value) && json_is_string(part))
        return strstr(json_string_value(value), json_string_value(part)) != NULL;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        if (json_is_string(one) ? same(one, part) : holds(one, part)) /* one text of several: all of it */
            return true;
    }
    const char *key;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
        if (json_is_string(one) ? same(one, part) : holds(one, part))
            return true;
    return false;
}

static bool relates(const json_t *value, const char *relation, const json_t *with, double within)
{
    const bool numbers = json_is_number(value) && json_is_number(with);
    const double a = json_number_value(value), b = json_number_value(with);
    if (strcmp(relation, "==") == 0)
        return same(value, with);
    if (strcmp(relation, "!=") == 0)
        return !same(value, with);
    if (strcmp(relation, "holds") == 0)
        return holds(value, with);
    if (strcmp(relation, "lacks") == 0)
        return !holds(value, with);
    if (strcmp(relation, "~") == 0)
        return numbers && fabs(a - b) <= within * fabs(b);
    return numbers && (strcmp(relation, "<") == 0    ? a < b
                       : strcmp(relation, "<=") == 0 ? a <= b
                       : strcmp(relation, ">") == 0  ? a > b
                                                     : strcmp(relation, ">=") == 0 && a >= b);
}

/* The claim for each element of the array before the first "[*]". */
static bool each_holds(const json_t *root, const char *claim, const char *star, char why[200])
{
    const char *at = claim;
    char path[CLAIM];
    snprintf(path, sizeof path, "%.*s", (int)(star - claim), claim);
    at = path + strcspn(path, ".");
    const size_t count = json_array_size(value_at(root, &at));
    snprintf(why, 200, "there is no element");
    for (size_t i = 0; i < count; i++) {
        char one[CLAIM];
        size_t n = 0;
        for (at = claim; *at; )
            if (strncmp(at, "[*]", 3) == 0) {
                n += (size_t)snprintf(one + n, sizeof one - n, "[%zu]", i);
                at += 3;
            } else
                one[n++] = *at++;
        one[n] = '\0';
        if (!transcript_claim(root, one, why))
            return false;
    }
    return count > 0;
}

/* The claim after the first "and" outside of quotes; NULL: there is one claim only. */
static const char *second_claim(const char *claim)
{
    bool quoted = false;
    for (const char *at = claim; *at; at++) {
        quoted ^= *at == '"' && (at == claim || at[-1] != '\\');
        if (!quoted && strncmp(at, AND, strlen(AND)) == 0)
            return at + strlen(AND);
    }
    return NULL;
}

int transcript_claim(const json_t *root, const char *claim, char why[200])
{
    const char *second = second_claim(claim);
    if (second) {
        char first[CLAIM];
        snprintf(first, sizeof first, "%.*s", (int)(second - claim - strlen(AND)), claim);
        return transcript_claim(root, first, why) && transcript_claim(root, second, why);
    }
    static const char *const relations[] = {" == ", " != ", " < ",     " <= ",   " > ",   " >= ",
                                            " ~ ",  " size ", " has ", " holds ", " lacks "};
    char left[CLAIM], right[CLAIM], relation[10] = "";
    double within = 1e-6;
    const char *star = strstr(claim, "[*]"), *found = NULL;
    if (star)
        return each_holds(root, claim, star, why);
    for (size_t i = 0; i < sizeof relations / sizeof *relations && !found; i++)
        if ((found = strstr(claim, relations[i])) != NULL)
            sscanf(relations[i], "%9s", relation);
    if (!found)
        fail_msg("\"%s\": expected a path, a relation and a value", claim);
    snprintf(left, sizeof left, "%.*s", (int)(found - claim), claim);
    snprintf(right, sizeof right, "%s", found + strlen(relation) + 2);
    char *range = strcmp(relation, "~") == 0 ? strstr(right, " within ") : NULL;
    if (range) {
        within = strtod(range + sizeof " within", NULL);
        *range = '\0';
    }
    json_t *value = side(root, left), *with = NULL;
    bool so = false;
    if (value && strcmp(relation, "has") == 0) {
        so = true;
        for (char *key = strtok(right, ","); key; key = strtok(NULL, ","))
            so &= json_object_get(value, key) != NULL;
    } else if (value && (with = side(root, right)) != NULL)
        so = strcmp(relation, "size") == 0
                 ? (double)(json_object_size(value) + json_array_size(value)) == json_number_value(with)
                 : relates(value, relation, with, within);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL,
         *other = with ? json_dumps(with, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(why, 200, "%.90s, %.90s", text ? text : "there is no such value", other ? other : "no value");
    free(text);
    free(other);
    json_decref(value);
    json_decref(with);
    return so;
}
