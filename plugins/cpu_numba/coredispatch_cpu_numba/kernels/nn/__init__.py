"""Recurrent sequences, sampling on grids, optimizer steps, quantized layers."""
