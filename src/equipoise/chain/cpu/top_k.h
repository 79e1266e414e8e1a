/* The k best labellings of a sequence, by the lazy algorithm of Huang and Chiang (2005, algorithm 3).

   A way to label j at t is the r-th best labelling up to t that ends in j. It continues a way to some label i at t - 1:

       score = score before + W(i, j) + U_t(j)

   `best_scores` finds the best ways to all labels. A list of ways gets longer only if a longer way needs the next one:
   it continues either the best way to another label, or the next best way to the label i of the last one. So k
   labellings take O(k L M) steps after those of decoding, and an array (M,) for each list with more than one way. */

#include "routines.h"

enum { NONE = -1 };

typedef struct {
    int32_t label;          /* i */
    int32_t previous, next; /* the way to i; the next best way to j. NONE: the first way to i; not known yet */
    REAL score;             /* -INFINITY at the end of a list */
} Way;

/* The ways to label j at t that are known, best first. Position n has one list, of the ways to the end. */
typedef struct {
    int64_t t, j;
    int32_t first, last;
    REAL *scores;     /* (width,): of the best way through each label i that is not in the list yet, without U_t(j) */
    int32_t *through; /* (width,): the way to i that it continues; NONE: the first */
} List;

typedef struct {
    Chain *s;
    const REAL *unary;
    Way *ways;
    List *lists;
    int32_t *places;  /* (L, m): the number of the list of a label, or NONE */
    int32_t *waiting; /* (L,): lists that need another way */
    REAL *scores;     /* of all lists */
    int32_t *through;
    int64_t known_ways, known_lists;
} Ranking;

/* A labelling adds at most one list per position, with one way, and one way to lists that were there before. */
static int64_t most_lists(const Batch *q) { return (q->paths < q->labels ? q->paths : q->labels) * q->length + 1; }
static int64_t most_ways(const Batch *q) { return 2 * q->paths * q->length + 1; }

static int64_t ranking_bytes(const Batch *q) {
    if (most_ways(q) > INT32_MAX) return INT64_MAX / 2; /* ways have numbers of 32 bits */
    int64_t lists = most_lists(q), row = q->width * (sizeof(REAL) + sizeof(int32_t));
    int64_t places = q->length * (q->labels + 1) * sizeof(int32_t);
    return lists * (sizeof(List) + row) + most_ways(q) * sizeof(Way) + places;
}

static Ranking start_ranking(Chain *s, const Batch *q) {
    Ranking r = {.s = s, .unary = unary_of(s, q), .lists = s->matrix->more};
    r.ways = (Way *)(r.lists + most_lists(q));
    r.scores = (REAL *)(r.ways + most_ways(q));
    r.through = (int32_t *)(r.scores + most_lists(q) * q->width);
    r.places = r.through + most_lists(q) * q->width;
    r.waiting = r.places + q->length * q->labels;
    memset(r.places, 0xff, s->n * s->m * sizeof(int32_t)); /* NONE */
    return r;
}

/* Moves the best of the scores into the list. */
static void append_way(Ranking *r, List *list) {
    Chain *s = r->s;
    REAL best = maximum(list->scores, s->width), own = 0;
    int64_t i = index_of(list->scores, s->width, best);
    if (i >= s->m) i = s->m - 1; /* scores may overflow */
    if (list->t < s->n) own = r->unary[list->t * s->m + list->j] - finite_or_zero(s->a_masses[list->t - 1]);
    r->ways[r->known_ways] =
        (Way){.label = i, .previous = list->through[i], .next = NONE, .score = best == -INFINITY ? best : best + own};
    if (list->last != NONE) r->ways[list->last].next = r->known_ways;
    if (list->first == NONE) list->first = r->known_ways;
    list->last = r->known_ways++;
}

/* W(i, j) of the step to position t. */
static REAL pairwise_of(const Chain *s, int64_t t, int64_t i, int64_t j) {
    return s->matrix->pairwise[((s->edges == 1 ? 0 : t - 1) * s->m + i) * s->m + j];
}

static List *add_list(Ranking *r, int64_t t, int64_t j) {
    Chain *s = r->s;
    int64_t width = s->width;
    ASSUME_PADDED(width);
    const REAL *before = s->x + (t - 1) * width;
    List *list = r->lists + r->known_lists;
    *list = (List){.t = t, .j = j, .first = NONE, .last = NONE, .scores = r->scores + r->known_lists * width,
                   .through = r->through + r->known_lists * width};
    memset(list->through, 0xff, width * sizeof(int32_t)); /* NONE */
    memcpy(list->scores, before, width * sizeof(REAL));
    if (t < s->n && s->edges == 1) {
        const REAL *column = row_of(s->matrix->left, j, width, s->row);
        EACH_VECTOR(i, width) AT(list->scores + i, 0) += AT(column + i, 0);
    } else if (t < s->n) {
        EACH(i, s->m) list->scores[i] += pairwise_of(s, t, i, j);
    }
    r->known_lists++;
    append_way(r, list);
    return list;
}

/* The list of label j at t, at least 1. */
static List *list_of(Ranking *r, int64_t t, int64_t j) {
    int32_t *place = r->places + t * r->s->m + j;
    if (*place != NONE) return r->lists + *place;
    *place = r->known_lists;
    return add_list(r, t, j);
}

/* The way to position t, at least 1, that this one continues. */
static Way *previous_way(Ranking *r, int64_t t, Way *way) {
    if (way->previous == NONE) way->previous = list_of(r, t, way->label)->first;
    return r->ways + way->previous;
}

/* The next way of a list, whose last one is part of a labelling: the one that continues the next way to its label
   takes its place. */
static void extend_list(Ranking *r, List *list) {
    Way *last = r->ways + list->last;
    int64_t i = last->label, before = list->t - 1;
    list->scores[i] = -INFINITY;
    if (before) {
        list->through[i] = r->ways[last->previous].next;
        REAL step = list->t < r->s->n ? pairwise_of(r->s, list->t, i, list->j) : 0;
        list->scores[i] = r->ways[list->through[i]].score + step;
    }
    append_way(r, list);
}

/* Extends the list of ways to the end, and those before it that must have another way first: each has as its last way
   that of the labelling before. */
static void extend_end(Ranking *r, List *list) {
    int64_t waiting = 0;
    for (;;) {
        r->waiting[waiting++] = list - r->lists;
        Way *last = r->ways + list->last;
        if (list->t == 1 || r->ways[last->previous].next != NONE) break;
        list = list_of(r, list->t - 1, last->label);
    }
    while (waiting) extend_list(r, r->lists + r->waiting[--waiting]);
}

static void top_k_one(Chain *s, const Batch *q) {
    Ranking r = start_ranking(s, q);
    List *end = add_list(&r, s->n, 0);
    bool more = true;
    EACH(k, q->paths) {
        int64_t at = s->index * q->paths + k, *path = q->path + at * q->length;
        if (k && more) extend_end(&r, end);
        Way *way = r.ways + end->last;
        more = more && way->score > -INFINITY;
        for (int64_t t = s->n - 1; more && t >= 0; t--) {
            path[t] = way->label;
            if (t) way = previous_way(&r, t, way);
        }
        for (int64_t t = more ? s->n : 0; t < q->length; t++) path[t] = IGNORE;
        q->value[at] = more ? score_of(s, r.unary, path) : -INFINITY;
    }
}
