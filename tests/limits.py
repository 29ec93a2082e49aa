"""How long a test waits for another process."""

HANG_LIMIT_S = 1800.0
"""Ends what hangs; a slow or busy machine is no failure."""
