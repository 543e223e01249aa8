/* A tensor to be drawn, alone or beside another of its name: its cells, and what is said of it. */
#ifndef MHA_PICTURE_SHEET_H
#define MHA_PICTURE_SHEET_H

#include "mha/compare.h"
#include "picture/picture.h"
#include "verify/attempt/attempt.h"

enum { MHA__SHEET_SIDE = 192, MHA__SHEET_CELLS = 1 << 15 }; /* most rows and columns of a map; most cells of a sheet */

/* The last two axes of a tensor are the rows and columns of a map, and there is a map for each index of the others. A
 * cell stands for pool_rows x pool_columns elements, of which it has the one that differs most; alone the largest. */
typedef struct mha__sheet {
    const char *name;
    const char *mark;     /* static: "ok", "FIRST" (of the stages that diverge), "differs"; "" for a tensor alone */
    const char *beside;   /* static: what b is called, if not picture->sides[1]; or NULL */
    const char *obstacle; /* why nothing can be drawn; "" when it is */
    int rank;
    size_t shape[MHA_MAX_RANK];
    size_t all_maps, first_map, maps; /* of the tensor; those that the sheet has */
    size_t map_rows, map_columns;     /* elements of a map */
    size_t rows, columns, pool_rows, pool_columns;
    double *a, *b; /* (maps, rows, columns); b is NULL alone */
    /* Beside another: */
    mha_difference difference;
    double rtol, atol, worst[2]; /* a and b at difference.worst_index */
    size_t worst_at[3];          /* its map, counted from the tensor's first, row and column: elements, not cells */
    int worst_head;              /* -1: not known */
    /* Alone: of the finite elements. */
    double least, largest, rms;
    size_t broken; /* NaN and infinities */
} mha__sheet;

/* Adds a sheet of tensor `a`, beside `b` of the same shape if that is not NULL; then `difference` is theirs, in either
 * order. At most `cells` cells are kept, at least one. The caller may set mark, tolerances and worst_head.
 * MHA_NO_MEMORY. */
mha_status mha__sheet_add(mha__picture *picture, const char *name, const mha_view *a, const mha_view *b,
                          const mha_difference *difference, size_t cells, mha__sheet **sheet, mha_error *error);
/* Adds one that says only why nothing can be drawn. MHA_NO_MEMORY. */
mha_status mha__sheet_refuse(mha__picture *picture, const char *name, const char *obstacle, mha_error *error);

/* The index of the cell that stands for `pool` x `pool` cells from (row, column) * pool on: by the rule above. */
size_t mha__sheet_pick(const mha__sheet *sheet, size_t map, size_t row, size_t column, size_t pool);

/* ---------------------------------------------------------------- checked cases (checked.c) */

/* mha_case_check, with a sheet of each recorded tensor ("yours") beside the exact one, and with the heads of the case
 * as a layer where it has weights. Errors: as of mha_case_check and mha__picture_add_call. */
mha_status mha__picture_check(mha__picture *picture, const mha_case *c, const mha__picture_choice *choice,
                              const char *stage, mha_verdict *verdict, mha_error *error);
/* Adds a sheet of the diagnosed tensor beside what the bugs of a match give; nothing where the match
 * has none. Errors: as of mha_case_with_bugs. */
mha_status mha__picture_add_bug(mha__picture *picture, const mha_case *c, const char *tensor,
                                const mha_bug_match *match, mha_error *error);

/* ---------------------------------------------------------------- stages (draw_stage.c) */

/* Adds a sheet of one stage of a call, computed exactly. Errors: as of mha_plan_call and mha_forward. */
mha_status mha__picture_add_stage(mha__picture *picture, const char *name, const mha__request *request, mha_stage stage,
                                  mha_error *error);
/* Adds the tensors of a trace called `stage` or "NAME.STAGE"; of a case the stage of that name, computed exactly, and
 * before one of its backward that has a number for each weight the weights. MHA_NOT_FOUND: it has none. */
mha_status mha__picture_add_file_stage(mha__picture *picture, const char *path, const char *stage, mha_error *error);

#endif
