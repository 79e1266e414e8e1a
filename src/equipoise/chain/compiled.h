/* The arithmetic of compiled.c: rows of numbers, plain or in logs, in loops that compilers vectorise.

   REAL, INTEGER and DIGITS are float, int32_t and 23, or double, int64_t and 52. Rows are padded with probability 0
   to a multiple of LANES. Where `logs` is on, potentials and probabilities are given and returned as logarithms. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES (32 / (int64_t)sizeof(REAL))
#define IGNORE (-100) /* as in problem.py */
#define EACH(j, n) for (int64_t j = 0; j < (n); j++)
#define SPAN (DIGITS == 23 ? 87.0 : 708.0) /* -log of the smallest normal number */

/* Padded rows are whole vectors; said to the compiler, it leaves out what it would do with the rest. */
#define WHOLE(n) if ((n) % LANES) __builtin_unreachable()

/* x + MAGIC has the integer nearest to x in its last bits. */
static const REAL MAGIC = DIGITS == 23 ? 0x1.8p23 : 0x1.8p52;

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

/* e^x for x up to a little over 0; 0 where it is not a normal number. Unlike that of libm, it vectorises. */
static inline REAL exponential(REAL x) {
    REAL n = x * (REAL)M_LOG2E + MAGIC, k = n - MAGIC;
    REAL r = (x - k * (REAL)0x1.62e4p-1) - k * (REAL)1.42860682030941723e-6; /* k log 2, its first product exact */
    REAL y = 0;
    for (int i = DIGITS == 23 ? 7 : 13; i > 0; i--) y = (y + 1) * (r * ((REAL)1 / i));
    y = real(bits(y + 1) + (bits(n) << DIGITS));
    return x < (REAL)-SPAN ? 0 : y;
}

/* log x = k log 2 + 2 atanh s, where x = 2^k m, s = (m - 1) / (m + 1) and m is about 1; -inf at 0. */
static inline REAL logarithm(REAL x) {
    INTEGER k = (bits(x) - bits((REAL)M_SQRT1_2)) >> DIGITS;
    REAL m = real(bits(x) - (k << DIGITS)), s = (m - 1) / (m + 1), y = 0;
    for (int i = DIGITS == 23 ? 9 : 19; i > 0; i -= 2) y = y * (s * s) + (REAL)2 / i;
    REAL whole = real(k + bits(MAGIC)) - MAGIC;
    return x > 0 ? whole * (REAL)M_LN2 + s * y : x == 0 ? -INFINITY : x;
}

static REAL highest(const REAL *x, int64_t n) {
    WHOLE(n);
    REAL peak = -INFINITY;
#pragma omp simd reduction(max : peak)
    EACH(j, n) peak = x[j] > peak ? x[j] : peak;
    return peak;
}

/* The lowest number above `limit`. */
static REAL lowest(const REAL *x, int64_t n, REAL limit) {
    WHOLE(n);
    REAL least = INFINITY;
#pragma omp simd reduction(min : least)
    EACH(j, n) {
        REAL y = x[j] > limit ? x[j] : INFINITY;
        least = y < least ? y : least;
    }
    return least;
}

static REAL total(const REAL *x, int64_t n) {
    WHOLE(n);
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    EACH(j, n) sum += x[j];
    return sum;
}

static void fill(REAL *x, int64_t n, REAL value) { EACH(j, n) x[j] = value; }

static void subtract(REAL *restrict x, int64_t n, REAL value) {
    WHOLE(n);
    EACH(j, n) x[j] -= value;
}

static void exponentiate(REAL *restrict x, int64_t n) {
    WHOLE(n);
    EACH(j, n) x[j] = exponential(x[j]);
}

static REAL or_zero(REAL x) { return x == -INFINITY ? 0 : x; }

/* out = norm(x y); returns what the normalisation took out. */
static REAL condense(const REAL *x, const REAL *y, REAL *restrict out, int64_t n, bool logs) {
    WHOLE(n);
    if (!logs) {
        EACH(j, n) out[j] = x[j] * y[j];
        REAL mass = total(out, n), scale = mass == 0 ? 0 : 1 / mass;
        EACH(j, n) out[j] *= scale;
        return mass;
    }
    EACH(j, n) out[j] = x[j] + y[j];
    REAL peak = highest(out, n), sum = 0;
    if (peak == -INFINITY) return peak;
#pragma omp simd reduction(+ : sum)
    EACH(j, n) sum += exponential(out[j] - peak);
    REAL gained = peak + (REAL)log(sum);
    subtract(out, n, gained);
    return gained;
}

/* out = v E */
static void product(
    const REAL *restrict v, const REAL *restrict table, int64_t m, int64_t width, REAL *restrict out, bool logs) {
    WHOLE(width);
    if (!logs) {
        fill(out, width, 0);
        for (int64_t i = 0; i < m; i += 4, table += 4 * width) /* four at once, to load and store the sum less often */
            EACH(j, width)
                out[j] += (v[i] * table[j] + v[i + 1] * table[width + j]) +
                          (v[i + 2] * table[2 * width + j] + v[i + 3] * table[3 * width + j]);
        return;
    }
    REAL peaks[width];
    fill(peaks, width, -INFINITY);
    EACH(i, m) EACH(j, width) {
        REAL score = v[i] + table[i * width + j];
        peaks[j] = score > peaks[j] ? score : peaks[j];
    }
    EACH(j, width) peaks[j] = or_zero(peaks[j]);
    fill(out, width, 0);
    EACH(i, m) EACH(j, width) out[j] += exponential(v[i] + table[i * width + j] - peaks[j]);
    EACH(j, width) out[j] = logarithm(out[j]) + peaks[j];
}

/* out = left^T right, for n rows of each */
static void gram(const REAL *left, const REAL *right, int64_t n, int64_t m, int64_t width, REAL *restrict out) {
    WHOLE(width);
    int64_t t = 0;
    fill(out, m * width, 0);
    for (; t + 4 <= n; t += 4) {
        const REAL *l = left + t * width, *r = right + t * width;
        EACH(i, m) EACH(j, width)
            out[i * width + j] += (l[i] * r[j] + l[width + i] * r[width + j]) +
                                  (l[2 * width + i] * r[2 * width + j] + l[3 * width + i] * r[3 * width + j]);
    }
    for (; t < n; t++)
        EACH(i, m) EACH(j, width) out[i * width + j] += left[t * width + i] * right[t * width + j];
}

/* (m, m) scores into (width, width), with -inf around them. */
static void pad(const REAL *scores, int64_t m, int64_t width, REAL *restrict table) {
    fill(table, width * width, -INFINITY);
    EACH(i, m) memcpy(table + i * width, scores + i * m, m * sizeof(REAL));
}

/* By blocks that are read and written a whole cache line at a time. */
static void transpose(const REAL *restrict table, int64_t width, REAL *restrict out) {
    WHOLE(width);
    for (int64_t i = 0; i < width; i += LANES)
        EACH(j, width) EACH(k, LANES) out[j * width + i + k] = table[(i + k) * width + j];
}

/* E from the padded matrix; returns the peak taken out. */
static double potentials(REAL *table, int64_t width, bool logs) {
    REAL peak = or_zero(highest(table, width * width));
    subtract(table, width * width, peak);
    if (!logs) exponentiate(table, width * width);
    return peak;
}
