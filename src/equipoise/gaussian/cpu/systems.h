/* The D x D systems of gaussian.c, in double; must equal systems.py. Matrices are n x n, row by row. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EACH(j, n) for (int64_t j = 0; j < (n); j++)

/* out = x^T y if transposed, else x y */
static void multiply(const double *x, bool transposed, const double *y, int64_t n, double *restrict out) {
    memset(out, 0, n * n * sizeof(double));
    EACH(i, n) EACH(k, n) {
        double factor = transposed ? x[k * n + i] : x[i * n + k];
        EACH(j, n) out[i * n + j] += factor * y[k * n + j];
    }
}

/* L^-1 for y = L L^T; NaN where y is not positive definite. Overwrites y. */
static void inverse_root(double *restrict y, int64_t n, double *restrict out) {
    EACH(k, n) {
        double root = sqrt(y[k * n + k]);
        for (int64_t j = k; j < n; j++) y[k * n + j] /= root;
        for (int64_t i = k + 1; i < n; i++)
            for (int64_t j = i; j < n; j++) y[i * n + j] -= y[k * n + i] * y[k * n + j];
    }
    EACH(i, n) {
        EACH(j, n) out[i * n + j] = i == j;
        EACH(k, i) EACH(j, i) out[i * n + j] -= y[k * n + i] * out[k * n + j];
        EACH(j, n) out[i * n + j] /= y[i * n + i];
    }
}

/* Writes I - x y and returns its largest absolute entry; NaN counts as infinite. */
static double residual(const double *x, const double *y, int64_t n, double *out) {
    double most = 0;
    multiply(x, false, y, n, out);
    EACH(i, n) EACH(j, n) {
        double *entry = out + i * n + j;
        *entry = (i == j) - *entry;
        most = fabs(*entry) <= most ? most : isnan(*entry) ? INFINITY : fabs(*entry);
    }
    return most;
}

static size_t systems_size(int64_t dims, int64_t labels) {
    return (4 * dims * dims + (labels + 1) * dims) * sizeof(double);
}

/* (ridge I - G)^-1 and (ridge I + (M-1) G)^-1, from the lower triangle of G, with row stride `apart` */
static void invert(
    const double *gram, int64_t apart, double ridge, int64_t labels, int64_t n, double *inverses, double *workspace) {
    double *x = workspace, *y = x + n * n, *half = y + n * n, *more = half + n * n;
    for (int which = 0; which < 2; which++) {
        double factor = which ? labels - 1 : -1, *inverse = inverses + which * n * n;
        EACH(i, n) EACH(j, n) {
            double entry = gram[i > j ? i * apart + j : j * apart + i];
            x[i * n + j] = factor * entry + (i == j ? ridge : 0);
        }
        multiply(x, false, x, n, y);
        inverse_root(y, n, half);
        multiply(half, false, x, n, y);
        multiply(half, true, y, n, inverse);
        bool regular = residual(x, inverse, n, y) <= 0.1;
        for (int step = 0; regular && step < (sizeof(REAL) == 8 ? 2 : 0); step++) {
            if (step) residual(x, inverse, n, y);
            multiply(inverse, false, y, n, more);
            EACH(k, n * n) inverse[k] += more[k];
        }
        if (!regular) EACH(k, n * n) inverse[k] = NAN;
    }
}

/* c from t, with row stride `apart` */
static void coefficients(
    const double *t, int64_t apart, const double *inverses, int64_t labels, int64_t n, REAL *out, double *workspace) {
    double *mean = workspace, *made = mean + n;
    memset(workspace, 0, (labels + 1) * n * sizeof(double));
    EACH(m, labels) EACH(j, n) mean[j] += t[m * apart + j] / labels;
    EACH(m, labels) EACH(k, n) {
        double own = t[m * apart + k] - mean[k], shared = (labels - 1) * mean[k];
        const double *deviations = inverses + k * n, *together = deviations + n * n;
        EACH(j, n) made[m * n + j] += own * deviations[j] - shared * together[j];
    }
    EACH(k, labels * n) out[k] = made[k];
}
