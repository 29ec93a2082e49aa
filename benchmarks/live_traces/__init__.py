"""Public traces on a live CPU server: stock SGLang, ours, and the simulator's figure."""
