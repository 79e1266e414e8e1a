/* What each function computes for a sequence: before the sweeps, after them, and after mass was carried. */

#pragma once

#include "transport.h"

/* Packed by backend.py. Chunk k has the sequences order[starts[k]] .. order[starts[k+1] - 1]; their matrices are
   pairwise[k / pieces]. No routine uses or fills all of the arrays. */
typedef struct {
    int64_t length, labels, width, edges, pieces, chunks, threads, weight_edges, reduction, of_means, paths;
    const int64_t *order, *starts, *weight_owner, *lengths, *gold; /* gold: labels to score, or NULL */
    const REAL *unary, *pairwise, *weight, *node_weights, *edge_weights; /* weight NULL means 1 */
    const uint8_t *empty; /* sequences that do not count in the total, or NULL */
    REAL *log_p, *alpha, *beta; /* alpha and beta may be NULL; `transport` reads all three */
    REAL *value, *total, *nodes, *gradient, *expected; /* value is (B,); with a total, value and weight are not given */
    REAL *edge_p;           /* (B, L - 1, M, M) */
    const double *uniforms; /* (B, paths, L), in [0, 1) */
    int64_t *path;          /* (B, paths, L); then value, if given, is (B, paths) */
} Batch;

/* F(Y | X) */
static double score_of(const Chain *s, const REAL *unary, const int64_t *labels) {
    double score = 0;
    EACH(t, s->n) score += unary[t * s->m + labels[t]];
    EACH(t, s->n - 1) score += s->matrix->pairwise[((s->edges == 1 ? 0 : t) * s->m + labels[t]) * s->m + labels[t + 1]];
    return score;
}

/* Mass weight (nodes - p sum nodes) at a position. It sums to 0, so that it decays along the chain. */
static void centre_mass(Chain *s, int64_t t, const REAL *nodes, const REAL *log_p, REAL weight) {
    REAL *p = s->p + t * s->width, *out = s->rights + t * s->width;
    fill(p, s->width, 0), fill(out, s->width, 0);
    EACH(j, s->m) p[j] = exponential(log_p[j]);
    EACH(j, s->m) out[j] = log_p[j] > -INFINITY ? nodes[j] : 0;
    REAL given = total(out, s->width);
    EACH(j, s->m) out[j] = weight * (out[j] - p[j] * given);
}

/* Mass `rights` of the function whose gradient is wanted goes both ways, and so do weights on transitions, if any. */
static void start_transport(Chain *s, const Batch *q, REAL weight) {
    int64_t m = s->m, width = s->width, at = s->index * q->length;
    double expected = 0;
    memcpy(s->lefts, s->rights, s->n * width * sizeof(REAL));
    EACH(t, s->n) EACH(j, m) q->nodes[(at + t) * m + j] = -s->rights[t * width + j];
    if (q->weight_edges) {
        const REAL *weights = q->edge_weights + q->weight_owner[s->index] * q->weight_edges * m * m;
        expected = add_edge_mass(s, weights, q->weight_edges == 1, weight);
    }
    if (q->expected) q->expected[s->index] = expected;
}

static void finish_transport(Chain *s, const Batch *q) {
    int64_t m = s->m, width = s->width, at = s->index * q->length;
    add_carried(s);
    EACH(t, s->n) EACH(j, m) q->nodes[(at + t) * m + j] += s->rights[t * width + j] + s->lefts[t * width + j];
    fill(q->nodes + (at + s->n) * m, (q->length - s->n) * m, 0);
}

static const REAL *unary_of(const Chain *s, const Batch *q) { return q->unary + s->index * q->length * s->m; }

static REAL weight_of(const Chain *s, const Batch *q) { return q->weight ? q->weight[s->index] : 1; }

static double loss_of(const Chain *s, const Batch *q) {
    double score = q->gold ? score_of(s, unary_of(s, q), q->gold + s->index * q->length) : 0;
    return score == -INFINITY ? INFINITY : log_partition(s) - score;
}

/* ---- before the sweeps ---- */

static void load_exp_domain(Chain *s, const Batch *q) {
    if (q->alpha) s->d = q->alpha + s->index * q->length * s->width;
    if (q->beta) s->b = q->beta + s->index * q->length * s->width;
    load_unary(s, unary_of(s, q), false);
}

static void load_scores(Chain *s, const Batch *q) { load_rows(s, unary_of(s, q), false); }

static void load_messages(Chain *s, const Batch *q) {
    int64_t m = s->m, width = s->width, at = s->index * q->length;
    s->d = q->alpha + at * width, s->b = q->beta + at * width;
    load_unary(s, unary_of(s, q), s->d[0] == 0);
    EACH(t, s->n) {
        normalised_product(s->x + t * width, s->d + t * width, s->a + t * width, width, s->log_domain);
        normalised_product(s->x + t * width, s->b + t * width, s->c + t * width, width, s->log_domain);
        centre_mass(s, t, q->node_weights + (at + t) * m, q->log_p + (at + t) * m, q->weight[s->index]);
    }
    start_transport(s, q, q->weight[s->index]);
}

/* ---- after the sweeps ---- */

/* out = weight rows, without their padding. A row is stored in whole vectors if the next row, stored after it, replaces
   the excess. */
static void store_rows(const Chain *s, const REAL *rows, REAL weight, REAL *out) {
    int64_t m = s->m, width = s->width, in_vectors = width <= 2 * m ? s->n - 1 : 0;
    ASSUME_PADDED(width);
    EACH(t, in_vectors)
        EACH_VECTOR(j, width) AT(out + t * m + j, 0) = weight * AT(rows + t * width + j, 0);
    for (int64_t t = in_vectors; t < s->n; t++) EACH(j, m) out[t * m + j] = weight * rows[t * width + j];
}

static void forward_one(Chain *s, const Batch *q) {
    if (!s->swept) sweep_log_domain(s, unary_of(s, q), false);
    q->value[s->index] = loss_of(s, q);
}

/* `forward_one` and its gradient: the marginals minus the labels. */
static void likelihood_one(Chain *s, const Batch *q) {
    int64_t at = s->index * q->length, width = s->width, m = s->m;
    REAL weight = weight_of(s, q), *gradient = s->gradient;
    infer(s, unary_of(s, q));
    q->value[s->index] = loss_of(s, q);
    if (s->log_domain) exponentiate(s->p, s->n * width);
    store_rows(s, s->p, weight, q->nodes + at * m);
    fill(q->nodes + (at + s->n) * m, (q->length - s->n) * m, 0);
    if (factors_out(s)) {
        if (weight != 1) EACH(i, s->n * width) s->sent_right[i] *= weight;
        add_edge_sums(s, s->sent_right, s->c);
    } else {
        if (weight != 1) EACH(i, s->n * width) s->p[i] *= weight;
        carry_mass(s, s->p, s->c, s->b, gradient, edge_stride(s), false, false);
    }
    if (!q->gold) return;
    const int64_t *labels = q->gold + at;
    EACH(t, s->n) q->nodes[(at + t) * m + labels[t]] -= weight;
    EACH(t, s->n - 1) gradient[((s->edges == 1 ? 0 : t) * m + labels[t]) * m + labels[t + 1]] -= weight;
}

/* P(y_t = i, y_{t+1} = j), (L - 1, m, m); in the exp domain sent_right_t(i) E(i, j) c_{t+1}(j). */
static void edge_marginals_one(Chain *s, const Batch *q) {
    int64_t m = s->m, width = s->width, size = m * m;
    REAL *out = q->edge_p + s->index * (q->length - 1) * size;
    infer(s, unary_of(s, q));
    if (!factors_out(s)) {
        if (s->log_domain) exponentiate(s->p, s->n * width);
        fill(out, (q->length - 1) * size, 0);
        carry_mass(s, s->p, s->c, s->b, out, size, false, false);
        return;
    }
    const REAL *table = first_table(s, false);
    for (int64_t t = 0; t < s->n - 1; t++)
        for (int64_t i = 0; i < m; i++, out += m)
            for (int64_t first = 0; first < m; first += PANEL) {
                int64_t columns = panel_width(first, width), used = m - first < columns ? m - first : columns;
                const REAL *row = table + first * width + i * columns, *c = s->c + (t + 1) * width + first;
                REAL sent = s->sent_right[t * width + i], *restrict to = out + first;
                EACH(j, used) to[j] = sent * row[j] * c[j];
            }
    fill(out, (q->length - s->n) * size, 0);
}

static void messages_one(Chain *s, const Batch *q) {
    int64_t at = s->index * q->length, width = s->width;
    ASSUME_PADDED(width);
    double gained = 0;
    /* a is at least exp(-unary_range - pairwise_range) / m, and b at least exp(-pairwise_range) */
    bool close = !s->matrix->has_forbidden &&
        s->unary_range + 2 * s->matrix->pairwise_range + log(s->m) < 0.9 * LOG_RANGE;
    if (!s->swept) sweep_log_domain(s, unary_of(s, q), true);
    normalise(s, false);
    EACH(t, s->n) {
        const REAL *a = s->a + t * width, *here = s->b + t * width;
        REAL *restrict p = s->p + t * width, mass = normalised_product(a, here, p, width, s->log_domain);
        if (!s->log_domain && close)
            EACH(j, width) p[j] = logarithm(p[j]);
        else if (!s->log_domain) { /* the product of two small numbers may underflow, the sum of their logs cannot */
            mass = finite_or_zero(logarithm(mass));
            EACH(j, width) p[j] = logarithm(a[j]) + logarithm(here[j]) - mass;
        }
        if (q->gold) gained += p[q->gold[at + t]];
    }
    store_rows(s, s->p, 1, q->log_p + at * s->m);
    if (q->gold) q->value[s->index] = -gained / s->n;
    fill(q->log_p + (at + s->n) * s->m, (q->length - s->n) * s->m, 0);
}

/* -1/n sum_t log p_t(y_t), and its gradient */
static void cross_entropy_one(Chain *s, const Batch *q) {
    int64_t at = s->index * q->length, width = s->width;
    ASSUME_PADDED(width);
    REAL weight = weight_of(s, q);
    double gained = 0;
    infer(s, unary_of(s, q));
    EACH(t, s->n) {
        int64_t label = q->gold[at + t], place = t * width + label;
        REAL *restrict p = s->p + t * width, *restrict mass = s->rights + t * width;
        REAL log_p = s->log_domain ? s->p[place] : logarithm(s->sent_right[place]) + logarithm(s->b[place]);
        if (s->log_domain) exponentiate(p, width);
        REAL share = log_p > -INFINITY ? weight / s->n : 0;
        EACH(j, width) mass[j] = share * p[j];
        mass[label] -= share;
        gained += log_p;
    }
    q->value[s->index] = -gained / s->n;
    start_transport(s, q, weight);
}

/* Max-sum: delta_t(j) = max_i [ delta_{t-1}(i) + W(i, j) ] + U_t(j), minus the maximum of delta_{t-1}, which is already
   known. */
static void best_scores(Chain *members, int64_t count) {
    Chain *group[GROUP], *first = members;
    Step steps[GROUP];
    int64_t active = 0, m = first->m, width = first->width;
    REAL *table = first->matrix->right;
    EACH(g, count) insert_by_length(group, active++, members + g);
    EACH(g, count) group[g]->a_masses[0] = maximum(group[g]->x, width);
    for (int64_t t = 1; t < group[0]->n; t++) {
        while (group[active - 1]->n <= t) active--;
        if (first->edges > 1) pad(first->matrix->pairwise + (t - 1) * m * m, m, width, table);
        EACH(g, active) {
            REAL *delta = group[g]->x + t * width;
            REAL *peak = group[g]->a_masses + t;
            steps[g] = (Step){
                .before = delta - width, .belief = delta, .mass = peak, .scale = finite_or_zero(peak[-1])};
        }
        max_step(steps, active, table, m, width);
    }
}

/* Backtracking. */
static void decode_one(Chain *s, const Batch *q) {
    int64_t m = s->m, width = s->width, *path = q->path + s->index * q->length;
    ASSUME_PADDED(width);
    REAL peak = s->a_masses[s->n - 1];
    fill(s->row, width, 0);
    for (int64_t t = s->n - 1; t >= 0; t--) {
        REAL *restrict delta = s->x + t * width;
        if (t < s->n - 1 && s->edges > 1) EACH(i, m) s->row[i] = s->matrix->pairwise[(t * m + i) * m + path[t + 1]];
        if (t < s->n - 1) {
            const REAL *row = s->edges > 1 ? s->row : row_of(s->matrix->left, path[t + 1], width, s->row);
            peak = add_and_max(delta, row, width);
        }
        int64_t place = index_of(delta, width, peak);
        path[t] = place < m ? place : m - 1; /* scores may overflow */
    }
    q->value[s->index] = score_of(s, unary_of(s, q), path);
    for (int64_t t = q->value[s->index] > -INFINITY ? s->n : 0; t < q->length; t++) path[t] = IGNORE;
}

/* The result of a sequence with an invalid score: NaN for every number, IGNORE for every label. */
static void fail_one(Chain *s, const Batch *q) {
    int64_t b = s->index, at = b * q->length, m = s->m, width = s->width, rest = (q->length - s->n) * m;
    bool reads_messages = q->node_weights; /* `transport` reads log_p, alpha and beta; the others write them */
    if (q->value) fill(q->value + b * q->paths, q->paths, NAN);
    if (q->expected) q->expected[b] = NAN;
    if (q->log_p && !reads_messages) {
        fill(q->log_p + at * m, s->n * m, NAN), fill(q->log_p + (at + s->n) * m, rest, 0);
        if (q->alpha) fill(q->alpha + at * width, s->n * width, NAN);
        if (q->beta) fill(q->beta + at * width, s->n * width, NAN);
    }
    if (q->edge_p) {
        REAL *out = q->edge_p + b * (q->length - 1) * m * m;
        fill(out, (s->n - 1) * m * m, NAN), fill(out + (s->n - 1) * m * m, rest * m, 0);
    }
    if (q->nodes) fill(q->nodes + at * m, s->n * m, NAN), fill(q->nodes + (at + s->n) * m, rest, 0);
    if (s->gradient) fill(s->gradient, (s->edges == 1 ? s->n > 1 : s->n - 1) * m * m, NAN);
    if (q->path) EACH(i, q->paths * q->length) q->path[at * q->paths + i] = IGNORE;
}
