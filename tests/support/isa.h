/* Every instruction set of this machine in turn, and back to the one the library chooses. */
#ifndef TEST_ISA_H
#define TEST_ISA_H

#include <stdbool.h>

/* The next statement runs once with each of them, the best first; for the body of a test. */
#define FOR_EACH_ISA                                                                                                   \
    (void)state;                                                                                                       \
    for (int isa = 0; isa_select(isa); isa++)

/* From now on the one with that number is used; false when there are not so many. */
bool isa_select(int number);
/* A cmocka teardown: the library's choice again, and every guarded block given back. */
int isa_teardown(void **state);

#endif
