"""A short chaos run over a real Slurm site: killed under load, no job is lost and none runs twice."""

import pytest

from live.postgres_server import MISSING as NO_POSTGRES
from live.postgres_server import PostgresServer
from live.slurm_site import MISSING


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
def test_killed_while_sbatch_is_slow_nothing_is_lost_and_nothing_doubled(tmp_path):
    from live.chaos import chaos, slow_site

    with slow_site(tmp_path, 0.05) as site:
        found = chaos(tmp_path, site, kills=3)
    assert found["acknowledged"] >= 12
    assert (found["lost"], found["doubled"], found["not asked for"]) == (0, 0, 0)
    assert set(found["states"]) == {"done"}


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
@pytest.mark.skipif(NO_POSTGRES, reason="PostgreSQL is not installed (Debian: postgresql)")
def test_a_standby_takes_over_from_a_killed_leader_and_nothing_is_lost_or_doubled(tmp_path):
    from live.chaos import slow_site, standby_chaos

    pytest.importorskip("psycopg", reason="psycopg is missing (extra postgres)")
    with slow_site(tmp_path, 0.05) as site, PostgresServer() as server:
        found = standby_chaos(tmp_path, site, server.database(), kills=2)
    assert found["acknowledged"] >= 8
    assert (found["lost"], found["doubled"], found["not asked for"]) == (0, 0, 0)
    assert set(found["states"]) == {"done"}


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
def test_killed_while_jobs_are_suspended_and_resumed_none_is_lost_doubled_or_left_stopped(tmp_path, monkeypatch):
    from live.chaos_running_jobs import chaos
    from live.slurm_site import SlurmSite

    with SlurmSite("north", nodes=2, gpus=4) as site:
        monkeypatch.setenv("PATH", site.env["PATH"])
        found = chaos(tmp_path, site, kills=1)
    assert found["suspended"] >= 2
    assert (found["lost"], found["done twice"], found["ran side by side with itself"]) == (0, 0, 0)
    assert (found["units of work not done"], found["left at the cluster"]) == (0, 0)
    assert set(found["states"]) == {"done"}
