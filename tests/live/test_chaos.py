"""A short chaos run over a real Slurm site: killed under load, no job is lost and none runs twice."""

import pytest

from live.slurm_site import MISSING


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
def test_killed_while_sbatch_is_slow_nothing_is_lost_and_nothing_doubled(tmp_path):
    from live.chaos import chaos, slow_site

    with slow_site(tmp_path, 0.05) as site:
        found = chaos(tmp_path, site, kills=5)
    assert found["acknowledged"] >= 20
    assert (found["lost"], found["doubled"], found["not asked for"]) == (0, 0, 0)
    assert set(found["states"]) == {"done"}
