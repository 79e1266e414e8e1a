/* Samples from P(Y | X), from the last position backward:

       y_n ~ a_n,    y_t ~ a_t(.) E(., y_{t+1})

   since the belief a_t summarises all scores up to t. decoding.py draws from the same distribution, forward. */

#include "routines.h"

/* The mass of each label at t, up to a factor: a_t, or a_t(.) E(., *next) if the next label is known. */
static const REAL *mass_before(Chain *s, int64_t t, const int64_t *next) {
    int64_t m = s->m, width = s->width;
    ASSUME_PADDED(width);
    const REAL *a = s->a + t * width;
    REAL *mass = s->row;
    if (next && s->edges == 1 && !s->log_domain) {
        const REAL *column = row_of(first_table(s, true), *next, width, mass);
        EACH_VECTOR(j, width) AT(mass + j, 0) = AT(column + j, 0) * AT(a + j, 0);
        return mass;
    }
    const REAL *scores = s->matrix->pairwise + (s->edges == 1 ? 0 : t) * m * m;
    fill(mass, width, -INFINITY);
    EACH(i, m) mass[i] = (next ? scores[i * m + *next] : 0) + (s->log_domain ? a[i] : 0);
    subtract(mass, width, finite_or_zero(maximum(mass, width)));
    exponentiate(mass, width);
    if (!s->log_domain) EACH_VECTOR(j, width) AT(mass + j, 0) *= AT(a + j, 0);
    return mass;
}

/* A label with a probability in proportion to its mass, from a uniform number in [0, 1). Never one without mass, not
   even if rounding leaves something of the sum. */
static int64_t draw(const REAL *mass, int64_t m, int64_t width, double uniform) {
    double left = uniform * total(mass, width);
    int64_t label = 0;
    EACH(i, m) {
        if (!(mass[i] > 0)) continue;
        label = i;
        left -= mass[i];
        if (left < 0) break;
    }
    return label;
}

static void sample_one(Chain *s, const Batch *q) {
    if (!s->swept) sweep_log_domain(s, unary_of(s, q), false);
    bool possible = log_partition(s) > -INFINITY;
    EACH(k, q->paths) {
        int64_t at = (s->index * q->paths + k) * q->length, *path = q->path + at;
        for (int64_t t = possible ? s->n - 1 : -1; t >= 0; t--)
            path[t] = draw(mass_before(s, t, t < s->n - 1 ? path + t + 1 : NULL), s->m, s->width, q->uniforms[at + t]);
        for (int64_t t = possible ? s->n : 0; t < q->length; t++) path[t] = IGNORE;
    }
}
