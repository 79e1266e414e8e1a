/* The messages and the marginals of one sequence: d, a, b, c and p of chain.c. */

#include "chain.h"

/* One sequence, and the buffers of the thread that works on it. */
typedef struct {
    int64_t n, m, width, edges;
    bool log_domain;
    const REAL *pairwise;
    double peak, pairwise_range; /* of W: its maximum, if all edges share it, and maximum minus minimum */
    double unary_range;          /* the largest maximum minus minimum of U over positions */
    bool has_forbidden;          /* whether W has -inf */
    bool transposed;             /* whether `left` is filled */
    bool normalise_each;         /* whether beliefs must be normalised at every step, to avoid underflow */
    bool pending;                /* whether `sums` must still be multiplied by E and added to the gradient */
    REAL *right, *left, *scratch, *sums; /* E, its transpose, E of one edge or in the log domain: (width, width) */
    REAL *x, *a, *c, *d, *b, *p, *rights, *lefts, *sent_right, *sent_left; /* (L, width) */
    REAL *row, *a_masses, *c_masses; /* (width,), and (L,): what a and c were divided by */
    double peaks, edge_peaks;   /* sums of the maxima subtracted from unary and pairwise */
} Chain;

static void pad_unary(Chain *s, const REAL *unary) {
    EACH(t, s->n) {
        memcpy(s->x + t * s->width, unary + t * s->m, s->m * sizeof(REAL));
        fill(s->x + t * s->width + s->m, s->width - s->m, -INFINITY);
    }
}

/* Fills x, s->peaks and s->unary_range. */
static void load_unary(Chain *s, const REAL *unary, bool log_domain) {
    s->log_domain = log_domain, s->peaks = 0;
    pad_unary(s, unary);
    EACH(t, s->n) { /* a second loop: a vector load right after partial stores would stall */
        REAL *row = s->x + t * s->width, peak = finite_or_zero(maximum(row, s->width));
        subtract(row, s->width, peak);
        s->peaks += peak;
    }
    s->unary_range = -minimum_above(s->x, s->n * s->width, -INFINITY);
    if (!log_domain) exponentiate(s->x, s->n * s->width);
}

/* Pads the matrix into `table`; updates s->pairwise_range and s->has_forbidden. */
static void scan_matrix(Chain *s, const REAL *scores, REAL *table) {
    int64_t size = s->width * s->width, forbidden = 0;
    ASSUME_PADDED(size);
    pad(scores, s->m, s->width, table);
    s->pairwise_range = fmax(s->pairwise_range, maximum(table, size) - minimum_above(table, size, -INFINITY));
#pragma omp simd reduction(+ : forbidden)
    EACH(i, size) forbidden += table[i] == -INFINITY;
    s->has_forbidden |= forbidden > size - s->m * s->m;
}

/* E of an edge, or its transpose, in the current domain; returns the maximum that was subtracted. */
static double load_edge(Chain *s, int64_t edge, bool reverse) {
    pad(s->pairwise + edge * s->m * s->m, s->m, s->width, reverse ? s->left : s->scratch);
    double peak = to_potentials(reverse ? s->left : s->scratch, s->width, s->log_domain);
    if (reverse) transpose(s->left, s->width, s->scratch);
    return peak;
}

/* E of the first edge. If each edge has its own matrix, `next_table` loads it into the same buffer. */
static REAL *first_table(Chain *s, bool reverse) {
    if (s->edges != 1) return s->scratch;
    if (s->log_domain) {
        load_edge(s, 0, reverse);
        s->transposed = false;
        return s->scratch;
    }
    if (reverse && !s->transposed) transpose(s->right, s->width, s->left), s->transposed = true;
    return reverse ? s->left : s->right;
}

static double next_table(Chain *s, int64_t edge, bool reverse) {
    return s->edges == 1 ? 0 : load_edge(s, edge, reverse);
}

/* The largest range of log messages that is safe in the exp domain. If every transition is possible, the range of
   log a_t and log c_t is at most that of W plus that of U_t. With forbidden transitions it can grow at every step, so
   each message is checked. */
static double max_range(const Chain *s) { return LOG_RANGE * (s->has_forbidden ? 0.4 : 0.7); }

static bool exp_domain_safe(const Chain *s) { return s->unary_range + s->pairwise_range <= max_range(s); }

/* The smallest safe positive entry of a message; 0 if no check is needed. */
static REAL message_floor(const Chain *s) { return !s->log_domain && s->has_forbidden ? exp(-max_range(s)) : 0; }

static REAL inverse(REAL x) { return x == 0 ? 0 : 1 / x; }

static void divide(REAL *restrict x, int64_t n, REAL by) {
    ASSUME_PADDED(n);
    REAL scale = inverse(by);
    EACH(j, n) x[j] *= scale;
}

/* The next message d and its a (in reverse, b and c), and the mass to divide a by. In the exp domain `normalise`
   divides later if possible, so that no step waits for the mass. Returns whether the result is safe from underflow. */
static inline bool advance(
    Chain *s, const REAL *table, REAL *messages, REAL *beliefs, REAL *masses, int64_t k, bool reverse, REAL floor) {
    int64_t width = s->width, t = reverse ? s->n - 1 - k : k, before = reverse ? t + 1 : t - 1;
    const REAL *x = s->x + t * width;
    REAL *message = messages + t * width, *belief = beliefs + t * width;
    if (k && !s->log_domain) {
        REAL scale = s->normalise_each ? 1 : inverse(masses[before]);
        masses[t] = step(beliefs + before * width, scale, table, x, s->m, width, message, belief);
        if (s->normalise_each) divide(belief, width, masses[t]);
    } else {
        if (k)
            product(beliefs + before * width, table, s->m, width, message, true);
        else
            fill(message, width, s->log_domain ? 0 : 1);
        masses[t] = normalised_product(x, message, belief, width, s->log_domain);
        if (!s->log_domain && !s->normalise_each) memcpy(belief, x, width * sizeof(REAL));
    }
    return floor == 0 || minimum_above(belief, width, 0) >= floor;
}

static void normalise(Chain *s, REAL *beliefs, const REAL *masses) {
    if (!s->log_domain && !s->normalise_each) EACH(t, s->n) divide(beliefs + t * s->width, s->width, masses[t]);
}

static bool sweep(Chain *s, REAL *messages, REAL *beliefs, bool reverse) {
    const REAL *table = first_table(s, reverse);
    REAL *masses = reverse ? s->c_masses : s->a_masses;
    double peaks = s->peak * (s->n - 1);
    EACH(k, s->n) {
        if (k) peaks += next_table(s, reverse ? s->n - 1 - k : k - 1, reverse);
        if (!advance(s, table, messages, beliefs, masses, k, reverse, message_floor(s))) return false;
    }
    s->edge_peaks = peaks;
    normalise(s, beliefs, masses);
    return true;
}

/* Both sweeps, interleaved: the processor continues with one while a sum of the other is pending. */
static bool sweep_interleaved(Chain *s, REAL *d, REAL *b) {
    const REAL *right = first_table(s, false), *left = first_table(s, true);
    REAL floor = message_floor(s);
    s->edge_peaks = s->peak * (s->n - 1);
    EACH(k, s->n) {
        bool safe = advance(s, right, d, s->a, s->a_masses, k, false, floor);
        if (!advance(s, left, b, s->c, s->c_masses, k, true, floor) || !safe) return false;
    }
    normalise(s, s->a, s->a_masses), normalise(s, s->c, s->c_masses);
    return true;
}

static bool sweep_exp_domain(Chain *s, REAL *d, REAL *b) {
    if (!exp_domain_safe(s)) return false;
    return s->edges == 1 ? sweep_interleaved(s, d, b) : sweep(s, d, s->a, false) && sweep(s, b, s->c, true);
}

static void sweep_log_domain(Chain *s, const REAL *unary, REAL *d, REAL *b) {
    load_unary(s, unary, true);
    sweep(s, d, s->a, false), sweep(s, b, s->c, true);
}

/* p_t = a_t b_t / mass_t and, in the exp domain, `sent_right` = a_t / mass_t. Returns whether the products are safe
   from underflow. */
static bool posterior(Chain *s, const REAL *b) {
    int64_t width = s->width;
    ASSUME_PADDED(width);
    const REAL floor = exp(-0.8 * LOG_RANGE);
    EACH(t, s->n) {
        const REAL *a = s->a + t * width, *here = b + t * width;
        REAL *restrict p = s->p + t * width, *restrict sent_right = s->sent_right + t * width;
        REAL mass = normalised_product(a, here, p, width, s->log_domain);
        if (s->log_domain) continue;
        if (!(mass > floor)) return false;
        REAL scale = 1 / mass;
        EACH(j, width) sent_right[j] = a[j] * scale;
    }
    return true;
}

/* Both sweeps and p, in the exp domain if that is safe. */
static void infer(Chain *s, const REAL *unary) {
    load_unary(s, unary, false);
    if (sweep_exp_domain(s, s->d, s->b) && posterior(s, s->b)) return;
    sweep_log_domain(s, unary, s->d, s->b);
    posterior(s, s->b);
}

/* log Z: the sum of all logs of masses and maxima that were removed. */
static double log_partition(const Chain *s) {
    double gained = s->peaks + s->edge_peaks;
#pragma omp simd reduction(+ : gained)
    EACH(t, s->n) gained += s->log_domain ? s->a_masses[t] : logarithm(s->a_masses[t]);
    return gained;
}
