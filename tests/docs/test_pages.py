"""README and docs do not rot: Python blocks run, commands run as they are written, names and links are right."""

import ast
import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
import yaml

from command_line import CommandLine
from noonward.cli.main import app
from noonward.data.scenarios.load import packaged_scenarios
from noonward.schedule.policies import policies
from readme_path import fleet_commands

ROOT = Path(__file__).parents[2]
LAB = sorted((ROOT / "docs" / "lab").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *LAB]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SERVED = """
noonward serve --demo
noonward sites
noonward submit "sleep 6" --work 1h --origin warsaw --max-delay 10h
noonward output 1
noonward why 1
noonward submit "sleep 6" --work 1h --time 2h --env MODEL=small --tasks 3 --origin warsaw
noonward jobs --state failed
noonward live drain warsaw
noonward live policy local-fcfs
noonward live backup copy.sqlite
noonward live restore copy.sqlite --folder other
noonward live vacuum
noonward live token add ci --scope submit --days 90
noonward live token rotate ci
noonward live token list
noonward live token revoke ci
noonward live undrain warsaw
noonward live dispatch warsaw --off
noonward live dispatch warsaw --on
noonward live hold 1
noonward live release 1
noonward live pin 1 warsaw
noonward live veto 1 warsaw
noonward live cancel 1
noonward serve --demo --policy "event-response(base=booked-persistence)"
noonward live event toronto --cut 40% --hours 4 --notice 30min
noonward live event texas --cut 25% --hours 3 --notice 10min
noonward live event texas --target-kw 150 --start 2026-07-12T20:00Z
noonward live events
noonward live event texas --cancel
"""
"""Commands that need a running service or its store; tests/live/test_process.py drives them."""
NOT_RUN = dict.fromkeys(SERVED.split("\n")[1:-1], "needs a running service") | {
    **dict.fromkeys(
        (
            "noonward advise mine.yaml --queue squeue.txt --home north",
            "noonward advise mine.yaml --slurm --home north --format sbatch",
        ),
        "tests/cli/test_advise.py runs them",
    ),
    "noonward fit-forecast mine --signals mine/signals-2021-2023.csv --zones DE,FR": "tests/cli/test_fit_forecast.py",
    "noonward compare examples/zones/world.yaml --signals signals.parquet --set signals.first_day=2022-01-01 "
    "--set signals.last_day=2022-12-31 --policies local-fcfs,bid-price-regression -n 20 --no-bound": "needs signals",
    **dict.fromkeys(
        (
            "noonward init fleet.yaml --site texas=US-TEX-ERCO:96xA100-80-SXM --site berlin=DE:96xA100-80-SXM "
            "--jobs jobs.csv --gpu-usd-per-hour 2",
            "noonward event fleet.yaml --cut 25% --hours 3h --notice 10min --start-h 42h",
            "noonward flexibility fleet.yaml",
        ),
        "tools/event_picture.py makes the log and runs the first two",
    ),
    "noonward data tariff rate.json --name lgs": "tests/data/test_urdb.py makes such a file",
    "python examples/paper_figure.py results.csv figure.svg": "tests/docs/test_examples.py runs it",
    "make demo": "a target of the Makefile",
    "make test": "a target of the Makefile",
    "python -m pip install .": "needs the network",
    "python -m pip install '.[train]'": "needs the network",
    "python -m pip install '.[ray]'": "needs the network",
    "python -m pip install '.[edge]'": "needs the network",
    "python -m pip install '.[live]'": "needs the network",
    **dict.fromkeys(
        (
            "noonward edge up",
            "noonward edge submit 'a lighthouse at dusk' --gang 2 --count 3 --wait",
            "noonward edge status",
            "noonward edge down",
        ),
        "tests/live/edge/test_service.py runs them",
    ),
    **dict.fromkeys(fleet_commands(), "tests/cli/test_tour.py runs them on files that it writes"),
    "noonward edge up --model pixart=FOLDER --device cuda --precision float16": "needs GPUs",
    "noonward edge up edge-inference --set servers.count=8 --ray auto --device cuda --precision float16 "
    "--model pixart=FOLDER": "needs GPUs",
    "noonward compile": "40 s",
    "noonward bench": "a minute",
    "noonward bench bid-price": "half a minute; tests/docs/test_figures.py runs a small one",
    "noonward bench learn": "a minute",
    "noonward compare load-shaping": "minutes",
    "noonward compare edge-inference-reference -n 4": "half a minute; tests/evaluate runs fewer tasks",
    "noonward reproduce load-shaping --draws 4": "minutes",
    "noonward reproduce load-shaping --draws 4 --profiles FILE --source alibaba_pai_2020 "
    "--source azure_vm_2017": "needs the file",
    "noonward reproduce load-shaping --draws 2 --profiles FILE": "needs the file",
    "noonward reproduce fine-tuning": "tests/evaluate holds it on a tiny fleet",
    "noonward reproduce fine-tuning --signals FILE --signals FILE --jobs FILE": "needs the files",
    "noonward reproduce dvfs-training": "tests/engine holds the paper's tables",
    "noonward reproduce grid-events --power power.csv --events jobs.csv --caps caps.csv --name london": "needs files",
    "noonward reproduce edge-inference": "minutes; tests/studies holds a small one",
}
"""Commands of the pages that the tests only check to exist, and why."""
LONG_TRAINING = re.compile(r"noonward train .*--epochs (1[0-9]|[2-9][0-9])")
"""Training of packaged policies, minutes to hours: checked to be understood alone."""


def blocks(page: Path, language: str) -> list[str]:
    """Returns the content of a page's code blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


LIBRARIES = ("sb3_contrib", "supersuit", "torchrl")
"""Libraries of recipes: the extra ``recipes``, without which they are skipped."""


def library_of(block: str) -> str | None:
    """Returns the library of a recipe, None for a block that needs none."""
    return next(
        (library for library in LIBRARIES if re.search(rf"^(import|from) {library}\b", block, re.MULTILINE)), None
    )


RECIPES = [block for page in PAGES for block in blocks(page, "python") if library_of(block)]


def commands(page: Path) -> list[str]:
    """Returns the command lines of a page."""
    return [line for block in blocks(page, "console") for line in block.splitlines() if line and line[0] != "#"]


def words_of(command: object, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the words of every command that does something."""
    below = getattr(command, "commands", {})
    if not below:
        yield before
    for name, each in below.items():
        yield from words_of(each, (*before, name))


COMMAND_LINE = typer.main.get_command(app)
ALL_COMMANDS = sorted(words_of(COMMAND_LINE))


def understood(words: list[str]) -> bool:
    """Returns whether the command line takes words, without running them; an unknown option or value raises."""
    command = COMMAND_LINE
    while below := getattr(command, "commands", {}):
        command, words = below[words[0]], words[1:]
    command.make_context("noonward", list(words))
    return True


def named(page: Path) -> str:
    """Returns a page's name for test reports."""
    return page.name


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files by the names that the pages use, with two months of signals of both zones of ``tiny``."""
    from noonward.data.signals.generate import generate_signals
    from noonward.data.signals.load import write_generated_signals

    start = datetime(2022, 5, 1, tzinfo=UTC)
    signals = generate_signals(("CA-ON", "SG", "PL"), start, 60 * 24, np.random.default_rng(0))
    write_generated_signals(signals, tmp_path / "prices.csv")
    table = pl.read_csv(tmp_path / "prices.csv", try_parse_dates=True)
    price = pl.col("price_usd_per_mwh")
    carbon = table.drop("price_usd_per_mwh")
    carbon.write_parquet(tmp_path / "carbon.parquet")
    folder = tmp_path / "path" / "to"
    folder.mkdir(parents=True)
    known = table.with_columns(pl.when(pl.col("zone") != "SG").then(price).alias("price_usd_per_mwh"))
    known.write_parquet(folder / "signals.parquet")
    stand_in = table.filter(pl.col("zone") == "SG").drop("carbon_intensity_g_per_kwh")
    stand_in.with_columns(is_real=pl.lit(value=False)).write_parquet(folder / "standin_auwa_price_2022.parquet")
    rng = np.random.default_rng(1)
    trace = {
        "submit_time_s": np.sort(rng.uniform(0, 4 * 86400, 4000)),
        "duration_s": rng.lognormal(7.0, 1.0, 4000),
        "num_gpus": rng.integers(1, 5, 4000),
    }
    pl.DataFrame(trace).write_parquet(folder / "jobs_pai.parquet")
    (tmp_path / "own_scheduler.py").write_text(blocks(ROOT / "README.md", "python")[0])
    return tmp_path


def test_the_pages_hold_blocks_and_commands() -> None:
    assert len(blocks(ROOT / "README.md", "python")) == 1
    assert {"make demo", "make test"} <= set(commands(ROOT / "README.md"))


@pytest.mark.usefixtures("own_registry", "files", "few_jobs")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_the_python_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, block in enumerate(blocks(page, "python")):
        if library_of(block) is None:
            exec(compile(block, f"{page.name}, python block {number}", "exec"), names)
    assert "nan" not in capsys.readouterr().out


def test_every_recipe_is_found() -> None:
    assert [library_of(block) for block in RECIPES] == list(LIBRARIES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", RECIPES, ids=library_of)
def test_a_recipe_runs_where_its_library_is_installed(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(str(library_of(block)))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"recipe of {library_of(block)}", "exec"), {"__name__": "page"})


def test_the_scheduler_of_the_readme_has_ten_lines() -> None:
    (made,) = [n for n in ast.parse(blocks(ROOT / "README.md", "python")[0]).body if isinstance(n, ast.ClassDef)]
    lines = [line for line in ast.unparse(made).splitlines() if line.strip() and '"""' not in line]
    assert len(lines) <= 10


def shortened(words: list[str]) -> list[str]:
    """Returns a command on the tiny scenario and two environments, all else as it is written."""
    out = ["tiny" if word == "fine-tuning" else word for word in words]
    if out[1] == "compare":
        given = out.index("-n") if "-n" in out else None
        out = out if given is None else out[:given] + out[given + 2 :]
        out += ["-n", "2"]
    return out


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=named)
def test_the_commands_of_a_page_run(page: Path, noonward: CommandLine) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in commands(page):
        if line in NOT_RUN or LONG_TRAINING.match(line):
            program, *words = shlex.split(line)
            assert program != "make" or set(words) <= set(targets)
            assert program != "noonward" or understood(words)
            continue
        command, _, into = line.partition(" > ")
        words = shortened(shlex.split(command))
        assert words[0] == "noonward", f"{page.name}: {line}: the tests run noonward alone"
        answer = noonward(*words[1:])
        assert answer.code == 0, f"{page.name}: {line}: {answer.err}"
        if into:
            Path(into).write_text(answer.out, encoding="utf-8")
        if "standin" in line:
            assert "are synthetic, not market data" in answer.out


@pytest.mark.parametrize("block", blocks(ROOT / "docs" / "data.md", "yaml"))
def test_the_yaml_of_the_data_page_is_a_valid_part_of_a_scenario(block: str) -> None:
    from noonward.data.scenarios.load import load_scenario, scenario_from

    content = load_scenario("tiny").model_dump(mode="json")
    scenario_from({**content, **yaml.safe_load(block)})


@pytest.mark.parametrize("words", ALL_COMMANDS, ids=" ".join)
def test_every_command_is_documented(words: tuple[str, ...]) -> None:
    assert " ".join(("noonward", *words)) in TEXT


@pytest.mark.parametrize("name", packaged_scenarios())
def test_every_packaged_scenario_is_documented(name: str) -> None:
    assert f"`{name}`" in TEXT


@pytest.mark.parametrize("name", [policy.name for policy in policies()])
def test_every_policy_is_documented(name: str) -> None:
    index = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    name = re.sub(r"-seed\d+$", "", name)
    family = re.sub(r"\d$", "", name)
    assert f"`{name}`" in index or (family != name and f"`{family}1` ... `{family}8`" in index)


def test_the_results_table_has_a_row_for_every_policy_of_the_scenario() -> None:
    from noonward.data.scenarios.load import load_scenario

    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = text.partition("<!-- results fine-tuning -->")[2].partition("<!-- end of results -->")[0]
    rows = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert sorted(rows) == sorted(load_scenario("fine-tuning").policies)


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(to), f"{page.name} links to {target}"


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "index.md" or f"]({name})" in index


LONGEST = {
    "README.md": 8000,
    **dict.fromkeys(("fine-tuning.md", "dvfs-training.md", "load-shaping.md", "edge-inference.md"), 15_000),
}
"""Largest sizes of pages, characters; 20,000 for the others outside of docs/lab."""


def test_pages_are_short_enough_to_be_read() -> None:
    sizes = {page.name: len(page.read_text(encoding="utf-8")) for page in PAGES if page not in LAB}
    sizes["README.md"] = (ROOT / "README.md").stat().st_size
    assert {name: size for name, size in sizes.items() if size > LONGEST.get(name, 20_000)} == {}


@pytest.mark.parametrize("page", [page for page in LAB if page.name != "index.md"], ids=lambda page: page.name)
def test_every_section_of_a_lab_page_is_dated(page: Path) -> None:
    sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    undated = [
        each.partition("\n")[0] for each in sections if not re.search(r"\n\n\*Written [^\n]* 20\d\d\.\*\n", each)
    ]
    assert sections
    assert undated == []


def test_pages_name_no_folder_of_a_machine() -> None:
    assert not re.findall(r"(?<!\w)/(?:work|tmp|home|root)/", TEXT)


def test_the_results_tables_are_written_from_figures(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = noonward("compare", "tiny", "-n", 2, "--policies", "local-fcfs,random", "--no-report", "--json")
    Path("figures.json").write_text(answer.out, encoding="utf-8")
    Path("page.md").write_text("before\n<!-- results some -->\nold\n<!-- end of results -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["results_tables.py", "some", "figures.json", "page.md"])
    runpy.run_path(str(ROOT / "tools" / "results_tables.py"), run_name="__main__")
    lines = Path("page.md").read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert [line.split("|")[1].strip() for line in lines[4:-2]] == [
        "*upper bound*",
        "*best schedule known*",
        "`local-fcfs`",
        "`random`",
    ]


def test_the_tables_of_the_reproduction_are_written_from_the_figures_of_one_kind_of_environments(
    noonward: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = noonward("compare", "tiny", "-n", 2, "--policies", "local-fcfs,random", "--no-report", "--json")
    plain = json.loads(answer.out)["figures"]
    both = [{**figure, "name": f"{figure['name']}@generated"} for figure in plain]
    changed = [{**f, "value": 0.5} if f["name"].startswith("usd_per_gpu_hour") else f for f in plain]
    both += [{**figure, "name": f"{figure['name']}@real"} for figure in changed]
    Path("figures.json").write_text(json.dumps({"figures": both}), encoding="utf-8")
    texts = []
    for name in ("reproduce-generated", "reproduce-real"):
        Path("page.md").write_text(f"<!-- results {name} -->\n<!-- end of results -->\n", encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["results_tables.py", name, "figures.json", "page.md"])
        runpy.run_path(str(ROOT / "tools" / "results_tables.py"), run_name="__main__")
        texts.append(Path("page.md").read_text(encoding="utf-8"))
    assert "`random`" in texts[0]
    assert texts[0].count("0.5000") == 0
    assert texts[1].count("0.5000") == 2
