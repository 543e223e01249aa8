/* What the wheel has instead of newer or other runtimes: hypot as every C library has it, a // b of Fortran. */
#include <stddef.h>

/* The linker takes this for hypot (--wrap). That of glibc 2.35 computes the same; only the error it reports of an
 * overflow, which nothing here reads, is another. */
#if defined __x86_64__
__asm__(".symver older_hypot, hypot@GLIBC_2.2.5");
#elif defined __aarch64__
__asm__(".symver older_hypot, hypot@GLIBC_2.17");
#endif
double older_hypot(double x, double y);
double __wrap_hypot(double x, double y);
double __wrap_hypot(double x, double y)
{
    return older_hypot(x, y);
}

/* The one function of Fortran's runtime that LAPACK's singular values call. */
void _gfortran_concat_string(size_t length, char *to, size_t a_length, const char *a, size_t b_length, const char *b);
void _gfortran_concat_string(size_t length, char *to, size_t a_length, const char *a, size_t b_length, const char *b)
{
    for (size_t i = 0; i < length; i++)
        to[i] = i < a_length ? a[i] : i - a_length < b_length ? b[i - a_length] : ' ';
}
