"""Pooling: general operators over the last dimensions, and PyTorch's named forms."""
