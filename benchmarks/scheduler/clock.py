"""Times of named steps, each without the steps nested in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any


class _Step:
    """A context manager by hand; one of `contextlib` costs as much as some of the steps."""

    __slots__ = ("_clock", "_name", "_nested", "_start")

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name, self._nested = clock, name, 0.0

    def __enter__(self) -> None:
        self._clock.open.append(self)
        self._start = time.thread_time_ns()

    def __exit__(self, *_: object) -> None:
        spent = (time.thread_time_ns() - self._start) / 1e3
        clock = self._clock
        clock.open.pop()
        if clock.open:
            clock.open[-1]._nested += spent
        if clock.rows:
            row = clock.rows[-1]
            row[self._name] = row.get(self._name, 0.0) + spent - self._nested


class Clock:
    """CPU microseconds of this thread by step; `rows` holds one dict a request.

    CPU time, since the machine is shared: a step that waits for its turn would look slow.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.open: list[_Step] = []

    def next_request(self) -> None:
        self.rows.append({})

    def step(self, name: str) -> _Step:
        """Book what happens inside, except in nested steps, under `name`."""
        return _Step(self, name)

    def watch(self, owner: Any, method: str, name: str) -> Callable[[], None]:
        """Book every call of a method of this object as a step; the result ends it."""
        call: Callable[..., Any] = getattr(owner, method)

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.step(name):
                return call(*args, **kwargs)

        setattr(owner, method, timed)
        return lambda: setattr(owner, method, call)
