/* What comes before and after the chain in a layer: must equal the torch code.

       prepare      which positions count, where each moves, sizes of U and W; then U' = a U + boundaries and W' = b W in
                    the moved positions, -inf where forbidden
       gradients    dU, dW, dstart and dend; u, w and s of learned scaling move
       place        labels moved back

   (`crf.potentials`, `masking`, `scaling.learned` and `scaling.pace` have the formulas.) In torch these are 70 small
   operations, and 100 more with learned scaling, which take several times as long as a short chain. Sums are in double,
   those over sequences in order, so that results do not depend on the number of threads. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define IGNORE (-100) /* as in problem.py */
#define EACH(j, n) for (int64_t j = 0; j < (n); j++)
#define TINY (DIGITS == 23 ? 0x1p-126 : 0x1p-1022) /* the smallest normal number */

enum { FIXED, LEARNED, LEARNING };             /* as in kernel_state.py */
enum { INVALID = 1, HAS_EMPTY = 2, MOVED = 4 }; /* as in prepare.py: invalid labels, empty sequences, moved positions */

/* Packed by prepare.py. What is optional is NULL if it is not given. */
typedef struct {
    int64_t sequences, length, labels, kind, threads;
    double horizon, step, slower_after, smoothing;
    const REAL *unary, *pairwise, *start, *end;
    const uint8_t *allowed, *allowed_start, *allowed_end, *mask;
    const int64_t *gold;
    REAL *scales, *squares, *steps, *size, *examples; /* the state of scaling: alpha, or u and w, and the rest */
    int64_t *lengths, *moved;
    uint8_t *empty;
    REAL *to_unary, *to_pairwise; /* U' and W' */
    REAL *sizes, *counts, *parts; /* per sequence, then of the pairwise part; parts are two arrays of this size */
    REAL *found;
    int32_t *rank;
} Layer;

enum { SIZE, EXAMPLES, A, B, MEAN, NUMBER }; /* fields of `found`, which the forward pass leaves for the backward pass */

typedef struct {
    const REAL *unary, *pairwise; /* dU' and dW' */
    REAL *to_unary, *to_pairwise, *to_start, *to_end;
} Gradients;

static REAL positive_or_one(REAL x) { return x > 0 ? x : 1; }

static REAL sign(REAL x) { return (REAL)(x > 0) - (REAL)(x < 0); }

static bool is_finite(REAL x) { return x < INFINITY && x > -INFINITY; } /* unlike isfinite, it vectorises */

/* Adds the absolute values of the scores that count, and their number. */
static void measure(const REAL *x, const uint8_t *allowed, int64_t n, double *total, double *count) {
    double sum = 0;
    int64_t number = 0;
    if (allowed) {
        EACH(j, n) if (allowed[j] && x[j] != -INFINITY) sum += fabs(x[j]), number++;
    } else {
#pragma omp simd reduction(+ : sum, number)
        EACH(j, n) sum += x[j] == -INFINITY ? 0 : fabs(x[j]), number += x[j] != -INFINITY;
    }
    *total += sum, *count += number;
}

static void store_size(const Layer *q, int64_t at, double total, double count) {
    q->counts[at] = count > 1 ? count : 1;
    q->sizes[at] = total / q->counts[at];
}

/* Whether the constraints allow a label in the first place (before < 0), or after another. */
static bool follows(const Layer *q, int64_t before, int64_t label) {
    if (!q->allowed) return true;
    return before < 0 ? q->allowed_start[label] : q->allowed[before * q->labels + label];
}

/* The number of positions from t on that count and move together, so that their scores are one array. With constraints,
   the first and the last position of a sequence are alone. */
static int64_t run_from(const Layer *q, int64_t n, int64_t t) {
    const int32_t *rank = q->rank + n * q->length;
    int64_t end = t, last = q->lengths[n] - 1;
    if (q->allowed && (rank[t] == 0 || rank[t] == last)) return 1;
    while (end < q->length && rank[end] >= 0 && !(q->allowed && rank[end] == last)) end++;
    return end - t;
}

#define EACH_RUN(q, n, t, count) \
    for (int64_t t = 0, count; t < (q)->length; t += count ? count : 1) \
        if ((count = run_from(q, n, t)))

/* The positions of sequence n that count: their places, labels and size. */
static int keep(const Layer *q, int64_t n) {
    int64_t at = n * q->length, m = q->labels, kept = 0, before = -1;
    int status = 0;
    EACH(t, q->length) {
        bool counts = (!q->mask || q->mask[at + t]) && (!q->gold || q->gold[at + t] != IGNORE);
        q->rank[at + t] = counts ? kept : -1;
        if (!counts) continue;
        if (q->gold) {
            int64_t label = q->gold[at + t];
            if ((uint64_t)label >= (uint64_t)m || !follows(q, before, label)) return INVALID;
            q->moved[at + kept] = before = label;
        }
        if (kept != t) status |= MOVED;
        kept++;
    }
    if (q->gold && kept && q->allowed && !q->allowed_end[before]) return INVALID;
    if (q->gold) memset(q->moved + at + kept, 0, (q->length - kept) * sizeof(int64_t));
    q->empty[n] = !kept, q->lengths[n] = kept ? kept : 1;
    if (q->kind == LEARNING) {
        double total = 0, number = 0;
        EACH_RUN(q, n, t, count) measure(q->unary + (at + t) * m, NULL, count * m, &total, &number);
        store_size(q, n, total, number);
    }
    return status | (kept ? 0 : HAS_EMPTY);
}

static void measure_pairwise(const Layer *q) {
    double total = 0, count = 0;
    int64_t m = q->labels;
    EACH(i, m) measure(q->pairwise + i * m, q->allowed ? q->allowed + i * m : NULL, m, &total, &count);
    if (q->start) measure(q->start, q->allowed_start, m, &total, &count);
    if (q->end) measure(q->end, q->allowed_end, m, &total, &count);
    store_size(q, q->sequences, total, count);
}

/* a and b, and in a training step s. */
static void find_factors(const Layer *q) {
    REAL *found = q->found;
    if (q->kind == FIXED) {
        found[A] = q->scales[0], found[B] = 1;
        return;
    }
    double mean = 0, number = 0, s = *q->size;
    if (q->kind == LEARNING) {
        EACH(n, q->sequences) if (!q->empty[n]) mean += q->sizes[n], number++;
        mean /= number > 1 ? number : 1;
        bool usable = mean > 0 && is_finite(mean);
        if (!usable) number = 0;
        double covered = fmin(*q->examples + number, q->horizon), share = fmin(number / fmax(covered, 1), 1);
        if (usable) s += share * (mean - s);
        if (share == 1) s = mean;
        found[EXAMPLES] = covered, found[MEAN] = mean, found[NUMBER] = number;
    }
    found[SIZE] = s;
    found[A] = (REAL)exp(q->scales[0]) / positive_or_one(s);
    found[B] = (REAL)exp(q->scales[1]) / positive_or_one(q->sizes[q->sequences]);
}

/* out += b * boundary, and -inf where it is not allowed */
static void add_boundary(const REAL *boundary, const uint8_t *allowed, REAL b, int64_t m, REAL *out) {
    if (boundary) EACH(j, m) out[j] += b * boundary[j];
    if (allowed) EACH(j, m) if (!allowed[j]) out[j] = -INFINITY;
}

/* U' of sequence n; 0 beyond its length, and if it is empty. */
static void assemble(const Layer *q, int64_t n) {
    int64_t at = n * q->length, m = q->labels, last = q->lengths[n] - 1, kept = q->empty[n] ? 0 : last + 1;
    REAL a = q->found[A], b = q->found[B], *rows = q->to_unary + at * m;
    EACH_RUN(q, n, t, count) {
        const REAL *x = q->unary + (at + t) * m;
        REAL *restrict out = rows + q->rank[at + t] * m;
        EACH(j, count * m) out[j] = a * x[j];
    }
    add_boundary(q->start, q->allowed_start, b, m, rows);
    add_boundary(q->end, q->allowed_end, b, m, rows + last * m);
    memset(q->to_unary + (at + kept) * m, 0, (q->length - kept) * m * sizeof(REAL));
}

int prepare(const Layer *q) {
    int status = 0;
#pragma omp parallel for num_threads(q->threads) reduction(| : status) if (q->threads > 1)
    EACH(n, q->sequences) status |= keep(q, n);
    if (status & INVALID) return status;
    if (q->kind != FIXED) measure_pairwise(q);
    find_factors(q);
#pragma omp parallel for num_threads(q->threads) if (q->threads > 1)
    EACH(n, q->sequences) assemble(q, n);
    EACH(i, q->labels * q->labels)
        q->to_pairwise[i] = q->allowed && !q->allowed[i] ? -INFINITY : q->found[B] * q->pairwise[i];
    return status;
}

/* ---- backward ---- */

static REAL finite_product(REAL x, REAL gradient) { return is_finite(x) ? x * gradient : 0; }

/* Whether the constraints allow label j at this place of a sequence that ends at `last`. */
static bool allowed_at(const Layer *q, int64_t place, int64_t last, int64_t j) {
    return (place != 0 || q->allowed_start[j]) && (place != last || q->allowed_end[j]);
}

/* <x, gradient> over n scores from a place on. A gradient of a forbidden label does not count. */
static double inner_product(
    const Layer *q, const REAL *x, const REAL *gradient, int64_t place, int64_t last, int64_t n) {
    double sum = 0;
    if (q->allowed && (place == 0 || place == last)) {
        EACH(j, n) if (allowed_at(q, place, last, j)) sum += finite_product(x[j], gradient[j]);
        return sum;
    }
#pragma omp simd reduction(+ : sum)
    EACH(j, n) sum += finite_product(x[j], gradient[j]);
    return sum;
}

/* The parts of sequence n in <dU', a U> and <dW', b W>, the gradients of u and w. */
static void products(const Layer *q, const Gradients *d, int64_t n) {
    int64_t at = n * q->length, m = q->labels, last = q->lengths[n] - 1;
    const REAL *rows = d->unary + at * m;
    double to_u = 0, to_w = 0;
    EACH_RUN(q, n, t, count) {
        int64_t place = q->rank[at + t];
        to_u += inner_product(q, q->unary + (at + t) * m, rows + place * m, place, last, count * m);
    }
    if (q->start && !q->empty[n]) to_w += inner_product(q, q->start, rows, 0, last, m);
    if (q->end && !q->empty[n]) to_w += inner_product(q, q->end, rows + last * m, last, last, m);
    q->parts[n] = q->found[A] * to_u, q->parts[q->sequences + 1 + n] = q->found[B] * to_w;
}

static void pairwise_products(const Layer *q, const Gradients *d) {
    double to_w = 0;
    EACH(i, q->labels * q->labels) if (!q->allowed || q->allowed[i]) to_w += finite_product(q->pairwise[i], d->pairwise[i]);
    q->parts[q->sequences] = 0, q->parts[2 * q->sequences + 1] = q->found[B] * to_w;
}

/* dU of sequence n. */
static void to_scores(const Layer *q, const Gradients *d, int64_t n, REAL pull) {
    int64_t at = n * q->length, m = q->labels, last = q->lengths[n] - 1;
    bool learning = q->kind == LEARNING;
    REAL a = q->found[A], factor = learning ? fmin(positive_or_one(q->found[MEAN]), 1) : 1;
    REAL slope = learning ? pull / q->counts[n] : 0;
    EACH(t, q->length) if (q->rank[at + t] < 0) memset(d->to_unary + (at + t) * m, 0, m * sizeof(REAL));
    EACH_RUN(q, n, t, count) {
        int64_t place = q->rank[at + t];
        const REAL *x = q->unary + (at + t) * m, *gradient = d->unary + (at + place) * m;
        REAL *restrict out = d->to_unary + (at + t) * m;
        EACH(j, count * m) {
            REAL direct = is_finite(x[j]) ? a * gradient[j] : 0, away = x[j] == -INFINITY ? 0 : slope * sign(x[j]);
            out[j] = factor * (direct - away);
        }
        if (q->allowed && (place == 0 || place == last))
            EACH(j, m) if (!allowed_at(q, place, last, j)) out[j] = x[j] == -INFINITY ? 0 : -factor * slope * sign(x[j]);
    }
}

/* Gradients of entries of the pairwise part from those of b times them; both may be the same array. */
static void to_entries(const Layer *q, const REAL *x, const uint8_t *allowed, const REAL *gradient, int64_t n, REAL to_w,
                       REAL *out) {
    bool learning = q->kind == LEARNING;
    REAL b = q->found[B], size = learning ? q->sizes[q->sequences] : 1, factor = fmin(positive_or_one(size), 1);
    REAL slope = learning ? to_w / positive_or_one(size * q->counts[q->sequences]) : 0; /* if ||W|| is 0, so is every sign */
    EACH(j, n) {
        bool counts = x[j] != -INFINITY && (!allowed || allowed[j]);
        REAL direct = counts && is_finite(x[j]) ? b * gradient[j] : 0;
        out[j] = factor * (direct - (counts ? slope * sign(x[j]) : 0));
    }
}

/* dstart or dend: the sum over sequences, then `to_entries`. */
static void to_boundary(const Layer *q, const Gradients *d, bool at_end, REAL to_w) {
    const REAL *boundary = at_end ? q->end : q->start;
    REAL *out = at_end ? d->to_end : d->to_start;
    int64_t m = q->labels;
    if (!boundary) return;
    memset(out, 0, m * sizeof(REAL));
    EACH(n, q->sequences) {
        const REAL *gradient = d->unary + (n * q->length + (at_end ? q->lengths[n] - 1 : 0)) * m;
        if (!q->empty[n]) EACH(j, m) out[j] += gradient[j];
    }
    to_entries(q, boundary, at_end ? q->allowed_end : q->allowed_start, out, m, to_w, out);
}

/* One step of `scaling.pace`. */
static void move_scale(const Layer *q, int64_t i, REAL gradient, bool moves, double step) {
    if (!moves) gradient = 0;
    else q->squares[i] += (REAL)q->smoothing * (gradient * gradient - q->squares[i]);
    double ratio = gradient / fmax(sqrt(q->squares[i]), TINY);
    q->scales[i] -= step * fmin(fmax(ratio, -1), 1);
}

static void move_state(const Layer *q, REAL to_u, REAL to_w) {
    bool moves = is_finite(to_u * to_u) && is_finite(to_w * to_w);
    *q->steps += moves;
    double step = q->step * fmin(sqrt(q->slower_after / fmax(*q->steps, 1)), 1);
    move_scale(q, 0, to_u, moves, step), move_scale(q, 1, to_w, moves, step);
    *q->size = q->found[SIZE], *q->examples = q->found[EXAMPLES];
}

void gradients(const Layer *q, const Gradients *d) {
    double to_u = 0, to_w = 0;
    REAL pull = 0;
    if (q->kind == LEARNING) {
#pragma omp parallel for num_threads(q->threads) if (q->threads > 1)
        EACH(n, q->sequences) products(q, d, n);
        pairwise_products(q, d);
        EACH(n, q->sequences + 1) to_u += q->parts[n], to_w += q->parts[q->sequences + 1 + n];
        if (q->found[NUMBER] > 0) pull = to_u / positive_or_one(q->found[NUMBER] * q->found[MEAN]);
    }
#pragma omp parallel for num_threads(q->threads) if (q->threads > 1)
    EACH(n, q->sequences) to_scores(q, d, n, pull);
    to_boundary(q, d, false, to_w), to_boundary(q, d, true, to_w);
    to_entries(q, q->pairwise, q->allowed, d->pairwise, q->labels * q->labels, to_w, d->to_pairwise);
    if (q->kind == LEARNING) move_state(q, to_u, to_w);
}

void place(const int64_t *moved, const int32_t *rank, int64_t *labels, int64_t sequences, int64_t length) {
    EACH(n, sequences) EACH(t, length) {
        int64_t at = n * length, from = rank[at + t];
        labels[at + t] = from < 0 ? IGNORE : moved[at + from];
    }
}
