/* Products of rows with a matrix, for a group of sequences that share it: each part of the matrix is loaded once.

   Every number is the result of the same operations in the same order in any group, so results do not depend on which
   sequences are in it. */

#include "chain.h"

#ifdef __clang__ /* clang 14 ignores the other form, and sums then leave their registers */
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif
#define USUAL_GROUP 4
#if VECTOR_BYTES == 64
#define GROUP 8 /* the maximum number of sequences */
#else
#define GROUP USUAL_GROUP
#endif
#ifdef __AVX512VL__
/* vectors per sequence: two sums of each must fit the registers */
#define AT_A_TIME(group) ((group) <= 2 ? 4 : (group) <= 4 ? 2 : 1)
#define GRAM_ROWS 4 /* so must four vectors of each of these rows */
#else
#define AT_A_TIME(group) ((group) == 1 ? 4 : (group) == 2 ? 2 : 1)
#define GRAM_ROWS 2
#endif

/* Keep a vector that is used several times in a register. Otherwise the compiler loads it again for each use, and loads
   take longer than the operations. */
#if defined __GNUC__ && defined __AVX__
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#else
#define IN_REGISTER(vector) (void)(vector)
#endif

/* A step of one sequence: message = scale before E, belief = x message, *mass = the sum of belief. */
typedef struct {
    const REAL *before, *x;
    REAL *message, *belief, *mass, scale;
} Step;

/* `call` for the vectors from `j` on, `most` at a time (1, 2 or 4). */
#define EACH_PANEL(most, call) \
    for (int64_t j = 0; j < width; j += (most) * LANES) { \
        int64_t left = (width - j) / LANES < (most) ? (width - j) / LANES : (most); \
        if (left < 1) __builtin_unreachable(); \
        UNROLL(left, call) \
    }

/* `name` as a function for each number of sequences, of which each is compiled by itself. */
#define ONE_GROUP(name, n) \
    static __attribute__((noinline)) void name##_##n( \
        const Step *s, const REAL *table, int64_t m, int64_t width) { name##_group(s, table, m, width, n); }
#if GROUP == 8
#define LARGE_GROUPS(name) ONE_GROUP(name, 5) ONE_GROUP(name, 6) ONE_GROUP(name, 7) ONE_GROUP(name, 8)
#define LARGE_NAMES(name) name##_5, name##_6, name##_7, name##_8
#else
#define LARGE_GROUPS(name)
#define LARGE_NAMES(name)
#endif
#define EACH_GROUP(name) \
    ONE_GROUP(name, 1) ONE_GROUP(name, 2) ONE_GROUP(name, 3) ONE_GROUP(name, 4) LARGE_GROUPS(name) \
    static inline void name(const Step *s, int64_t group, const REAL *table, int64_t m, int64_t width) { \
        static void (*const by_size[])(const Step *, const REAL *, int64_t, int64_t) = { \
            name##_1, name##_2, name##_3, name##_4, LARGE_NAMES(name)}; \
        by_size[group - 1](s, table, m, width); \
    }

/* Column j of a table, and how far its rows are apart. */
static inline const REAL *column_of(const REAL *table, int64_t j, int64_t width, int64_t *apart) {
    int64_t first = j / PANEL * PANEL;
    *apart = panel_width(first, width);
    return table + first * width + j - first;
}

/* The next vectors of each message. Two partial sums each, so that additions need not wait for each other. */
ALWAYS void product_columns(
    const Step *s, const REAL *table, int64_t j, int64_t m, int64_t width, const int group, const int count) {
    int64_t apart;
    const REAL *row = column_of(table, j, width, &apart);
    Vector even[GROUP][4] = {{{0}}}, odd[GROUP][4] = {{{0}}};
    for (int64_t i = 0; i < m; i += 2, row += 2 * apart) {
        UNROLLED for (int k = 0; k < count; k++) {
            Vector one = AT(row, k), two = AT(row + apart, k);
            if (group > 1) {
                IN_REGISTER(one);
                IN_REGISTER(two);
            }
            UNROLLED for (int g = 0; g < group; g++) {
                even[g][k] += s[g].before[i] * one;
                odd[g][k] += s[g].before[i + 1] * two;
            }
        }
    }
    UNROLLED for (int g = 0; g < group; g++)
        UNROLLED for (int k = 0; k < count; k++) AT(s[g].message + j, k) = s[g].scale * (even[g][k] + odd[g][k]);
}

ALWAYS void step_columns(
    const Step *s, const REAL *table, int64_t j, int64_t m, int64_t width, Vector *sums, const int group,
    const int count) {
    product_columns(s, table, j, m, width, group, count);
    UNROLLED for (int g = 0; g < group; g++)
        sums[g] = multiply_vectors(s[g].x + j, s[g].message + j, s[g].belief + j, sums[g], count);
}

ALWAYS void step_group(const Step *steps, const REAL *table, int64_t m, int64_t width, const int group) {
    ASSUME_PADDED(width);
    Vector sums[GROUP] = {{0}};
    Step s[GROUP]; /* a copy, which no store can change */
    UNROLLED for (int g = 0; g < group; g++) s[g] = steps[g];
    EACH_PANEL(AT_A_TIME(group), step_columns(s, table, j, m, width, sums, group, count));
    UNROLLED for (int g = 0; g < group; g++) *s[g].mass = horizontal_sum(sums[g]);
}

/* Messages, beliefs and masses of a step. */
EACH_GROUP(step)

ALWAYS void product_group(const Step *s, const REAL *table, int64_t m, int64_t width, const int group) {
    ASSUME_PADDED(width);
    EACH_PANEL(AT_A_TIME(group), product_columns(s, table, j, m, width, group, count));
}

/* Messages of a step only. */
EACH_GROUP(product)

/* The next vectors of belief(j) += max_i [ before(i) + W(i, j) ] - scale, and the maximum of each lane so far. */
ALWAYS void max_columns(
    const Step *s, const REAL *table, int64_t j, int64_t m, int64_t width, Vector *tops, const int group,
    const int count) {
    int64_t apart;
    const REAL *row = column_of(table, j, width, &apart);
    Vector best[GROUP][4];
    UNROLLED for (int g = 0; g < group; g++)
        UNROLLED for (int k = 0; k < count; k++) best[g][k] = s[g].before[0] + AT(row, k);
    for (int64_t i = 1; i < m; i++) {
        row += apart;
        UNROLLED for (int k = 0; k < count; k++) {
            Vector scores = AT(row, k);
            if (group > 1) IN_REGISTER(scores);
            UNROLLED for (int g = 0; g < group; g++) best[g][k] = vector_max(s[g].before[i] + scores, best[g][k]);
        }
    }
    UNROLLED for (int g = 0; g < group; g++)
        UNROLLED for (int k = 0; k < count; k++) {
            AT(s[g].belief + j, k) = best[g][k] += AT(s[g].belief + j, k) - s[g].scale;
            tops[g] = vector_max(best[g][k], tops[g]);
        }
}

ALWAYS void max_step_group(const Step *steps, const REAL *table, int64_t m, int64_t width, const int group) {
    ASSUME_PADDED(width);
    Vector tops[GROUP];
    Step s[GROUP];
    UNROLLED for (int g = 0; g < group; g++) s[g] = steps[g], tops[g] = ALL(-INFINITY);
    EACH_PANEL(group == 1 ? 4 : 2, max_columns(s, table, j, m, width, tops, group, count));
    UNROLLED for (int g = 0; g < group; g++) *s[g].mass = horizontal_max(tops[g]);
}

/* A step of max-sum: belief += max_i [ before(i) + W(i, .) ] - scale, and *mass is its maximum. */
EACH_GROUP(max_step)

/* The next vectors of a few rows of out += left^T right, whose rows are `width` and `apart` numbers apart. */
ALWAYS void gram_rows(
    const REAL *left, const REAL *right, int64_t n, int64_t width, int64_t apart, REAL *out, const int count) {
    Vector sums[GRAM_ROWS][4];
    UNROLLED for (int r = 0; r < GRAM_ROWS; r++)
        UNROLLED for (int k = 0; k < count; k++) sums[r][k] = AT(out + r * width, k);
    for (int64_t t = 0; t < n; t++, left += width, right += apart)
        UNROLLED for (int k = 0; k < count; k++) {
            Vector shared = AT(right, k);
            IN_REGISTER(shared);
            UNROLLED for (int r = 0; r < GRAM_ROWS; r++) sums[r][k] += left[r] * shared;
        }
    UNROLLED for (int r = 0; r < GRAM_ROWS; r++)
        UNROLLED for (int k = 0; k < count; k++) AT(out + r * width, k) = sums[r][k];
}

#define STEPS 128 /* rows of a panel that fit the first cache */

/* out += left^T right, for n rows of each. A panel of `right` is copied, since rows that are a power of two apart share
   few places in the first cache. */
static void gram(const REAL *left, const REAL *right, int64_t n, int64_t m, int64_t width, REAL *restrict out) {
    ASSUME_PADDED(width);
    REAL copy[STEPS * PANEL];
    for (int64_t t = 0; t < n; t += STEPS)
        for (int64_t j = 0; j < width; j += PANEL) {
            int64_t rows = n - t < STEPS ? n - t : STEPS, columns = panel_width(j, width);
            const REAL *panel = right + t * width + j;
            if (columns < width) {
                EACH(i, rows) memcpy(copy + i * columns, panel + i * width, columns * sizeof(REAL));
                panel = copy;
            }
            for (int64_t i = 0; i < m; i += GRAM_ROWS)
                UNROLL(
                    columns / LANES,
                    gram_rows(left + t * width + i, panel, rows, width, columns, out + i * width + j, count));
        }
}
