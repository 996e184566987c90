"""How programs are captured, guarded and replayed: what `coredispatch.compile` does."""
