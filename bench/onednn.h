/* Shared code of the oneDNN contenders: errors that leave C++ as a number, and the export macro. */
#ifndef BENCH_ONEDNN_H
#define BENCH_ONEDNN_H

#include <exception>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern std::string complaint; /* of the last call that gave 1 */

/* 0, or 1 with `complaint` set: nothing may be thrown through C. */
template <class F> int guarded(F work)
{
    try {
        work();
        return 0;
    } catch (const std::exception &e) {
        complaint = e.what();
    }
    return 1;
}

#endif
