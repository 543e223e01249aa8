"""Compares results and gradients with the reference, and names known bugs."""
