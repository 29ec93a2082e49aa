"""SGLang on a plain CPU: environment, kernels, small models, server launcher."""
