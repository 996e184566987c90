"""Activation functions: rectifiers, gates, ELUs, sigmoid, softmax (``tanh`` is in elementwise)."""
