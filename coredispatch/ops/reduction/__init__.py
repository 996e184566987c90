"""Many numbers into fewer: sums, extrema, moments, quantiles, scans, sorting and searching."""
