"""Backends that come with coredispatch: NumPy under ``cpu``, ``meta``, and their array-API base."""
