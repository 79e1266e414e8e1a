/* The loops behind backend.py: a few sequences at a time, in the exp or the log domain, vectorised over labels.

   With the maxima of the scores subtracted, x_t(j) = exp(U_t(j) - peak) and E(i, j) = exp(W(i, j) - peak), a chain is

       d_t = a_{t-1} E,    a_t = norm(x_t d_t)        b_t = E c_{t+1},    c_t = norm(x_t b_t)        d_1 = b_L = 1

       p_t = norm(a_t b_t)    T_t(i, j) = E(i, j) c_{t+1}(j) / b_t(i)    S_t(i, j) = a_t(i) E(i, j) / d_{t+1}(j)

   The right half mirrors the left, so one function computes both, forward or in reverse along the chain. The exp domain
   is fast, and exact as long as nothing underflows that may matter later. `swept` is false where underflow is
   possible. The sequence is then computed in the log domain: x, E and all messages are the logarithms of the above.
   d_1 is 1 in the exp domain and 0 in the log domain, so the first number of a message identifies its domain. */

#include <pthread.h>

#include "samples.h"
#include "top_k.h"

const int64_t lanes = LANES, register_bytes = REGISTER_BYTES; /* read by library.py */

/* ---- matrices ---- */

static void load_potentials(Chain *s) {
    s->matrix->pairwise_range = 0, s->matrix->has_forbidden = false;
    if (s->edges == 1) {
        scan_matrix(s, s->matrix->pairwise, s->matrix->right);
        s->matrix->peak = to_potentials(s->matrix->right, s->width, false);
    } else {
        EACH(e, s->n - 1) scan_matrix(s, s->matrix->pairwise + e * s->m * s->m, s->matrix->scratch);
    }
    /* without division, a may be as small as exp(-range) / m everywhere, and the next step squares that */
    double range = s->matrix->pairwise_range + log(s->m);
    s->matrix->normalise_each = s->matrix->has_forbidden || !(2 * range < 0.8 * LOG_RANGE);
}

static void load_padded_scores(Chain *s) {
    if (s->edges != 1) return;
    pad(s->matrix->pairwise, s->m, s->width, s->matrix->right);
    transpose(s->matrix->right, s->width, s->matrix->left);
}

/* ---- groups of sequences ---- */

typedef struct {
    void (*load_matrix)(Chain *);
    void (*load)(Chain *, const Batch *);
    enum { NO_SWEEP, FORWARD, BOTH, BEST } sweep;
    void (*answer)(Chain *, const Batch *); /* after the sweep; may be NULL */
    bool carries;
    int rows; /* the number of (L, width) arrays of `Chain`, in their order, that are used */
    int64_t (*more_bytes)(const Batch *); /* of memory for `answer`; may be NULL */
} Routine;

static void run_group(Chain *members, int64_t count, const Batch *q, const Routine *routine) {
    if (!count) return;
    EACH(g, count) routine->load(members + g, q);
    if (routine->sweep == BEST)
        best_scores(members, count);
    else if (routine->sweep)
        sweep_exp_domain(members, count, routine->sweep == BOTH);
    if (routine->answer) EACH(g, count) routine->answer(members + g, q);
    if (routine->carries) {
        carry_exp_domain(members, count);
        EACH(g, count) finish_transport(members + g, q);
    }
}

/* Whether the length, and the labels within it, are in range. */
static bool in_range(const Batch *q, int64_t b) {
    int64_t n = q->lengths[b], outside = 0;
    if (n < 1 || n > q->length) return false;
    if (q->gold) EACH(t, n) outside += (uint64_t)q->gold[b * q->length + t] >= (uint64_t)q->labels;
    return !outside;
}

enum { NO_MEMORY = 1, OUT_OF_RANGE = 2 }; /* error codes; 0 is success */

/* Chunks `first` to `last` - 1, which share a matrix. Those of per-edge matrices are loaded for each sequence. */
static int run_chunks(
    Chain *members, int64_t most, const Batch *q, int64_t first, int64_t last, REAL *parts, const Routine *routine) {
    int64_t edges = q->edges, size = q->labels * q->labels, chunk = first, count = 0, i = q->starts[first];
    bool invalid_matrix = false;
    Matrix *matrix = members->matrix;
    matrix->pairwise = q->pairwise + first / q->pieces * edges * size;
    matrix->pending = NULL, matrix->transposed = false;
    for (; i < q->starts[last]; i++) {
        Chain *s = members + count;
        while (i >= q->starts[chunk + 1]) chunk++;
        s->index = q->order[i];
        if (!in_range(q, s->index)) return OUT_OF_RANGE;
        s->n = q->lengths[s->index];
        s->gradient = parts ? parts + chunk * edges * size : NULL;
        if (i == q->starts[first] || edges != 1) {
            routine->load_matrix(s);
            invalid_matrix = has_invalid(matrix->pairwise, edges == 1 ? size : (s->n - 1) * size);
        }
        if ((invalid_matrix && s->n > 1) || has_invalid(unary_of(s, q), s->n * s->m))
            fail_one(s, q);
        else
            count++;
        if (count == most) run_group(members, count, q, routine), count = 0;
    }
    run_group(members, count, q, routine);
    add_pending(matrix, q->labels, q->width);
    return 0;
}

/* ---- all sequences of a batch ---- */

/* Memory of a thread that is reused between calls, since touching fresh pages takes longer than a short chain. Each
   thread has its own, and no result lies in it. */
#define REUSED_BYTES (16 << 20)
enum { BUFFERS, SUMS, LOSSES, USES }; /* the uses of that memory, and their number */
static pthread_key_t memory_keys[USES];
static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

static void create_memory_keys(void) { EACH(use, USES) pthread_key_create(&memory_keys[use], free); }

static REAL *take_memory(int use, int64_t bytes) {
    if (bytes > REUSED_BYTES) return malloc(bytes);
    pthread_once(&memory_once, create_memory_keys);
    int64_t *memory = pthread_getspecific(memory_keys[use]); /* its size, then the memory, aligned to a cache line */
    if (memory && memory[0] >= bytes) return (REAL *)(memory + 8);
    free(memory);
    memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (memory) memory[0] = bytes;
    pthread_setspecific(memory_keys[use], memory);
    return memory ? (REAL *)(memory + 8) : NULL;
}

static void return_memory(REAL *memory, int64_t bytes) {
    if (bytes > REUSED_BYTES) free(memory);
}

#define BLOCK 1024

/* out = the sum of `count` parts, `apart` numbers apart */
static void add_parts(const REAL *parts, int64_t count, int64_t apart, int64_t n, REAL *restrict out) {
    memcpy(out, parts, n * sizeof(REAL));
    for (int64_t k = 1; k < count; k++) EACH(j, n) out[j] += parts[k * apart + j];
}

/* Tables of at least this width are too large for the first cache, so that sequences should share what they load of
   them. If they are smaller, a group of two keeps the processor busy, and the buffers of a third take more time than it
   saves. If they come from memory, as many sequences as possible should share them. */
#define WIDE 64

static int64_t best_group(int64_t width) { return width < WIDE ? 2 : tables_fit(width) ? USUAL_GROUP : GROUP; }

/* The number of chunks that a thread takes at a time: enough for a whole group if that leaves work for all threads, and
   more if there are many chunks, since the matrix is prepared once for all of them. */
static int64_t chunks_at_a_time(const Batch *q, int64_t sequences) {
    if (q->threads == 1) return q->pieces;
    int64_t per_chunk = sequences / q->chunks, most = best_group(q->width);
    int64_t group = per_chunk ? (most + per_chunk - 1) / per_chunk : most;
    int64_t fair = q->chunks / q->threads, few = q->chunks / (4 * q->threads);
    int64_t chunks = group < fair ? group : fair;
    if (chunks < few) chunks = few;
    return chunks < 1 ? 1 : chunks > q->pieces ? q->pieces : chunks;
}

/* The number of sequences that are computed together, with `own` numbers of memory each. */
static int64_t largest_group(const Batch *q, int64_t sequences, int64_t at_a_time, int64_t own) {
    int64_t most = best_group(q->width), longest_item = sequences / q->chunks * at_a_time + at_a_time;
    bool fits = most * own * (int64_t)sizeof(REAL) <= REUSED_BYTES;
    if (q->edges > 1 || sequences < 2 || (q->width < WIDE && !fits)) return 1;
    if (most > longest_item) most = longest_item;
    return most < sequences ? most : sequences;
}

static int run_batch(const Batch *q, const Routine *routine) {
    if (!q->chunks) return 0;
    int64_t width = q->width, square = width * width, rows = q->length * width;
    int64_t matrices = q->edges * q->labels * q->labels;
    int64_t sequences = q->starts[q->chunks], at_a_time = chunks_at_a_time(q, sequences);
    int64_t per_matrix = (q->pieces + at_a_time - 1) / at_a_time, items = q->chunks / q->pieces * per_matrix;
    int64_t own = routine->rows * rows + width + 2 * q->length, most = largest_group(q, sequences, at_a_time, own);
    int64_t used = (4 * square + most * own + 15) / 16 * 16; /* whole cache lines */
    int64_t bytes = used * sizeof(REAL) + (routine->more_bytes ? routine->more_bytes(q) : 0);
    /* Chunks that share a matrix have separate sums, which are added in a fixed order. */
    bool shared = q->pieces > 1 && q->gradient && matrices;
    int64_t sum_bytes = q->chunks * matrices * sizeof(REAL);
    REAL *parts = shared ? take_memory(SUMS, sum_bytes) : q->gradient;
    if (shared && !parts) return NO_MEMORY;
    int failed = 0;
#pragma omp parallel num_threads(q->threads) reduction(| : failed) if (q->threads > 1)
    {
        REAL *buffer = take_memory(BUFFERS, bytes);
        Matrix matrix = {
            .right = buffer, .left = buffer + square, .scratch = buffer + 2 * square, .sums = buffer + 3 * square,
            .more = buffer + used};
        Chain members[GROUP];
        EACH(g, most) {
            REAL *r = buffer + 4 * square + g * own, *end = r + routine->rows * rows;
            members[g] = (Chain){
                .matrix = &matrix, .m = q->labels, .width = width, .edges = q->edges,
                .x = r, .a = r + rows, .c = r + 2 * rows, .b = r + 3 * rows, .p = r + 4 * rows,
                .sent_right = r + 5 * rows, .d = routine->rows > 6 ? r + 6 * rows : NULL, .rights = r + 7 * rows,
                .lefts = r + 8 * rows, .sent_left = r + 9 * rows,
                .row = end, .a_masses = end + width, .c_masses = end + width + q->length,
            };
        }
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < items; item++) {
            int64_t start = item / per_matrix * q->pieces, first = start + item % per_matrix * at_a_time;
            int64_t last = first + at_a_time < start + q->pieces ? first + at_a_time : start + q->pieces;
            if (parts) fill(parts + first * matrices, (last - first) * matrices, 0);
            failed |= buffer ? run_chunks(members, most, q, first, last, parts, routine) : NO_MEMORY;
        }
        return_memory(buffer, bytes);
        for (int64_t k = 0; shared && k < q->chunks / q->pieces; k++) {
#pragma omp for nowait
            for (int64_t from = 0; from < matrices; from += BLOCK)
                add_parts(parts + k * q->pieces * matrices + from, q->pieces, matrices,
                          from + BLOCK < matrices ? BLOCK : matrices - from, q->gradient + k * matrices + from);
        }
    }
    if (shared) return_memory(parts, sum_bytes);
    return failed;
}

enum { SUM, MEAN, TOKEN_MEAN }; /* as in totals.py, which has the formulas */

static bool counts(const Batch *q, int64_t b) { return !q->empty || !q->empty[b]; }

/* Losses and gradients of the total of a batch: the weight of a sequence is the derivative of the total. */
static int run_total(const Batch *q, const Routine *routine) {
    int64_t sequences = q->chunks ? q->starts[q->chunks] : 0, bytes = 2 * sequences * sizeof(REAL);
    bool by_length = q->reduction == TOKEN_MEAN && q->of_means;
    double number = 0, positions = 0, sum = 0;
    REAL *losses = take_memory(LOSSES, bytes), *weights = losses + sequences;
    if (!losses) return NO_MEMORY;
    EACH(b, sequences) if (counts(q, b)) number++, positions += q->lengths[b];
    double divisor = q->reduction == SUM ? 1 : fmax(q->reduction == MEAN ? number : positions, 1);
    EACH(b, sequences) weights[b] = counts(q, b) ? (by_length ? q->lengths[b] : 1) / divisor : 0;
    Batch each = *q;
    each.value = losses, each.weight = weights;
    int failed = run_batch(&each, routine);
    EACH(b, sequences) if (counts(q, b)) sum += by_length ? (double)losses[b] * q->lengths[b] : losses[b];
    *q->total = sum / divisor;
    return_memory(losses, bytes);
    return failed;
}

#define RUN(name, ...) \
    int name(const Batch *q) { \
        static const Routine routine = {__VA_ARGS__}; /* what is not given is NULL */ \
        return q->total ? run_total(q, &routine) : run_batch(q, &routine); \
    }
RUN(forward, load_potentials, load_exp_domain, FORWARD, forward_one, false, 2)
RUN(likelihood, load_potentials, load_exp_domain, BOTH, likelihood_one, false, 6)
RUN(edge_marginals, load_potentials, load_exp_domain, BOTH, edge_marginals_one, false, 6)
RUN(messages, load_potentials, load_exp_domain, BOTH, messages_one, false, 5)
RUN(cross_entropy, load_potentials, load_exp_domain, BOTH, cross_entropy_one, true, 10)
RUN(transport, load_potentials, load_messages, NO_SWEEP, NULL, true, 10)
RUN(decode, load_padded_scores, load_scores, BEST, decode_one, false, 1)
RUN(top_k, load_padded_scores, load_scores, BEST, top_k_one, false, 1, ranking_bytes)
RUN(sample, load_potentials, load_exp_domain, FORWARD, sample_one, false, 2)

/* Multiplies both arrays by the weight in place if all weights are equal; else returns 1. */
int scale(const REAL *weights, int64_t sequences, REAL *nodes, int64_t n, REAL *gradient, int64_t size) {
    EACH(b, sequences) if (weights[b] != weights[0]) return 1;
    if (!sequences || weights[0] == 1) return 0;
    EACH(i, n) nodes[i] *= weights[0];
    EACH(i, size) gradient[i] *= weights[0];
    return 0;
}
