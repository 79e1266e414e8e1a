/* Mass carried along one sequence by T and S of chain.c; what crosses an edge is the gradient of its scores. */

#include "sweeps.h"

/* One row of T or S: E(i, .) arriving / leaving(i). */
static void kernel_row(Chain *s, const REAL *table, const REAL *arriving, REAL leaving, REAL *restrict out) {
    WHOLE(s->width);
    if (s->logs && leaving > -INFINITY)
        EACH(j, s->width) out[j] = exponential(table[j] + arriving[j] - leaving);
    else if (!s->logs && leaving > 0)
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

/* Mass at a position adds up to 0. What rounding leaves over would be carried on and never die out. */
static void settle(REAL *restrict mass, const REAL *restrict p, int64_t width) {
    WHOLE(width);
    REAL excess = total(mass, width);
    EACH(j, width) mass[j] -= p[j] * excess;
}

/* Carries mass along the chain by T (in reverse, by S), and adds what crosses each edge to the gradient. arriving is c
   and leaving b (in reverse, a and d). If not `moving`, mass is what crosses from each position, and stays as it is. */
static void convey(
    Chain *s, REAL *mass, const REAL *arriving, const REAL *leaving, REAL *gradient, bool reverse, bool moving) {
    int64_t m = s->m, width = s->width, n = s->n;
    WHOLE(width);
    REAL *table = first_table(s, reverse), *row = s->row;
    EACH(step, n - 1) {
        int64_t from = reverse ? n - 1 - step : step, to = reverse ? from - 1 : from + 1, edge = reverse ? to : from;
        const REAL *leave = leaving + from * width, *arrive = arriving + to * width;
        REAL *here = mass + from * width, *there = mass + to * width;
        next_table(s, edge, reverse);
        if (moving) settle(here, s->p + from * width, width);
        EACH(i, m) {
            kernel_row(s, table + i * width, arrive, leave[i], row);
            EACH(j, width) row[j] *= here[i];
            if (moving) EACH(j, width) there[j] += row[j];
            add_row(s, gradient + (s->edges == 1 ? 0 : edge * m * m), i, row, reverse);
        }
    }
}

/* Where all edges share E and it is in plain numbers, it is a factor of the sum over all edges and sequences, and the
   other is a product of two (L, width) matrices: what is sent, and what arrives. */
static bool factored(const Chain *s) { return s->edges == 1 && !s->logs; }

static void add_crossing(Chain *s, const REAL *from, const REAL *to) {
    if (!s->pending) fill(s->sums, s->width * s->width, 0);
    s->pending = true;
    gram(from, to + s->width, s->n - 1, s->m, s->width, s->sums);
}

static void add_pending(Chain *s, REAL *gradient) {
    int64_t m = s->m, width = s->width;
    if (s->pending) EACH(i, m) EACH(j, m) gradient[i * m + j] += s->right[i * width + j] * s->sums[i * width + j];
    s->pending = false;
}

/* One step of `convey`, of a mass that moves. */
static inline void hop(
    Chain *s, const REAL *table, REAL *mass, const REAL *arriving, const REAL *leaving, REAL *sent, int64_t from,
    int64_t to) {
    int64_t width = s->width;
    WHOLE(width);
    const REAL *leave = leaving + from * width, *arrive = arriving + to * width;
    REAL *here = mass + from * width, *restrict there = mass + to * width, *restrict row = s->row;
    sent += from * width;
    settle(here, s->p + from * width, width);
    EACH(i, width) sent[i] = leave[i] > 0 ? here[i] / leave[i] : 0;
    product(sent, table, s->m, width, row, false);
    EACH(j, width) there[j] += arrive[j] * row[j];
}

/* Carries `rights` to the right and `lefts` to the left. */
static void convey_both(Chain *s, const REAL *d, const REAL *b, REAL *gradient) {
    if (!factored(s)) {
        convey(s, s->rights, s->c, b, gradient, false, true);
        convey(s, s->lefts, s->a, d, gradient, true, true);
        return;
    }
    const REAL *right = first_table(s, false), *left = first_table(s, true);
    EACH(step, s->n - 1) { /* by turns, as `sweep_by_turns` */
        int64_t end = s->n - 1 - step;
        hop(s, right, s->rights, s->c, b, s->sent, step, step + 1);
        hop(s, left, s->lefts, s->a, d, s->returned, end, end - 1);
    }
    add_crossing(s, s->sent, s->c);
    add_crossing(s, s->a, s->returned);
}

/* Puts on both ends of each edge the mass that weights on transitions make; returns the sum of weights * xi. */
static double exchange(
    Chain *s, const REAL *b, const REAL *weights, bool weights_shared, REAL weight, REAL *gradient) {
    int64_t m = s->m, width = s->width;
    REAL *table = first_table(s, false);
    double expected = 0;
    EACH(t, s->n - 1) {
        const REAL *w = weights + (weights_shared ? 0 : t * m * m), *p = s->p + t * width;
        double mean = 0;
        next_table(s, t, false);
        EACH(i, m) {
            kernel_row(s, table + i * width, s->c + (t + 1) * width, b[t * width + i], s->row);
            EACH(j, m) mean += p[i] * s->row[j] * w[i * m + j];
        }
        EACH(i, m) {
            kernel_row(s, table + i * width, s->c + (t + 1) * width, b[t * width + i], s->row);
            EACH(j, m) s->row[j] *= weight * p[i] * (w[i * m + j] - (REAL)mean);
            EACH(j, m) s->rights[(t + 1) * width + j] += s->row[j];
            s->lefts[t * width + i] += total(s->row, width);
            add_row(s, gradient + (s->edges == 1 ? 0 : t * m * m), i, s->row, false);
        }
        expected += mean;
    }
    return expected;
}
