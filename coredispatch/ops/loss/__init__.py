"""Loss functions: regression, distributions, margins, classification."""
