/* Whether views share memory. */
#ifndef MHA_BASE_OVERLAP_H
#define MHA_BASE_OVERLAP_H

#include "base/base.h"

/* False only when the views have no byte in common, as far as extents and strides tell. */
bool mha__may_meet(const mha_view *one, const mha_view *other);
/* MHA_INVALID when several elements of a view lie in one place, or when that would take too long to tell. */
mha_status mha__expect_own_places(const char *name, const mha_view *written, mha_error *error);

#endif
