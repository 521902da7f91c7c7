"""Daemons that a test's cluster consists of: started one after the other, ended in the opposite order."""

import os
import signal
import subprocess


class Daemons:
    """Processes with a folder in which each writes what it prints; as a context, they run.

    Who inherits has a ``start``, which spawns them.

    Args:
        root: The folder.
        env: Their environment; None: that of the test.
        patience_s: How long each may take to end by itself, s.
    """

    def __init__(self, root, env=None, patience_s=10.0):
        self.root, self.env = root, {**os.environ} if env is None else env
        self._patience_s, self._processes = patience_s, []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *raised):
        self.stop()

    def spawn(self, *command):
        """Starts a daemon; returns its process."""
        with (self.root / f"{command[0]}.out").open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, start_new_session=True
            )
        self._processes.append(process)
        return process

    def stop(self):
        """Ends all daemons, those that stand still as well."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
