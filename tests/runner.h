/* Shared declarations of a test file and its program. The compiler includes it before each test file, whose
 * main has another name there (-Dmain=test_NAME_main). */
#ifndef TEST_RUNNER_H
#define TEST_RUNNER_H

int main(void);

extern char **test_arguments; /* of the command line after the name of the test file; ends with NULL */

#endif
