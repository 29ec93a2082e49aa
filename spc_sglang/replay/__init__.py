"""Replay of request traces against cache policies, ours as in the server and every rival."""
