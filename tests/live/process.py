"""A service in a process of its own."""

import os
import re
import signal
import subprocess
import sys


class Process:
    """A command that prints the address it listens at; as a context, it has ended when the context is left.

    Args:
        command: What Python is given.
        wait: Whether to wait for the address at once.
    """

    def __init__(self, *command, wait=True):
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        self.address = None
        if wait:
            try:
                self.ready()
            except BaseException:
                self.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.close()

    def ready(self):
        """Waits until it has printed its address, and returns it."""
        for line in self.process.stdout:
            found = re.search(r"https?://[\d.:]+", line)
            if found:
                self.address = found[0]
                break
        assert self.address, "the service did not start"
        return self.address

    def end(self, number=signal.SIGTERM):
        """Ends it and returns its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(60)
        finally:
            self.close()

    def close(self):
        """Kills it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
