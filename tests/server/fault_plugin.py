"""Makes a general plugin of SGLang, for a test server only, that ruins published states.

The plugin zeroes the recurrent state of each checkpoint just before it enters the tree: the
negative control of every "warm equals cold" test.
"""

from __future__ import annotations

from pathlib import Path

_MODULE = """
def activate():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.mem_cache.unified_cache.components.MambaComponent"
        ".commit_insert_component_data",
        zero_state,
        HookType.BEFORE,
    )


def zero_state(self, node, is_new_leaf, params, result, cache_actions):
    if params.mamba_value is not None:
        pool = self.cache.req_to_token_pool.mamba_pool.mamba_cache
        pool.temporal[:, params.mamba_value] = 0
"""


def write(folder: Path) -> Path:
    """Write the plugin as an importable distribution; put `folder` on PYTHONPATH."""
    (folder / "spc_fault.py").write_text(_MODULE)
    info = folder / "spc_fault-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spc-fault\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nspc_fault = spc_fault:activate\n")
    return folder
