"""PyTorch's private modules, as far as programs touch them."""
