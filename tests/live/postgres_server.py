"""A real PostgreSQL server in a folder of its own, reached over a socket: for tests where it is installed."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from live.waiting import wait_for

_FOLDERS = os.pathsep.join([os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))])
INITDB, POSTGRES = (shutil.which(name, path=_FOLDERS) for name in ("initdb", "postgres"))
MISSING = INITDB is None or POSTGRES is None or shutil.which("setpriv") is None
NOBODY = 65534
"""The server does not run as root."""


class PostgresServer:
    """A server with any number of databases; as a context, it runs."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="nw-pg-"))
        self._as = () if os.getuid() else ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        if self._as:
            os.chown(self.root, NOBODY, NOBODY)
        self._numbers = itertools.count()
        self.process = None

    def __enter__(self):
        try:
            made = [str(INITDB), "-D", f"{self.root}/data", "--auth=trust", "--username=noonward", "--no-sync"]
            subprocess.run([*self._as, *made], check=True, capture_output=True, cwd=self.root)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised):
        with contextlib.suppress(ProcessLookupError, AttributeError):
            self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def start(self):
        """Starts the server, or starts it again."""
        command = [str(POSTGRES), "-D", f"{self.root}/data", "-k", str(self.root), "-c", "listen_addresses=",
                   "-c", "fsync=off"]  # fmt: skip
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen([*self._as, *command], stdout=log, stderr=log, cwd=self.root)
        wait_for(self._answers, "PostgreSQL's answer")

    def stop(self):
        """Ends the server at once: all sessions break."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def database(self):
        """Returns the address of a new, empty database."""
        name = f"n{next(self._numbers)}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name):
        """Returns a database's address."""
        return f"postgresql:///{name}?host={self.root}&user=noonward"

    def run(self, name, statement):
        """Carries out a statement in a session of its own."""
        import psycopg

        with psycopg.connect(self.url(name), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _answers(self):
        import psycopg

        assert self.process.poll() is None, (self.root / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            return self.run("postgres", "SELECT 1") == [(1,)]
        return False
