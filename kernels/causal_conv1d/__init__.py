"""Depthwise causal convolution over time, with its sliding window as state."""
