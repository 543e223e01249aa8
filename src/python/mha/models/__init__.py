"""Whole models from presets, configurations and files, and their parameters."""
