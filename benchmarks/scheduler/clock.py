"""Times of named steps, each without the steps nested in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


class Clock:
    """CPU microseconds of this thread by step; `rows` holds one dict a request.

    CPU time, since the machine is shared: a step that waits for its turn would look slow.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self._open: list[list[Any]] = []

    def next_request(self) -> None:
        self.rows.append({})

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Book what happens inside, except in nested steps, under `name`."""
        entry = [name, 0.0]
        self._open.append(entry)
        start = time.thread_time_ns()
        try:
            yield
        finally:
            spent = (time.thread_time_ns() - start) / 1e3
            self._open.pop()
            if self._open:
                self._open[-1][1] += spent
            if self.rows:
                row = self.rows[-1]
                row[name] = row.get(name, 0.0) + spent - entry[1]

    def watch(self, owner: Any, method: str, name: str) -> Callable[[], None]:
        """Book every call of a method of this object as a step; the result ends it."""
        call: Callable[..., Any] = getattr(owner, method)

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                return call(*args, **kwargs)

        setattr(owner, method, timed)
        return lambda: setattr(owner, method, call)
