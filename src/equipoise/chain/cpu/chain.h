/* The arithmetic of chain.c: rows of numbers, in the exp or the log domain, in loops that compilers vectorise.

   REAL, INTEGER and DIGITS are float, int32_t and 23, or double, int64_t and 52. Rows are padded with probability 0
   to a multiple of LANES. If `log_domain`, potentials and probabilities are passed and returned as logarithms. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/vectors.h"

#define IGNORE (-100) /* as in problem.py */
#define EACH(j, n) for (int64_t j = 0; j < (n); j++)
#define LOG_RANGE (DIGITS == 23 ? 87.0 : 708.0) /* -log of the smallest normal number */

/* Rows are padded to whole vectors. Knowing that, the compiler omits the loop for the remainder. */
#define ASSUME_PADDED(n) if ((n) % LANES) __builtin_unreachable()

/* x + ROUNDER has the integer nearest to x in its last bits. */
static const REAL ROUNDER = DIGITS == 23 ? 0x1.8p23 : 0x1.8p52;

static inline INTEGER bits(REAL x) {
    INTEGER i;
    memcpy(&i, &x, sizeof i);
    return i;
}

static inline REAL real(INTEGER i) {
    REAL x;
    memcpy(&x, &i, sizeof x);
    return x;
}

/* 1 / i! */
static const double TAYLOR[] = {
    1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800,
    1. / 479001600, 1. / 6227020800};

/* e^x for x up to slightly above 0; 0 where the result is not a normal number. Unlike libm's exp, it vectorises. */
static inline REAL exponential(REAL x) {
    REAL n = x * (REAL)M_LOG2E + ROUNDER, k = n - ROUNDER;
    REAL r = (x - k * (REAL)0x1.62e4p-1) - k * (REAL)1.42860682030941723e-6; /* the first product is exact */
    REAL y = 0;
    for (int i = DIGITS == 23 ? 7 : 13; i >= 0; i--) y = y * r + (REAL)TAYLOR[i];
    y = real(bits(y) + (bits(n) << DIGITS));
    return x < (REAL)-LOG_RANGE ? 0 : y;
}

/* log x = k log 2 + 2 atanh s, where x = 2^k m, s = (m - 1) / (m + 1) and m is about 1; -inf at 0. */
static inline REAL logarithm(REAL x) {
    INTEGER k = (bits(x) - bits((REAL)M_SQRT1_2)) >> DIGITS;
    REAL m = real(bits(x) - (k << DIGITS)), s = (m - 1) / (m + 1), y = 0;
    for (int i = DIGITS == 23 ? 9 : 19; i > 0; i -= 2) y = y * (s * s) + (REAL)2 / i;
    REAL whole = real(k + bits(ROUNDER)) - ROUNDER;
    return x > 0 ? whole * (REAL)M_LN2 + s * y : x == 0 ? -INFINITY : x;
}

/* Loops over rows are written with vectors. Rows are short, and the compiler's own loops, in larger registers with a
   remainder, can take twice as long. */
typedef INTEGER Bits __attribute__((vector_size(VECTOR_BYTES))); /* of a comparison: all or none are set in a lane */
#define ALWAYS static inline __attribute__((always_inline))
#define AT(x, k) (*(Vector *)((x) + (k) * LANES))
#define EACH_VECTOR(j, n) for (int64_t j = 0; j < (n); j += LANES)
#define ALL(value) ((Vector){0} + (REAL)(value))

ALWAYS Vector choose(Bits where, Vector x, Vector y) { return (Vector)(((Bits)x & where) | ((Bits)y & ~where)); }

#if VECTOR_BYTES > 16 /* the compiler does not find these instructions */
#include <immintrin.h>
#if VECTOR_BYTES == 64 && DIGITS == 23
#define vector_max(x, y) ((Vector)_mm512_max_ps((__m512)(x), (__m512)(y)))
#elif VECTOR_BYTES == 64
#define vector_max(x, y) ((Vector)_mm512_max_pd((__m512d)(x), (__m512d)(y)))
#elif DIGITS == 23
#define vector_max(x, y) ((Vector)_mm256_max_ps((__m256)(x), (__m256)(y)))
#else
#define vector_max(x, y) ((Vector)_mm256_max_pd((__m256d)(x), (__m256d)(y)))
#endif
#else
ALWAYS Vector vector_max(Vector x, Vector y) { return choose(x > y, x, y); }
#endif

ALWAYS REAL horizontal_sum(Vector v) {
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) v[k] += v[k + half];
    return v[0];
}

ALWAYS REAL horizontal_max(Vector v) {
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) v[k] = v[k] > v[k + half] ? v[k] : v[k + half];
    return v[0];
}

static REAL maximum(const REAL *x, int64_t n) {
    ASSUME_PADDED(n);
    Vector peaks = ALL(-INFINITY);
    EACH_VECTOR(j, n) peaks = vector_max(AT(x + j, 0), peaks);
    return horizontal_max(peaks);
}

/* The lowest number above `limit`. */
static REAL minimum_above(const REAL *x, int64_t n, REAL limit) {
    ASSUME_PADDED(n);
    Vector peaks = ALL(-INFINITY); /* of -x */
    EACH_VECTOR(j, n) peaks = vector_max(choose(AT(x + j, 0) > limit, -AT(x + j, 0), ALL(-INFINITY)), peaks);
    return -horizontal_max(peaks);
}

static REAL total(const REAL *x, int64_t n) {
    ASSUME_PADDED(n);
    Vector sum = {0};
    EACH_VECTOR(j, n) sum += AT(x + j, 0);
    return horizontal_sum(sum);
}

/* Whether x has a NaN or +inf, which are no valid scores. The functions here lose NaN: `exponential` may turn it into a
   number, and a maximum ignores it. */
static bool has_invalid(const REAL *x, int64_t n) {
    INTEGER invalid = 0;
#pragma omp simd reduction(| : invalid)
    EACH(j, n) invalid |= !(x[j] < (REAL)INFINITY);
    return invalid;
}

/* The first index of `value` in x, or n - 1 if it is absent. */
static int64_t index_of(const REAL *x, int64_t n, REAL value) {
    ASSUME_PADDED(n);
    Bits places = (Bits){0} + (INTEGER)(n - 1), index;
    EACH(k, LANES) index[k] = k;
    EACH_VECTOR(j, n) {
        Bits closer = (AT(x + j, 0) == value) & (index < places);
        places = (index & closer) | (places & ~closer);
        index += (INTEGER)LANES;
    }
    INTEGER place = places[0];
    for (int k = 1; k < LANES; k++) place = places[k] < place ? places[k] : place;
    return place;
}

static void fill(REAL *x, int64_t n, REAL value) { EACH(j, n) x[j] = value; }

static void subtract(REAL *restrict x, int64_t n, REAL value) {
    ASSUME_PADDED(n);
    EACH(j, n) x[j] -= value;
}

static void exponentiate(REAL *restrict x, int64_t n) {
    ASSUME_PADDED(n);
    EACH(j, n) x[j] = exponential(x[j]);
}

static REAL finite_or_zero(REAL x) { return x == -INFINITY ? 0 : x; }

/* `call` with `count`, the number of vectors left (at most 4), as a constant, so that they stay in registers. */
#define UNROLL(left, call) \
    switch (left) { \
        case 1: { enum { count = 1 }; call; } break; \
        case 2: { enum { count = 2 }; call; } break; \
        case 3: { enum { count = 3 }; call; } break; \
        default: { enum { count = 4 }; call; } \
    }

/* The next vectors of out = x y; returns `sum` plus their sum, added in the order of the vectors. */
ALWAYS Vector multiply_vectors(const REAL *x, const REAL *y, REAL *out, Vector sum, const int count) {
    for (int k = 0; k < count; k++) sum += AT(out, k) = AT(x, k) * AT(y, k);
    return sum;
}

/* out = norm(x y); returns the normalisation constant. */
static REAL normalised_product(const REAL *x, const REAL *y, REAL *restrict out, int64_t n, bool log_domain) {
    ASSUME_PADDED(n);
    if (!log_domain) {
        Vector sum = {0};
        for (int64_t j = 0; j < n; j += 4 * LANES)
            UNROLL((n - j) / LANES, sum = multiply_vectors(x + j, y + j, out + j, sum, count));
        REAL mass = horizontal_sum(sum), scale = mass == 0 ? 0 : 1 / mass;
        EACH(j, n) out[j] *= scale;
        return mass;
    }
    EACH(j, n) out[j] = x[j] + y[j];
    REAL peak = maximum(out, n), sum = 0;
    if (peak == -INFINITY) return peak;
#pragma omp simd reduction(+ : sum)
    EACH(j, n) sum += exponential(out[j] - peak);
    REAL gained = peak + (REAL)log(sum);
    subtract(out, n, gained);
    return gained;
}

/* A table, (width, width), is stored in panels of PANEL columns, one after the other, so that a product reads it in
   order: a panel begins at its first column times `width`, and its rows are `panel_width` numbers apart. */
#define PANEL (4 * LANES)

static inline int64_t panel_width(int64_t first, int64_t width) {
    return width - first < PANEL ? width - first : PANEL;
}

/* Row i of a table: its own memory if there is one panel, else a copy in `row`. */
static const REAL *row_of(const REAL *table, int64_t i, int64_t width, REAL *restrict row) {
    if (width <= PANEL) return table + i * width;
    for (int64_t j = 0; j < width; j += PANEL) {
        int64_t columns = panel_width(j, width);
        memcpy(row + j, table + j * width + i * columns, columns * sizeof(REAL));
    }
    return row;
}

/* (m, m) scores into a table, padded with -inf. */
static void pad(const REAL *scores, int64_t m, int64_t width, REAL *restrict table) {
    fill(table, width * width, -INFINITY);
    for (int64_t j = 0; j < m; j += PANEL) {
        int64_t columns = panel_width(j, width), used = m - j < columns ? m - j : columns;
        EACH(i, m) memcpy(table + j * width + i * columns, scores + i * m + j, used * sizeof(REAL));
    }
}

/* In blocks of whole cache lines. */
static void transpose(const REAL *restrict table, int64_t width, REAL *restrict out) {
    ASSUME_PADDED(width);
    for (int64_t first = 0; first < width; first += PANEL) {
        int64_t columns = panel_width(first, width);
        const REAL *panel = table + first * width; /* columns of the table are rows of `out` */
        for (int64_t i = 0; i < width; i += LANES) {
            int64_t start = i / PANEL * PANEL, apart = panel_width(start, width);
            REAL *to = out + start * width + i - start;
            EACH(j, columns) EACH(k, LANES) to[(first + j) * apart + k] = panel[(i + k) * columns + j];
        }
    }
}

/* out = v E in the log domain */
static void log_product(
    const REAL *restrict v, const REAL *restrict table, int64_t m, int64_t width, REAL *restrict out) {
    ASSUME_PADDED(width);
    REAL peaks[width], copy[width];
    fill(peaks, width, -INFINITY);
    EACH(i, m) {
        const REAL *row = row_of(table, i, width, copy);
        EACH(j, width) {
            REAL score = v[i] + row[j];
            peaks[j] = score > peaks[j] ? score : peaks[j];
        }
    }
    EACH(j, width) peaks[j] = finite_or_zero(peaks[j]);
    fill(out, width, 0);
    EACH(i, m) {
        const REAL *row = row_of(table, i, width, copy);
        EACH(j, width) out[j] += exponential(v[i] + row[j] - peaks[j]);
    }
    EACH(j, width) out[j] = logarithm(out[j]) + peaks[j];
}

/* x += y; returns the maximum. */
static REAL add_and_max(REAL *x, const REAL *y, int64_t n) {
    ASSUME_PADDED(n);
    Vector peaks = ALL(-INFINITY);
    EACH_VECTOR(j, n) peaks = vector_max(AT(x + j, 0) += AT(y + j, 0), peaks);
    return horizontal_max(peaks);
}

/* E from the padded matrix; returns the maximum that was subtracted. */
static double to_potentials(REAL *table, int64_t width, bool log_domain) {
    REAL peak = finite_or_zero(maximum(table, width * width));
    subtract(table, width * width, peak);
    if (!log_domain) exponentiate(table, width * width);
    return peak;
}
