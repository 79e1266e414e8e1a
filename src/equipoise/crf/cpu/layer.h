/* The arguments of layer.c, and the positions of a sequence whose scores are one array. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define IGNORE (-100) /* as in problem.py */
#define EACH(j, n) for (int64_t j = 0; j < (n); j++)
#define SHARE (DIGITS == 23 ? 1 : 0x1p-24) /* as in norms.py: sums of float, which are of type double, need none */
#define TINY (DIGITS == 23 ? 0x1p-126 : 0x1p-1022) /* the smallest normal number */

enum { FIXED, LEARNED, LEARNING }; /* as in kernel_state.py */
/* as in prepare.py: labels out of range, empty sequences, moved positions, labels that the constraints forbid */
enum { INVALID = 1, HAS_EMPTY = 2, MOVED = 4, FORBIDDEN = 8 };

/* Packed by prepare.py. What is optional is NULL if it is not given. */
typedef struct {
    int64_t sequences, length, labels, kind, threads;
    double horizon, step, slower_after, smoothing;
    const REAL *unary, *pairwise, *start, *end;
    const uint8_t *allowed, *allowed_start, *allowed_end, *mask;
    const int64_t *gold;
    REAL *scales, *squares, *steps, *size, *examples; /* the state of scaling: alpha, or u and w, and the rest */
    int64_t *lengths, *moved;
    uint8_t *empty;
    REAL *to_unary, *to_pairwise; /* U' and W' */
    REAL *sizes, *counts, *parts; /* per sequence, then of the pairwise part; parts are two arrays of this size */
    REAL *results;
    int32_t *rank;
} Layer;

/* Fields of `results`. The forward pass leaves the first for the backward pass, and that the last two for `learn`. */
enum { SIZE, EXAMPLES, A, B, MEAN, NUMBER, TO_U, TO_W };

typedef struct {
    const REAL *unary, *pairwise, *weight; /* dU' and dW', times this weight; NULL for 1 */
    REAL *to_unary, *to_pairwise, *to_start, *to_end;
} Gradients;

static REAL positive_or_one(REAL x) { return x > 0 ? x : 1; }

static REAL sign(REAL x) { return (REAL)(x > 0) - (REAL)(x < 0); }

static bool is_finite(REAL x) { return x < INFINITY && x > -INFINITY; } /* unlike isfinite, it vectorises */

/* The number of positions from t on that count and move together, so that their scores are one array. With constraints,
   the first and the last position of a sequence are alone. */
static int64_t run_from(const Layer *q, int64_t n, int64_t t) {
    const int32_t *rank = q->rank + n * q->length;
    int64_t end = t, last = q->lengths[n] - 1;
    if (q->allowed && (rank[t] == 0 || rank[t] == last)) return 1;
    while (end < q->length && rank[end] >= 0 && !(q->allowed && rank[end] == last)) end++;
    return end - t;
}

#define EACH_RUN(q, n, t, count) \
    for (int64_t t = 0, count; t < (q)->length; t += count ? count : 1) \
        if ((count = run_from(q, n, t)))
