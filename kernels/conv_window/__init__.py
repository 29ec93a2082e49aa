"""Windows of a causal convolution at many positions of one prefill."""
