"""Run Triton kernels on a CPU with the rounding that a GPU gives them.

Triton's interpreter executes a kernel in NumPy. Two things keep it from being an oracle as it
is: it keeps bf16 as 16-bit patterns and computes on those (triton issues 10919 and 11584, not
to be fixed), and it asks for a device in places where a CPU has none. `activate` mends both, for
triton 3.8. What stays different from a GPU: the order of sums inside a dot, reductions of bf16
tensors (reduce in fp32), atomics, and everything about speed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

VARIABLE = "TRITON_INTERPRET"
SUPPORTED_TRITON = "3.8."
COMPARISONS = frozenset(
    (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
)
BIT_OPERATIONS = frozenset(
    (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift)
)


def activate() -> None:
    """Switch this process to the interpreter; call it before anything imports triton.

    Sets TRITON_INTERPRET=1, so child processes interpret too. Idempotent. RuntimeError if triton
    is another version, or was imported without the interpreter.
    """
    if "triton" in sys.modules and os.environ.get(VARIABLE) != "1":
        raise RuntimeError(f"triton is already imported; set {VARIABLE}=1 or activate earlier")
    os.environ[VARIABLE] = "1"
    import torch
    import triton
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    if not triton.__version__.startswith(SUPPORTED_TRITON):
        raise RuntimeError(f"made for triton {SUPPORTED_TRITON}x, found {triton.__version__}")
    interpreter.interpreter_builder.__class__ = _rounding_builder(interpreter)
    Autotuner.run = _run_first_config
    # libraries enter `torch.<device type>.device(index)` around every launch
    torch.cpu.device = lambda *_: contextlib.nullcontext()


def adapt(*modules: ModuleType) -> None:
    """Make kernels of `modules`, written for the compiler, fit for the interpreter.

    A loop variable gets tensor methods such as `.to`: `range` yields Python integers here. And
    builtins bound under a global name (`exp = tl.exp`) are looked up at each call, since the
    interpreter exchanges the attributes of `triton.language` while a kernel runs.
    """
    from triton.language.core import is_builtin

    for module in modules:
        module.range = _range
        for name, value in list(vars(module).items()):
            if callable(value) and is_builtin(value):
                setattr(module, name, _look_up_later(value.__name__))


def widen(bits: np.ndarray) -> np.ndarray:
    """fp32 values of bf16 bit patterns (uint16)."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """bf16 bit patterns (uint16) nearest to `values`, ties to even as NVIDIA GPUs round."""
    wide = np.ascontiguousarray(values, dtype=np.float32)
    bits = wide.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(wide), np.uint16(0x7FC0), rounded)


def _range(*bounds: Any) -> Iterable[Any]:
    """Scalar tensors inside a kernel, Python's own range outside."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    # the interpreter puts a function in the place of this class while a kernel runs
    if isinstance(tl.static_range, type):
        return range(*bounds)
    indices = range(*(int(bound) for bound in bounds))
    handles = (TensorHandle(np.array([index], dtype=np.int32), tl.int32) for index in indices)
    return (tl.core.tensor(handle, tl.int32) for handle in handles)


def _look_up_later(name: str) -> Callable[..., Any]:
    import triton.language as tl

    return lambda *args, **kwargs: getattr(tl, name)(*args, **kwargs)


def _run_first_config(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for Autotuner.run: no benchmark, the first configuration left after pruning."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    kept = self.prune_configs(kwargs) or self.configs
    return self.fn.run(*args, **{**kwargs, **kept[0].all_kwargs()})


def _rounding_builder(interpreter: ModuleType) -> type:
    """The interpreter's builder with bf16 computed in fp32 and rounded once per operation."""
    import triton.language as tl

    handle = interpreter.TensorHandle

    def is_bf16(value: Any) -> bool:
        return value.dtype.scalar == tl.bfloat16

    def wide(value: Any) -> Any:
        return handle(widen(value.data), tl.float32) if is_bf16(value) else value

    def narrow(values: np.ndarray) -> Any:
        return handle(round_to_bf16(values), tl.bfloat16)

    def boolean(mask: Any) -> Any:
        # a scalar condition comes back from a splat as int8, which the loader refuses
        return handle(mask.data.astype(np.bool_), mask.dtype)

    class RoundingBuilder(interpreter.InterpreterBuilder):
        def get_bf16(self, value: float) -> Any:  # which triton 3.8 forgot
            return narrow(np.array([value]))

        def binary_op(self, lhs: Any, rhs: Any, op: Callable[..., Any]) -> Any:
            if op in BIT_OPERATIONS or not (is_bf16(lhs) or is_bf16(rhs)):
                return super().binary_op(lhs, rhs, op)
            result = op(wide(lhs).data, wide(rhs).data)
            return handle(result, tl.int1) if op in COMPARISONS else narrow(result)

        def unary_op(self, arg: Any, op: Callable[..., Any]) -> Any:
            return narrow(op(wide(arg).data)) if is_bf16(arg) else super().unary_op(arg, op)

        def create_dot(self, lhs: Any, rhs: Any, acc: Any, *options: Any) -> Any:
            return super().create_dot(wide(lhs), wide(rhs), acc, *options)

        def cast_impl(self, src: Any, dst_type: Any) -> Any:
            if dst_type.scalar == tl.bfloat16:
                return src if is_bf16(src) else narrow(src.data.astype(np.float32))
            if is_bf16(src) and dst_type.scalar == tl.float32:
                return wide(src)
            return super().cast_impl(wide(src), dst_type)

        def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
            if is_bf16(src) or dst_type.scalar == tl.bfloat16:
                return self.cast_impl(src, dst_type)
            return super().create_fp_to_fp(src, dst_type, rounding_mode)

        def create_masked_load(self, ptrs: Any, mask: Any, *rest: Any) -> Any:
            return super().create_masked_load(ptrs, boolean(mask), *rest)

        def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
            return super().create_masked_store(ptrs, value, boolean(mask), *rest)

    return RoundingBuilder
