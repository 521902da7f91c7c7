"""A configuration that does not fit is refused like a scenario file: where, what, what is allowed."""

from pathlib import Path

import pytest

from noonward.errors import ScenarioError
from noonward.live.config import checked_config, load_config


def test_each_problem_of_a_configuration_is_named_with_the_key_that_was_meant() -> None:
    content = {"scenario": "tiny", "policy": "local-fcfs", "sites": {}, "prot": 8470, "poll_s": -1}
    with pytest.raises(ScenarioError) as found:
        checked_config(content, "live.yaml", Path())
    first, *lines = str(found.value).split("\n  ")
    assert first == f"live.yaml is not a valid configuration ({len(lines)} problems):"
    assert "prot: unknown key; did you mean 'port'?" in lines
    assert any(line.startswith("poll_s: ") and line.endswith("(value: -1)") for line in lines)


def test_a_scenario_file_is_no_configuration_and_says_what_is(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("name: fleet\nfleet: {sites: []}\n")
    with pytest.raises(ScenarioError) as found:
        load_config(tmp_path / "fleet.yaml")
    assert "fleet.yaml is a scenario, not a configuration of the live service" in str(found.value)
    assert "'scenario: fleet.yaml'" in str(found.value)
