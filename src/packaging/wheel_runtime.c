/* The hypot of the wheel: the version that every C library has. */

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
