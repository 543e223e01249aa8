/* Reads a page of --picture back: its data, inflated, and the arrays in it. */
#ifndef TEST_PAGE_DATA_H
#define TEST_PAGE_DATA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct page_data {
    char *text;   /* of the whole file */
    json_t *json; /* the description */
    unsigned char *bytes; /* inflated */
    size_t count;
} page_data;

/* The page must be there and hold data; else the test fails. */
page_data page_data_read(const char *path);
void page_data_free(page_data *page);

/* A head's object in the description. */
json_t *page_data_head(const page_data *page, size_t layer, size_t head);
/* Element `index` of an array that an object names by `key`; a level is decoded as page/data.js does. */
double page_data_number(const page_data *page, const json_t *object, const char *key, size_t index);
/* The number of elements; 0 when there is no such array. */
size_t page_data_count(const page_data *page, const json_t *object, const char *key);

#endif
