/* The search for bugs that give the caller's gradients. */
#ifndef MHA_VERIFY_BACKWARD_SEARCH_H
#define MHA_VERIFY_BACKWARD_SEARCH_H

#include "verify/backward/bound.h"
#include "verify/backward/bugs/gradient_bugs.h"
#include "verify/places.h"

/* A bug must give dQ of at most so many queries before all are computed. */
enum { MHA__FEW_QUERIES = 64 };

/* What a bug gives: of gradients that are wrong all, and those that are right, or others in place of the latter, as
 * a bug does that is made in one of two kernels. */
typedef enum mha__given { GIVES_NOTHING, GIVES_WRONG, GIVES_ALL } mha__given;

/* P is normalised by its own sum; D is computed from that P. Without these bits both are right. */
enum { MHA__OWN_LSE = 1, MHA__OWN_D = 2 };

/* Where gradients are wrong: of query, key and value, (batch rows, heads, rows). */
typedef struct mha__wrong_places {
    mha__places of[MHA_D_VALUE + 1];
    unsigned char *maps; /* (B, h): a bug is made in these */
    bool queries;        /* of dQ: only in these queries */
} mha__wrong_places;

/* A backward that is run once for each bug, and the errors that its rounding may have. */
typedef struct mha__gradient_search {
    mha__backward b;
    mha__gradient_errors e;
    mha_gradients asked; /* what the backward is to make, in which precision */
    const mha_gradients *found;
    const mha__gradient_bug *bug, *also;     /* NULL: none is made */
    unsigned form;                           /* of its P: */
    const mha__wrong_places *only;           /* the bug is made there; NULL: everywhere */
    bool bounds;                             /* the errors are followed */
    mha_view right[MHA_GRADIENT_COUNT];      /* the errors of the right gradients */
    mha_view exact[MHA_GRADIENT_COUNT];      /* these, and */
    bool wrong[MHA_GRADIENT_COUNT];          /* the caller's gradient is wrong */
    mha_view from[MHA_GRADIENT_COUNT];       /* what bugs of results change: the right ones, or those of a bug, */
    mha_view errors[MHA_GRADIENT_COUNT];     /* and their errors, */
    bool given[MHA_GRADIENT_COUNT];          /* which gives these already */
    double *made[2];                         /* room for one gradient and its errors */
    mha_view kept[MHA_BACKWARD_STAGE_COUNT]; /* and those of the right stages */
    bool fits[MHA_BACKWARD_STAGE_COUNT];     /* a stage is right: bugs after it do not change it */
    bool by_map;                             /* a row of dQ is computed from one map, */
    size_t sequence, head;                   /* and this one is farthest off */
    size_t few;                              /* of its queries, of so many first ones a bug must give dQ at first */
    double largest;                          /* number of the caller's dQ */
    bool alone;                              /* the search includes bugs in one of two kernels */
    mha__map before;                         /* room for a map as it was before a change */
    struct mha__whole *whole;                /* NULL: not made yet */
    bool has_whole;
    double until;      /* when nothing more is tried; 0: no limit yet */
    bool each, narrow; /* each wrong gradient is explained by itself; by what changes no other one */
    mha_gradient_match *list;
    size_t room, count, partly; /* what gives all gradients; what gives those that are wrong */
} mha__gradient_search;

/* run_bug.c: the search reads and changes the results of each step of its backward. */
void mha__search_watch(mha__gradient_search *s);
/* Copies row i of the numbers that a map has of each query to row `at` of another map. */
void mha__copy_query(const mha__backward *b, mha__map *to, size_t at, const mha__map *from, size_t i);
/* Normalises P of a map by its own sums, sinks included, and computes D from that P, as `form` says. */
void mha__make_own(const mha__backward *b, mha__map *map, unsigned form);
/* Runs the backward with a bug, or with none, and its errors; with s->also, s->form and in s->only. */
mha_status mha__run_bug(mha__gradient_search *s, const mha__gradient_bug *bug, const mha_backward_precision *precision,
                        mha_error *error);
/* Compares the gradients of a bug with the caller's. */
mha_status mha__change_gives(mha__gradient_search *s, const mha__gradient_bug *bug, mha__given *gives,
                             mha_error *error);
/* Whether the caller's gradient, or stage, equals the computed one: each element within `times` its error and a part of
 * the largest one; where the error is NaN it may be any number. In some places; NULL: everywhere. */
bool mha__is_near(const mha_view *theirs, const mha_view *made, const mha_view *errors, double times, double part,
                  const mha__places *in);
bool mha__is_stage_near(const mha__gradient_search *s, const mha_backward_keep *keep, bool of_right, double times,
                        double part);
/* Whether gradient g of the backward that was run was found; `of_right`: by the errors of what is right, not by those
 * of that backward. Whether it differs from what is right. */
bool mha__gives_gradient(const mha__gradient_search *s, int g, bool of_right, double times, double part);
bool mha__changes_gradient(const mha__gradient_search *s, int g, double part);
/* Whether that backward gives what was found, `what` of it, but stages that are right. */
bool mha__are_near(const mha__gradient_search *s, mha__given what, bool of_right, double times, double part);

/* row_gives.c: the gradients, all or only the wrong ones, that a row of the list gives. */
mha_status mha__row_gives(mha__gradient_search *s, const mha__gradient_bug *row, mha__given *gives, mha_error *error);
/* Whether a change of the gradients that are wrong gives them, where all else is right. */
bool mha__result_gives(mha__gradient_search *s, const mha__gradient_bug *bug);
/* Adds an explanation. */
void mha__search_tell(mha__gradient_search *s, mha__given gives, const char *name, const char *help);
/* Adds one in the current form and places, for the wrong gradients only. */
void mha__search_tell_there(mha__gradient_search *s, mha__given gives, const char *name, const char *help);
/* The words of the current form of P and D. */
const char *mha__form_text(const mha__gradient_search *s);
/* Whether the time is over. */
bool mha__is_over(const mha__gradient_search *s);
/* explain_further.c: explanations beyond the list. */
mha_status mha__explain_further(mha__gradient_search *s, mha_error *error);

/* The places where gradient g is wrong, if the comparison is restricted to them. */
static inline const mha__places *mha__places_of(const mha__gradient_search *s, int g)
{
    return s->only && g <= MHA_D_VALUE && s->wrong[g] ? &s->only->of[g] : NULL;
}

#endif
