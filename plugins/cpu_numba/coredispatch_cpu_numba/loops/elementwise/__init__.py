"""Pointwise operators, activations among them."""
