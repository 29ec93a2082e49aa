"""`--spc-state PATH`: learned statistics survive a restart.

Loaded once at start; a damaged file stops the start. Written by one rank every 256 admitted
requests and at every flush, so at most that many observations are lost with the process.
"""

from __future__ import annotations

import logging
from pathlib import Path

from spc_sglang.planning import saved_state
from spc_sglang.planning.presets import Policy

logger = logging.getLogger(__name__)

SAVE_EVERY_REQUESTS = 256


class StateFile:
    """The file of one scheduler; `writes` is true on one rank only."""

    def __init__(self, path: Path, policy: Policy, *, writes: bool) -> None:
        self._path = path
        self._policy = policy
        self._writes = writes
        self._unsaved = 0
        if path.exists():
            saved_state.load(path, policy)
            logger.info("spc-sglang: continues with the statistics of %s", path)

    def admitted(self) -> None:
        """Count one admission; saves when enough are new."""
        self._unsaved += 1
        if self._unsaved >= SAVE_EVERY_REQUESTS:
            self.save()

    def save(self) -> None:
        """Write now if anything is new; a full disk is logged, serving goes on."""
        if not self._unsaved:
            return
        self._unsaved = 0
        if not self._writes:
            return
        try:
            saved_state.save(self._path, self._policy)
        except OSError as error:
            logger.warning("spc-sglang: statistics not saved to %s: %s", self._path, error)
