// Attention in a C++ program: 2 heads of 4 features, 3 tokens, each of which attends to itself and those before it.
#include <mha/mha.h>

#include <cstdio>
#include <vector>

int main()
{
    std::vector<float> q(3 * 2 * 4), out(q.size());
    for (size_t i = 0; i < q.size(); i++)
        q[i] = static_cast<float>(i % 5) - 2;
    mha_call call = {};
    call.query = call.key = call.value = mha_heads(q.data(), 1, 3, 2, 4); // (B, T, h, d)
    call.semantics.visible.causal = true;
    call.output = mha_rows(out.data(), 1, 3, 2 * 4);
    mha_error error;
    if (mha_run(nullptr, &call, &error) != MHA_OK) {
        std::fprintf(stderr, "%s: %s\n", error.name, error.message);
        return 1;
    }
    std::printf("%g %g\n", out.front(), out.back());
}
