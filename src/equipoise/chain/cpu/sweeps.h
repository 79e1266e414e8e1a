/* The messages and the marginals of one sequence: d, a, b, c and p of chain.c. */

#include "products.h"

/* The matrix W of a group of sequences, its potentials E, and the buffers of the thread that works on it. */
typedef struct {
    const REAL *pairwise;
    double peak, pairwise_range; /* of W: its maximum, if all edges share it, and maximum minus minimum */
    bool has_forbidden;          /* whether W has -inf */
    bool transposed;             /* whether `left` is filled */
    bool normalise_each;         /* whether beliefs must be normalised at every step, to avoid underflow */
    REAL *pending;               /* the gradient to which `sums`, multiplied by E, must still be added, or NULL */
    REAL *right, *left, *scratch, *sums; /* tables of E, its transpose, E of one edge or in the log domain */
    void *more; /* memory that a routine asked for */
} Matrix;

/* One sequence and its buffers. */
typedef struct {
    Matrix *matrix;
    int64_t index; /* in the batch */
    REAL *gradient; /* where that of its matrix is summed */
    int64_t n, m, width, edges;
    bool log_domain;
    bool swept;         /* whether its messages are filled, in the exp domain */
    double unary_range; /* the largest maximum minus minimum of U over positions */
    double peaks, edge_peaks; /* sums of the maxima subtracted from unary and pairwise */
    REAL *x, *a, *c, *b, *p, *sent_right, *d, *rights, *lefts, *sent_left; /* (L, width); d is NULL if not needed */
    REAL *row, *a_masses, *c_masses; /* (width,), and (L,): what a and c were divided by */
} Chain;

/* Fills x with the rows of U, padded with -inf, minus their maxima if `shift`. The sum of these goes to s->peaks. */
ALWAYS void load_rows(Chain *s, const REAL *unary, const bool shift) {
    int64_t m = s->m, width = s->width, rest = width - LANES;
    ASSUME_PADDED(width);
    Bits inside; /* the lanes of the last vector that have a label */
    EACH(k, LANES) inside[k] = rest + k < m ? -1 : 0;
    s->peaks = 0;
    EACH(t, s->n) {
        const REAL *row = unary + t * m;
        REAL copy[width], *x = s->x + t * width, peak = 0;
        if (t * m + width > s->n * m) row = memcpy(copy, row, m * sizeof(REAL)); /* its vectors reach beyond the end */
        Vector last = choose(inside, AT(row + rest, 0), ALL(-INFINITY)), peaks = last;
        if (shift) {
            EACH_VECTOR(j, rest) peaks = vector_max(AT(row + j, 0), peaks);
            peak = finite_or_zero(horizontal_max(peaks));
        }
        EACH_VECTOR(j, rest) AT(x + j, 0) = AT(row + j, 0) - peak;
        AT(x + rest, 0) = last - peak;
        s->peaks += peak;
    }
}

/* Fills x, s->peaks and s->unary_range. */
static void load_unary(Chain *s, const REAL *unary, bool log_domain) {
    s->log_domain = log_domain;
    load_rows(s, unary, true);
    s->unary_range = -minimum_above(s->x, s->n * s->width, -INFINITY);
    if (!log_domain) exponentiate(s->x, s->n * s->width);
}

/* Pads the matrix into `table`; updates s->matrix->pairwise_range and s->matrix->has_forbidden. */
static void scan_matrix(Chain *s, const REAL *scores, REAL *table) {
    int64_t size = s->width * s->width, forbidden = 0;
    ASSUME_PADDED(size);
    pad(scores, s->m, s->width, table);
    double range = maximum(table, size) - minimum_above(table, size, -INFINITY);
    s->matrix->pairwise_range = fmax(s->matrix->pairwise_range, range);
#pragma omp simd reduction(+ : forbidden)
    EACH(i, size) forbidden += table[i] == -INFINITY;
    s->matrix->has_forbidden |= forbidden > size - s->m * s->m;
}

/* E of an edge, or its transpose, in the current domain; returns the maximum that was subtracted. */
static double load_edge(Chain *s, int64_t edge, bool reverse) {
    pad(s->matrix->pairwise + edge * s->m * s->m, s->m, s->width, reverse ? s->matrix->left : s->matrix->scratch);
    double peak = to_potentials(reverse ? s->matrix->left : s->matrix->scratch, s->width, s->log_domain);
    if (reverse) transpose(s->matrix->left, s->width, s->matrix->scratch);
    return peak;
}

/* E of the first edge. If each edge has its own matrix, `next_table` loads it into the same buffer. */
static REAL *first_table(Chain *s, bool reverse) {
    if (s->edges != 1) return s->matrix->scratch;
    if (s->log_domain) {
        load_edge(s, 0, reverse);
        s->matrix->transposed = false;
        return s->matrix->scratch;
    }
    Matrix *matrix = s->matrix;
    if (reverse && !matrix->transposed) transpose(matrix->right, s->width, matrix->left), matrix->transposed = true;
    return reverse ? matrix->left : matrix->right;
}

static double next_table(Chain *s, int64_t edge, bool reverse) {
    return s->edges == 1 ? 0 : load_edge(s, edge, reverse);
}

/* The largest range of log messages that is safe in the exp domain. If every transition is possible, the range of
   log a_t and log c_t is at most that of W plus that of U_t. With forbidden transitions it can grow at every step, so
   each message is checked. */
static double max_range(const Chain *s) { return LOG_RANGE * (s->matrix->has_forbidden ? 0.4 : 0.7); }

static bool exp_domain_safe(const Chain *s) { return s->unary_range + s->matrix->pairwise_range <= max_range(s); }

/* The smallest safe positive entry of a message; 0 if no check is needed. */
static REAL message_floor(const Chain *s) {
    return !s->log_domain && s->matrix->has_forbidden ? exp(-max_range(s)) : 0;
}

static REAL inverse(REAL x) { return x == 0 ? 0 : 1 / x; }

static inline void divide(REAL *x, int64_t n, REAL by) {
    ASSUME_PADDED(n);
    REAL scale = inverse(by);
    EACH_VECTOR(j, n) AT(x + j, 0) *= scale;
}

/* The step of one sequence to the k-th position of its sweep. In the exp domain the belief before it is divided by its
   mass only here, if possible, so that no step waits for a division. */
static inline Step next_step(const Chain *s, int64_t k, bool reverse) {
    int64_t t = reverse ? s->n - 1 - k : k, before = reverse ? t + 1 : t - 1, at = t * s->width;
    REAL *beliefs = reverse ? s->c : s->a, *masses = reverse ? s->c_masses : s->a_masses;
    return (Step){
        .before = k ? beliefs + before * s->width : NULL, .x = s->x + at,
        .message = reverse ? s->b + at : s->d ? s->d + at : s->row, .belief = beliefs + at, .mass = masses + t,
        .scale = k && !s->log_domain && !s->matrix->normalise_each ? inverse(masses[before]) : 1,
    };
}

/* The next message d and belief a (in reverse, b and c) of each sequence, and the mass to divide the belief by. A
   sequence whose result may underflow is no longer `swept`. In the log domain the group has one sequence. */
static inline void advance(Chain **group, int64_t count, const REAL *table, int64_t k, bool reverse, REAL floor) {
    int64_t m = group[0]->m, width = group[0]->width;
    bool log_domain = group[0]->log_domain, normalise_each = group[0]->matrix->normalise_each;
    Step steps[GROUP];
    EACH(g, count) steps[g] = next_step(group[g], k, reverse);
    if (k && !log_domain && count == 1)
        step_group(steps, table, m, width, 1);
    else if (k && !log_domain)
        step(steps, count, table, m, width);
    if (k && !log_domain && !normalise_each) return; /* then floor is 0 */
    EACH(g, count) {
        const Step *now = steps + g;
        if (!k || log_domain) {
            if (k)
                log_product(now->before, table, m, width, now->message);
            else
                fill(now->message, width, log_domain ? 0 : 1);
            *now->mass = normalised_product(now->x, now->message, now->belief, width, log_domain);
            if (!log_domain && !normalise_each) memcpy(now->belief, now->x, width * sizeof(REAL));
        } else if (normalise_each) {
            divide(now->belief, width, *now->mass);
        }
        if (floor > 0 && minimum_above(now->belief, width, 0) < floor) group[g]->swept = false;
    }
}

/* Divides a (in reverse, c) by its masses, where that is still to do. */
static void normalise(Chain *s, bool reverse) {
    REAL *beliefs = reverse ? s->c : s->a, *masses = reverse ? s->c_masses : s->a_masses;
    if (!s->log_domain && !s->matrix->normalise_each)
        EACH(t, s->n) divide(beliefs + t * s->width, s->width, masses[t]);
}

static void sweep(Chain *s, bool reverse) {
    const REAL *table = first_table(s, reverse);
    double peaks = s->matrix->peak * (s->n - 1);
    for (int64_t k = 0; k < s->n && s->swept; k++) {
        if (k) peaks += next_table(s, reverse ? s->n - 1 - k : k - 1, reverse);
        advance(&s, 1, table, k, reverse, message_floor(s));
    }
    s->edge_peaks = peaks;
}

static void insert_by_length(Chain **group, int64_t count, Chain *s) {
    for (; count && group[count - 1]->n < s->n; count--) group[count] = group[count - 1];
    group[count] = s;
}

/* Whether two tables of E fit into the last cache together. */
static bool tables_fit(int64_t width) { return 2 * width * width * (int64_t)sizeof(REAL) <= 8 << 20; }

/* All steps of sequences that share E, longest first: forward by `right`, in reverse by `left`; each may be NULL. */
static void step_together(Chain **group, int64_t active, const REAL *right, const REAL *left, REAL floor) {
    EACH(k, group[0]->n) {
        while (group[active - 1]->n <= k) active--;
        if (right) advance(group, active, right, k, false, floor);
        if (left) advance(group, active, left, k, true, floor);
    }
}

/* The forward sweep, or both, of sequences that share E, longest first. Both sweeps are interleaved: the processor
   continues with one while a sum of the other is pending. Large tables would displace each other. */
static void sweep_together(Chain **group, int64_t count, bool both) {
    Chain *longest = group[0];
    const REAL *right = first_table(longest, false), *left = both ? first_table(longest, true) : NULL;
    REAL floor = message_floor(longest);
    if (tables_fit(longest->width)) {
        step_together(group, count, right, left, floor);
    } else {
        step_together(group, count, right, NULL, floor);
        step_together(group, count, NULL, left, floor);
    }
    EACH(g, count) group[g]->edge_peaks = group[g]->matrix->peak * (group[g]->n - 1);
}

/* Sweeps in the exp domain. Afterwards `swept` tells of each sequence whether its result is safe. */
static void sweep_exp_domain(Chain *members, int64_t count, bool both) {
    Chain *group[GROUP];
    int64_t safe = 0;
    EACH(g, count) {
        Chain *s = members + g;
        s->swept = exp_domain_safe(s);
        if (s->swept && s->edges == 1) {
            insert_by_length(group, safe++, s);
        } else if (s->swept) {
            sweep(s, false);
            if (both && s->swept) sweep(s, true);
        }
    }
    if (safe) sweep_together(group, safe, both);
}

static void sweep_log_domain(Chain *s, const REAL *unary, bool both) {
    load_unary(s, unary, true);
    s->swept = true;
    sweep(s, false);
    if (both) sweep(s, true);
}

/* The next vectors of p and sent_right, times `scale`. */
ALWAYS void scale_columns(const REAL *a, REAL *p, REAL *sent_right, REAL scale, const int count) {
    UNROLLED for (int k = 0; k < count; k++) {
        AT(p, k) *= scale;
        AT(sent_right, k) = AT(a, k) * scale;
    }
}

/* p_t = a_t b_t / mass_t and, in the exp domain, `sent_right` = a_t / mass_t. Normalises a and c. Returns whether the
   products are safe from underflow. */
static bool posterior(Chain *s) {
    int64_t width = s->width;
    ASSUME_PADDED(width);
    const REAL floor = exp(-0.8 * LOG_RANGE);
    normalise(s, false);
    normalise(s, true);
    EACH(t, s->n) {
        const REAL *a = s->a + t * width, *here = s->b + t * width;
        REAL *p = s->p + t * width, *sent_right = s->sent_right + t * width;
        if (s->log_domain) {
            normalised_product(a, here, p, width, true);
            continue;
        }
        Vector sum = {0};
        EACH_PANEL(4, sum = multiply_vectors(a + j, here + j, p + j, sum, count));
        REAL mass = horizontal_sum(sum);
        if (!(mass > floor)) return false;
        REAL scale = 1 / mass;
        EACH_PANEL(4, scale_columns(a + j, p + j, sent_right + j, scale, count));
    }
    return true;
}

/* p, after sweeps in the exp domain; in the log domain if those or p are not safe. */
static void infer(Chain *s, const REAL *unary) {
    if (s->swept && posterior(s)) return;
    sweep_log_domain(s, unary, true);
    posterior(s);
}

/* log Z: the sum of all logs of masses and maxima that were removed. */
static double log_partition(const Chain *s) {
    double gained = s->peaks + s->edge_peaks;
#pragma omp simd reduction(+ : gained)
    EACH(t, s->n) gained += s->log_domain ? s->a_masses[t] : logarithm(s->a_masses[t]);
    return gained;
}
