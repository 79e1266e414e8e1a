/* The messages and the marginals of one sequence: d, a, b, c and p of chain.c. */

#include "chain.h"

/* A sequence at work, and a thread's room for it. */
typedef struct {
    int64_t n, m, width, edges;
    bool logs;
    const REAL *pairwise;
    double peak, range; /* of W: its highest score, where all edges share it, and by how much its scores differ */
    double spread;      /* of U: by how much the scores of a position differ, at most */
    bool holes, turned; /* whether W has -inf, and whether `left` is filled */
    bool wide;          /* whether beliefs have to be normalised before the next step, lest they underflow in it */
    bool pending;       /* whether `sums` is to be multiplied by E and added to the gradient, once for all sequences */
    REAL *right, *left, *scratch, *sums; /* E, its transpose, room for that of an edge or in logs: (width, width) */
    REAL *x, *a, *c, *d, *b, *p, *rights, *lefts, *sent, *returned; /* (L, width) */
    REAL *row, *taken, *masses; /* (width,), and (L,): what a and c were divided by */
    double peaks, edge_peaks;   /* what was taken out of unary and pairwise */
} Chain;

static void pad_unary(Chain *s, const REAL *unary) {
    EACH(t, s->n) {
        memcpy(s->x + t * s->width, unary + t * s->m, s->m * sizeof(REAL));
        fill(s->x + t * s->width + s->m, s->width - s->m, -INFINITY);
    }
}

/* x, s->peaks and s->spread */
static void load_unary(Chain *s, const REAL *unary, bool logs) {
    s->logs = logs, s->peaks = 0;
    pad_unary(s, unary);
    EACH(t, s->n) { /* a second loop, as what was just written in pieces cannot yet be read as a whole */
        REAL *row = s->x + t * s->width, peak = or_zero(highest(row, s->width));
        subtract(row, s->width, peak);
        s->peaks += peak;
    }
    s->spread = -lowest(s->x, s->n * s->width, -INFINITY);
    if (!logs) exponentiate(s->x, s->n * s->width);
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

/* How far the messages may fall. With every transition possible, log a_t and log c_t range no further than W and U_t
   together. With some impossible they may fall further at every step, and have to be watched. */
static double limit(const Chain *s) { return SPAN * (s->holes ? 0.4 : 0.7); }

static bool in_reach(const Chain *s) { return s->spread + s->range <= limit(s); }

/* The lowest that a message may have, if that needs watching. */
static REAL least(const Chain *s) { return !s->logs && s->holes ? exp(-limit(s)) : 0; }

static REAL inverse(REAL x) { return x == 0 ? 0 : 1 / x; }

static void divide(REAL *restrict x, int64_t n, REAL by) {
    WHOLE(n);
    REAL scale = inverse(by);
    EACH(j, n) x[j] *= scale;
}

/* The next message d and its a (in reverse, b and c), and the mass that a was divided by. In plain numbers that is left
   to `normalise` if possible, so that no step has to wait for the mass. Returns whether they can be relied on. */
static inline bool advance(
    Chain *s, const REAL *table, REAL *messages, REAL *beliefs, REAL *masses, int64_t k, bool reverse, REAL floor) {
    int64_t width = s->width, t = reverse ? s->n - 1 - k : k, before = reverse ? t + 1 : t - 1;
    const REAL *x = s->x + t * width;
    REAL *message = messages + t * width, *belief = beliefs + t * width;
    if (k && !s->logs) {
        REAL scale = s->wide ? 1 : inverse(masses[before]);
        masses[t] = step(beliefs + before * width, scale, table, x, s->m, width, message, belief);
        if (s->wide) divide(belief, width, masses[t]);
    } else {
        if (k)
            product(beliefs + before * width, table, s->m, width, message, true);
        else
            fill(message, width, s->logs ? 0 : 1);
        masses[t] = condense(x, message, belief, width, s->logs);
        if (!s->logs && !s->wide) memcpy(belief, x, width * sizeof(REAL));
    }
    return floor == 0 || lowest(belief, width, 0) >= floor;
}

static void normalise(Chain *s, REAL *beliefs, const REAL *masses) {
    if (!s->logs && !s->wide) EACH(t, s->n) divide(beliefs + t * s->width, s->width, masses[t]);
}

static bool sweep(Chain *s, REAL *messages, REAL *beliefs, bool reverse) {
    const REAL *table = first_table(s, reverse);
    REAL *masses = reverse ? s->masses : s->taken;
    double peaks = s->peak * (s->n - 1);
    EACH(k, s->n) {
        if (k) peaks += next_table(s, reverse ? s->n - 1 - k : k - 1, reverse);
        if (!advance(s, table, messages, beliefs, masses, k, reverse, least(s))) return false;
    }
    s->edge_peaks = peaks;
    normalise(s, beliefs, masses);
    return true;
}

/* Both sweeps. By turns, so that the processor goes on with one while a sum of the other is not yet there. */
static bool sweep_by_turns(Chain *s, REAL *d, REAL *b) {
    const REAL *right = first_table(s, false), *left = first_table(s, true);
    REAL floor = least(s);
    s->edge_peaks = s->peak * (s->n - 1);
    EACH(k, s->n) {
        bool sound = advance(s, right, d, s->a, s->taken, k, false, floor);
        if (!advance(s, left, b, s->c, s->masses, k, true, floor) || !sound) return false;
    }
    normalise(s, s->a, s->taken), normalise(s, s->c, s->masses);
    return true;
}

static bool sweep_plain(Chain *s, REAL *d, REAL *b) {
    if (!in_reach(s)) return false;
    return s->edges == 1 ? sweep_by_turns(s, d, b) : sweep(s, d, s->a, false) && sweep(s, b, s->c, true);
}

static void sweep_logs(Chain *s, const REAL *unary, REAL *d, REAL *b) {
    load_unary(s, unary, true);
    sweep(s, d, s->a, false), sweep(s, b, s->c, true);
}

/* p_t = a_t b_t / mass_t, and a_t / mass_t, which tells what a transition takes along, into `sent`; in logs p alone.
   Returns whether the products can be relied on. */
static bool posterior(Chain *s, const REAL *b) {
    int64_t width = s->width;
    WHOLE(width);
    const REAL floor = exp(-0.8 * SPAN);
    EACH(t, s->n) {
        const REAL *a = s->a + t * width, *here = b + t * width;
        REAL *restrict p = s->p + t * width, *restrict sent = s->sent + t * width;
        REAL mass = condense(a, here, p, width, s->logs);
        if (s->logs) continue;
        if (!(mass > floor)) return false;
        REAL scale = 1 / mass;
        EACH(j, width) sent[j] = a[j] * scale;
    }
    return true;
}

/* Both sweeps and p, in plain numbers if they can be relied on. */
static void infer(Chain *s, const REAL *unary) {
    load_unary(s, unary, false);
    if (sweep_plain(s, s->d, s->b) && posterior(s, s->b)) return;
    sweep_logs(s, unary, s->d, s->b);
    posterior(s, s->b);
}

/* log Z, from all that was taken out by the last sweep and before. */
static double log_partition(const Chain *s) {
    double gained = s->peaks + s->edge_peaks;
#pragma omp simd reduction(+ : gained)
    EACH(t, s->n) gained += s->logs ? s->taken[t] : logarithm(s->taken[t]);
    return gained;
}
