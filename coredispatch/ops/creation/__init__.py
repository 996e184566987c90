"""New tensors: factories, sequences, window functions, copies and conversions."""
