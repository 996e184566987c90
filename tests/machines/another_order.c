/* A BLAS that adds up in another order at every call.
 *
 * Preloaded, it stands before the OpenBLAS that NumPy brings: it permutes the terms of every inner
 * product and hands them on. What still needs the bits of a product fails. ORDER_OF names the
 * library to hand on to.
 */
#define _GNU_SOURCE
#include <complex.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int64_t n_t;
enum { ROWS = 101, PLAIN = 111, TURNED = 112, CONJUGATED = 113 };

static _Thread_local uint64_t state;

static uint64_t drawn(void) {
  if (!state) state = (uint64_t)(uintptr_t)&state ^ (uint64_t)rand();
  state += 0x9E3779B97F4A7C15u; /* splitmix64 */
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static n_t *order(n_t n) {
  n_t *p = malloc((size_t)n * sizeof *p);
  for (n_t i = 0; i < n; i++) p[i] = i;
  for (n_t i = n - 1; i > 0; i--) {
    n_t j = (n_t)(drawn() % (uint64_t)(i + 1)), kept = p[i];
    p[i] = p[j];
    p[j] = kept;
  }
  return p;
}

static void *theirs(const char *name) {
  static void *library;
  const char *path = getenv("ORDER_OF");
  if (!library && path) library = dlopen(path, RTLD_LAZY);
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) {
    fprintf(stderr, "another_order: no %s in %s\n", name, path ? path : "(ORDER_OF is not set)");
    abort();
  }
  return found;
}

/* T: element, S: how alpha and beta are passed, OF: a pointer to them, X: the letter of the name */
#define FAMILY(T, S, X)                                                                            \
  static T *X##turned(const T *a, n_t rows, n_t columns, n_t row, n_t column, const n_t *p,        \
                      int by_row, int conjugate) {                                                 \
    T *made = malloc((size_t)(rows * columns + 1) * sizeof *made);                                 \
    for (n_t i = 0; i < rows; i++)                                                                 \
      for (n_t j = 0; j < columns; j++) {                                                          \
        T x = a[(by_row ? p[i] : i) * row + (by_row ? j : p[j]) * column];                         \
        made[i * columns + j] = conjugate ? (T)conj(x) : x;                                        \
      }                                                                                            \
    return made;                                                                                   \
  }                                                                                                \
  void scipy_cblas_##X##gemm64_(int layout, int ta, int tb, n_t m, n_t n, n_t k, S alpha,          \
                                const T *a, n_t lda, const T *b, n_t ldb, S beta, T *c,            \
                                n_t ldc) {                                                         \
    void (*real)(int, int, int, n_t, n_t, n_t, S, const T *, n_t, const T *, n_t, S, T *, n_t) =   \
        theirs("scipy_cblas_" #X "gemm64_");                                                       \
    if (layout != ROWS) {                                                                          \
      real(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                          \
      return;                                                                                      \
    }                                                                                              \
    n_t *p = order(k);                                                                             \
    T *left = X##turned(a, m, k, ta == PLAIN ? lda : 1, ta == PLAIN ? 1 : lda, p, 0,               \
                        ta == CONJUGATED);                                                         \
    T *right = X##turned(b, k, n, tb == PLAIN ? ldb : 1, tb == PLAIN ? 1 : ldb, p, 1,              \
                         tb == CONJUGATED);                                                        \
    real(ROWS, PLAIN, PLAIN, m, n, k, alpha, left, k ? k : 1, right, n ? n : 1, beta, c, ldc);     \
    free(left), free(right), free(p);                                                              \
  }                                                                                                \
  void scipy_cblas_##X##gemv64_(int layout, int ta, n_t m, n_t n, S alpha, const T *a, n_t lda,    \
                                const T *x, n_t dx, S beta, T *y, n_t dy) {                        \
    void (*real)(int, int, n_t, n_t, S, const T *, n_t, const T *, n_t, S, T *, n_t) =             \
        theirs("scipy_cblas_" #X "gemv64_");                                                       \
    if (layout != ROWS || dx < 1) {                                                                \
      real(layout, ta, m, n, alpha, a, lda, x, dx, beta, y, dy);                                   \
      return;                                                                                      \
    }                                                                                              \
    n_t rows = ta == PLAIN ? m : n, k = ta == PLAIN ? n : m, *p = order(k);                        \
    T *left = X##turned(a, rows, k, ta == PLAIN ? lda : 1, ta == PLAIN ? 1 : lda, p, 0,            \
                        ta == CONJUGATED);                                                         \
    T *right = X##turned(x, k, 1, dx, 1, p, 1, 0);                                                 \
    real(ROWS, PLAIN, rows, k, alpha, left, k ? k : 1, right, 1, beta, y, dy);                     \
    free(left), free(right), free(p);                                                              \
  }                                                                                                \
  void scipy_cblas_##X##syrk64_(int layout, int uplo, int trans, n_t n, n_t k, S alpha,            \
                                const T *a, n_t lda, S beta, T *c, n_t ldc) {                      \
    void (*real)(int, int, int, n_t, n_t, S, const T *, n_t, S, T *, n_t) =                        \
        theirs("scipy_cblas_" #X "syrk64_");                                                       \
    if (layout != ROWS) {                                                                          \
      real(layout, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);                                \
      return;                                                                                      \
    }                                                                                              \
    n_t *p = order(k);                                                                             \
    T *left = X##turned(a, n, k, trans == PLAIN ? lda : 1, trans == PLAIN ? 1 : lda, p, 0, 0);     \
    real(ROWS, uplo, PLAIN, n, k, alpha, left, k ? k : 1, beta, c, ldc);                           \
    free(left), free(p);                                                                           \
  }

FAMILY(float, float, s)
FAMILY(double, double, d)
FAMILY(float complex, const void *, c)
FAMILY(double complex, const void *, z)

#define DOT(T, X)                                                                                  \
  T scipy_cblas_##X##dot64_(n_t n, const T *x, n_t dx, const T *y, n_t dy) {                       \
    T (*real)(n_t, const T *, n_t, const T *, n_t) = theirs("scipy_cblas_" #X "dot64_");           \
    if (dx < 1 || dy < 1) return real(n, x, dx, y, dy);                                            \
    n_t *p = order(n);                                                                             \
    T *left = X##turned(x, n, 1, dx, 1, p, 1, 0), *right = X##turned(y, n, 1, dy, 1, p, 1, 0);     \
    T found = real(n, left, 1, right, 1);                                                          \
    free(left), free(right), free(p);                                                              \
    return found;                                                                                  \
  }

DOT(float, s)
DOT(double, d)

#define COMPLEX_DOT(T, X, KIND)                                                                    \
  void scipy_cblas_##X##KIND##64_(n_t n, const T *x, n_t dx, const T *y, n_t dy, T *found) {       \
    void (*real)(n_t, const T *, n_t, const T *, n_t, T *) =                                       \
        theirs("scipy_cblas_" #X #KIND "64_");                                                     \
    if (dx < 1 || dy < 1) {                                                                        \
      real(n, x, dx, y, dy, found);                                                                \
      return;                                                                                      \
    }                                                                                              \
    n_t *p = order(n);                                                                             \
    T *left = X##turned(x, n, 1, dx, 1, p, 1, 0), *right = X##turned(y, n, 1, dy, 1, p, 1, 0);     \
    real(n, left, 1, right, 1, found);                                                             \
    free(left), free(right), free(p);                                                              \
  }

COMPLEX_DOT(float complex, c, dotu_sub)
COMPLEX_DOT(float complex, c, dotc_sub)
COMPLEX_DOT(double complex, z, dotu_sub)
COMPLEX_DOT(double complex, z, dotc_sub)
