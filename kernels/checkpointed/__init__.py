"""Checkpoints for flash-linear-attention: operators, and a cache for its models."""
