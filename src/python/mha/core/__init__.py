"""Calls of attention: the C interface, arrays, settings, layers, results."""
