/* Vectors of REAL, as large as the processor's registers. */

#include <stdint.h>

#ifdef __AVX__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16 /* GCC divides a larger vector into single numbers, which takes several times as long */
#endif
#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))

/* One register. It need not be aligned and may alias REAL. */
typedef REAL Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
