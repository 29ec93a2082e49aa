"""Makes a general plugin of SGLang, for a test server only, that breaks something.

`ZERO_STATES` zeroes the recurrent state of each checkpoint just before it enters the tree: the
negative control of every "warm equals cold" test. `NO_CAPTURES` makes the server's kernels look
like those that give no state inside a forward.
"""

from __future__ import annotations

from pathlib import Path

ZERO_STATES = """
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

NO_CAPTURES = """
def activate():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "spc_sglang.adapter.capture_backends.choose", choose_none, HookType.REPLACE
    )


def choose_none(model_runner, *, allow_state_pass):
    return None
"""


def write(folder: Path, module: str = ZERO_STATES) -> Path:
    """Write the plugin as an importable distribution; put `folder` on PYTHONPATH."""
    (folder / "spc_fault.py").write_text(module)
    info = folder / "spc_fault-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spc-fault\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nspc_fault = spc_fault:activate\n")
    return folder
