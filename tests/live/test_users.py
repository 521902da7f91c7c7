"""As whom jobs run: Slurm's commands as the submitting user, a token of each user, and impersonation in Kubernetes."""

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from live.kube_server import KubeServer
from live.slurm_site import MISSING, TAKES_TOKENS, SlurmSite, free_ports
from live.waiting import wait_for
from noonward.errors import ScenarioError
from noonward.live.config import checked_config
from noonward.live.executors.identity import Account, Users
from noonward.live.executors.kubernetes import KubernetesExecutor
from noonward.live.executors.protocol import ClusterError, Order, RefusedError
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.executors.slurm_words import AnsweredError
from noonward.live.executors.slurmrestd import SlurmRestExecutor
from noonward.live.executors.web import ClusterWeb

needs_slurm = pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
ORDINARY = [each.pw_name for each in pwd.getpwall() if 0 < each.pw_uid < 1000 and each.pw_name != getpass.getuser()][:2]
"""Two users that every Debian has and that are no administrators."""


def order(token, owner="", command="true", handle=None):
    return Order(
        token=token, job=1, name="a", command=command, gpus=1, run_s=1.0, start_s=0.0, handle=handle, owner=owner
    )


@pytest.fixture(scope="module")
def site():
    """A cluster that every user of the machine may reach."""
    with SlurmSite("u", nodes=1, gpus=2, tokens=TAKES_TOKENS) as made:
        for folder in (made.root, *made.root.parents):
            if folder.stat().st_uid == os.getuid() and folder != Path("/"):
                folder.chmod(folder.stat().st_mode | 0o011)
        yield made


@pytest.fixture
def as_service(site, monkeypatch):
    """Makes executors as a service has them that is nobody and may become another user by one command, as by sudo."""
    place = site.root / "service"
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    become = place / "become"  # what sudo is to a service: a program of the administrator that changes the user
    shutil.copy(shutil.which("setpriv"), become)
    become.chmod(0o4755)
    monkeypatch.setenv("PATH", site.env["PATH"])
    commands = place / "commands"
    commands.mkdir(exist_ok=True)
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct"):
        real = shutil.which(name, path=site.env["PATH"])
        as_nobody = f'[ "$(id -u)" = 0 ] && exec setpriv --reuid=nobody --clear-groups {real} "$@"'
        (commands / name).write_text(f'#!/bin/sh\n{as_nobody}\nexec {real} "$@"\n')
        (commands / name).chmod(0o755)

    def made(**more):
        words = ("setpriv", "--reuid=nobody", "--clear-groups", str(become), "--reuid={user}", "--clear-groups")
        return SlurmExecutor(lambda posix_s: posix_s - 1.7e9, conf=site.conf, commands=commands, as_user=words, **more)

    return made


def submitted(executor, one):
    return replace(one, handle=executor.submit_held(one))


def phase(executor, one):
    found = executor.statuses([one])
    return found[0].phase if found else None


@needs_slurm
def test_jobs_are_of_those_who_submitted_them_though_the_service_is_nobody(site, as_service, tmp_path):
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    first, second = ORDINARY
    executor = as_service(users=Users({"ci": second}), output="/dev/null")
    command = f"echo $(id -un) $USER > {tmp_path}/$NOONWARD_JOB.$(id -un); sleep 600"
    own, other = (
        submitted(executor, order(f"nw-o{os.getpid()}-{n}-0", owner, command)) for n, owner in ((1, first), (2, "ci"))
    )
    stray = submitted(executor, order(f"nw-o{os.getpid()}-3-0", first))
    assert executor.find(own) == own.handle
    assert executor.find(replace(own, owner="ci")) is None, "another user's job of that name is not this one"
    for one in (own, other):
        executor.release(one)
    wait_for(lambda: [phase(executor, one) for one in (own, other)] == ["running"] * 2, "the starts")
    wait_for(lambda: len(list(tmp_path.iterdir())) == 2, "their files")
    assert {file.read_text().strip() for file in tmp_path.iterdir()} == {f"{first} {first}", f"{second} {second}"}
    assert site.call("squeue", "-h", "-j", f"{own.handle},{other.handle}", "-o", "%u").split() == [first, second]
    held = [each for each in executor.strays() if each.token == stray.token]
    assert [(each.handle, each.user) for each in held] == [(stray.handle, first)]
    for one in (own, other, *held):
        executor.cancel(one)
    wait_for(lambda: [phase(executor, one) for one in (own, other, stray)] == ["cancelled"] * 3, "the cancellations")


@needs_slurm
def test_what_is_nobodys_an_administrators_or_an_unknown_users_is_refused(as_service):
    executor = as_service(users=Users({"boss": "root", "typo": "no-such-user", "odd": "--help"}))
    for owner, why in (
        ("", "it has no owner: submit it with a token"),
        ("boss", "'root' of token 'boss' is no user that may run jobs; name one under 'users'"),
        ("odd", "'--help' of token 'odd' is no user"),
        ("typo", "does not know the user 'no-such-user'"),
    ):
        with pytest.raises(RefusedError, match=why):
            executor.submit_held(order("nw-o1-1-0", owner))
    with pytest.raises(RefusedError, match="is an administrator of the machine"):
        Account.of("root")


@needs_slurm
def test_without_the_right_to_change_the_user_nothing_runs_as_the_service(site, monkeypatch):
    monkeypatch.setenv("PATH", site.env["PATH"])
    words = ("setpriv", "--reuid=nobody", "--clear-groups", "setpriv", "--reuid={user}", "--clear-groups")
    executor = SlurmExecutor(lambda posix_s: posix_s, conf=site.conf, as_user=words)
    with pytest.raises(ClusterError, match="not permitted"):
        executor.submit_held(order("nw-o7-1-0", ORDINARY[0]))
    assert "nw-o7" not in site.call("squeue", "-h", "--states=all", "-o", "%j").split()


class Recorded(ClusterWeb):
    """slurmrestd with tokens, as far as requests go: it answers what the real one answers and keeps the headers."""

    def __init__(self, jobs=()):
        super().__init__("the cluster", "http://127.0.0.1:9", headers={"X-SLURM-USER-NAME": "service"})
        self.jobs, self.seen = list(jobs), []

    def call(self, method, path, content=None, *, more=None, **_):
        self.seen.append((method, path.rsplit("/v0.0.38")[1], dict(more or {})))
        return 200, {"jobs": self.jobs} if method == "GET" else {"job_id": 7}


def test_slurmrestd_is_asked_with_the_token_of_a_jobs_own_user(tmp_path):
    (tmp_path / "ada.jwt").write_text("secret-of-ada\n")
    named = {"job_id": 7, "name": "nw-r9-1-0", "job_state": "PENDING", "state_reason": "JobHeldUser"}
    web = Recorded([named | {"user_name": "eve", "job_id": 5}, named | {"user_name": "ada"}])
    executor = SlurmRestExecutor(lambda posix_s: posix_s, web, user_token_file=f"{tmp_path}/{{user}}.jwt")
    one = order("nw-r9-1-0", "ada")
    assert executor.find(one) == "7", "the job of that name which another user made is not this one"
    one = submitted(executor, one)
    executor.release(one)
    executor.cancel(one)
    as_ada = {"X-SLURM-USER-NAME": "ada", "X-SLURM-USER-TOKEN": "secret-of-ada"}
    changes = [(path, headers) for method, path, headers in web.seen if method != "GET"]
    assert changes == [("/job/submit", as_ada), ("/job/7", as_ada), ("/job/7", as_ada)]
    assert all(headers == {} for method, _, headers in web.seen if method == "GET")
    assert {each.user for each in executor.strays()} == {"ada", "eve"}
    with pytest.raises(RefusedError, match="there is no token of the user 'bob'"):
        executor.submit_held(order("nw-r9-2-0", "bob"))
    web.close()


@pytest.fixture
def by_tokens(site, tmp_path):
    """An executor that asks a real slurmrestd as ``nobody``, and about jobs with their users' own tokens."""
    if not TAKES_TOKENS or shutil.which("slurmrestd") is None:
        pytest.skip("slurmrestd and slurm-wlm-jwt-plugin are not installed")
    port = free_ports(1)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "slurmrestd", "-a", "rest_auth/jwt",
               "-s", "openapi/v0.0.38", f"127.0.0.1:{port}"]  # fmt: skip
    for user in ("nobody", ORDINARY[0]):
        token = site.call("scontrol", "token", f"username={user}", "lifespan=3600")
        (tmp_path / f"{user}.jwt").write_text(token.removeprefix("SLURM_JWT="))
    (tmp_path / "odd.jwt").write_text("no.such.token")
    process = subprocess.Popen(
        command, env={**site.env, "SLURM_JWT": "daemon"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    web = ClusterWeb(
        "the cluster", f"http://127.0.0.1:{port}", token_file=tmp_path / "nobody.jwt",
        headers={"X-SLURM-USER-NAME": "nobody"}, token_header="X-SLURM-USER-TOKEN",
    )  # fmt: skip
    try:
        wait_for(lambda: answers(port), "slurmrestd")
        yield SlurmRestExecutor(
            lambda posix_s: posix_s - 1.7e9, web, fields={"standard_output": "/dev/null"},
            user_token_file=f"{tmp_path}/{{user}}.jwt",
            users=Users({"ci": ORDINARY[0], "typo": "no-such-user", "odd": "odd"}),
        )  # fmt: skip
    finally:
        web.close()
        process.terminate()
        process.wait()


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@needs_slurm
def test_jobs_over_slurmrestd_are_of_those_whose_tokens_it_is_given(by_tokens, site):
    one = submitted(by_tokens, order("nw-j1-1-0", "ci", "sleep 600"))
    assert site.call("squeue", "-h", "-j", one.handle, "-o", "%u %j").split() == [ORDINARY[0], "nw-j1-1-0"]
    assert [(each.handle, each.user) for each in by_tokens.strays()] == [(one.handle, ORDINARY[0])]
    assert by_tokens.find(one) == one.handle
    by_tokens.release(one)
    wait_for(lambda: phase(by_tokens, one) == "running", "the start")
    by_tokens.cancel(one)
    wait_for(lambda: phase(by_tokens, one) == "cancelled", "the cancellation")
    with pytest.raises(RefusedError, match="there is no token of the user 'no-such-user'"):
        by_tokens.submit_held(order("nw-j1-2-0", "typo"))
    with pytest.raises(ClusterError, match="the token of the user 'odd' is no longer valid: renew it") as raised:
        by_tokens.submit_held(order("nw-j1-3-0", "odd"))
    assert not isinstance(raised.value, AnsweredError), "it is tried again"
    assert "nw-j1-3-0" not in site.call("squeue", "-h", "--states=all", "-o", "%j").split()


@needs_slurm
def test_the_services_own_token_cancels_no_job_of_another_user(by_tokens, site):
    one = submitted(by_tokens, order("nw-j2-1-0", "ci", "sleep 600"))
    as_service = SlurmRestExecutor(lambda posix_s: posix_s - 1.7e9, by_tokens._web)
    with pytest.raises(AnsweredError, match="ermission denied"):
        as_service.cancel(one)
    assert phase(by_tokens, one) == "held"
    by_tokens.cancel(one)
    wait_for(lambda: phase(by_tokens, one) == "cancelled", "the cancellation")


def test_kubernetes_is_asked_in_the_name_of_a_jobs_own_user(tmp_path):
    server = KubeServer()
    (tmp_path / "token").write_text("right")
    web = ClusterWeb("the cluster", server.url, token_file=tmp_path / "token")
    try:
        executor = KubernetesExecutor(
            lambda posix_s: posix_s, web, namespace="team", image="i", as_user="oidc:{user}", users=Users({"ci": "bot"})
        )
        one = submitted(executor, order("nw-k1-1-0", "ci"))
        assert server.objects["jobs", "nw-k1-1-0"]["metadata"]["annotations"]["noonward/user"] == "bot"
        assert [each.user for each in executor.strays()] == ["bot"]
        executor.release(one)
        executor.cancel(one)
        assert executor.find(one) is None
        names = {(method, user) for method, _, user in server.impersonated}
        assert names == {("POST", "oidc:bot"), ("PATCH", "oidc:bot"), ("DELETE", "oidc:bot"), ("GET", None)}
        server.barred.add("oidc:ada")
        with pytest.raises(RefusedError, match="refused it: oidc:ada may not create jobs"):
            executor.submit_held(order("nw-k1-2-0", "ada"))
    finally:
        web.close()
        server.close()


def test_a_configuration_says_where_the_users_name_goes(tmp_path):
    site = {"executor": "slurm", "as_user": ["sudo", "-n", "-u", "{user}", "--"]}
    said = {"scenario": "tiny", "policy": "local-fcfs", "users": {"ci": "robot"}}
    config, scenario = checked_config(said | {"sites": dict.fromkeys(("north", "south"), site)}, "live", tmp_path)
    assert config.sites["north"].as_user == ("sudo", "-n", "-u", "{user}", "--")
    assert config.users == {"ci": "robot"}
    for wrong, why in (
        (site | {"as_user": ["sudo", "sbatch"]}, "write {user} where the user's name goes"),
        ({"executor": "slurmrestd", "socket": "/s", "user_token_file": "/t/{user}"}, "user_token_file goes with url"),
        ({"executor": "kubernetes", "url": "http://k", "image": "i", "as_user": "ada"}, "write {user} where"),
    ):
        with pytest.raises(ScenarioError, match=why):
            checked_config(said | {"sites": dict.fromkeys(scenario.fleet.site_names, wrong)}, "live", tmp_path)
