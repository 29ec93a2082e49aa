"""Copies of state pool rows, for restoring a checkpoint and for forking one."""
