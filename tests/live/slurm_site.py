"""A real Slurm cluster on this machine, without systemd and cgroups: for tests where the Debian packages are there."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

from live.waiting import wait_for

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
MISSING = [name for name in COMMANDS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
"""Commands that are not installed; the daemons need root."""
if os.getuid() != 0:
    MISSING.append("root")
CONF = """
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CryptoType=crypto/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool_%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd_%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd_%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MailProg=/bin/true
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
{accounting}
MinJobAge=86400
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=1
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=16 Boards=1 SocketsPerBoard=1 \
CoresPerSocket=16 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:fake:{gpus} State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
TOKENS = """
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={root}/state/jwt_key
"""
"""Lines by which the cluster takes tokens, too (``scontrol token``)."""
TAKES_TOKENS = any(Path("/usr/lib").glob("*/slurm*/auth_jwt.so"))
"""Whether Slurm's plugin for that is installed: Debian's ``slurm-wlm-jwt-plugin``."""


def free_ports(count):
    """Returns the first of some ports in a row that are free."""
    for first in range(20000 + os.getpid() % 5000 * 4, 60000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    one = stack.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port))
            except OSError:
                continue
        return first
    raise RuntimeError("no ports are free")


class SlurmSite:
    """A cluster of some nodes with some GPUs each; as a context, it runs.

    It lives in a short folder of its own: the path of a job's socket may have 107 characters, and Slurm puts a job that
    it cannot launch back and holds it.

    Args:
        name: Its name; those of nodes begin with it. With one of 40 letters every launch fails.
        nodes: Nodes.
        gpus: GPUs of a node.
        accounting: Makes its accounting (``slurm_accounting.Accounting``); None: it has none.
        tokens: Whether it takes tokens.
    """

    def __init__(self, name, nodes=2, gpus=4, accounting=None, tokens=False):
        root = Path(tempfile.mkdtemp(prefix="nw-slurm-"))
        self.root, self.name, self.nodes = root, name, nodes
        self.env = {**os.environ, "SLURM_CONF": str(root / "slurm.conf"), "PATH": os.environ["PATH"] + ":/usr/sbin"}
        self.conf = root / "slurm.conf"
        self._processes = []
        port, host = free_ports(nodes + 3), socket.gethostname()
        for folder in ("munge", "state", "dev", *(f"spool_{name}{n}" for n in range(nodes))):
            (root / folder).mkdir(parents=True)
        self.accounting = None if accounting is None else accounting(root, port + nodes + 1)
        key = root / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        for n in range(gpus):
            os.mknod(root / "dev" / f"gpu{n}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        listed = f"{name}[0-{nodes - 1}]"
        ports = f"[{port + 1}-{port + nodes}]"
        self.conf.write_text(
            CONF.format(
                name=name,
                host=host,
                port=port,
                root=root,
                nodes=listed,
                ports=ports,
                gpus=gpus,
                accounting=self.accounting.in_slurm_conf if self.accounting else NO_ACCOUNTING,
            )
        )
        if tokens:
            signs = root / "state" / "jwt_key"
            signs.write_bytes(secrets.token_bytes(32))
            signs.chmod(0o600)
            self.conf.write_text(self.conf.read_text() + TOKENS.format(root=root))
        devices = f"NodeName={listed} Name=gpu Type=fake File={root}/dev/gpu[0-{gpus - 1}]\n"
        (root / "gres.conf").write_text(devices)
        (root / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *raised):
        self.stop()

    def start(self):
        """Starts the daemons and waits until all nodes are idle."""
        munge = self.root / "munge"
        self._spawn(
            "munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed", "--num-threads=1",
        )  # fmt: skip
        wait_for((munge / "socket").exists, "munged")
        if self.accounting is not None:
            self.accounting.start(self.env)
            wait_for(
                lambda: "Adding" in self.call("sacctmgr", "-i", "add", "cluster", self.name), "the cluster's entry"
            )
        self.start_controller()
        for n in range(self.nodes):
            self._spawn("slurmd", "-D", "-N", f"{self.name}{n}", "-f", str(self.conf))
        wait_for(self._idle, "idle nodes")

    def start_controller(self, *options):
        """Starts the controller, or starts it again; with the option ``-c`` it has forgotten all jobs."""
        self._controller = self._spawn("slurmctld", "-D", *options, "-f", str(self.conf))
        wait_for(lambda: "is UP" in self.call("scontrol", "ping"), "slurmctld")

    def stop_controller(self):
        """Ends the controller: the site does not answer."""
        self._controller.send_signal(signal.SIGTERM)
        self._controller.wait()

    def controller(self, number):
        """Sends the controller a signal: SIGSTOP, and it stands still; SIGCONT, and it goes on."""
        self._controller.send_signal(number)

    def call(self, *command):
        """Returns what a command printed."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False).stdout

    def stop(self):
        """Ends all daemons and removes its folder."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.accounting is not None:
            self.accounting.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def _idle(self):
        states = self.call("sinfo", "-h", "-N", "-o", "%T").split()
        return len(states) == self.nodes and set(states) == {"idle"}

    def _spawn(self, *command):
        with (self.root / f"{command[0]}.out").open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, start_new_session=True
            )
        self._processes.append(process)
        return process
