"""Attention inside running PyTorch models: finds calls, checks them, compares two runs."""
