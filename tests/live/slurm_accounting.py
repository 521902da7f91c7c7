"""Slurm's accounting on this machine: slurmdbd over a MariaDB of its own, for tests where Debian's packages are there.

MariaDB's system tables are left out (``--skip-grant-tables``), so it is up in a second or two; it listens on the
loopback address alone.
"""

import contextlib
import os
import shutil
import socket

from live.daemons import Daemons
from live.waiting import wait_for

MISSING = [
    name for name in ("slurmdbd", "mariadbd", "sacct", "sacctmgr")
    if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None
]  # fmt: skip
CONF = """
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={root}/slurmdbd.log
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=none
StorageLoc=slurm_acct_db
"""
IN_SLURM_CONF = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={root}/munge/socket
AccountingStorageTRES=gres/gpu
"""


class Accounting(Daemons):
    """The accounting of a cluster, in the cluster's folder; it needs the cluster's munged.

    Args:
        root: Folder of the cluster.
        port: The first of two ports.
        env: Environment of the cluster.
    """

    def __init__(self, root, port, env):
        super().__init__(root, env, patience_s=20.0)
        self.port = port
        (root / "database").mkdir()
        file = root / "slurmdbd.conf"
        file.write_text(CONF.format(root=root, port=self.port, database_port=self.port + 1))
        file.chmod(0o600)
        self.in_slurm_conf = IN_SLURM_CONF.format(root=root, port=self.port)

    def start(self):
        """Starts the database and slurmdbd."""
        self.spawn(
            "mariadbd", "--no-defaults", "--user=root", f"--datadir={self.root}/database",
            f"--socket={self.root}/database/socket", "--bind-address=127.0.0.1", f"--port={self.port + 1}",
            "--skip-grant-tables", "--innodb-buffer-pool-size=32M", "--innodb-lock-wait-timeout=900",
        )  # fmt: skip
        wait_for(lambda: _listens(self.port + 1), "MariaDB")
        self.spawn("slurmdbd", "-D")
        wait_for(lambda: _listens(self.port), "slurmdbd")


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False
