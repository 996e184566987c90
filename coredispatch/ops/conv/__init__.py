"""Convolution: one general operator with its two gradients, and PyTorch's named forms."""
