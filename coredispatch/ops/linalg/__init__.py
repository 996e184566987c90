"""Linear algebra: products, contractions, factorizations, systems, eigenvalues, norms."""
