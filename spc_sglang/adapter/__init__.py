"""SGLang contact: the only layer that imports sglang or torch."""
