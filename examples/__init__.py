"""Programs that use SGLang with `--radix-cache-backend spc`."""
