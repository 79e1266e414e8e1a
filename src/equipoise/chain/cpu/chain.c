/* The loops behind backend.py: one sequence at a time, in the exp or the log domain, vectorised over labels.

   With the maxima of the scores subtracted, x_t(j) = exp(U_t(j) - peak) and E(i, j) = exp(W(i, j) - peak), a chain is

       d_t = a_{t-1} E,    a_t = norm(x_t d_t)        b_t = E c_{t+1},    c_t = norm(x_t b_t)        d_1 = b_L = 1

       p_t = norm(a_t b_t)    T_t(i, j) = E(i, j) c_{t+1}(j) / b_t(i)    S_t(i, j) = a_t(i) E(i, j) / d_{t+1}(j)

   The right half mirrors the left, so one function computes both, forward or in reverse along the chain. The exp domain
   is fast, and exact as long as nothing underflows that may matter later. `sweep` returns false where underflow is
   possible. The sequence is then computed in the log domain: x, E and all messages are the logarithms of the above.
   d_1 is 1 in the exp domain and 0 in the log domain, so the first number of a message identifies its domain. */

#include "transport.h"

/* Packed by backend.py. Chunk k has the sequences order[starts[k]] .. order[starts[k+1] - 1]; their matrices are
   pairwise[k / pieces]. No routine uses or fills all of the arrays. */
typedef struct {
    int64_t length, labels, width, edges, pieces, chunks, threads, weight_edges;
    const int64_t *order, *starts, *weight_owner, *lengths, *gold; /* gold: labels to score, or NULL */
    const REAL *unary, *pairwise, *weight, *node_weights, *edge_weights; /* weight NULL means 1 */
    REAL *value, *log_p, *alpha, *beta, *nodes, *gradient, *expected; /* value is (B,); alpha and beta may be NULL */
    int64_t *path;
} Batch;

/* F(Y | X) */
static double score_of(const Chain *s, const REAL *unary, const int64_t *labels) {
    double score = 0;
    EACH(t, s->n) score += unary[t * s->m + labels[t]];
    EACH(t, s->n - 1) score += s->pairwise[((s->edges == 1 ? 0 : t) * s->m + labels[t]) * s->m + labels[t + 1]];
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

/* The gradient of the function that put mass `rights` on positions and, if there are any, weights on transitions. */
static void transport_mass(
    Chain *s, const Batch *q, int64_t sequence, const REAL *d, const REAL *b, REAL weight, REAL *gradient) {
    int64_t m = s->m, width = s->width, at = sequence * q->length;
    double expected = 0;
    memcpy(s->lefts, s->rights, s->n * width * sizeof(REAL));
    EACH(t, s->n) EACH(j, m) q->nodes[(at + t) * m + j] = -s->rights[t * width + j];
    if (q->weight_edges) {
        const REAL *weights = q->edge_weights + q->weight_owner[sequence] * q->weight_edges * m * m;
        expected = add_edge_mass(s, b, weights, q->weight_edges == 1, weight, gradient);
    }
    if (q->expected) q->expected[sequence] = expected;
    carry_both(s, d, b, gradient);
    EACH(t, s->n) EACH(j, m) q->nodes[(at + t) * m + j] += s->rights[t * width + j] + s->lefts[t * width + j];
    fill(q->nodes + (at + s->n) * m, (q->length - s->n) * m, 0);
}

/* ---- routines for sequence b ---- */

static REAL weight_of(const Batch *q, int64_t b) { return q->weight ? q->weight[b] : 1; }

static double loss_of(const Chain *s, const Batch *q, int64_t b) {
    double score = q->gold ? score_of(s, q->unary + b * q->length * s->m, q->gold + b * q->length) : 0;
    return score == -INFINITY ? INFINITY : log_partition(s) - score;
}

static void forward_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    const REAL *unary = q->unary + b * q->length * s->m;
    load_unary(s, unary, false);
    if (!exp_domain_safe(s) || !sweep(s, s->d, s->a, false)) {
        load_unary(s, unary, true);
        sweep(s, s->d, s->a, false);
    }
    q->value[b] = loss_of(s, q, b);
}

/* `forward_one` and its gradient: the marginals minus the labels. */
static void likelihood_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t at = b * q->length, width = s->width, m = s->m;
    REAL weight = weight_of(q, b);
    infer(s, q->unary + at * m);
    q->value[b] = loss_of(s, q, b);
    if (s->log_domain) exponentiate(s->p, s->n * width);
    EACH(t, s->n) EACH(j, m) q->nodes[(at + t) * m + j] = weight * s->p[t * width + j];
    fill(q->nodes + (at + s->n) * m, (q->length - s->n) * m, 0);
    if (factors_out(s)) {
        if (weight != 1) EACH(i, s->n * width) s->sent_right[i] *= weight;
        add_edge_sums(s, s->sent_right, s->c);
    } else {
        if (weight != 1) EACH(i, s->n * width) s->p[i] *= weight;
        carry_mass(s, s->p, s->c, s->b, gradient, false, false);
    }
    if (!q->gold) return;
    const int64_t *labels = q->gold + at;
    EACH(t, s->n) q->nodes[(at + t) * m + labels[t]] -= weight;
    EACH(t, s->n - 1) gradient[((s->edges == 1 ? 0 : t) * m + labels[t]) * m + labels[t + 1]] -= weight;
}

static void messages_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t at = b * q->length, width = s->width;
    ASSUME_PADDED(width);
    REAL *alpha = q->alpha ? q->alpha + at * width : s->d, *beta = q->beta ? q->beta + at * width : s->b;
    double gained = 0;
    load_unary(s, q->unary + at * s->m, false);
    /* a is at least exp(-unary_range - pairwise_range) / m, and b at least exp(-pairwise_range) */
    bool close = !s->has_forbidden && s->unary_range + 2 * s->pairwise_range + log(s->m) < 0.9 * LOG_RANGE;
    if (!sweep_exp_domain(s, alpha, beta)) sweep_log_domain(s, q->unary + at * s->m, alpha, beta);
    EACH(t, s->n) {
        const REAL *a = s->a + t * width, *here = beta + t * width;
        REAL *restrict p = s->p + t * width, mass = normalised_product(a, here, p, width, s->log_domain);
        if (!s->log_domain && close)
            EACH(j, width) p[j] = logarithm(p[j]);
        else if (!s->log_domain) { /* the product of two small numbers may underflow, the sum of their logs cannot */
            mass = finite_or_zero(logarithm(mass));
            EACH(j, width) p[j] = logarithm(a[j]) + logarithm(here[j]) - mass;
        }
        memcpy(q->log_p + (at + t) * s->m, p, s->m * sizeof(REAL));
        if (q->gold) gained += p[q->gold[at + t]];
    }
    if (q->gold) q->value[b] = -gained / s->n;
    fill(q->log_p + (at + s->n) * s->m, (q->length - s->n) * s->m, 0);
}

/* -1/n sum_t log p_t(y_t), and its gradient */
static void cross_entropy_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t at = b * q->length, width = s->width;
    ASSUME_PADDED(width);
    REAL weight = weight_of(q, b);
    double gained = 0;
    infer(s, q->unary + at * s->m);
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
    q->value[b] = -gained / s->n;
    transport_mass(s, q, b, s->d, s->b, weight, gradient);
}

static void transport_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t m = s->m, width = s->width, at = b * q->length;
    const REAL *d = q->alpha + at * width, *messages = q->beta + at * width;
    load_unary(s, q->unary + at * m, d[0] == 0);
    EACH(t, s->n) {
        normalised_product(s->x + t * width, d + t * width, s->a + t * width, width, s->log_domain);
        normalised_product(s->x + t * width, messages + t * width, s->c + t * width, width, s->log_domain);
        centre_mass(s, t, q->node_weights + (at + t) * m, q->log_p + (at + t) * m, q->weight[b]);
    }
    transport_mass(s, q, b, d, messages, q->weight[b], gradient);
}

/* Max-sum: delta_t(j) = max_i [ delta_{t-1}(i) + W(i, j) ] + U_t(j), minus the maximum of delta_{t-1}, which is already
   known; then backtracking. */
static void decode_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t m = s->m, width = s->width, *path = q->path + b * q->length;
    ASSUME_PADDED(width);
    const REAL *unary = q->unary + b * q->length * m;
    pad_unary(s, unary);
    fill(s->row, width, 0);
    REAL peak = maximum(s->x, width);
    for (int64_t t = 1; t < s->n; t++) {
        REAL *delta = s->x + t * width;
        if (s->edges > 1) pad(s->pairwise + (t - 1) * m * m, m, width, s->right);
        peak = max_step(delta - width, finite_or_zero(peak), s->right, m, width, delta);
    }
    for (int64_t t = s->n - 1; t >= 0; t--) {
        REAL *restrict delta = s->x + t * width;
        if (t < s->n - 1 && s->edges > 1) EACH(i, m) s->row[i] = s->pairwise[(t * m + i) * m + path[t + 1]];
        if (t < s->n - 1) peak = add_and_max(delta, s->edges > 1 ? s->row : s->left + path[t + 1] * width, width);
        int64_t place = index_of(delta, width, peak);
        path[t] = place < m ? place : m - 1; /* scores may overflow */
    }
    q->value[b] = score_of(s, unary, path);
    for (int64_t t = q->value[b] > -INFINITY ? s->n : 0; t < q->length; t++) path[t] = IGNORE;
}

/* The result of a sequence with an invalid score, instead of a routine: NaN for every number, IGNORE for every label. */
static void fail_one(Chain *s, const Batch *q, int64_t b, REAL *gradient) {
    int64_t at = b * q->length, m = s->m, width = s->width, rest = (q->length - s->n) * m;
    bool reads_messages = q->node_weights; /* `transport` reads log_p, alpha and beta; the others write them */
    if (q->value) q->value[b] = NAN;
    if (q->expected) q->expected[b] = NAN;
    if (q->log_p && !reads_messages) {
        fill(q->log_p + at * m, s->n * m, NAN), fill(q->log_p + (at + s->n) * m, rest, 0);
        if (q->alpha) fill(q->alpha + at * width, s->n * width, NAN);
        if (q->beta) fill(q->beta + at * width, s->n * width, NAN);
    }
    if (q->nodes) fill(q->nodes + at * m, s->n * m, NAN), fill(q->nodes + (at + s->n) * m, rest, 0);
    if (gradient) fill(gradient, (s->edges == 1 ? s->n > 1 : s->n - 1) * m * m, NAN);
    if (q->path) EACH(t, q->length) q->path[at + t] = IGNORE;
}

/* ---- all sequences of a batch ---- */

#define BLOCK 1024

/* out = the sum of `count` parts, `apart` numbers apart */
static void add_parts(const REAL *parts, int64_t count, int64_t apart, int64_t n, REAL *restrict out) {
    memcpy(out, parts, n * sizeof(REAL));
    for (int64_t k = 1; k < count; k++) EACH(j, n) out[j] += parts[k * apart + j];
}

typedef void Load(Chain *);
typedef void Routine(Chain *, const Batch *, int64_t b, REAL *gradient);

static void load_potentials(Chain *s) {
    s->pairwise_range = 0, s->has_forbidden = false;
    if (s->edges == 1) {
        scan_matrix(s, s->pairwise, s->right);
        s->peak = to_potentials(s->right, s->width, false);
    } else {
        EACH(e, s->n - 1) scan_matrix(s, s->pairwise + e * s->m * s->m, s->scratch);
    }
    /* without division, a may be as small as exp(-range) / m everywhere, and the next step squares that */
    s->normalise_each = s->has_forbidden || !(2 * (s->pairwise_range + log(s->m)) < 0.8 * LOG_RANGE);
}

static void load_padded_scores(Chain *s) {
    if (s->edges != 1) return;
    pad(s->pairwise, s->m, s->width, s->right);
    transpose(s->right, s->width, s->left);
}

/* Whether the length, and the labels within it, are in range. */
static bool in_range(const Batch *q, int64_t b) {
    int64_t n = q->lengths[b], outside = 0;
    if (n < 1 || n > q->length) return false;
    if (q->gold) EACH(t, n) outside += (uint64_t)q->gold[b * q->length + t] >= (uint64_t)q->labels;
    return !outside;
}

enum { NO_MEMORY = 1, OUT_OF_RANGE = 2 }; /* error codes; 0 is success */

static int run_chunk(Chain *s, const Batch *q, int64_t k, REAL *gradient, Load *load, Routine *routine) {
    bool invalid_matrix = false;
    for (int64_t i = q->starts[k]; i < q->starts[k + 1]; i++) {
        int64_t b = q->order[i], size = s->m * s->m;
        if (!in_range(q, b)) return OUT_OF_RANGE;
        s->n = q->lengths[b];
        if (i == q->starts[k] || s->edges != 1) {
            load(s);
            invalid_matrix = has_invalid(s->pairwise, s->edges == 1 ? size : (s->n - 1) * size);
        }
        bool invalid = (invalid_matrix && s->n > 1) || has_invalid(q->unary + b * q->length * s->m, s->n * s->m);
        if (invalid)
            fail_one(s, q, b, gradient);
        else
            routine(s, q, b, gradient);
    }
    add_pending(s, gradient);
    return 0;
}

static int run_batch(const Batch *q, Load *load, Routine *routine) {
    int64_t width = q->width, square = width * width, rows = q->length * width;
    int64_t matrices = q->edges * q->labels * q->labels;
    /* Chunks that share a matrix have separate sums, which are added in a fixed order. */
    bool shared = q->pieces > 1 && q->gradient && matrices;
    REAL *parts = shared ? malloc(q->chunks * matrices * sizeof(REAL)) : q->gradient;
    if (shared && !parts) return NO_MEMORY;
    int failed = 0;
#pragma omp parallel num_threads(q->threads) reduction(| : failed) if (q->threads > 1)
    {
        REAL *buffer = malloc((4 * square + 10 * rows + width + 2 * q->length) * sizeof(REAL));
        REAL *r = buffer + 4 * square;
        Chain template = {
            .m = q->labels, .width = width, .edges = q->edges,
            .right = buffer, .left = buffer + square, .scratch = buffer + 2 * square, .sums = buffer + 3 * square,
            .x = r, .a = r + rows, .c = r + 2 * rows, .d = r + 3 * rows, .b = r + 4 * rows, .p = r + 5 * rows,
            .rights = r + 6 * rows, .lefts = r + 7 * rows, .sent_right = r + 8 * rows, .sent_left = r + 9 * rows,
            .row = r + 10 * rows, .a_masses = r + 10 * rows + width,
            .c_masses = r + 10 * rows + width + q->length,
        };
#pragma omp for schedule(dynamic)
        for (int64_t k = 0; k < q->chunks; k++) {
            Chain s = template;
            REAL *gradient = parts ? parts + k * matrices : NULL;
            if (gradient) fill(gradient, matrices, 0);
            s.pairwise = q->pairwise + k / q->pieces * matrices;
            failed |= buffer ? run_chunk(&s, q, k, gradient, load, routine) : NO_MEMORY;
        }
        free(buffer);
        for (int64_t k = 0; shared && k < q->chunks / q->pieces; k++) {
#pragma omp for nowait
            for (int64_t from = 0; from < matrices; from += BLOCK)
                add_parts(parts + k * q->pieces * matrices + from, q->pieces, matrices,
                          from + BLOCK < matrices ? BLOCK : matrices - from, q->gradient + k * matrices + from);
        }
    }
    if (shared) free(parts);
    return failed;
}

int forward(const Batch *q) { return run_batch(q, load_potentials, forward_one); }
int likelihood(const Batch *q) { return run_batch(q, load_potentials, likelihood_one); }
int messages(const Batch *q) { return run_batch(q, load_potentials, messages_one); }
int cross_entropy(const Batch *q) { return run_batch(q, load_potentials, cross_entropy_one); }
int transport(const Batch *q) { return run_batch(q, load_potentials, transport_one); }
int decode(const Batch *q) { return run_batch(q, load_padded_scores, decode_one); }

/* Multiplies x by the weight in place if all weights are equal; else returns 1. */
int scale(const REAL *weights, int64_t sequences, REAL *x, int64_t n) {
    EACH(b, sequences) if (weights[b] != weights[0]) return 1;
    if (sequences && weights[0] != 1) EACH(i, n) x[i] *= weights[0];
    return 0;
}
