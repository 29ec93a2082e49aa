"""The only module that imports Numba, itself imported only by `engine.warm_up`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

numba: Any
try:
    # an optional extra, so it may be missing where this is type-checked
    import numba  # type: ignore[import-not-found, import-untyped, no-redef, unused-ignore]
except ImportError:
    numba = None

_FLOATS = "float64[::1]"
_INTS = "int64[::1]"
_SIGNATURE = f"void({', '.join([_FLOATS] * 5)}, float64, {_FLOATS}, {_INTS}, {_INTS}, {_FLOATS})"


def compile_sweep(function: Callable[..., None]) -> Callable[..., None] | None:
    """`function` compiled for float64 buffers, or None without Numba.

    The signature is fixed, so compilation happens here and never on a call. The machine code is
    cached next to the source, else in the user's cache folder; when neither can be written (a
    read-only install) it is compiled again in each process.
    """
    if numba is None:
        return None
    try:
        return _build(function, cache=True)
    except (RuntimeError, OSError):
        return _build(function, cache=False)


def _build(function: Callable[..., None], *, cache: bool) -> Callable[..., None]:
    # no fastmath: the compiled sweep must round exactly as the plain one does
    decorate: Any = numba.njit(_SIGNATURE, cache=cache, nogil=True)
    compiled: Callable[..., None] = decorate(function)
    return compiled
