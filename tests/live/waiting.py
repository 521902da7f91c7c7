"""Waiting for processes that tests start."""

import time


def wait_for(condition, what, seconds=60.0):
    """Waits until something holds; fails after some seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.02)
