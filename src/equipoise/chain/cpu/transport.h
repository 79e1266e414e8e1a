/* Carries mass along a sequence by T and S of chain.c. The mass that crosses an edge is the gradient of its scores. */

#include "sweeps.h"

/* One row of T or S: E(i, .) arriving / leaving(i). */
static void transition_row(
    Chain *s, const REAL *table, int64_t i, const REAL *arriving, REAL leaving, REAL *restrict out) {
    ASSUME_PADDED(s->width);
    REAL copy[s->width];
    const REAL *row = row_of(table, i, s->width, copy);
    if (s->log_domain && leaving > -INFINITY)
        EACH(j, s->width) out[j] = exponential(row[j] + arriving[j] - leaving);
    else if (!s->log_domain && leaving > 0)
        EACH(j, s->width) out[j] = row[j] * arriving[j] / leaving;
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
static void recentre(REAL *mass, const REAL *p, int64_t width) {
    ASSUME_PADDED(width);
    REAL excess = total(mass, width);
    EACH_VECTOR(j, width) AT(mass + j, 0) -= AT(p + j, 0) * excess;
}

/* How far the matrices of two edges are apart: 0 if they share one. */
static int64_t edge_stride(const Chain *s) { return s->edges == 1 ? 0 : s->m * s->m; }

/* Carries mass along the chain by T (in reverse, by S) and adds what crosses each edge to its matrix of `crossed`, which
   are `apart`. arriving is c and leaving is b (in reverse, a and d). If not `moves`, mass is what leaves each position,
   and is not changed. */
static void carry_mass(
    Chain *s, REAL *mass, const REAL *arriving, const REAL *leaving, REAL *crossed, int64_t apart, bool reverse,
    bool moves) {
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
            transition_row(s, table, i, arrive, leave[i], row);
            EACH(j, width) row[j] *= here[i];
            if (moves) EACH(j, width) there[j] += row[j];
            add_row(s, crossed + edge * apart, i, row, reverse);
        }
    }
}

/* If all edges share E, in the exp domain, the sum over edges and sequences is E times a product of two (L, width)
   matrices: what is sent, and what arrives. */
static bool factors_out(const Chain *s) { return s->edges == 1 && !s->log_domain; }

static void add_pending(Matrix *e, int64_t m, int64_t width) {
    for (int64_t first = 0; e->pending && first < m; first += PANEL) {
        int64_t columns = panel_width(first, width), used = m - first < columns ? m - first : columns;
        EACH(i, m) {
            const REAL *row = e->right + first * width + i * columns, *sums = e->sums + i * width + first;
            EACH(j, used) e->pending[i * m + first + j] += row[j] * sums[j];
        }
    }
    e->pending = NULL;
}

static void add_edge_sums(Chain *s, const REAL *from, const REAL *to) {
    Matrix *e = s->matrix;
    if (s->n == 1) return; /* no edges, and E may be NaN */
    if (e->pending != s->gradient) {
        add_pending(e, s->m, s->width);
        fill(e->sums, s->width * s->width, 0);
        e->pending = s->gradient;
    }
    gram(from, to + s->width, s->n - 1, s->m, s->width, e->sums);
}

/* One step of `carry_mass` with `moves`, for each sequence. */
static inline void carry_step(Chain **group, int64_t count, const REAL *table, int64_t k, bool reverse) {
    int64_t m = group[0]->m, width = group[0]->width;
    ASSUME_PADDED(width);
    Step steps[GROUP];
    EACH(g, count) {
        Chain *s = group[g];
        int64_t from = (reverse ? s->n - 1 - k : k) * width;
        const REAL *leave = (reverse ? s->d : s->b) + from;
        REAL *here = (reverse ? s->lefts : s->rights) + from;
        REAL *sent = (reverse ? s->sent_left : s->sent_right) + from;
        recentre(here, s->p + from, width);
        EACH_VECTOR(i, width)
            AT(sent + i, 0) = choose(AT(leave + i, 0) > 0, AT(here + i, 0) / AT(leave + i, 0), ALL(0));
        steps[g] = (Step){.before = sent, .message = s->row, .scale = 1};
    }
    product(steps, count, table, m, width);
    EACH(g, count) {
        Chain *s = group[g];
        int64_t to = (reverse ? s->n - 2 - k : k + 1) * width;
        const REAL *arrive = (reverse ? s->a : s->c) + to, *row = s->row;
        REAL *there = (reverse ? s->lefts : s->rights) + to;
        EACH_VECTOR(j, width) AT(there + j, 0) += AT(arrive + j, 0) * AT(row + j, 0);
    }
}

/* All steps of sequences that share E, longest first: to the right by `right`, to the left by `left`; or NULL. */
static void carry_together(Chain **group, int64_t active, const REAL *right, const REAL *left) {
    EACH(k, group[0]->n - 1) {
        while (group[active - 1]->n <= k + 1) active--;
        if (right) carry_step(group, active, right, k, false);
        if (left) carry_step(group, active, left, k, true);
    }
}

/* Carries `rights` to the right and `lefts` to the left, interleaved as in `sweep_together`, for sequences that share
   E. */
static void carry_exp_domain(Chain *members, int64_t count) {
    Chain *group[GROUP];
    int64_t active = 0;
    EACH(g, count) if (factors_out(members + g)) insert_by_length(group, active++, members + g);
    if (!active) return;
    const REAL *right = first_table(group[0], false), *left = first_table(group[0], true);
    if (tables_fit(group[0]->width)) {
        carry_together(group, active, right, left);
    } else {
        carry_together(group, active, right, NULL);
        carry_together(group, active, NULL, left);
    }
}

/* The gradient of the matrix from the mass carried in both directions; if it does not factor out, carries it first. */
static void add_carried(Chain *s) {
    if (factors_out(s)) {
        add_edge_sums(s, s->sent_right, s->c);
        add_edge_sums(s, s->a, s->sent_left);
    } else {
        carry_mass(s, s->rights, s->c, s->b, s->gradient, edge_stride(s), false, true);
        carry_mass(s, s->lefts, s->a, s->d, s->gradient, edge_stride(s), true, true);
    }
}

/* Adds the mass from weights on transitions to both ends of each edge; returns the sum of weights * xi. */
static double add_edge_mass(Chain *s, const REAL *weights, bool weights_shared, REAL weight) {
    int64_t m = s->m, width = s->width;
    REAL *table = first_table(s, false);
    double expected = 0;
    EACH(t, s->n - 1) {
        const REAL *w = weights + (weights_shared ? 0 : t * m * m), *p = s->p + t * width;
        double mean = 0;
        next_table(s, t, false);
        EACH(i, m) {
            transition_row(s, table, i, s->c + (t + 1) * width, s->b[t * width + i], s->row);
            EACH(j, m) mean += p[i] * s->row[j] * w[i * m + j];
        }
        EACH(i, m) {
            transition_row(s, table, i, s->c + (t + 1) * width, s->b[t * width + i], s->row);
            EACH(j, m) s->row[j] *= weight * p[i] * (w[i * m + j] - (REAL)mean);
            EACH(j, m) s->rights[(t + 1) * width + j] += s->row[j];
            s->lefts[t * width + i] += total(s->row, width);
            add_row(s, s->gradient + (s->edges == 1 ? 0 : t * m * m), i, s->row, false);
        }
        expected += mean;
    }
    return expected;
}
