/* Carries mass along a sequence by T and S of chain.c. The mass that crosses an edge is the gradient of its scores. */

#include "sweeps.h"

/* One row of T or S: E(i, .) arriving / leaving(i). */
static void transition_row(Chain *s, const REAL *table, const REAL *arriving, REAL leaving, REAL *restrict out) {
    ASSUME_PADDED(s->width);
    if (s->log_domain && leaving > -INFINITY)
        EACH(j, s->width) out[j] = exponential(table[j] + arriving[j] - leaving);
    else if (!s->log_domain && leaving > 0)
        EACH(j, s->width) out[j] = table[j] * arriving[j] / leaving;
    else
        fill(out, s->width, 0);
}

static void add_row(Chain *s, REAL *restrict gradient, int64_t i, const REAL *row, bool reverse) {
    if (reverse)
        EACH(j, s->m) gradient[j * s->m + i] += row[j];
    else
        EACH(j, s->m) gradient[i * s->m + j] += row[j];
}

/* Mass at a position must sum to 0. A rounding error would be carried along the chain and never decay. */
static void recentre(REAL *restrict mass, const REAL *restrict p, int64_t width) {
    ASSUME_PADDED(width);
    REAL excess = total(mass, width);
    EACH(j, width) mass[j] -= p[j] * excess;
}

/* Carries mass along the chain by T (in reverse, by S) and adds what crosses each edge to the gradient. arriving is c
   and leaving is b (in reverse, a and d). If not `moves`, mass is what leaves each position, and is not changed. */
static void carry_mass(
    Chain *s, REAL *mass, const REAL *arriving, const REAL *leaving, REAL *gradient, bool reverse, bool moves) {
    int64_t m = s->m, width = s->width, n = s->n;
    ASSUME_PADDED(width);
    REAL *table = first_table(s, reverse), *row = s->row;
    EACH(step, n - 1) {
        int64_t from = reverse ? n - 1 - step : step, to = reverse ? from - 1 : from + 1, edge = reverse ? to : from;
        const REAL *leave = leaving + from * width, *arrive = arriving + to * width;
        REAL *here = mass + from * width, *there = mass + to * width;
        next_table(s, edge, reverse);
        if (moves) recentre(here, s->p + from * width, width);
        EACH(i, m) {
            transition_row(s, table + i * width, arrive, leave[i], row);
            EACH(j, width) row[j] *= here[i];
            if (moves) EACH(j, width) there[j] += row[j];
            add_row(s, gradient + (s->edges == 1 ? 0 : edge * m * m), i, row, reverse);
        }
    }
}

/* If all edges share E, in the exp domain, the sum over edges and sequences is E times a product of two (L, width)
   matrices: what is sent, and what arrives. */
static bool factors_out(const Chain *s) { return s->edges == 1 && !s->log_domain; }

static void add_edge_sums(Chain *s, const REAL *from, const REAL *to) {
    if (s->n == 1) return; /* no edges, and E may be NaN */
    if (!s->pending) fill(s->sums, s->width * s->width, 0);
    s->pending = true;
    gram(from, to + s->width, s->n - 1, s->m, s->width, s->sums);
}

static void add_pending(Chain *s, REAL *gradient) {
    int64_t m = s->m, width = s->width;
    if (s->pending) EACH(i, m) EACH(j, m) gradient[i * m + j] += s->right[i * width + j] * s->sums[i * width + j];
    s->pending = false;
}

/* One step of `carry_mass` with `moves`. */
static inline void carry_step(
    Chain *s, const REAL *table, REAL *mass, const REAL *arriving, const REAL *leaving, REAL *sent_right, int64_t from,
    int64_t to) {
    int64_t width = s->width;
    ASSUME_PADDED(width);
    const REAL *leave = leaving + from * width, *arrive = arriving + to * width;
    REAL *here = mass + from * width, *restrict there = mass + to * width, *restrict row = s->row;
    sent_right += from * width;
    recentre(here, s->p + from * width, width);
    EACH(i, width) sent_right[i] = leave[i] > 0 ? here[i] / leave[i] : 0;
    product(sent_right, table, s->m, width, row, false);
    EACH(j, width) there[j] += arrive[j] * row[j];
}

/* Carries `rights` to the right and `lefts` to the left. */
static void carry_both(Chain *s, const REAL *d, const REAL *b, REAL *gradient) {
    if (!factors_out(s)) {
        carry_mass(s, s->rights, s->c, b, gradient, false, true);
        carry_mass(s, s->lefts, s->a, d, gradient, true, true);
        return;
    }
    const REAL *right = first_table(s, false), *left = first_table(s, true);
    EACH(step, s->n - 1) { /* interleaved, as in `sweep_interleaved` */
        int64_t end = s->n - 1 - step;
        carry_step(s, right, s->rights, s->c, b, s->sent_right, step, step + 1);
        carry_step(s, left, s->lefts, s->a, d, s->sent_left, end, end - 1);
    }
    add_edge_sums(s, s->sent_right, s->c);
    add_edge_sums(s, s->a, s->sent_left);
}

/* Adds the mass from weights on transitions to both ends of each edge; returns the sum of weights * xi. */
static double add_edge_mass(
    Chain *s, const REAL *b, const REAL *weights, bool weights_shared, REAL weight, REAL *gradient) {
    int64_t m = s->m, width = s->width;
    REAL *table = first_table(s, false);
    double expected = 0;
    EACH(t, s->n - 1) {
        const REAL *w = weights + (weights_shared ? 0 : t * m * m), *p = s->p + t * width;
        double mean = 0;
        next_table(s, t, false);
        EACH(i, m) {
            transition_row(s, table + i * width, s->c + (t + 1) * width, b[t * width + i], s->row);
            EACH(j, m) mean += p[i] * s->row[j] * w[i * m + j];
        }
        EACH(i, m) {
            transition_row(s, table + i * width, s->c + (t + 1) * width, b[t * width + i], s->row);
            EACH(j, m) s->row[j] *= weight * p[i] * (w[i * m + j] - (REAL)mean);
            EACH(j, m) s->rights[(t + 1) * width + j] += s->row[j];
            s->lefts[t * width + i] += total(s->row, width);
            add_row(s, gradient + (s->edges == 1 ? 0 : t * m * m), i, s->row, false);
        }
        expected += mean;
    }
    return expected;
}
