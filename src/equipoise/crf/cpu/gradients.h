/* The backward pass of layer.c, from dU' and dW'. In a training step with learned scaling, with the mean of ||U|| over
   N sequences, and K the number of scores that count in a sequence or in W:

       du = <dU', a U>        dU = min(mean, 1) (a dU' - sign(U) du / (mean N K))
       dw = <dW', b W>        dW = min(||W||, 1) (b dW' - sign(W) dw / (||W|| K))

   Otherwise dU = a dU' and dW = b dW'. If dU' and dW' are to be multiplied by a weight, a and b are. Start and end scores are entries of W, whose gradient is in dU'. That of a score
   of -inf is 0; that of a score of NaN is NaN, as dU' is. */

#include "layer.h"

static REAL weighted(const Gradients *d, REAL factor) { return d->weight ? factor * *d->weight : factor; }

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
    q->parts[n] = weighted(d, q->results[A]) * to_u;
    q->parts[q->sequences + 1 + n] = weighted(d, q->results[B]) * to_w;
}

static void pairwise_products(const Layer *q, const Gradients *d) {
    double to_w = 0;
    EACH(i, q->labels * q->labels)
        if (!q->allowed || q->allowed[i]) to_w += finite_product(q->pairwise[i], d->pairwise[i]);
    q->parts[q->sequences] = 0, q->parts[2 * q->sequences + 1] = weighted(d, q->results[B]) * to_w;
}

/* dU of sequence n. */
static void to_scores(const Layer *q, const Gradients *d, int64_t n, REAL pull) {
    int64_t at = n * q->length, m = q->labels, last = q->lengths[n] - 1;
    bool learning = q->kind == LEARNING;
    REAL a = weighted(d, q->results[A]), factor = learning ? fmin(positive_or_one(q->results[MEAN]), 1) : 1;
    REAL slope = learning ? pull / q->counts[n] : 0;
    EACH(t, q->length) if (q->rank[at + t] < 0) memset(d->to_unary + (at + t) * m, 0, m * sizeof(REAL));
    EACH_RUN(q, n, t, count) {
        int64_t place = q->rank[at + t];
        const REAL *x = q->unary + (at + t) * m, *gradient = d->unary + (at + place) * m;
        REAL *restrict out = d->to_unary + (at + t) * m;
        EACH(j, count * m) {
            REAL one = factor * (a * gradient[j] - slope * sign(x[j]));
            out[j] = x[j] == -INFINITY ? 0 : one;
        }
        if (!q->allowed || (place != 0 && place != last)) continue;
        EACH(j, m) /* a label that is forbidden here has no gradient of its own */
            if (!allowed_at(q, place, last, j)) out[j] = x[j] == -INFINITY ? 0 : -factor * slope * sign(x[j]);
    }
}

/* Gradients of entries of the pairwise part from those of b times them; both may be the same array. */
static void to_entries(
    const Layer *q,
    const Gradients *d,
    const REAL *x,
    const uint8_t *allowed,
    const REAL *gradient,
    int64_t n,
    REAL to_w,
    REAL *out) {
    bool learning = q->kind == LEARNING;
    REAL b = weighted(d, q->results[B]), size = learning ? q->sizes[q->sequences] : 1, factor = fmin(positive_or_one(size), 1);
    /* if ||W|| is 0, so is every sign */
    REAL slope = learning ? to_w / positive_or_one(size * q->counts[q->sequences]) : 0;
    EACH(j, n) {
        bool counts = x[j] != -INFINITY && (!allowed || allowed[j]);
        out[j] = counts ? factor * (b * gradient[j] - slope * sign(x[j])) : 0;
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
    to_entries(q, d, boundary, at_end ? q->allowed_end : q->allowed_start, out, m, to_w, out);
}

/* One step of `scaling.pace`. */
static void move_scale(const Layer *q, int64_t i, REAL gradient, bool moves, double step) {
    if (!moves) gradient = 0;
    else q->squares[i] += (REAL)q->smoothing * (gradient * gradient - q->squares[i]);
    double ratio = gradient / fmax(sqrt(q->squares[i]), TINY);
    q->scales[i] -= step * fmin(fmax(ratio, -1), 1);
}

void gradients(const Layer *q, const Gradients *d) {
    double to_u = 0, to_w = 0;
    REAL pull = 0;
    if (q->kind == LEARNING) {
#pragma omp parallel for num_threads(q->threads) if (q->threads > 1)
        EACH(n, q->sequences) products(q, d, n);
        pairwise_products(q, d);
        EACH(n, q->sequences + 1) to_u += q->parts[n], to_w += q->parts[q->sequences + 1 + n];
        if (q->results[NUMBER] > 0) pull = to_u / positive_or_one(q->results[NUMBER] * q->results[MEAN]);
        q->results[TO_U] = to_u, q->results[TO_W] = to_w;
    }
#pragma omp parallel for num_threads(q->threads) if (q->threads > 1)
    EACH(n, q->sequences) to_scores(q, d, n, pull);
    to_boundary(q, d, false, to_w), to_boundary(q, d, true, to_w);
    to_entries(q, d, q->pairwise, q->allowed, d->pairwise, q->labels * q->labels, to_w, d->to_pairwise);
}

/* After `gradients` of a training step: the state of learned scaling moves. */
void learn(const Layer *q) {
    REAL to_u = q->results[TO_U], to_w = q->results[TO_W];
    bool moves = is_finite(to_u * to_u) && is_finite(to_w * to_w);
    *q->steps += moves;
    double step = q->step * fmin(sqrt(q->slower_after / fmax(*q->steps, 1)), 1);
    move_scale(q, 0, to_u, moves, step), move_scale(q, 1, to_w, moves, step);
    *q->size = q->results[SIZE], *q->examples = q->results[EXAMPLES];
}
