/* Vectors of REAL, as large as the processor's registers. Those of 64 bytes must be asked for by WIDE_VECTORS: rows are
   padded to whole vectors, and for short rows that takes longer. */

#include <stdint.h>

#ifdef __AVX512F__
#define REGISTER_BYTES 64
#elif defined __AVX__
#define REGISTER_BYTES 32
#else
#define REGISTER_BYTES 16
#endif

/* GCC divides a vector that is larger than a register into single numbers, which takes several times as long. */
#if REGISTER_BYTES > 32 && !defined WIDE_VECTORS
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES REGISTER_BYTES
#endif
#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))

/* One register. It need not be aligned and may alias REAL. */
typedef REAL Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
