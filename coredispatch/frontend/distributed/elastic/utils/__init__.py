"""Small things around launching."""
