"""The main job on a real server: one workload, stock SGLang and spc-sglang, side by side."""
