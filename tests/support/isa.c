/* Every instruction set of this machine in turn, and back to the one the library chooses. */
#include "mha/system.h"
#include "support/guard.h"
#include "support/isa.h"
#include "support/unit.h"

bool isa_select(int number)
{
    const char *name = mha_isa_at((size_t)number);
    if (!name)
        return false;
    assert_int_equal(mha_isa_select(name, NULL), MHA_OK);
    return true;
}

int isa_teardown(void **state)
{
    mha_isa_select("auto", NULL);
    return guard_teardown(state);
}
