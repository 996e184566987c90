"""The table and the hot path: operators, masks, resolution, and the entries that call kernels."""
