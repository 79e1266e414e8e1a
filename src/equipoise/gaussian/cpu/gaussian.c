/* The loops of backend.py: the closed form of direct.py. Each pass over the pixels reads A once.

       forward    G = A^T A and t = A^T U;  the inverses and c;  s = (U + A c) / ridge
       backward   A^T g;  e;  v = (g + A e) / ridge,  dA = v c^T + s e^T,  dridge = -<v, s>

   An image is divided into pieces, and a piece into blocks of pixels. Blocks that are read often are copied to
   contiguous memory: in an image whose size is a power of two, the channels of a pixel compete for the same few cache
   lines. Sums over pixels are kept in vectors, whose entries are added up in double every few blocks. Pieces are added
   in order, so the number of threads does not change the results. */

#include "blocks.h"

#define SPAN 8 /* blocks after which vector sums are added to totals in double */

/* The argument that backend.py packs. A piece has a multiple of SPAN blocks. */
typedef struct {
    int64_t images, length, labels, dims, pieces, piece, threads;
    const REAL *ridge;              /* (B) */
    double *inverses;               /* (B, 2, D, D) */
    REAL *c, *e;                    /* (B, M, D); c is computed by the forward pass, e by the backward pass */
    REAL *of_ridge;                 /* (B), or NULL */
    View embeddings, unary, scores; /* A; U, or g in the backward pass; s */
    View of_unary, of_embeddings;
} Batch;

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Memory of one thread: blocks of A, U or g, s, v and dA, each channel BLOCK long; sums; and coefficients. Labels are
   padded to a multiple of 2, dimensions to a multiple of 4. */
typedef struct {
    int64_t dims, labels;
    REAL *a, *x, *s, *v, *out, *c, *e;
    Vector *sums;
    double *systems;
} Workspace;

/* False if out of memory. The caller frees a and systems. */
static bool allocate(const Batch *q, Workspace *r) {
    int64_t d = round_up(q->dims, 4), m = round_up(q->labels, 2), blocks = (2 * d + 3 * m) * BLOCK, sums = (d + m) * d;
    size_t bytes = round_up((blocks + 2 * m * d + sums * LANES) * sizeof(REAL), 64);
    REAL *at = aligned_alloc(64, bytes); /* vectors across two cache lines take twice as long */
    if (at) memset(at, 0, bytes);        /* padding stays 0 */
    *r = (Workspace){.dims = d, .labels = m, .a = at, .systems = malloc(systems_size(q->dims, q->labels))};
    if (!at || !r->systems) return false;
    r->x = r->a + d * BLOCK;
    r->s = r->x + m * BLOCK, r->v = r->s + m * BLOCK, r->out = r->v + m * BLOCK;
    r->c = at + blocks, r->e = r->c + m * d, r->sums = (Vector *)(r->e + m * d);
    return true;
}

/* ---- blocks ---- */

/* A block of A. It is copied unless it is read only once and needs no padding. */
static Rows embeddings(const Batch *q, Workspace *r, int64_t image, int64_t start, int64_t n, bool reused) {
    const View *a = &q->embeddings;
    if (!reused && r->labels == 2 && a->pixel == 1 && n == BLOCK && q->dims == r->dims)
        return (Rows){a->at + image * a->image + start, a->channel};
    fetch(a, image, start, n, q->dims, r->a);
    return (Rows){r->a, BLOCK};
}

/* (X + A C^T) / ridge */
static void expand(const Workspace *r, Rows a, const REAL *c, REAL ridge, REAL *out) {
    for (int64_t m = 0; m < r->labels; m += 2) {
        const REAL *x = r->x + m * BLOCK, *own = c + m * r->dims;
        combine(x, out + m * BLOCK, BLOCK, 1 / ridge, r->dims, a, own, NULL, NULL, r->dims, 1);
    }
}

/* V C + S E */
static void deposit(const Workspace *r, int64_t dims, REAL *out, int64_t apart) {
    for (int64_t d = 0; d < dims; d += 2)
        combine(NULL, out + d * apart, apart, 1, r->labels, (Rows){r->v, BLOCK}, r->c + d, r->s, r->e + d, 1, r->dims);
}

/* ---- pieces ---- */

typedef struct {
    int64_t image, start, end;
} Piece;

static Piece piece_of(const Batch *q, int64_t k) {
    int64_t start = k % q->pieces * q->piece, end = start + q->piece;
    return (Piece){k / q->pieces, start, end < q->length ? end : q->length};
}

#define EACH_BLOCK(start, n, piece)                                                                                  \
    for (int64_t start = (piece).start, n; n = (piece).end - start < BLOCK ? (piece).end - start : BLOCK, n > 0;     \
         start += BLOCK)

/* totals (D + M, D), padded: A^T A with X^T A below it, or X^T A only. Most of the upper triangle of A^T A is not
   computed. */
static void moments(const Batch *q, Workspace *r, Piece piece, bool gram, double *totals) {
    int64_t first = gram ? 0 : r->dims, rows = r->dims + r->labels, blocks = 0;
    Vector *sums = r->sums;
    memset(sums, 0, rows * r->dims * sizeof(Vector)), memset(totals, 0, rows * r->dims * sizeof(double));
    EACH_BLOCK(start, n, piece) {
        Rows a = embeddings(q, r, piece.image, start, n, gram);
        fetch(&q->unary, piece.image, start, n, q->labels, r->x); /* x follows a in memory */
        for (int64_t i = first; i < rows; i += 2)
            for (int64_t j = 0; j < r->dims && (i >= r->dims || j <= i + 1); j += 4)
                add_products(r->a + i * BLOCK, (Rows){a.at + j * a.apart, a.apart}, sums + i * r->dims + 2 * j);
        if (++blocks % SPAN && start + BLOCK < piece.end) continue;
        for (int64_t i = first; i < rows; i++)
            EACH(j, r->dims) {
                Vector *sum = sums + i / 2 * 2 * r->dims + j / 4 * 8 + i % 2 * 4 + j % 4;
                EACH(k, LANES) totals[i * r->dims + j] += (*sum)[k];
                *sum = (Vector){0};
            }
    }
}

static void load_coefficients(const Batch *q, const Workspace *r, const REAL *c, int64_t image, REAL *to) {
    EACH(m, q->labels) memcpy(to + m * r->dims, c + (image * q->labels + m) * q->dims, q->dims * sizeof(REAL));
}

static void scores(const Batch *q, Workspace *r, Piece piece) {
    load_coefficients(q, r, q->c, piece.image, r->c);
    EACH_BLOCK(start, n, piece) {
        Rows a = embeddings(q, r, piece.image, start, n, false);
        fetch(&q->unary, piece.image, start, n, q->labels, r->x);
        expand(r, a, r->c, q->ridge[piece.image], r->v);
        put(&q->scores, piece.image, start, n, q->labels, r->v);
    }
}

static double gradients(const Batch *q, Workspace *r, Piece piece) {
    double product = 0;
    load_coefficients(q, r, q->c, piece.image, r->c);
    load_coefficients(q, r, q->e, piece.image, r->e);
    EACH_BLOCK(start, n, piece) {
        Rows a = embeddings(q, r, piece.image, start, n, false);
        fetch(&q->unary, piece.image, start, n, q->labels, r->x);
        expand(r, a, r->e, q->ridge[piece.image], r->v);
        if (q->of_unary.at) put(&q->of_unary, piece.image, start, n, q->labels, r->v);
        if (!q->of_ridge && !q->of_embeddings.at) continue;
        fetch(&q->scores, piece.image, start, n, q->labels, r->s);
        if (q->of_ridge) product += dot(r->v, r->s, r->labels * BLOCK);
        const View *to = &q->of_embeddings;
        if (!to->at) continue;
        if (to->pixel == 1 && n == BLOCK && q->dims % 2 == 0) { /* written without a copy */
            deposit(r, q->dims, to->at + piece.image * to->image + start, to->channel);
        } else {
            deposit(r, q->dims, r->out, BLOCK);
            put(to, piece.image, start, n, q->dims, r->out);
        }
    }
    return product;
}

/* ---- images ---- */

static int64_t size_of(const Workspace *r) { return (r->dims + r->labels) * r->dims + 1; } /* sums, and -<v, s> last */

static void first_pass(const Batch *q, Workspace *r, int64_t k, bool backward, double *totals) {
    moments(q, r, piece_of(q, k), !backward, totals);
}

/* Solves the small systems of image b. The totals of its pieces are added into those of the first piece. */
static void solve_small_systems(const Batch *q, const Workspace *r, int64_t b, bool backward, double *totals) {
    int64_t size = size_of(r), d = r->dims;
    double *inverses = q->inverses + b * 2 * q->dims * q->dims;
    for (int64_t k = 1; k < q->pieces; k++) EACH(j, size - 1) totals[j] += totals[k * size + j];
    if (!backward) invert(totals, d, q->ridge[b], q->labels, q->dims, inverses, r->systems);
    REAL *out = (backward ? q->e : q->c) + b * q->labels * q->dims;
    coefficients(totals + d * d, d, inverses, q->labels, q->dims, out, r->systems);
}

static void second_pass(const Batch *q, Workspace *r, int64_t k, bool backward, double *totals) {
    if (backward)
        totals[size_of(r) - 1] = gradients(q, r, piece_of(q, k));
    else
        scores(q, r, piece_of(q, k));
}

static void finish(const Batch *q, const Workspace *r, int64_t b, const double *totals) {
    double sum = 0;
    EACH(k, q->pieces) sum += totals[(k + 1) * size_of(r) - 1];
    q->of_ridge[b] = -sum;
}

/* Each thread computes whole images: no thread waits, and the second pass finds the image in cache. */
static void by_image(const Batch *q, Workspace *r, bool backward, double *totals) {
    int64_t size = size_of(r);
#pragma omp for schedule(dynamic)
    for (int64_t b = 0; b < q->images; b++) {
        EACH(k, q->pieces) first_pass(q, r, b * q->pieces + k, backward, totals + k * size);
        solve_small_systems(q, r, b, backward, totals);
        EACH(k, q->pieces) second_pass(q, r, b * q->pieces + k, backward, totals + k * size);
        if (backward && q->of_ridge) finish(q, r, b, totals);
    }
}

/* All threads share the pieces of a few images. */
static void by_piece(const Batch *q, Workspace *r, bool backward, double *totals) {
    int64_t size = size_of(r), pieces = q->images * q->pieces;
#pragma omp for
    for (int64_t k = 0; k < pieces; k++) first_pass(q, r, k, backward, totals + k * size);
#pragma omp for
    for (int64_t b = 0; b < q->images; b++) solve_small_systems(q, r, b, backward, totals + b * q->pieces * size);
#pragma omp for
    for (int64_t k = 0; k < pieces; k++) second_pass(q, r, k, backward, totals + k * size);
    if (!backward || !q->of_ridge) return;
#pragma omp for
    for (int64_t b = 0; b < q->images; b++) finish(q, r, b, totals + b * q->pieces * size);
}

enum { NO_MEMORY = 1 };

static int solve(const Batch *q, bool backward) {
    int64_t d = round_up(q->dims, 4), size = (d + round_up(q->labels, 2)) * d + 1;
    bool whole_images = q->images % q->threads == 0 || q->images >= 4 * q->threads; /* else threads would idle */
    double *totals = malloc((whole_images ? q->threads : q->images) * q->pieces * size * sizeof(double));
    int failed = totals ? 0 : NO_MEMORY, next = 0;
#pragma omp parallel num_threads(q->threads) if (q->threads > 1)
    {
        Workspace r;
        int own;
        bool ready = allocate(q, &r);
#pragma omp atomic capture
        own = next++;
        if (!ready) {
#pragma omp atomic write
            failed = NO_MEMORY;
        }
#pragma omp barrier
        if (!failed && whole_images)
            by_image(q, &r, backward, totals + own * q->pieces * size);
        else if (!failed)
            by_piece(q, &r, backward, totals);
        free(r.a), free(r.systems);
    }
    free(totals);
    return failed;
}

int forward(const Batch *q) { return solve(q, false); }
int backward(const Batch *q) { return solve(q, true); }
