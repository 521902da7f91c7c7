"""Commands as a user meets them: help, figures for machines, records that repeat byte for byte."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from command_line import CommandLine
from noonward.cli.main import app


def every_command(group: Any = None, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the words of every command and group."""
    group = typer.main.get_command(app) if group is None else group
    yield before
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, (*before, name))


COMMANDS = sorted(every_command())


def test_the_walk_finds_the_commands() -> None:
    assert {("compare",), ("reproduce", "dvfs-training"), ("scenario", "show"), ("data", "generate")} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_every_command(noonward: CommandLine, command: tuple[str, ...]) -> None:
    answer = noonward(*command, "--help")
    assert answer.code == 0
    assert answer.out.startswith(" ".join(["Usage: noonward", *command]))


def test_help_comes_at_once() -> None:
    """It loads neither numba nor numpy nor pydantic: nothing that takes time."""
    code = (
        "import sys; from noonward.cli.main import main; sys.argv = ['noonward', '--help']\ntry: main()\nfinally: "
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "compare" in done.stdout
    assert not {"numba", "numpy", "pydantic", "polars", "yaml", "plotly"} & set(done.stderr.split())


def test_version(noonward: CommandLine) -> None:
    from noonward import __version__

    assert noonward("--version").out.strip() == f"noonward {__version__}"


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "tiny", "-n", 2, "--no-report"),
        ("simulate", "tiny", "--policy", "cheapest-feasible"),
        ("bound", "tiny", "-n", 1),
    ],
    ids=lambda command: command[0],
)
def test_json_is_one_object_of_figures(noonward: CommandLine, command: tuple[object, ...]) -> None:
    answer = noonward(*command, "--json")
    assert answer.code == 0
    content = json.loads(answer.out)
    assert (content["scenario"], content["seed"]) == ("tiny", 0)
    names = [figure["name"] for figure in content["figures"]]
    assert names
    assert len(names) == len(set(names))
    for figure in content["figures"]:
        assert list(figure) == ["name", "value", "unit", "low", "high", "reference"]
        assert isinstance(figure["unit"], str)
        assert figure["unit"]
        for key in ("value", "low", "high", "reference"):
            assert figure[key] is None or isinstance(figure[key], int | float)
        if figure["low"] is not None:
            assert figure["low"] <= figure["value"] <= figure["high"]


def test_compare_prints_a_row_for_every_policy_and_where_the_report_is(noonward: CommandLine) -> None:
    answer = noonward("compare", "tiny", "-n", 2, "--policies", "local-fcfs,booked-persistence")
    assert answer.code == 0
    for name in ("local-fcfs", "booked-persistence", "upper bound"):
        assert f" {name} " in answer.out
    assert "…" not in answer.out
    report = Path(answer.out.split("report:")[1].strip())
    assert report.is_file()
    assert "<html" in report.read_text(encoding="utf-8")[:500]


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns the content of every file of a folder, but not what keeps the command."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("comparison-"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_same_seed_same_bytes_of_all_records(noonward: CommandLine) -> None:
    command = ("compare", "tiny", "-n", 2, "--policies", "local-fcfs,random,booked-noisy", "--no-report", "--json")
    for out in ("one", "other"):
        assert noonward(*command, "--out", out).code == 0
    one, other = files_of(Path("one")), files_of(Path("other"))
    assert one
    assert one == other


def test_another_seed_gives_other_jobs(noonward: CommandLine) -> None:
    found = []
    for seed in (0, 1):
        answer = noonward("simulate", "tiny", "--policy", "local-fcfs", "--seed", seed, "--json")
        manifest = Path(json.loads(answer.out)["record"]) / "manifest.json"
        found.append(json.loads(manifest.read_text())["environment_digest"])
    assert found[0] != found[1]


def test_a_second_comparison_goes_on_from_the_records(noonward: CommandLine) -> None:
    command = ("compare", "tiny", "-n", 2, "--policies", "local-fcfs,random", "--no-report", "--json")
    first = noonward(*command)
    records = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.parquet")}
    assert len(records) == 2 * 2 * 2
    again = noonward(*command)
    assert again.out == first.out
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*.parquet")} == records


def test_a_comparison_says_how_workers_shared_it(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noonward.runtime.work.Work.cores", 2)
    command = ("compare", "tiny", "-n", 1, "--policies", "local-fcfs,random", "--no-report")
    told = noonward(*command).out.splitlines()[-2]
    assert re.fullmatch(r"work:    3 runs and bounds, [\d.]+ CPU-s in [\d.]+ s on 2 cores: [\d.]+ times .*", told)
    work = json.loads(noonward(*command, "--json").out)["work"]
    assert set(work) == {"runs", "cpu_s", "wall_s", "cores", "nodes", "speedup"}
    assert work["speedup"] == pytest.approx(work["cpu_s"] / work["wall_s"])


def test_an_interrupted_record_is_run_again(noonward: CommandLine) -> None:
    command = ("compare", "tiny", "-n", 1, "--policies", "local-fcfs", "--no-report", "--json")
    first = noonward(*command)
    (ledger,) = Path("runs").rglob("ledger.json")
    before = ledger.read_bytes()
    ledger.unlink()
    assert noonward(*command).out == first.out
    assert ledger.read_bytes() == before


def test_a_changed_record_is_run_again_and_this_is_said(noonward: CommandLine) -> None:
    command = ("compare", "tiny", "-n", 1, "--policies", "local-fcfs", "--no-report", "--json")
    first = noonward(*command)
    (ledger,) = Path("runs").rglob("ledger.json")
    before = ledger.read_bytes()
    ledger.write_bytes(before.replace(b"1", b"2", 1))
    again = noonward(*command)
    assert again.out == first.out
    assert "ledger.json is not as it was recorded (its digest differs): it is run again" in again.err
    assert ledger.read_bytes() == before


def test_generated_files_give_the_same_run_as_the_scenario_they_came_from(noonward: CommandLine) -> None:
    assert noonward("data", "generate", "tiny", "--out", "files").code == 0
    runs = [
        noonward("simulate", "tiny", "--policy", "local-fcfs", "--json", *more)
        for more in ((), ("--jobs", "files/jobs.csv", "--signals", "files/signals.csv"))
    ]
    assert [run.code for run in runs] == [0, 0]
    done = [{f["name"]: f["value"] for f in json.loads(run.out)["figures"]}["done/local-fcfs"] for run in runs]
    assert done[0] > 0
    assert noonward("data", "check", "files/jobs.csv", "--scenario", "tiny").out.startswith("job table: 32 jobs")
    assert "CA-ON" in noonward("data", "check", "files/signals.csv").out


def test_a_scenario_shown_is_a_scenario_file(noonward: CommandLine) -> None:
    from noonward.data.scenarios.load import load_scenario, packaged_scenarios

    for name in packaged_scenarios():
        Path("shown.yaml").write_text(noonward("scenario", "show", name).out, encoding="utf-8")
        assert load_scenario("shown.yaml") == load_scenario(name)
        assert noonward("scenario", "check", "shown.yaml").out.startswith(f"{name}: valid.")
        assert name in noonward("scenario", "list").out


def test_the_schema_is_json_schema(noonward: CommandLine) -> None:
    schema = json.loads(noonward("scenario", "schema").out)
    assert "fleet" in schema["properties"]


def test_policies_lists_the_registry_by_protocol(noonward: CommandLine) -> None:
    from noonward.schedule.policies import policies

    for protocol in ("each-slot", "on-arrival"):
        shown = noonward("policies", "--protocol", protocol).out
        for policy in policies(protocol):
            assert f"│ {policy.name} " in shown
        for policy in policies(kind="cluster"):
            assert protocol in policy.make().needs.protocols or f"│ {policy.name} " not in shown


def test_policies_lists_the_arguments_of_families_and_those_of_a_role(noonward: CommandLine) -> None:
    shown = noonward("policies", "--role", "clairvoyant").out
    assert "│ booked-perfect " in shown
    assert "│ booked-regression " not in shown
    assert "greedy-energy(gpus=)" in noonward("policies", "--all").out
    assert "gpus: a whole number from 1 to 4096 (GPUs)" in noonward("policies", "--all").out


def test_compare_names_the_policies_that_know_the_future(noonward: CommandLine) -> None:
    asked = ("compare", "tiny", "-n", "1", "--no-bound", "--no-report", "--policies")
    shown = noonward(*asked, "local-fcfs,booked-perfect,bid-price-perfect").out
    assert "note: benchmarks that know the future, which nobody can run: booked-perfect, bid-price-perfect\n" in shown
    assert "know the future" not in noonward(*asked, "local-fcfs").out


def test_policies_shows_a_dozen_with_their_use_and_all_as_json(noonward: CommandLine) -> None:
    from noonward.schedule.policies import policies

    shown = noonward("policies").out.splitlines()
    assert len(shown) < 24
    assert max(map(len, shown)) <= 120
    assert "local-fcfs" in "\n".join(shown)
    every = json.loads(noonward("policies", "--all", "--json").out)
    assert [row["name"] for row in every] == [policy.name for policy in policies()]
    uses = {row["name"]: row["use_it_for"] for row in json.loads(noonward("policies", "--json").out)}
    assert 10 <= len(uses) <= 15
    assert all(any(line.split() == [name, *use.split()] for line in shown) for name, use in uses.items())


def test_compare_what_if_studies_the_proposed_policy_and_links_the_pages(noonward: CommandLine) -> None:
    asked = ("compare", "tiny", "-n", 1, "--policies", "local-fcfs,booked-persistence", "--no-bound")
    found = noonward(*asked, "--what-if")
    studies = [Path(line.split()[-1]) for line in found.out.splitlines() if line.startswith("study:")]
    assert [page.stem for page in studies] == ["trade-off-booked-persistence", "sensitivity-booked-persistence"]
    report = Path(next(line.split()[-1] for line in found.out.splitlines() if line.startswith("report:")))
    html = report.read_text(encoding="utf-8")
    for page in studies:
        assert page.is_file()
        assert f"<a href='{page.name}'>" in html
    studies[0].unlink()
    again = noonward(*asked)
    assert "study:" not in again.out
    html = report.read_text(encoding="utf-8")
    assert studies[1].name in html
    assert studies[0].name not in html


def test_compare_what_if_is_refused_before_any_run_where_there_are_no_prices(noonward: CommandLine) -> None:
    refused = noonward("compare", "dvfs-training", "--what-if")
    assert refused.code == 2
    assert "economics" in refused.err
    assert not Path("runs").exists()


def test_policies_with_arguments_are_compared_under_their_short_names(noonward: CommandLine) -> None:
    chosen = "plan(curves=hard, samples=3),greedy-energy(gpus=2),greedy-energy(gpus=9)"
    command = ("compare", "dvfs-training", "--set", "window_h=1", "-n", 1, "--no-report", "--json", "--policies")
    answer = noonward(*command, chosen.partition("),")[2])
    names = {figure["name"] for figure in json.loads(answer.out)["figures"]}
    assert {"j_per_unit_exact/greedy-energy(gpus=2)", "j_per_unit_exact/greedy-energy(gpus=9)"} <= names
    answer = noonward(*command, chosen)
    assert answer.code == 2
    assert "'plan(curves=hard, samples=3)'" in answer.err


def test_a_policy_of_ones_own_lies_in_the_working_folder(noonward: CommandLine) -> None:
    Path("a_policy_of_mine.py").write_text(
        "from noonward import Needs, Scheduler\n\n"
        "class Waits(Scheduler):\n"
        "    needs = Needs(protocols=('each-slot',))\n"
        "    def decide(self, view, answers):\n"
        "        pass\n"
    )
    answer = noonward("simulate", "tiny", "--policy", "a_policy_of_mine:Waits", "--json")
    assert answer.code == 0
    figures = {figure["name"]: figure["value"] for figure in json.loads(answer.out)["figures"]}
    assert figures["done/a_policy_of_mine:Waits"] == 0


def test_a_second_start_compiles_nothing(noonward: CommandLine) -> None:
    words = ("simulate", "tiny", "--policy", "booked-noisy", "--json", "--out")
    first = noonward(*words, "first")
    command = [sys.executable, "-m", "noonward.cli.main", *words, "second"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["figures"] == json.loads(first.out)["figures"]
    assert done.stderr == ""


def test_small_figures_are_shown_in_significant_digits(noonward: CommandLine) -> None:
    words = ("simulate", "dvfs-mixed", "--policy", "greedy-price", "--set", "window_h=1")
    answer = noonward(*words)
    shown = {line.split()[0]: float(line.split()[1].replace(",", "")) for line in answer.out.splitlines()[:-1]}
    recorded = json.loads(noonward(*words, "--json").out)
    exact = {figure["name"].split("/")[0]: figure["value"] for figure in recorded["figures"]}
    assert 0 < exact["usd_per_unit"] < 1e-5
    assert shown["usd_per_unit"] == pytest.approx(exact["usd_per_unit"], rel=1e-3)
    assert shown["joules_per_unit"] == pytest.approx(exact["joules_per_unit"], rel=1e-3)


def test_an_interrupt_says_how_to_go_on(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("noonward.runtime.runs.run", interrupt)
    answer = noonward("compare", "tiny", "-n", 1)
    assert answer.code == 130
    assert answer.err.startswith("interrupted")


def test_simulate_and_compare_show_what_meters_read(noonward: CommandLine) -> None:
    meter = "fleet.sites.0.meter={interval_min: 30, base_kw: 2}"
    told = noonward("simulate", "tiny", "--policy", "local-fcfs", "--set", meter)
    assert told.code == 0
    assert "meters/north/peak_kw" in told.out
    told = noonward("compare", "tiny", "-n", 1, "--policies", "local-fcfs", "--no-report", "--json", "--set", meter)
    assert "meter/north/peak_kw/local-fcfs" in told.out
