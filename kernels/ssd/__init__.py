"""State space duality, the recurrence of Mamba2."""
