"""What the cache costs the scheduler thread: stock SGLang with its Rust tree, and ours."""
