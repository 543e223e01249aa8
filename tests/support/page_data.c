/* Reads a page of --picture back: its data, inflated, and the arrays in it. */
#include "support/page_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "support/scratch.h"
#include "support/unit.h"

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes base64 until the markup goes on; returns the number of bytes. */
static size_t decode(const char *text, unsigned char *to)
{
    size_t count = 0, bits = 0;
    unsigned held = 0;
    for (; *text != '<'; text++) {
        const int digit = digit_of(*text);
        if (digit < 0) {
            assert_true(*text == '\n' || *text == '=');
            continue;
        }
        held = held << 6 | (unsigned)digit;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            to[count++] = (unsigned char)(held >> bits);
        }
    }
    return count;
}

static void inflate_into(page_data *page, unsigned char *packed, size_t count)
{
    size_t room = (size_t)1 << 16;
    z_stream z = {.next_in = packed, .avail_in = (uInt)count};
    assert_int_equal(inflateInit(&z), Z_OK);
    int end = Z_OK;
    while (end == Z_OK) {
        page->bytes = realloc(page->bytes, room *= 2);
        assert_non_null(page->bytes);
        z.next_out = page->bytes + z.total_out;
        z.avail_out = (uInt)(room - z.total_out);
        end = inflate(&z, Z_NO_FLUSH);
    }
    assert_int_equal(end, Z_STREAM_END);
    assert_int_equal(z.avail_in, 0);
    page->count = z.total_out;
    inflateEnd(&z);
}

static size_t length_of_json(const page_data *page)
{
    size_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | page->bytes[i];
    return length;
}

page_data page_data_read(const char *path)
{
    static const char before[] = "id=\"data\">\n";
    page_data page = {0};
    size_t count;
    unsigned char *file = scratch_read(path, &count);
    page.text = realloc(file, count + 1);
    assert_non_null(page.text);
    page.text[count] = '\0';
    const char *start = strstr(page.text, before);
    assert_non_null(start);
    unsigned char *packed = malloc(count);
    assert_non_null(packed);
    inflate_into(&page, packed, decode(start + sizeof before - 1, packed));
    free(packed);
    json_error_t why;
    page.json = json_loadb((const char *)page.bytes + 8, length_of_json(&page), 0, &why);
    if (!page.json)
        fail_msg("%s: %s", path, why.text);
    return page;
}

void page_data_free(page_data *page)
{
    json_decref(page->json);
    free(page->text);
    free(page->bytes);
}

json_t *page_data_head(const page_data *page, size_t layer, size_t head)
{
    json_t *l = json_array_get(json_object_get(page->json, "layers"), layer);
    json_t *h = json_array_get(json_object_get(l, "heads"), head);
    assert_non_null(h);
    return h;
}

static const char *type_of(const page_data *page, size_t piece)
{
    json_t *row = json_array_get(json_object_get(page->json, "pieces"), piece);
    return json_string_value(json_array_get(row, 0));
}

static size_t elements_of(const page_data *page, size_t piece)
{
    json_t *row = json_array_get(json_object_get(page->json, "pieces"), piece);
    return (size_t)json_integer_value(json_array_get(row, 1));
}

static size_t width_of(const char *type)
{
    return strcmp(type, "f64") == 0 ? 8 : strcmp(type, "f32") == 0 || strcmp(type, "u32") == 0 ? 4 : 1;
}

static json_int_t piece_of(const json_t *object, const char *key)
{
    json_t *piece = json_object_get(object, key);
    assert_non_null(piece);
    return json_integer_value(piece);
}

size_t page_data_count(const page_data *page, const json_t *object, const char *key)
{
    const json_int_t piece = piece_of(object, key);
    return piece < 0 ? 0 : elements_of(page, (size_t)piece);
}

double page_data_number(const page_data *page, const json_t *object, const char *key, size_t index)
{
    const size_t piece = (size_t)piece_of(object, key);
    size_t at = 8 + length_of_json(page);
    for (size_t p = 0; p < piece; p++)
        at += (elements_of(page, p) * width_of(type_of(page, p)) + 7) / 8 * 8;
    const char *type = type_of(page, piece);
    at += index * width_of(type);
    assert_true(index < elements_of(page, piece) && at + width_of(type) <= page->count);
    double wide;
    float narrow;
    uint32_t whole;
    if (strcmp(type, "f64") == 0)
        return memcpy(&wide, page->bytes + at, sizeof wide), wide;
    if (strcmp(type, "f32") == 0)
        return memcpy(&narrow, page->bytes + at, sizeof narrow), narrow;
    if (strcmp(type, "u32") == 0)
        return memcpy(&whole, page->bytes + at, sizeof whole), whole;
    const unsigned level = page->bytes[at];
    if (strcmp(type, "bytes") == 0)
        return level;
    return level == 255 ? -INFINITY : level == 254 ? NAN : level == 0 ? 0 : pow(10, 6 * ((level - 1.0) / 252 - 1));
}
