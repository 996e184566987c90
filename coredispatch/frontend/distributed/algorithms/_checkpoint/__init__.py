"""Modules whose activations are computed again in backward."""
