"""A step in a thread of its own, for which whoever asks for it waits a bounded time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future


class Aside:
    """Takes a step again and again, never twice at a time.

    Args:
        step: The step.
        wait_s: How long its caller waits for it, real s; a step that takes longer goes on by itself.

    Example:
        >>> done = []
        >>> aside = Aside(lambda: done.append("step"), wait_s=60.0)
        >>> aside.take()
        >>> aside.take()
        >>> done
        ['step', 'step']
    """

    def __init__(self, step: Callable[[], None], wait_s: float) -> None:
        self._step, self.wait_s = step, wait_s
        self._last: Future[None] | None = None

    def take(self) -> None:
        """Takes the step, unless the last one still goes on; then it is not waited for.

        Raises:
            Exception: What the step raised, or the last one after it was waited for.
        """
        if self._last is not None:
            if not self._last.done():
                return
            last, self._last = self._last, None
            last.result()
        self._last = step = Future[None]()
        threading.Thread(target=self._take, args=(step,), name="aside", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            error = step.exception(self.wait_s)
            self._last = None
            if error is not None:
                raise error

    def _take(self, step: Future[None]) -> None:
        try:
            self._step()
        except BaseException as error:
            step.set_exception(error)
        else:
            step.set_result(None)
