"""What operator definitions share: type names, shape and dtype rules, samples, tolerances."""
