/* oneDNN as a contender of bench/peers.py: a list of its primitives (matmul, softmax, reorder) on the caller's arrays,
 * made ready once, then run in order. Written for the interface of version 2, Debian 12's. */
#include <dnnl.hpp>

#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "onednn.h"

using namespace dnnl;
using dims = memory::dims;

namespace {

struct step {
    primitive run;
    std::unordered_map<int, memory> arguments;
};

struct program {
    engine cpu{engine::kind::cpu, 0};
    stream queue{cpu};
    memory::data_type type; /* of all arrays */
    std::vector<step> steps;
    std::string kernels; /* which implementation each step took */
};

memory::desc plain(const program &p, int rank, const int64_t *shape, const int64_t *strides)
{
    return memory::desc(dims(shape, shape + rank), p.type, dims(strides, strides + rank));
}

} // namespace

std::string complaint;

EXPORT const char *onednn_error() { return complaint.c_str(); }

EXPORT int onednn_version(int which)
{
    const version_t *v = dnnl::version();
    return which == 0 ? v->major : which == 1 ? v->minor : v->patch;
}

/* A program on arrays of float, or of bfloat16. */
EXPORT void *onednn_create(int bf16)
{
    program *p = new program;
    p->type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    return p;
}

EXPORT void onednn_destroy(void *p) { delete static_cast<program *>(p); }
EXPORT const char *onednn_kernels(void *p) { return static_cast<program *>(p)->kernels.c_str(); }

/* C = scale * A B (+ bias row) (+ mask, broadcast). B without strides is contiguous and packed the way the
 * primitive likes best. bias (N) and mask (.., M, N) may be NULL. */
EXPORT int onednn_matmul(void *opened, int rank, const int64_t *a_shape, const int64_t *a_strides, void *a,
                         const int64_t *b_shape, const int64_t *b_strides, void *b, const int64_t *c_shape,
                         const int64_t *c_strides, void *c, void *bias, float scale, const int64_t *mask_shape,
                         const int64_t *mask_strides, void *mask)
{
    return guarded([&] {
        program &p = *static_cast<program *>(opened);
        memory::desc A = plain(p, rank, a_shape, a_strides), C = plain(p, rank, c_shape, c_strides), none;
        memory::desc any(dims(b_shape, b_shape + rank), p.type, memory::format_tag::any);
        memory::desc B = b_strides ? plain(p, rank, b_shape, b_strides) : any, row;
        primitive_attr attributes;
        if (scale != 1.0f)
            attributes.set_output_scales(0, {scale});
        step s;
        if (mask) {
            memory::desc M = plain(p, rank, mask_shape, mask_strides);
            post_ops after;
            after.append_binary(algorithm::binary_add, M);
            attributes.set_post_ops(after);
            s.arguments.insert({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, memory(M, p.cpu, mask)});
        }
        if (bias) {
            dims shape(rank, 1), strides(rank, c_shape[rank - 1]);
            shape[rank - 1] = c_shape[rank - 1];
            strides[rank - 1] = 1;
            row = memory::desc(shape, p.type, strides);
            s.arguments.insert({DNNL_ARG_BIAS, memory(row, p.cpu, bias)});
        }
        auto wanted = bias ? matmul::desc(A, B, row, C) : matmul::desc(A, B, C);
        matmul::primitive_desc made(wanted, attributes, p.cpu);
        p.kernels += std::string(p.kernels.empty() ? "" : ", ") + "matmul " + made.impl_info_str();
        if (b_strides) {
            s.arguments.insert({DNNL_ARG_WEIGHTS, memory(B, p.cpu, b)});
        } else {
            dims strides(rank, 1);
            for (int i = rank - 2; i >= 0; i--)
                strides[i] = strides[i + 1] * b_shape[i + 1];
            memory given(plain(p, rank, b_shape, strides.data()), p.cpu, b), packed(made.weights_desc(), p.cpu);
            reorder(given, packed).execute(p.queue, given, packed);
            p.queue.wait();
            s.arguments.insert({DNNL_ARG_WEIGHTS, packed});
        }
        s.arguments.insert({DNNL_ARG_SRC, memory(A, p.cpu, a)});
        s.arguments.insert({DNNL_ARG_DST, memory(C, p.cpu, c)});
        s.run = matmul(made);
        p.steps.push_back(s);
    });
}

/* In place, over the last extent; contiguous. */
EXPORT int onednn_softmax(void *opened, int rank, const int64_t *shape, const int64_t *strides, void *x)
{
    return guarded([&] {
        program &p = *static_cast<program *>(opened);
        memory::desc X = plain(p, rank, shape, strides);
        softmax_forward::primitive_desc made(softmax_forward::desc(prop_kind::forward_inference, X, rank - 1), p.cpu);
        p.kernels += std::string(", softmax ") + made.impl_info_str();
        memory data(X, p.cpu, x);
        p.steps.push_back({softmax_forward(made), {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}});
    });
}

EXPORT int onednn_copy(void *opened, int rank, const int64_t *shape, const int64_t *from_strides, void *from,
                       const int64_t *to_strides, void *to)
{
    return guarded([&] {
        program &p = *static_cast<program *>(opened);
        memory source(plain(p, rank, shape, from_strides), p.cpu, from),
            target(plain(p, rank, shape, to_strides), p.cpu, to);
        p.steps.push_back({reorder(source, target), {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}}});
    });
}

EXPORT int onednn_run(void *opened)
{
    return guarded([&] {
        program &p = *static_cast<program *>(opened);
        for (const step &s : p.steps)
            s.run.execute(p.queue, s.arguments);
        p.queue.wait();
    });
}
