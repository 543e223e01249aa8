/* oneDNN's product of 8 bits as a contender of bench/quantised_peers.py: weights are signed bytes with a scale for each
 * output, packed once; each row of x is rounded to bytes behind a scale of its own whenever it is multiplied. Signed
 * bytes of x would be slower, a post-op for the scales of rows much slower (without AVX-512). */
#include <dnnl.hpp>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "onednn.h"

using namespace dnnl;
using type = memory::data_type;
using tag = memory::format_tag;

namespace {

struct product {
    engine cpu{engine::kind::cpu, 0};
    stream queue{cpu};
    int64_t rows, inputs, outputs;
    int most;                   /* the largest code, above a zero that is one more than it */
    std::vector<uint8_t> codes; /* of x */
    std::vector<float> scales;  /* of its rows */
    std::vector<float> zeros;   /* what the zero of x adds to each output, before the scale of the row */
    memory source, weights;
    matmul run;
};

/* code = zero + x / scale, rounded to nearest, with scale = max |x| / most. */
void round_rows(product &p, const float *x)
{
    for (int64_t i = 0; i < p.rows; i++) {
        const float *row = x + i * p.inputs;
        uint8_t *code = p.codes.data() + i * p.inputs;
        float largest = 0;
        for (int64_t j = 0; j < p.inputs; j++)
            largest = std::max(largest, std::fabs(row[j]));
        const float up = largest > 0 ? p.most / largest : 0;
        const int zero = p.most + 1;
        p.scales[i] = largest / p.most;
        for (int64_t j = 0; j < p.inputs; j++)
            code[j] = static_cast<uint8_t>(zero + static_cast<int>(std::nearbyint(row[j] * up)));
    }
}

void multiply(product &p, float *y)
{
    const memory target({{p.rows, p.outputs}, type::f32, tag::ab}, p.cpu, y);
    p.run.execute(p.queue, {{DNNL_ARG_SRC, p.source}, {DNNL_ARG_WEIGHTS, p.weights}, {DNNL_ARG_DST, target}});
    p.queue.wait();
    for (int64_t i = 0; i < p.rows; i++)
        for (int64_t j = 0; j < p.outputs; j++)
            y[i * p.outputs + j] = p.scales[i] * (y[i * p.outputs + j] - p.zeros[j]);
}

/* The best of some. */
double seconds(product &p, float *y)
{
    double best = std::numeric_limits<double>::max();
    for (int i = 0; i < 5; i++) {
        const auto start = std::chrono::steady_clock::now();
        multiply(p, y);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

/* Weights in the order that oneDNN likes best, and in the order in which they are given: on some machines the second is
 * the faster one. */
void make(product &p, int8_t *codes, const float *scales)
{
    const memory::dims shape{p.inputs, p.outputs};
    const memory::desc x({p.rows, p.inputs}, type::u8, tag::ab), given(shape, type::s8, tag::ba),
        y({p.rows, p.outputs}, type::f32, tag::ab);
    primitive_attr attributes;
    attributes.set_output_scales(1 << 1, std::vector<float>(scales, scales + p.outputs));
    for (int64_t j = 0; j < p.outputs; j++) {
        const int8_t *of_one = codes + j * p.inputs;
        p.zeros.push_back(scales[j] * (p.most + 1) * std::accumulate(of_one, of_one + p.inputs, 0));
    }
    std::vector<float> unused(p.rows * p.outputs);
    double best = std::numeric_limits<double>::max();
    memory plain(given, p.cpu, codes), weights;
    matmul run;
    for (const tag order : {tag::ba, tag::any}) {
        const matmul::primitive_desc made(matmul::desc(x, {shape, type::s8, order}, y), attributes, p.cpu);
        p.weights = memory(made.weights_desc(), p.cpu);
        reorder(plain, p.weights).execute(p.queue, plain, p.weights);
        p.queue.wait();
        p.source = memory(x, p.cpu, p.codes.data());
        p.run = matmul(made);
        const double time = seconds(p, unused.data());
        if (time < best)
            best = time, run = p.run, weights = p.weights;
    }
    p.run = run, p.weights = weights;
}

} // namespace

EXPORT void onednn_int8_destroy(void *opened) { delete static_cast<product *>(opened); }
EXPORT void onednn_threads(int threads) { omp_set_num_threads(threads); }

/* Products of `rows` rows, rounded to `bits` bits, with codes (outputs, inputs), whose scales are one for each output.
 * NULL with `complaint` set where oneDNN cannot do that. */
EXPORT void *onednn_int8_create(int64_t rows, int64_t inputs, int64_t outputs, int bits, int8_t *codes,
                                const float *scales)
{
    product *p = new product;
    const int failed = guarded([&] {
        p->rows = rows, p->inputs = inputs, p->outputs = outputs, p->most = (1 << (bits - 1)) - 1;
        p->codes.resize(rows * inputs), p->scales.resize(rows);
        make(*p, codes, scales);
    });
    if (!failed)
        return p;
    delete p;
    return nullptr;
}

/* y (rows, outputs) = x W. */
EXPORT int onednn_int8_run(void *opened, const float *x, float *y)
{
    return guarded([&] {
        product &p = *static_cast<product *>(opened);
        round_rows(p, x);
        multiply(p, y);
    });
}
