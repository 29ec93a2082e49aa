"""Normalizations, gates and layout changes around linear and gated attention."""
