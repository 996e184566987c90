"""Normalization layers: layer, RMS, group, batch and instance norm."""
