/* A kernel in plain C that answers one question of `mha conform --write`: attention QUESTION.safetensors ANSWER.npy.
 * It has causal masks, grouped heads, other numbers of keys, values of another width; numbers are float32. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor (B, T, h, d) in float32, the last axis the fastest. */
typedef struct tensor {
    size_t B, T, h, d;
    float *x;
} tensor;

/* The tensor of a file: 8 bytes with the size of its header, the header in JSON, the numbers. */
static tensor read_tensor(FILE *file, const char *header, size_t size, const char *name)
{
    char key[40];
    size_t from, to;
    tensor t = {0};
    snprintf(key, sizeof key, "\"%s\":{\"dtype\":\"F32\"", name);
    const char *at = strstr(header, key);
    if (!at || sscanf(at + strlen(key), ",\"shape\":[%zu,%zu,%zu,%zu],\"data_offsets\":[%zu,%zu]", &t.B, &t.T, &t.h,
                      &t.d, &from, &to) != 6)
        return t;
    t.x = malloc(to - from);
    if (!t.x || fseek(file, (long)(8 + size + from), SEEK_SET) != 0 || fread(t.x, 1, to - from, file) != to - from)
        t.d = 0;
    return t;
}

static float *row(const tensor *t, size_t b, size_t i, size_t head)
{
    return t->x + ((b * t->T + i) * t->h + head) * t->d;
}

/* One row of the output: softmax(q k / sqrt(d)) v over the keys that query i sees. */
static void attend(const tensor *q, const tensor *k, const tensor *v, const tensor *o, int causal, size_t b, size_t i,
                   size_t head, float *score)
{
    const size_t shared = head / (q->h / k->h), keys = causal && i + 1 < k->T ? i + 1 : k->T;
    float most = -INFINITY, sum = 0, *to = row(o, b, i, head);
    memset(to, 0, o->d * sizeof *to);
    for (size_t j = 0; j < keys; j++) {
        float dot = 0;
        for (size_t c = 0; c < q->d; c++)
            dot += row(q, b, i, head)[c] * row(k, b, j, shared)[c];
        score[j] = dot / sqrtf((float)q->d);
        most = fmaxf(most, score[j]);
    }
    for (size_t j = 0; j < keys; j++) {
        const float weight = expf(score[j] - most);
        sum += weight;
        for (size_t c = 0; c < o->d; c++)
            to[c] += weight * row(v, b, j, shared)[c];
    }
    for (size_t c = 0; c < o->d; c++)
        to[c] /= sum;
}

/* NumPy's format: a magic number, the size of a header that fills 128 bytes, the numbers. */
static int write_npy(const char *path, const tensor *t)
{
    char header[129], dict[118];
    FILE *file = fopen(path, "wb");
    const size_t count = t->B * t->T * t->h * t->d;
    snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu, %zu, %zu), }", t->B, t->T,
             t->h, t->d);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(header + 10, sizeof header - 10, "%-117s\n", dict);
    const int whole = file && fwrite(header, 1, 128, file) == 128 && fwrite(t->x, sizeof *t->x, count, file) == count;
    return file && fclose(file) == 0 && whole;
}

int main(int argc, char **argv)
{
    uint64_t size = 0;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&size, 8, 1, file) != 1 || size > 1 << 20)
        return 1;
    char *header = calloc(size + 1, 1);
    if (!header || fread(header, 1, size, file) != size)
        return 1;
    const tensor q = read_tensor(file, header, size, "query"), k = read_tensor(file, header, size, "key"),
                 v = read_tensor(file, header, size, "value");
    if (!q.d || !k.d || !v.d)
        return 1;
    const int causal = strstr(header, "\"causal\":\"1\"") != NULL;
    const tensor o = {q.B, q.T, q.h, v.d, malloc(q.B * q.T * q.h * v.d * sizeof(float))};
    float *score = malloc(k.T * sizeof *score);
    if (!o.x || !score)
        return 1;
    for (size_t b = 0; b < q.B; b++)
        for (size_t i = 0; i < q.T; i++)
            for (size_t head = 0; head < q.h; head++)
                attend(&q, &k, &v, &o, causal, b, i, head, score);
    return !write_npy(argv[2], &o);
}
