/* The loops of compiled.py: one sequence at a time, in one of two arithmetics, vectorised over labels.

   With the peaks of the scores taken out, x_t(j) = exp(U_t(j) - peak) and E(i, j) = exp(W(i, j) - peak), a chain is

       d_t = a_{t-1} E,    a_t = norm(x_t d_t)        b_t = E c_{t+1},    c_t = norm(x_t b_t)        d_1 = b_L = 1

       p_t = norm(a_t b_t)    T_t(i, j) = E(i, j) c_{t+1}(j) / b_t(i)    S_t(i, j) = a_t(i) E(i, j) / d_{t+1}(j)

   whose right half mirrors the left, so that one function, run along the chain or in reverse, serves both. Plain
   numbers are fast, and exact as long as nothing underflows that may matter later. `sweep` tells where that cannot be
   promised, and the sequence is then done in logs: x, E and all made of them are the logarithms of the above.
   As d_1 is 1, and 0 in logs, the first number of a message tells which arithmetic it is in. */

#include "compiled.h"

/* What compiled.py hands over. Chunk k has the sequences order[starts[k]] .. order[starts[k+1] - 1], and their matrices
   are pairwise[owner[k]]. Not every answer uses, or fills, all of the arrays. */
typedef struct {
    int64_t length, labels, width, edges, weight_edges, chunks, threads;
    const int64_t *order, *starts, *owner, *weight_owner, *lengths, *gold; /* gold, labels to score, may be NULL */
    const REAL *unary, *pairwise, *weight, *node_weights, *edge_weights;
    REAL *value, *log_p, *alpha, *beta, *nodes, *gradient, *expected; /* value is (B), gradient (chunks, E, M, M) */
    int64_t *path;
} Batch;

/* A sequence at work, and a thread's room for it. */
typedef struct {
    int64_t n, m, width, edges;
    bool logs;
    const REAL *pairwise;
    double peak, range; /* of W: its highest score, where all edges share it, and by how much its scores differ */
    bool holes, turned; /* whether W has -inf, and whether `left` is filled */
    REAL *right, *left, *scratch; /* E, its transpose, room for that of an edge or in logs: (width, width) */
    REAL *x, *a, *c, *d, *b, *p, *rights, *lefts, *sent; /* (L, width) */
    REAL *row, *taken;                                   /* (width,), (L,) */
    double peaks, edge_peaks;                            /* what was taken out of unary and pairwise, in all */
} Chain;

/* ---- scores to potentials ---- */

/* x, and s->peaks; returns the widest range of scores in a position. */
static double load_unary(Chain *s, const REAL *unary, bool logs) {
    s->logs = logs, s->peaks = 0;
    EACH(t, s->n) {
        REAL *row = s->x + t * s->width;
        memcpy(row, unary + t * s->m, s->m * sizeof(REAL));
        fill(row + s->m, s->width - s->m, -INFINITY);
        REAL peak = or_zero(highest(row, s->width));
        subtract(row, s->width, peak);
        s->peaks += peak;
    }
    double range = -lowest(s->x, s->n * s->width, -INFINITY);
    if (!logs) exponentiate(s->x, s->n * s->width);
    return range;
}

/* The matrix, padded, into `table`; s->range and s->holes take it in. */
static void survey(Chain *s, const REAL *scores, REAL *table) {
    int64_t size = s->width * s->width, forbidden = 0;
    WHOLE(size);
    pad(scores, s->m, s->width, table);
    s->range = fmax(s->range, highest(table, size) - lowest(table, size, -INFINITY));
#pragma omp simd reduction(+ : forbidden)
    EACH(i, size) forbidden += table[i] == -INFINITY;
    s->holes |= forbidden > size - s->m * s->m;
}

/* E of an edge, or its transpose, in the arithmetic in use; returns the peak taken out. */
static double load_edge(Chain *s, int64_t edge, bool reverse) {
    pad(s->pairwise + edge * s->m * s->m, s->m, s->width, reverse ? s->left : s->scratch);
    double peak = potentials(reverse ? s->left : s->scratch, s->width, s->logs);
    if (reverse) transpose(s->left, s->width, s->scratch);
    return peak;
}

/* The E to start with. Where edges have their own, each is loaded into the same place by `next_table`. */
static REAL *first_table(Chain *s, bool reverse) {
    if (s->edges != 1) return s->scratch;
    if (s->logs) {
        load_edge(s, 0, reverse);
        s->turned = false;
        return s->scratch;
    }
    if (reverse && !s->turned) transpose(s->right, s->width, s->left), s->turned = true;
    return reverse ? s->left : s->right;
}

static double next_table(Chain *s, int64_t edge, bool reverse) {
    return s->edges == 1 ? 0 : load_edge(s, edge, reverse);
}

/* ---- one sequence ---- */

/* How far the messages may fall. With every transition possible, log a_t and log c_t range no further than W and U_t
   together. With some impossible they may fall further at every step, and have to be watched. */
static double limit(const Chain *s) { return SPAN * (s->holes ? 0.4 : 0.7); }

/* Messages d and their a (in reverse, b and c); returns whether they can be relied on. */
static bool sweep(Chain *s, REAL *messages, REAL *beliefs, bool reverse) {
    const REAL *table = first_table(s, reverse);
    REAL floor = !s->logs && s->holes ? exp(-limit(s)) : 0;
    s->edge_peaks = s->peak * (s->n - 1);
    EACH(step, s->n) {
        int64_t t = reverse ? s->n - 1 - step : step, before = reverse ? t + 1 : t - 1;
        REAL *message = messages + t * s->width, *belief = beliefs + t * s->width;
        if (step == 0) {
            fill(message, s->width, s->logs ? 0 : 1);
        } else {
            s->edge_peaks += next_table(s, reverse ? t : before, reverse);
            product(beliefs + before * s->width, table, s->m, s->width, message, s->logs);
        }
        s->taken[t] = condense(s->x + t * s->width, message, belief, s->width, s->logs);
        if (floor > 0 && lowest(belief, s->width, 0) < floor) return false;
    }
    return true;
}

/* log Z, from all that was taken out by the last sweep and before. */
static double log_partition(const Chain *s) {
    double gained = s->peaks + s->edge_peaks;
#pragma omp simd reduction(+ : gained)
    EACH(t, s->n) gained += s->logs ? s->taken[t] : logarithm(s->taken[t]);
    return gained;
}

/* Both sweeps, in plain numbers if they can be relied on. */
static void sweep_both(Chain *s, const REAL *unary, REAL *d, REAL *b, bool logs) {
    double range = load_unary(s, unary, logs);
    if (logs || !(range + s->range <= limit(s)) || !sweep(s, d, s->a, false) || !sweep(s, b, s->c, true)) {
        load_unary(s, unary, true);
        sweep(s, d, s->a, false), sweep(s, b, s->c, true);
    }
}

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
    /* Then E is a factor of the sum over all edges, and the other a product of two (L, width) matrices. */
    bool factored = s->edges == 1 && !s->logs;
    REAL *table = first_table(s, reverse), *row = s->row;
    EACH(step, n - 1) {
        int64_t from = reverse ? n - 1 - step : step, to = reverse ? from - 1 : from + 1, edge = reverse ? to : from;
        const REAL *leave = leaving + from * width, *arrive = arriving + to * width;
        REAL *here = mass + from * width, *there = mass + to * width, *sent = s->sent + from * width;
        next_table(s, edge, reverse);
        if (moving) settle(here, s->p + from * width, width);
        if (factored) {
            EACH(i, width) sent[i] = leave[i] > 0 ? here[i] / leave[i] : 0;
            if (!moving) continue;
            product(sent, table, m, width, row, false);
            EACH(j, width) there[j] += arrive[j] * row[j];
        } else {
            EACH(i, m) {
                kernel_row(s, table + i * width, arrive, leave[i], row);
                EACH(j, width) row[j] *= here[i];
                if (moving) EACH(j, width) there[j] += row[j];
                add_row(s, gradient + (s->edges == 1 ? 0 : edge * m * m), i, row, reverse);
            }
        }
    }
    if (!factored) return;
    gram(reverse ? arriving : s->sent, (reverse ? s->sent : arriving) + width, n - 1, m, width, s->scratch);
    EACH(i, m) {
        EACH(j, width) row[j] = s->right[i * width + j] * s->scratch[i * width + j];
        add_row(s, gradient, i, row, false);
    }
}

/* Puts on both ends of each edge the mass that weights on transitions make; returns the sum of weights * xi. */
static double exchange(Chain *s, const REAL *weights, bool weights_shared, REAL weight, REAL *gradient) {
    int64_t m = s->m, width = s->width;
    REAL *table = first_table(s, false);
    double expected = 0;
    EACH(t, s->n - 1) {
        const REAL *w = weights + (weights_shared ? 0 : t * m * m), *p = s->p + t * width;
        double mean = 0;
        next_table(s, t, false);
        EACH(i, m) {
            kernel_row(s, table + i * width, s->c + (t + 1) * width, s->b[t * width + i], s->row);
            EACH(j, m) mean += p[i] * s->row[j] * w[i * m + j];
        }
        EACH(i, m) {
            kernel_row(s, table + i * width, s->c + (t + 1) * width, s->b[t * width + i], s->row);
            EACH(j, m) s->row[j] *= weight * p[i] * (w[i * m + j] - (REAL)mean);
            EACH(j, m) s->rights[(t + 1) * width + j] += s->row[j];
            s->lefts[t * width + i] += total(s->row, width);
            add_row(s, gradient + (s->edges == 1 ? 0 : t * m * m), i, s->row, false);
        }
        expected += mean;
    }
    return expected;
}

/* F(Y | X) */
static double score_of(const Chain *s, const REAL *unary, const int64_t *labels) {
    double score = 0;
    EACH(t, s->n) score += unary[t * s->m + labels[t]];
    EACH(t, s->n - 1) score += s->pairwise[((s->edges == 1 ? 0 : t) * s->m + labels[t]) * s->m + labels[t + 1]];
    return score;
}

/* p, and weight (nodes - p sum nodes): mass that adds up to 0, so that the chain forgets it. */
static void centre(Chain *s, const REAL *nodes, const REAL *log_p, REAL weight, REAL *restrict p, REAL *restrict out) {
    fill(p, s->width, 0), fill(out, s->width, 0);
    EACH(j, s->m) p[j] = exponential(log_p[j]);
    EACH(j, s->m) out[j] = log_p[j] > -INFINITY ? nodes[j] : 0;
    REAL given = total(out, s->width);
    EACH(j, s->m) out[j] = weight * (out[j] - p[j] * given);
}

/* The weights on log-marginals whose sum is minus their mean at the labels: this one, at one position. */
static const REAL *mark(Chain *s, int64_t label) {
    fill(s->row, s->m, 0);
    s->row[label] = -1 / (REAL)s->n;
    return s->row;
}

/* ---- the five answers, for sequence b ---- */

static void forward_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    const REAL *unary = q->unary + b * q->length * s->m;
    REAL *d = q->alpha + b * q->length * s->width;
    double range = load_unary(s, unary, false);
    if (!(range + s->range <= limit(s)) || !sweep(s, d, s->a, false)) {
        load_unary(s, unary, true);
        sweep(s, d, s->a, false);
    }
    double score = q->gold ? score_of(s, unary, q->gold + b * q->length) : 0;
    q->value[b] = score == -INFINITY ? INFINITY : log_partition(s) - score;
}

static void messages_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t at = b * q->length, width = s->width;
    REAL *beta = q->beta + at * width, *p = s->row;
    double gained = 0;
    sweep_both(s, q->unary + at * s->m, q->alpha + at * width, beta, false);
    EACH(t, s->n) {
        const REAL *a = s->a + t * width, *here = beta + t * width;
        REAL taken = or_zero(logarithm(condense(a, here, p, width, s->logs)));
        if (!s->logs) /* a product of two small numbers may underflow, the sum of their logs does not */
            EACH(j, width) p[j] = logarithm(a[j]) + logarithm(here[j]) - taken;
        memcpy(q->log_p + (at + t) * s->m, p, s->m * sizeof(REAL));
        if (q->gold) gained += p[q->gold[at + t]];
    }
    if (q->gold) q->value[b] = -gained / s->n;
    fill(q->log_p + (at + s->n) * s->m, (q->length - s->n) * s->m, 0);
}

static void marginals_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t at = b * q->length, width = s->width;
    const REAL *unary = q->unary + at * s->m, *d = q->alpha + at * width;
    load_unary(s, unary, d[0] == 0);
    if (!sweep(s, s->b, s->c, true)) {
        sweep_both(s, unary, s->d, s->b, true);
        d = s->d;
    }
    EACH(t, s->n) {
        REAL *p = s->p + t * width;
        condense(d + t * width, s->c + t * width, p, width, s->logs);
        if (s->logs) exponentiate(p, width);
        EACH(j, width) p[j] *= q->weight[b];
        memcpy(q->nodes + (at + t) * s->m, p, s->m * sizeof(REAL));
    }
    fill(q->nodes + (at + s->n) * s->m, (q->length - s->n) * s->m, 0);
    convey(s, s->p, s->c, s->b, gradient, false, false);
    if (!q->gold) return;
    const int64_t *labels = q->gold + at;
    EACH(t, s->n) q->nodes[(at + t) * s->m + labels[t]] -= q->weight[b];
    EACH(t, s->n - 1) gradient[((s->edges == 1 ? 0 : t) * s->m + labels[t]) * s->m + labels[t + 1]] -= q->weight[b];
}

static void transport_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t m = s->m, width = s->width, at = b * q->length;
    const REAL *d = q->alpha + at * width;
    load_unary(s, q->unary + at * m, d[0] == 0);
    s->b = q->beta + at * width;
    EACH(t, s->n) {
        REAL *here = s->rights + t * width, *moved = q->nodes + (at + t) * m;
        condense(s->x + t * width, d + t * width, s->a + t * width, width, s->logs);
        condense(s->x + t * width, s->b + t * width, s->c + t * width, width, s->logs);
        const REAL *nodes = q->gold ? mark(s, q->gold[at + t]) : q->node_weights + (at + t) * m;
        centre(s, nodes, q->log_p + (at + t) * m, q->weight[b], s->p + t * width, here);
        memcpy(s->lefts + t * width, here, width * sizeof(REAL));
        EACH(j, m) moved[j] = -here[j];
    }
    q->expected[b] = 0;
    if (q->weight_edges) {
        const REAL *weights = q->edge_weights + q->weight_owner[b] * q->weight_edges * m * m;
        q->expected[b] = exchange(s, weights, q->weight_edges == 1, q->weight[b], gradient);
    }
    convey(s, s->rights, s->c, s->b, gradient, false, true);
    convey(s, s->lefts, s->a, d, gradient, true, true);
    EACH(t, s->n) EACH(j, m) q->nodes[(at + t) * m + j] += s->rights[t * width + j] + s->lefts[t * width + j];
    fill(q->nodes + (at + s->n) * m, (q->length - s->n) * m, 0);
}

/* Max-sum: delta_t(j) = max_i [ delta_{t-1}(i) + W(i, j) ] + U_t(j), less its maximum; then back along the best. */
static void decode_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t m = s->m, width = s->width, *path = q->path + b * q->length;
    WHOLE(width);
    const REAL *unary = q->unary + b * q->length * m;
    EACH(t, s->n) {
        REAL *restrict delta = s->x + t * width;
        const REAL *before = delta - width, *W = s->right;
        fill(delta, width, t ? -INFINITY : 0);
        if (t && s->edges > 1) pad(s->pairwise + (t - 1) * m * m, m, width, s->right);
        for (int64_t i = 0; t && i < m; i += 2, W += 2 * width) EACH(j, width) {
            REAL one = before[i] + W[j], two = before[i + 1] + W[width + j], best = one > two ? one : two;
            delta[j] = best > delta[j] ? best : delta[j];
        }
        EACH(j, m) delta[j] += unary[t * m + j];
        fill(delta + m, width - m, -INFINITY);
        subtract(delta, width, or_zero(highest(delta, width)));
    }
    for (int64_t t = s->n - 1; t >= 0; t--) {
        const REAL *delta = s->x + t * width, *W = s->pairwise + t * m * m + (t < s->n - 1 ? path[t + 1] : 0);
        fill(s->row, width, -INFINITY);
        if (t == s->n - 1)
            memcpy(s->row, delta, m * sizeof(REAL));
        else if (s->edges == 1)
            EACH(i, m) s->row[i] = delta[i] + s->left[path[t + 1] * width + i];
        else
            EACH(i, m) s->row[i] = delta[i] + W[i * m];
        REAL best = highest(s->row, width);
        path[t] = 0;
        while (path[t] < m - 1 && s->row[path[t]] != best) path[t]++;
    }
    q->value[b] = score_of(s, unary, path);
    for (int64_t t = q->value[b] == -INFINITY ? 0 : s->n; t < q->length; t++) path[t] = IGNORE;
}

/* ---- all sequences ---- */

typedef void Load(Chain *);
typedef void Answer(Chain *, const Batch *, int64_t b, REAL *gradient);

static void load_potentials(Chain *s) {
    s->range = 0, s->holes = false;
    if (s->edges == 1) {
        survey(s, s->pairwise, s->right);
        s->peak = potentials(s->right, s->width, false);
    } else {
        EACH(e, s->n - 1) survey(s, s->pairwise + e * s->m * s->m, s->scratch);
    }
}

static void load_scores(Chain *s) {
    if (s->edges != 1) return;
    pad(s->pairwise, s->m, s->width, s->right);
    transpose(s->right, s->width, s->left);
}

/* Returns whether memory ran out. */
static int each(const Batch *q, Load *load, Answer *answer) {
    int64_t width = q->width, square = width * width, rows = q->length * width;
    int64_t matrices = q->edges * q->labels * q->labels;
    int failed = 0;
#pragma omp parallel num_threads(q->threads) reduction(| : failed)
    {
        REAL *room = malloc((3 * square + 9 * rows + width + q->length) * sizeof(REAL)), *r = room + 3 * square;
        Chain fresh = {
            .m = q->labels, .width = width, .edges = q->edges,
            .right = room, .left = room + square, .scratch = room + 2 * square,
            .x = r, .a = r + rows, .c = r + 2 * rows, .d = r + 3 * rows, .b = r + 4 * rows, .p = r + 5 * rows,
            .rights = r + 6 * rows, .lefts = r + 7 * rows, .sent = r + 8 * rows,
            .row = r + 9 * rows, .taken = r + 9 * rows + width,
        };
        failed |= !room;
#pragma omp for schedule(dynamic)
        for (int64_t k = 0; k < q->chunks; k++) {
            Chain s = fresh;
            s.pairwise = q->pairwise + q->owner[k] * matrices;
            for (int64_t i = q->starts[k]; room && i < q->starts[k + 1]; i++) {
                s.n = q->lengths[q->order[i]];
                if (i == q->starts[k] || s.edges != 1) load(&s);
                answer(&s, q, q->order[i], q->gradient + k * matrices);
            }
        }
        free(room);
    }
    return failed;
}

int forward(const Batch *q) { return each(q, load_potentials, forward_one); }
int messages(const Batch *q) { return each(q, load_potentials, messages_one); }
int marginals(const Batch *q) { return each(q, load_potentials, marginals_one); }
int transport(const Batch *q) { return each(q, load_potentials, transport_one); }
int decode(const Batch *q) { return each(q, load_scores, decode_one); }
