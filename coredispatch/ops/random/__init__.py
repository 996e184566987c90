"""Random numbers: factories, in-place fills, samples of distributions."""
