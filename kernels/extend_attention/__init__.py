"""Softmax attention of new queries over a cached prefix plus themselves."""
