/* What comes before and after the chain in a layer: must equal the torch code.

       prepare      which positions count, where each moves, and the sizes of U and W; then U' = a U + boundaries and
                    W' = b W in the moved positions, -inf where forbidden
       gradients    dU, dW, dstart and dend
       learn        u, w and s of learned scaling move
       place        labels moved back

   (`crf.potentials`, `masking`, `scaling.learned` and `scaling.pace` have the formulas.) In torch these are 70 small
   operations, and 100 more with learned scaling, which take several times as long as a short chain. Sums over sequences
   are in order, so that results do not depend on the number of threads. */

#include "gradients.h"

/* Adds the absolute values of the scores that count, times SHARE, and their number. */
static void measure(const REAL *x, const uint8_t *allowed, int64_t n, double *total, double *count) {
    double sum = 0;
    int64_t number = 0;
    if (allowed) {
        EACH(j, n) if (allowed[j] && x[j] != -INFINITY) sum += SHARE * fabs(x[j]), number++;
    } else {
#pragma omp simd reduction(+ : sum, number)
        EACH(j, n) sum += x[j] == -INFINITY ? 0 : SHARE * fabs(x[j]), number += x[j] != -INFINITY;
    }
    *total += sum, *count += number;
}

static void store_size(const Layer *q, int64_t at, double total, double count) {
    q->counts[at] = count > 1 ? count : 1;
    q->sizes[at] = total / q->counts[at] / SHARE;
}

/* Whether the constraints allow a label in the first place (before < 0), or after another. */
static bool follows(const Layer *q, int64_t before, int64_t label) {
    if (!q->allowed) return true;
    return before < 0 ? q->allowed_start[label] : q->allowed[before * q->labels + label];
}

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
            if ((uint64_t)label >= (uint64_t)m) return INVALID;
            if (!follows(q, before, label)) status |= FORBIDDEN;
            q->moved[at + kept] = before = label;
        }
        if (kept != t) status |= MOVED;
        kept++;
    }
    if (q->gold && kept && q->allowed && !q->allowed_end[before]) status |= FORBIDDEN;
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
    REAL *results = q->results;
    if (q->kind == FIXED) {
        results[A] = q->scales[0], results[B] = 1;
        return;
    }
    double mean = 0, number = 0, s = *q->size;
    if (q->kind == LEARNING) {
        EACH(n, q->sequences) if (!q->empty[n]) mean += SHARE * q->sizes[n], number++;
        mean = mean / (number > 1 ? number : 1) / SHARE;
        bool usable = mean > 0 && is_finite(mean);
        if (!usable) number = 0;
        double covered = fmin(*q->examples + number, q->horizon), share = fmin(number / fmax(covered, 1), 1);
        if (usable) s += share * (mean - s);
        results[EXAMPLES] = covered, results[MEAN] = mean, results[NUMBER] = number;
    }
    results[SIZE] = s;
    results[A] = (REAL)exp(q->scales[0]) / (REAL)(s > 0 && s < INFINITY ? s : NAN); /* NaN if the state is damaged */
    results[B] = (REAL)exp(q->scales[1]) / positive_or_one(q->sizes[q->sequences]);
}

/* out += b * boundary, and -inf where it is not allowed */
static void add_boundary(const REAL *boundary, const uint8_t *allowed, REAL b, int64_t m, REAL *out) {
    if (boundary) EACH(j, m) out[j] += b * boundary[j];
    if (allowed) EACH(j, m) if (!allowed[j]) out[j] = -INFINITY;
}

/* U' of sequence n; 0 beyond its length, and if it is empty. */
static void assemble(const Layer *q, int64_t n) {
    int64_t at = n * q->length, m = q->labels, last = q->lengths[n] - 1, kept = q->empty[n] ? 0 : last + 1;
    REAL a = q->results[A], b = q->results[B], *rows = q->to_unary + at * m;
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
        q->to_pairwise[i] = q->allowed && !q->allowed[i] ? -INFINITY : q->results[B] * q->pairwise[i];
    return status;
}

void place(const int64_t *moved, const int32_t *rank, int64_t *labels, int64_t sequences, int64_t length) {
    EACH(n, sequences) EACH(t, length) {
        int64_t at = n * length, from = rank[at + t];
        labels[at + t] = from < 0 ? IGNORE : moved[at + from];
    }
}
