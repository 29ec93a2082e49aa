"""Sparse, exact recurrent checkpoints for SGLang's prefix cache (see README.md)."""

from __future__ import annotations

__version__ = "0.1.0"
