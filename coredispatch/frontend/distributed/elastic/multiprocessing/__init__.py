"""What ranks that a launcher started leave for it."""
