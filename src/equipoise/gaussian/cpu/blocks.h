/* Blocks of pixels for gaussian.c, with contiguous channels of BLOCK numbers each, and their products. */

#include "../../native/vectors.h"
#include "systems.h"

#define BLOCK (1024 / (int64_t)sizeof(REAL)) /* pixels */
#define WIDE 4                               /* vectors of pixels per step */

/* A tensor: its address and the strides of images, pixels and channels. The address is NULL if it is not needed. */
typedef struct {
    REAL *at;
    int64_t image, pixel, channel;
} View;

/* Copies a block of n pixels, with each channel contiguous and padded with 0. */
static void fetch(const View *x, int64_t image, int64_t start, int64_t n, int64_t channels, REAL *restrict to) {
    const REAL *from = x->at + image * x->image + start * x->pixel;
    if (x->pixel == 1) {
        EACH(k, channels) memcpy(to + k * BLOCK, from + k * x->channel, n * sizeof(REAL));
    } else {
        EACH(i, n) EACH(k, channels) to[k * BLOCK + i] = from[i * x->pixel + k * x->channel];
    }
    if (n < BLOCK) EACH(k, channels) memset(to + k * BLOCK + n, 0, (BLOCK - n) * sizeof(REAL));
}

static void put(const View *x, int64_t image, int64_t start, int64_t n, int64_t channels, const REAL *restrict from) {
    REAL *to = x->at + image * x->image + start * x->pixel;
    if (x->pixel == 1) {
        EACH(k, channels) memcpy(to + k * x->channel, from + k * BLOCK, n * sizeof(REAL));
    } else {
        EACH(i, n) EACH(k, channels) to[i * x->pixel + k * x->channel] = from[k * BLOCK + i];
    }
}

/* Channels in place: the address of the first, and the stride. */
typedef struct {
    const REAL *at;
    int64_t apart;
} Rows;

/* sums += x y^T for two channels x of a block and four channels y */
static void add_products(const REAL *x, Rows y, Vector *sums) {
    Vector total[2][4];
    for (int j = 0; j < 4; j++) total[0][j] = sums[j], total[1][j] = sums[4 + j];
    for (int64_t p = 0; p < BLOCK; p += LANES) {
        Vector x0 = *(Vector *)(x + p), x1 = *(Vector *)(x + BLOCK + p);
        for (int j = 0; j < 4; j++) {
            Vector here = *(Vector *)(y.at + j * y.apart + p);
            total[0][j] += x0 * here, total[1][j] += x1 * here;
        }
    }
    for (int j = 0; j < 4; j++) sums[j] = total[0][j], sums[4 + j] = total[1][j];
}

/* out_k = scale (base_k + sum_n coefficients(k, n) x_n + others(k, n) y_n) for two channels k, with stride `apart`
   in out. base and y may be NULL. */
static inline void combine(
    const REAL *base, REAL *out, int64_t apart, REAL scale, int64_t count, Rows x, const REAL *coefficients,
    const REAL *y, const REAL *others, int64_t across, int64_t along) {
    for (int64_t p = 0; p < BLOCK; p += WIDE * LANES) {
        Vector total[2][WIDE];
        for (int i = 0; i < WIDE; i++) {
            total[0][i] = base ? *(Vector *)(base + p + i * LANES) : (Vector){0};
            total[1][i] = base ? *(Vector *)(base + BLOCK + p + i * LANES) : (Vector){0};
        }
        EACH(n, count) {
            REAL c0 = coefficients[n * along], c1 = coefficients[across + n * along];
            for (int i = 0; i < WIDE; i++) {
                Vector here = *(Vector *)(x.at + n * x.apart + p + i * LANES);
                total[0][i] += c0 * here, total[1][i] += c1 * here;
            }
            if (!y) continue;
            REAL e0 = others[n * along], e1 = others[across + n * along];
            for (int i = 0; i < WIDE; i++) {
                Vector here = *(Vector *)(y + n * BLOCK + p + i * LANES);
                total[0][i] += e0 * here, total[1][i] += e1 * here;
            }
        }
        for (int i = 0; i < WIDE; i++) {
            *(Vector *)(out + p + i * LANES) = scale * total[0][i];
            *(Vector *)(out + apart + p + i * LANES) = scale * total[1][i];
        }
    }
}

static double dot(const REAL *x, const REAL *y, int64_t n) {
    Vector total = {0};
    for (int64_t p = 0; p < n; p += LANES) total += *(Vector *)(x + p) * *(Vector *)(y + p);
    double sum = 0;
    EACH(k, LANES) sum += total[k];
    return sum;
}
