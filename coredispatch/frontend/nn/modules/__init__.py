"""The layers, by family; ``coredispatch.nn`` has them all."""
