/* A kernel in plain C that computes one test case of `mha conform --write`: attention CASE.safetensors
 * RESULT.safetensors. It has causal masks, grouped heads, other numbers of keys, values of another width, and a
 * backward; numbers are float32. */
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

static size_t count(const tensor *t)
{
    return t->B * t->T * t->h * t->d;
}

/* Zeros. */
static tensor zeros(size_t B, size_t T, size_t h, size_t d)
{
    const tensor t = {B, T, h, d, calloc(B * T * h * d, sizeof(float))};
    if (!t.x)
        exit(1);
    return t;
}

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
    t = zeros(t.B, t.T, t.h, t.d);
    if (fseek(file, (long)(8 + size + from), SEEK_SET) != 0 || fread(t.x, 1, to - from, file) != to - from)
        exit(1);
    return t;
}

static float *row(const tensor *t, size_t b, size_t i, size_t head)
{
    return t->x + ((b * t->T + i) * t->h + head) * t->d;
}

static float dot(const float *x, const float *y, size_t d)
{
    float sum = 0;
    for (size_t c = 0; c < d; c++)
        sum += x[c] * y[c];
    return sum;
}

/* to += factor x */
static void add(float *to, float factor, const float *x, size_t d)
{
    for (size_t c = 0; c < d; c++)
        to[c] += factor * x[c];
}

/* One row of the output: softmax(q k / sqrt(d)) v over the keys that query i sees. Leaves the weights; how many. */
static size_t attend(const tensor *q, const tensor *k, const tensor *v, const tensor *o, int causal, size_t b, size_t i,
                     size_t head, float *weight)
{
    const size_t shared = head / (q->h / k->h), keys = causal && i + 1 < k->T ? i + 1 : k->T;
    float most = -INFINITY, sum = 0;
    for (size_t j = 0; j < keys; j++) {
        weight[j] = dot(row(q, b, i, head), row(k, b, j, shared), q->d) / sqrtf((float)q->d);
        most = fmaxf(most, weight[j]);
    }
    for (size_t j = 0; j < keys; j++)
        sum += weight[j] = expf(weight[j] - most);
    for (size_t j = 0; j < keys; j++)
        add(row(o, b, i, head), weight[j] /= sum, row(v, b, j, shared), o->d);
    return keys;
}

/* The gradients from that row: dV += P^T dO, dS = P (dO V^T - D), D = dO O, dQ = dS K, dK += dS^T Q. */
static void go_back(const tensor x[3], const tensor *o, const tensor *d_o, const tensor d[3], size_t b, size_t i,
                    size_t head, const float *weight, size_t keys)
{
    const tensor *q = &x[0], *k = &x[1], *v = &x[2];
    const size_t shared = head / (q->h / k->h);
    const float *in = row(d_o, b, i, head), taken = dot(in, row(o, b, i, head), o->d);
    for (size_t j = 0; j < keys; j++) {
        const float d_score = weight[j] * (dot(in, row(v, b, j, shared), v->d) - taken) / sqrtf((float)q->d);
        add(row(&d[0], b, i, head), d_score, row(k, b, j, shared), q->d);
        add(row(&d[1], b, j, shared), d_score, row(q, b, i, head), q->d);
        add(row(&d[2], b, j, shared), weight[j], in, v->d);
    }
}

/* Tensors by name, in the same format. */
static int write_tensors(const char *path, const char *const *names, const tensor *tensors, size_t n)
{
    char header[1024] = "{";
    size_t used = 1, from = 0;
    for (size_t i = 0; i < n; i++) {
        const tensor *t = &tensors[i];
        const size_t to = from + count(t) * sizeof(float);
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":"
                                 "[%zu,%zu,%zu,%zu],\"data_offsets\":[%zu,%zu]}%s",
                                 i ? "," : "", names[i], t->B, t->T, t->h, t->d, from, to, i + 1 < n ? "" : "}");
        from = to;
    }
    const uint64_t size = used;
    FILE *file = fopen(path, "wb");
    int whole = file && fwrite(&size, 8, 1, file) == 1 && fwrite(header, 1, used, file) == used;
    for (size_t i = 0; i < n && whole; i++)
        whole = fwrite(tensors[i].x, sizeof(float), count(&tensors[i]), file) == count(&tensors[i]);
    return file && fclose(file) == 0 && whole;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"output", "d_query", "d_key", "d_value"};
    uint64_t size = 0;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&size, 8, 1, file) != 1 || size > 1 << 20)
        return 1;
    char *header = calloc(size + 1, 1);
    if (!header || fread(header, 1, size, file) != size)
        return 1;
    const tensor x[] = {read_tensor(file, header, size, "query"), read_tensor(file, header, size, "key"),
                        read_tensor(file, header, size, "value")},
                 d_o =
                     read_tensor(file, header, size, "d_output"); /* without numbers where no gradients are asked for */
    if (!x[0].d || !x[1].d || !x[2].d)
        return 1;
    const int causal = strstr(header, "\"causal\":\"1\"") != NULL;
    const tensor y[] = {zeros(x[0].B, x[0].T, x[0].h, x[2].d), zeros(x[0].B, x[0].T, x[0].h, x[0].d),
                        zeros(x[1].B, x[1].T, x[1].h, x[1].d), zeros(x[2].B, x[2].T, x[2].h, x[2].d)},
                 weights = zeros(1, 1, 1, x[1].T);
    for (size_t b = 0; b < y->B; b++)
        for (size_t i = 0; i < y->T; i++)
            for (size_t head = 0; head < y->h; head++) {
                const size_t keys = attend(&x[0], &x[1], &x[2], y, causal, b, i, head, weights.x);
                if (d_o.d)
                    go_back(x, y, &d_o, y + 1, b, i, head, weights.x, keys);
            }
    return !write_tensors(argv[2], names, y, d_o.d ? 4 : 1);
}
