"""docs/figures*.md list every figure that ``--json`` prints, with its unit, and none that is not printed."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import CommandLine
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.evaluate.metrics import FORMER

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("figures*.md"))


def documented(command: str) -> dict[str, str]:
    """Returns unit by name of a command's table."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    _, _, section = text.partition(f"## `noonward {command}")
    section = section.partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (\S.*?) \|", section, re.MULTILINE))


def as_pattern(name: str) -> re.Pattern[str]:
    """Returns the pattern that a documented name stands for."""
    text = re.escape(name).replace("POLICY", r"[\w:.-]+(?:\([\w=., +-]*\))?").replace("REFERENCE", r"[\w:.-]+")
    text = text.replace("CLASS", r"[\w-]+").replace("SITE", r"[\w-]+").replace("HALF", "(?:generated|real)")
    text = (
        text.replace("CASE", r"[\w=.,]+")
        .replace("CHOICE", "(?:best|cheapest|cleanest|now|worst)")
        .replace("POINT", r"[\w.-]+")
        .replace("FREEDOM", "(?:none|suspend|elastic|caps|move|all)")
        .replace("ASSUMPTIONS", r"[\w.-]+")
        .replace("WAY", "(?:known|(?:learned|limit)(?:-log)?|class-mean)")
        .replace("CELL", r"N\d+/0\.\d\d")
        .replace("TEST", r"[a-z]+")
        .replace("SIZE", r"\w+_jobs_\d+_sites")
        .replace("COUNT", r"\d+")
        .replace("ANSWER", r"[\w-]+")
        .replace("LEVER", r"[\w-]+")
        .replace("CUT", r"[\d.]+")
        .replace("HOURS", r"[\d.]+")
        .replace("NOTICE", r"[\d.]+")
    )
    return re.compile(text.replace("day_D", r"day_\d"))


def hold_against_page(command: str, answers: list[str]) -> None:
    """Asserts that what a command prints is documented, and what is documented is printed."""
    table = documented(command)
    assert table
    used: set[str] = set()
    for answer in answers:
        figures: list[dict[str, Any]] = json.loads(answer)["figures"]
        assert figures
        names = [figure["name"] for figure in figures]
        former = {name.replace(new, old) for name in names for new, old in FORMER.items() if new in name}
        for figure in figures:
            if figure["name"] in former:
                continue
            found = [name for name in table if as_pattern(name).fullmatch(figure["name"])]
            exact = [name for name in found if "POLICY" not in name] or found
            assert len(exact) == 1, f"{figure['name']}: documented as {found}"
            assert table[exact[0]] == figure["unit"]
            used.add(exact[0])
    assert used == set(table)


def test_figures_of_trade_off_and_sensitivity(noonward: CommandLine) -> None:
    asked = ("tiny", "--policy", "booked-persistence", "-n", 1, "--no-report", "--json")
    runs = [noonward("trade-off", *asked, "--carbon-prices", "0,50"), noonward("sensitivity", *asked)]
    hold_against_page("trade-off", [answer.out for answer in runs])


def test_figures_of_when(noonward: CommandLine) -> None:
    made = generate_signals(("SG",), datetime(2022, 5, 1, tzinfo=UTC), 48, np.random.default_rng(0))
    write_generated_signals(made, Path("hours.csv"))
    asked = (
        "when --gpus 1 --gpu L4 --hours 2 --now 2022-05-02 --by 2022-05-02T08:00 --zones SG --signals hours.csv --json"
    )
    hold_against_page("when", [noonward(*asked.split(), "--json").out])


DVFS = ("dvfs-training", "--set", "window_h=1", "-n", 1)


LIMITS = "{mean_latency_s: 60, p99_latency_s: 60, queue_max: 1, power_cap_w: {us-west: 9000}}"
TINY = ("tiny", "-n", 10, "--non-clairvoyant")
FREED = ("tiny", "--set", "fleet.freedoms.fine-tuning.interruptible=true", "--freedom", "suspend", "-n", 1)
FREE_POLICIES = ("--policies", "patient,suspend-threshold(quantile=0.5)")
MIXED = ("dvfs-mixed", "--set", "window_h=1", "--set", f"constraints={LIMITS}", "-n", 1)


def metered() -> tuple[object, ...]:
    """A site with a meter, a tariff, all devices, a contract and an event."""
    hours = (
        f"{datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=h):%Y-%m-%dT%H:%MZ},0.5" for h in range(-48, 400 * 24)
    )
    Path("sun.csv").write_text("time,share\n" + "\n".join(hours) + "\n", encoding="utf-8")
    settings = (
        "fleet.tariffs={t: {demand: [{usd_per_kw_month: 10}]}}",
        "fleet.sites.0.meter={tariff: t, connection_kw: 1}",
        "fleet.sites.0.water={l_per_kwh: 1.8, grid_l_per_kwh: 1.6}",
        "fleet.sites.0.behind_meter={battery: {kw: 0.2, kwh: 0.8}, solar: {kw: 0.3, profile: sun.csv}}",
        "fleet.sites.0.ppa={kw: 1, profile: sun.csv, usd_per_mwh: 40}",
        "events=[{site: north, start_h: 3, hours: 2, baseline_kw: 0.5, cut: 0.5, usd_per_mwh: 100}]",
    )
    return ("tiny", "-n", 1, *(word for each in settings for word in ("--set", each)))


def test_figures_of_compare(noonward: CommandLine) -> None:
    log = ["submit_time,origin,gpus,duration_s,limit_s,slack_s,state"]
    log += [f"2022-05-02T{hour:02d}:00:00Z,north,1,1800,7200,3600,{['done', 'failed'][hour % 2]}" for hour in range(20)]
    Path("log.csv").write_text("\n".join(log) + "\n", encoding="utf-8")
    runs = [
        noonward(
            "compare", "tiny", "-n", 1, "--jobs", "log.csv", "--policies", "local-fcfs,random", "--no-report", "--json"
        ),
        noonward("compare", "tiny", "-n", 1, "--no-report", "--json"),
        noonward(
            "compare", "tiny", "-n", 1, "--set", "goal=least-cost", "--policies", "random", "--no-report", "--json"
        ),
        noonward("compare", *metered(), "--policies", "random", "--no-report", "--json"),
        noonward("compare", *DVFS, "--policies", "dp", "--no-report", "--json"),
        noonward("compare", *MIXED, "--policies", "uniform", "--no-report", "--json"),
    ]
    hold_against_page("compare", [run.out for run in runs])


def test_figures_of_bound(noonward: CommandLine) -> None:
    asked = (("tiny", "-n", 1), TINY, DVFS, (*FREED, *FREE_POLICIES))
    hold_against_page("bound", [noonward("bound", *what, "--json").out for what in asked])


def test_figures_of_plan(noonward: CommandLine) -> None:
    answer = noonward("capacity-plan", "load-shaping", "--set", "window_h=2", "--samples", 2, "--json")
    hold_against_page("capacity-plan", [answer.out])


def test_figures_of_simulate(noonward: CommandLine) -> None:
    hold_against_page("simulate", [noonward("simulate", "tiny", "--policy", "random", "--json").out])


def test_figures_of_reproduce(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.data.scenarios.load import load_scenario
    from noonward.studies.dvfs_training import reproduce as reproduction

    def short(routed: bool) -> Any:
        source = f"jobs={{source: paper-stream, routed: {str(routed).lower()}}}"
        return load_scenario("dvfs-training", ["window_h=2", source])

    monkeypatch.setattr(reproduction, "stream_scenario", short)
    monkeypatch.setattr(reproduction, "write_report", lambda comparison, path, **more: path)
    hold_against_page("reproduce dvfs-training`", [noonward("reproduce", "dvfs-training", "--json").out])


def test_figures_of_reproduce_with_learned_policies(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.data.scenarios.load import load_scenario
    from noonward.studies.dvfs_training import controls as dvfs_controls

    monkeypatch.setattr(dvfs_controls, "week", lambda: load_scenario("dvfs-training", ["window_h=1"]))
    monkeypatch.setattr(dvfs_controls, "write_report", lambda comparison, path, **more: path)
    nets = Path(__file__).parents[2] / "studies-data" / "nets"
    answer = noonward("reproduce", "dvfs-training", "--learned", "--seeds", "2", "--nets", nets, "--json")
    hold_against_page("reproduce dvfs-training --learned", [answer.out])


def test_figures_of_reproduce_fine_tuning(
    noonward: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noonward.schedule import policies as named
    from noonward.schedule import registry
    from noonward.schedule.cluster.catalogue import add_trained
    from noonward.studies.fine_tuning import reproduce as reproduction
    from trained_files import training_record, write_random_policy

    for n, name in enumerate(("masac", "masac-seed1", "madqn", "madqn-seed1", "bid-price-neural")):
        write_random_policy(tmp_path / "trained" / f"{name}.npz", n, record=training_record(n))
    own = registry.Registry()
    for policy in named.policies(trained=False, kind="cluster"):
        own.add(policy)
    add_trained(own, tmp_path / "trained")
    monkeypatch.setattr(reproduction, "SCENARIO", "tiny")
    command = ("reproduce", "fine-tuning", "-n", 2, "--policies", "price-greedy,masac,madqn,bid-price-neural", "--json")
    with named.using(own):
        answer = noonward(*command)
    hold_against_page("reproduce fine-tuning", [answer.out])


def test_figures_of_the_sweep(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.studies.dvfs_training import sweep as studied

    monkeypatch.setattr(studied, "points", lambda: [studied.Point(name="rate-2", says="as it is")])
    kept = studied.sweep.__kwdefaults__ or {}
    monkeypatch.setattr(studied.sweep, "__kwdefaults__", {**kept, "policies": ("jointnf",), "window_h": 1})
    answer = noonward("reproduce", "dvfs-training", "--sweep", "--json")
    hold_against_page("reproduce dvfs-training --sweep", [answer.out])


def test_figures_of_the_ablations_of_chsac(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.studies.dvfs_training.ablations import study_ablations
    from noonward.studies.dvfs_training.short_training import ABLATIONS, LIMIT_S

    brief = ("reward=energy", "epochs=1", "environments=1", "steps=5", "updates=1", "hidden=[4]", "quantiles=2")
    changed = {
        **(study_ablations.__kwdefaults__ or {}),
        "settings": brief,
        "ablations": ABLATIONS[:1],
        "controls": ("greedy-tradeoff(watts=10)", "greedy-tradeoff(watts=1000)"),
        "world": (f"constraints.mean_latency_s={LIMIT_S:g}", "window_h=1"),
        "windows": 1,
        "window_h": 1,
    }
    monkeypatch.setattr(study_ablations, "__kwdefaults__", changed)
    command = ("reproduce", "dvfs-training", "--ablations", "--training-seeds", 1, "--workers", 1, "--json")
    hold_against_page("reproduce dvfs-training --ablations", [noonward(*command).out])


def test_figures_of_the_study_of_knowledge(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.studies.fine_tuning import knowledge

    kept = knowledge.study_knowledge.__kwdefaults__ or {}
    monkeypatch.setattr(knowledge.study_knowledge, "__kwdefaults__", {**kept, "scenario": "tiny"})
    command = ("reproduce", "fine-tuning", "--knowledge", "-n", 1, "--policies", "cheapest-feasible", "--json")
    hold_against_page("reproduce fine-tuning --knowledge", [noonward(*command).out])


def test_figures_of_the_study_of_published_prices(
    noonward: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from noonward.studies.fine_tuning.published import study_published

    small = tmp_path / "small.yaml"
    small.write_text("extends: fine-tuning\nname: small\nwindow_h: 6\njobs: {count: 20}\n", encoding="utf-8")
    changed = {**(study_published.__kwdefaults__ or {}), "scenario": str(small)}
    monkeypatch.setattr(study_published, "__kwdefaults__", changed)
    command = ("reproduce", "fine-tuning", "--published", "-n", 2, "--workers", 1, "--json")
    hold_against_page("reproduce fine-tuning --published", [noonward(*command).out])


def test_figures_of_the_map(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.studies.fine_tuning import gain_map

    cell = gain_map.Cell(name="demand-1.2-slack-1", varied="slack", demand=1.2, settings=("jobs.demand=1.2",))
    monkeypatch.setattr(gain_map, "cells", lambda: [cell])
    kept = gain_map.map_gains.__kwdefaults__ or {}
    changed = {**kept, "scenario": "tiny", "policies": ("price-greedy", "carbon-greedy")}
    monkeypatch.setattr(gain_map.map_gains, "__kwdefaults__", changed)
    hold_against_page(
        "reproduce fine-tuning --map", [noonward("reproduce", "fine-tuning", "--map", "-n", 1, "--json").out]
    )


def test_figures_of_compare_edge_inference(noonward: CommandLine) -> None:
    answer = noonward("compare", "edge-inference", "-n", 2, "--policies", "random,reuse-first", "--no-report", "--json")
    hold_against_page("compare edge-inference", [answer.out])


def test_figures_of_reproduce_edge_inference(noonward: CommandLine) -> None:
    command = ("reproduce", "edge-inference", "-n", 2, "--servers", 4, "--policies", "random,reuse-first", "--json")
    hold_against_page("reproduce edge-inference", [noonward(*command).out])


FLEXIBLE = ("tiny", "--set", "fleet.freedoms={fine-tuning: {interruptible: true, caps: zeus-v100-bert}}")


def test_figures_of_event(noonward: CommandLine) -> None:
    hold_against_page("event`", [noonward("event", *FLEXIBLE, "--hours", 1, "--json").out])


def test_figures_of_flexibility(noonward: CommandLine) -> None:
    few = ("--cuts", "25%", "--hours", "1", "--notices", "0", "--workers", 1, "--json")
    hold_against_page("flexibility", [noonward("flexibility", *FLEXIBLE, *few).out])


def test_figures_of_reproduce_grid_events(noonward: CommandLine) -> None:
    levels = [13600] * 12 + [8800] * 12 + [13600] * 12
    lines = [f"{13 + n // 12}:{5 * (n % 12):02d},{watts}" for n, watts in enumerate(levels)]
    Path("power.csv").write_text("time,total\n" + "\n".join(lines) + "\n", encoding="utf-8")
    caps = "Workload,power per GPU,throughput\ntrain,200,0.6\ntrain,400,1\nserve,250,0.9\nserve,500,1\n"
    Path("caps.csv").write_text(caps, encoding="utf-8")
    jobs = "job,Performance,Flexibility,GPUs\ntrain,0.8667,Flex 3,24\nserve,1,Flex 0,8\n"
    Path("jobs.csv").write_text(jobs, encoding="utf-8")
    told = ("--power", "power.csv", "--events", "jobs.csv", "--caps", "caps.csv", "--name", "own")
    hold_against_page("reproduce grid-events", [noonward("reproduce", "grid-events", *told, "--json").out])


def test_figures_of_bench(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import engine as bench_engine
    from noonward.data.environments import build_environment
    from noonward.data.scenarios.load import load_scenario

    def once(work: Callable[[], Any], least_repeats: int = 1) -> float:
        work()
        return 1.0

    monkeypatch.setattr(bench_engine, "cpu_seconds", once)
    hour = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    monkeypatch.setattr(bench_engine, "_long_environment", lambda jobs: hour)
    hold_against_page("bench", [noonward("bench", "--json").out])


def test_figures_of_bench_bid_price(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import bid_price as bench_bid_price

    monkeypatch.setattr(bench_bid_price, "JOBS_PER_DAY", 20)
    monkeypatch.setattr(bench_bid_price, "WAITING", 100)
    monkeypatch.setattr(bench_bid_price, "REPEATS", 1)
    hold_against_page("bench bid-price", [noonward("bench", "bid-price", "--json").out])


def test_figures_of_bench_quarter(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import quarter

    for name, small in {"DAYS": 1, "PAST_DAYS": 1, "JOBS": 100, "WORKERS": 1}.items():
        monkeypatch.setattr(quarter, name, small)
    monkeypatch.setattr(quarter, "POLICIES", ("what-happened", "local-fcfs"))
    hold_against_page("bench quarter", [noonward("bench", "quarter", "--json").out])


def test_figures_of_bench_scale(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import scale

    for name, small in {"ALIKE_JOBS": 600, "ALIKE_SITES": 6, "DRAWS": 1}.items():
        monkeypatch.setattr(scale, name, small)
    hold_against_page("bench scale", [noonward("bench", "scale", "--jobs", "1000", "--sites", "2", "--json").out])


def test_figures_of_bench_edge(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import edge as bench_edge

    monkeypatch.setattr(bench_edge, "EPISODES", 2)
    monkeypatch.setattr(bench_edge, "timed_policies", lambda: ["random", "lookahead"])
    hold_against_page("bench edge", [noonward("bench", "edge", "--json").out])


def test_figures_of_bench_live(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import live as bench_live

    for name, small in {
        "BATCHES": 2,
        "BATCH": 10,
        "SINGLES": 20,
        "CONNECTIONS": 2,
        "WAITING": 50,
        "STORED": 100,
        "THROUGH": 50,
    }.items():
        monkeypatch.setattr(bench_live, name, small)
    hold_against_page("bench live", [noonward("bench", "live", "--json").out])


def test_figures_of_bench_live_http(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import live_http

    monkeypatch.setattr(live_http, "BATCH", 50)
    short = ("--http", "--seconds", "0.5", "--rate", "200")
    hold_against_page("bench live --http", [noonward("bench", "live", *short, "--json").out])
    refused = noonward("bench", "live", "--http", "--month")
    assert (refused.code, "give one of them" in refused.err) == (2, True)
    refused = noonward("bench", "live", "--policy", "patient")
    assert (refused.code, "--policy belong to 'noonward bench live --http'" in refused.err) == (2, True)
    refused = noonward("bench", "live", "--workers", 2)
    assert (refused.code, "--workers belong to 'noonward bench scale'" in refused.err) == (2, True)


SMALL_NETS = ("environments=2", "hidden=[8,8]", "batch=8", "validation_environments=1")
SMALL_RUNS = {
    "masac": SMALL_NETS,
    "chsac-af": (*SMALL_NETS, "quantiles=4"),
    "masac-credit": ("environments=1", "validation_environments=1"),
}


def test_figures_of_bench_learn(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.bench import learn as bench_learn
    from noonward.learn.train import run_config

    whole = run_config.with_settings

    def small(algorithm: str, task: Any, given: Iterable[str], **fields: Any) -> Any:
        names = {each.partition("=")[0] for each in SMALL_RUNS[algorithm]}
        if algorithm == "masac":
            task = replace(task, sources=(replace(task.sources[0], settings=("window_h=6", "jobs.count=40")),))
        kept = [each for each in given if each.partition("=")[0] not in names]
        return whole(algorithm, task, [*kept, *SMALL_RUNS[algorithm]], **fields)

    monkeypatch.setattr(run_config, "with_settings", small)
    calls: list[float] = []

    def once(work: Callable[[], Any], **_: Any) -> float:
        work()
        calls.append(1.0)
        return float(len(calls))

    monkeypatch.setattr(bench_learn, "cpu_seconds", once)
    for name, small in {"ROUNDS": 1, "ROWS": 2, "STEPS": 50, "UPDATES": 1}.items():
        monkeypatch.setattr(bench_learn, name, small)
    monkeypatch.setattr(bench_learn, "TWENTIETH", (5, 1))
    monkeypatch.setattr(bench_learn, "CREDIT_SETTINGS", ("epochs=1", "environments=1", "windows=1", "price_steps=1"))
    monkeypatch.setattr(bench_learn, "_on_gpu", lambda: bench_learn.updates_on("cpu"))
    hold_against_page("bench learn", [noonward("bench", "learn", "--json").out])
