"""Element by element: arithmetic, comparison, powers, rounding, special functions."""
