"""With `--schedule-policy lpm`: whoever was passed over too often goes first.

SGLang orders by matched tokens, and on a hybrid model those end at the deepest live checkpoint.
So requests that resume deep go first, which saves most, and one that matches nothing could wait
for ever.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

MOST_ADMISSIONS = 32
"""Admissions that may pass a waiting request."""


def put_oldest_first(queue: MutableSequence[Any], admissions: int) -> None:
    """Move requests that waited for `MOST_ADMISSIONS` or more to the front, the oldest first.

    `admissions` counts admitted requests: logical time, equal on all ranks.
    """
    for req in queue:
        if not hasattr(req, "_spc_waits_since"):
            req._spc_waits_since = admissions
    old = [req for req in queue if admissions - req._spc_waits_since >= MOST_ADMISSIONS]
    if old:
        passed_over = set(map(id, old))
        rest = [req for req in queue if id(req) not in passed_over]
        queue[:] = [*sorted(old, key=lambda req: req._spc_waits_since), *rest]
