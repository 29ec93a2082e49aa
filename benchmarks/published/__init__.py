"""The published evaluation (arXiv 2605.05219), redone: one module a table."""
