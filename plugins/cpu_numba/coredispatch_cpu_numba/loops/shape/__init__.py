"""Copies and borders."""
