"""Draws the pictures of the pages on concepts from what the program computes, and the diagrams beside them.

    python -m tools.pictures.concepts

Numbers in them are those of the packaged scenario ``tiny``, environment 0 and seed 0, unless the picture says
otherwise. ``tests/docs/test_pictures.py`` holds the files to what is drawn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from tools.pictures.drawing import BLUE, GRAY, GREEN, INK, ORANGE, PALE, RED, Axes, Drawing

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.statistics import Estimate, mean
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.forecaster import price_and_carbon
from noonward.ledger.ledger import Ledger
from noonward.model.cluster.environment import Environment
from noonward.runtime.by_kind import build_environment, run, settle
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S

ROOT = Path(__file__).parents[2]
SITES = (GREEN, ORANGE)
BEST, BASE = "booked-persistence", "local-fcfs"
ENVIRONMENTS = 10


@cache
def environment(index: int = 0) -> Environment:
    """Returns an environment of tiny."""
    return build_environment(load_scenario("tiny"), index, 0)


@cache
def ledger(policy: str, index: int = 0) -> Ledger:
    """Returns the ledger of a policy in an environment of tiny."""
    return settle(run(environment(index), make_scheduler(policy)))


def hours(first: int, last: int, every: int) -> list[tuple[float, str]]:
    """Returns labels of hours."""
    return [(hour, f"{hour} h") for hour in range(first, last + 1, every)]


def site_prices() -> np.ndarray:
    """Returns hourly prices of the two sites from the window's start on, USD/MWh."""
    each, signals = environment(), environment().signals
    first = signals.hour_of(each.start)
    zones = [signals.zones.index(site.zone) for site in each.fleet.sites]
    return signals.price_usd_per_mwh_ZH[zones, first:]


def world() -> Drawing:
    """Draws prices at two sites, and one job that moves and waits for the cheaper hours."""
    each, span = environment(), 24
    outcome = run(each, make_scheduler(BEST))
    job_J, arrival_h = outcome.job_J, each.jobs.arrival_s_J / HOUR_S
    start_h, finish_h = job_J["start_s"] / HOUR_S, job_J["finish_s"] / HOUR_S
    home_J, slack_h = each.jobs.origin_J, each.jobs.slack_s_J / HOUR_S
    moved = (job_J["site"] != home_J) & (finish_h < span) & (start_h - arrival_h > 1) & (arrival_h + slack_h < span + 6)
    j = int(np.flatnonzero(moved)[np.argmax((finish_h - start_h)[moved])])
    drawing = Drawing(760, 330, "Electricity prices at two sites over a day, and a job that moves and waits")
    price_SH = site_prices()[:, :span]
    axes = Axes(drawing, (60, 36, 560, 150), (0, span), (0, 50 * np.ceil(price_SH.max() / 50)))
    ticks = [(value, f"{value:.0f}") for value in np.linspace(0, axes.up[1], 3)]
    axes.frame("Price of electricity, USD/MWh", hours(0, span, 6), ticks)
    for site, (color, price_H) in enumerate(zip(SITES, price_SH, strict=True)):
        axes.steps(0, price_H, color)
        name = each.fleet.sites[site].name
        drawing.text(630, axes.y(price_H[-1]) + 4, f"site {name}", color=color, bold=True)
    home, away = int(home_J[j]), int(job_J["site"][j])
    rows = {home: 232.0, away: 276.0}
    for site, y in rows.items():
        drawing.text(52, y + 5, each.fleet.sites[site].name, color=SITES[site], anchor="end", bold=True)
        drawing.path([(60, y + 14), (620, y + 14)], PALE, width=1)
    here = axes.x(arrival_h[j])
    due = min(arrival_h[j] + slack_h[j], span)
    drawing.bar(here, rows[home] - 6, axes.x(due) - here, 12, "#fff", edge=GRAY, dash=True)
    drawing.text(axes.x(due) + 6, rows[home] + 5, "slack: latest start", size=12, color=GRAY)
    drawing.dot(here, rows[home], INK)
    drawing.text(here, rows[home] - 12, "a job arrives", size=12, anchor="middle")
    begin, end = axes.x(start_h[j]), axes.x(finish_h[j])
    drawing.arrow(here, rows[home] + 6, max(begin - 3, here + 4), rows[away] - 4)
    drawing.bar(begin, rows[away] - 10, end - begin, 20, SITES[away])
    drawing.text(end + 6, rows[away] + 5, f"runs on {job_J['gpus'][j]} GPUs", size=12, color=SITES[away])
    drawing.text(
        60, 318, "Its data travel to the other site (migration), and it starts there within its slack.", size=12
    )
    return drawing


def decision_modes() -> Drawing:
    """Draws when a policy is asked in both decision modes."""
    drawing = Drawing(760, 250, "Two decision modes: per time step, and on arrival")
    for top, title, note in (
        (30, "each-slot: asked at every time step, about all jobs that wait", "answers: start here, migrate, or defer"),
        (150, "on-arrival: asked once per job, when it arrives", "answers: the site, its GPUs, their frequency"),
    ):
        drawing.text(30, top, title, bold=True)
        drawing.text(30, top + 18, note, size=12, color=GRAY)
        drawing.path([(30, top + 70), (730, top + 70)], GRAY, width=1.2)
    arrivals = (95, 240, 265, 430, 610)
    for x in range(60, 731, 70):
        drawing.arrow(x, 66, x, 96, GREEN)
    for x in arrivals:
        drawing.dot(x, 100, INK)
        drawing.dot(x, 220, INK)
        drawing.arrow(x, 186, x, 213, GREEN)
    drawing.text(30, 122, "green arrows: questions · dots: jobs arrive", size=12, color=GRAY)
    return drawing


def utility() -> Drawing:
    """Draws what a run's utility consists of."""
    found = ledger(BEST)
    spent = (
        ("energy of jobs", found.job_energy_usd),
        ("energy of free GPUs", found.free_energy_usd),
        ("carbon", found.carbon_usd),
        ("transfers", found.move_usd + found.result_usd),
    )
    drawing = Drawing(760, 250, "Utility: revenue minus energy, carbon and transfers")
    scale, left, top = 520 / found.revenue_usd, 160.0, 34.0
    drawing.text(20, 18, f"One run of {BEST} in tiny, USD", bold=True)
    drawing.text(left - 10, top + 17, "revenue", anchor="end")
    drawing.bar(left, top, scale * found.revenue_usd, 24, GREEN)
    drawing.text(left + scale * found.revenue_usd + 6, top + 17, f"{found.revenue_usd:.2f}")
    end = found.revenue_usd
    for n, (name, usd) in enumerate(spent, 1):
        y = top + 34 * n
        drawing.text(left - 10, y + 17, name, anchor="end")
        drawing.bar(left + scale * (end - usd), y, scale * usd, 24, RED)
        drawing.text(left + scale * end + 6, y + 17, f"−{usd:.2f}")
        end -= usd
    y = top + 34 * (len(spent) + 1)
    drawing.text(left - 10, y + 17, "utility", anchor="end", bold=True)
    drawing.bar(left, y, scale * found.utility_usd, 24, BLUE)
    drawing.text(left + scale * found.utility_usd + 6, y + 17, f"{found.utility_usd:.2f}", bold=True)
    return drawing


def forecasts() -> Drawing:
    """Draws the price of a zone, and what two forecasts said of it at an hour."""
    each = build_environment(load_scenario("fine-tuning", ["start=2022-05-10"]), 0, 0)
    signals, leads = each.signals, 48
    first = signals.hour_of(each.start)
    zone = next(z for z, name in enumerate(signals.zones) if name == each.fleet.sites[0].zone)
    rng = np.random.default_rng(0)
    said = {
        kind: Forecast(kind)
        .forecaster(signals, first, rng)
        .values(price_and_carbon(signals), np.array([first]), leads)[0, 0, zone]
        for kind in ("persistence", "regression")
    }
    price_H = signals.price_usd_per_mwh_ZH[zone, first - 24 : first + leads]
    most = max(float(np.max(values)) for values in (price_H, *said.values()))
    drawing = Drawing(760, 270, "An electricity price and two forecasts of it")
    axes = Axes(drawing, (60, 36, 540, 190), (-24, leads), (min(0.0, float(price_H.min())), 25 * np.ceil(most / 25)))
    ticks = [(value, f"{value:.0f}") for value in np.linspace(0, axes.up[1], 3)]
    axes.frame(f"Price in {signals.zones[zone]} (generated), USD/MWh", hours(-24, leads, 12), ticks)
    axes.line([(0, axes.up[0]), (0, axes.up[1])], GRAY, width=1, dash=True)
    axes.steps(-24, price_H, INK, width=2.5)
    axes.steps(0, said["persistence"], ORANGE)
    axes.steps(0, said["regression"], BLUE)
    drawing.text(axes.x(0) - 6, 50, "known", size=12, color=GRAY, anchor="end")
    drawing.text(axes.x(0) + 6, 50, "to come", size=12, color=GRAY)
    for n, (name, color) in enumerate((("what came", INK), ("persistence", ORANGE), ("regression", BLUE))):
        drawing.text(612, 90 + 24 * n, name, color=color, bold=True)
    return drawing


def bid_prices() -> Drawing:
    """Draws GPUs in use at a site, the price of a GPU-hour there, and two starts of a job (an example)."""
    used = (5, 6, 8, 10, 12, 12, 12, 12, 9, 7, 4, 3)
    price = (0, 0, 0, 0, 0.3, 0.6, 0.5, 0.2, 0, 0, 0, 0)
    drawing = Drawing(760, 400, "GPUs in use, the price of a GPU-hour, and two starts of a job")
    above = Axes(drawing, (60, 36, 520, 90), (0, 12), (0, 13))
    above.frame("GPUs in use at a site (example)", [], [(0, "0"), (12, "12")])
    for hour, value in enumerate(used):
        drawing.bar(above.x(hour) + 1, above.y(value), 520 / 12 - 2, above.y(0) - above.y(value), BLUE)
    drawing.text(588, above.y(12) + 4, "all GPUs busy", size=12, color=GRAY)
    below = Axes(drawing, (60, 170, 520, 80), (0, 12), (0, 0.7))
    below.frame("Bid price, USD per GPU-hour", hours(0, 12, 2), [(0, "0"), (0.6, "0.6")])
    below.steps(0, price, GREEN, width=2.5)
    drawing.lines(588, 220, ("zero while GPUs", "are free"), size=12, color=GRAY)
    drawing.text(60, 300, "A job of 2 GPUs for 2 hours", bold=True)
    for start, worth, color, y in ((5, 1.9, RED, 314), (8, 1.7, GREEN, 352)):
        paid = 2 * sum(price[start : start + 2])
        drawing.bar(below.x(start), y, below.x(2) - below.x(0), 22, color)
        verdict = "wait" if worth < paid else "start here"
        words = f"value {worth:.1f} − price {paid:.1f} = {worth - paid:+.1f} USD: {verdict}"
        drawing.text(below.x(start) - 8, y + 16, words, size=12, anchor="end")
    return drawing


def share() -> Drawing:
    """Draws the share of possible improvement from the numbers of the tutorial's sample."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    value = {name: float(usd) for name, usd in re.findall(r"^ ([\w -]+?) {2,}(\d+\.\d\d) ±", page, re.MULTILINE)}
    low, high = ledger_mean(BASE), value["upper bound"]
    marks = (
        (BASE, low, GRAY, "baseline: 0%"),
        ("cheapest-feasible", value["cheapest-feasible"], BLUE, ""),
        (BEST, value[BEST], GREEN, ""),
        ("best known schedule", value["best known schedule"], ORANGE, ""),
        ("upper bound", high, INK, "100%: nothing can be better"),
    )
    drawing = Drawing(760, 240, "The share of possible improvement of policies")
    scale = 460 / (high - low)
    drawing.text(20, 20, "Mean utility in tiny, USD, and share of possible improvement", bold=True)
    for n, (name, usd, color, words) in enumerate(marks):
        y = 40 + 38 * n
        drawing.text(170, y + 17, name, anchor="end", color=color, bold=True)
        drawing.bar(180, y, max(scale * (usd - low), 2), 24, color)
        shown = words or f"{(usd - low) / (high - low):.0%}"
        drawing.text(188 + scale * (usd - low), y + 17, f"{usd:.2f} · {shown}" if n < 4 else f"{usd:.2f} · 100%")
    drawing.text(180, 234, "share = (policy − baseline) / (upper bound − baseline)", size=12, color=GRAY)
    return drawing


def ledger_mean(policy: str) -> float:
    """Returns a policy's mean utility over the environments, USD."""
    return float(np.mean([ledger(policy, n).utility_usd for n in range(ENVIRONMENTS)]))


def pairing() -> Drawing:
    """Draws utilities of two policies by environment, and the intervals of both and of their difference."""
    base_E, best_E = (np.array([ledger(p, n).utility_usd for n in range(ENVIRONMENTS)]) for p in (BASE, BEST))
    drawing = Drawing(760, 300, "Differences in the same environment vary less than results do")
    most = float(np.ceil(max(base_E.max(), best_E.max())))
    left = Axes(drawing, (60, 40, 250, 200), (0, 1), (0, most))
    ticks = [(value, f"{value:.0f}") for value in np.linspace(0, most, 3)]
    left.frame("Utility of ten environments, USD", [(0.1, BASE), (0.9, BEST)], ticks)
    for base, best in zip(base_E, best_E, strict=True):
        left.line([(0.1, base), (0.9, best)], PALE, width=1.5)
        drawing.dot(left.x(0.1), left.y(base), GRAY)
        drawing.dot(left.x(0.9), left.y(best), GREEN)
    each, paired = (mean(base_E), mean(best_E)), mean(best_E - base_E)
    half = math.hypot(*(estimate.value - (estimate.low or 0.0) for estimate in each))
    rows = (
        (BASE, each[0], GRAY),
        (BEST, each[1], GREEN),
        ("difference, unpaired", Estimate(paired.value, paired.value - half, paired.value + half), ORANGE),
        ("difference, paired", paired, BLUE),
    )
    right = Axes(drawing, (500, 40, 220, 200), (0, most), (0, 1))
    right.frame("Mean and 95% interval, USD", ticks, [])
    for n, (name, estimate, color) in enumerate(rows):
        y = 70 + 46 * n
        assert estimate.low is not None
        assert estimate.high is not None
        drawing.text(490, y + 4, name, anchor="end", color=color, bold=True)
        drawing.path([(right.x(estimate.low), y), (right.x(estimate.high), y)], color, width=3)
        drawing.dot(right.x(estimate.value), y, color, 6)
    drawing.text(60, 286, "Each line is an environment: its two results are compared with each other.", size=12)
    return drawing


def freedoms() -> Drawing:
    """Draws one job unbroken, suspended, resized and capped, under a price."""
    price = (60, 55, 50, 90, 130, 140, 120, 70, 45, 40, 42, 50)
    drawing = Drawing(760, 330, "A job unbroken, suspended, resized and power-capped")
    axes = Axes(drawing, (130, 34, 560, 70), (0, 12), (0, 150))
    axes.frame("Price of electricity (example)", hours(0, 12, 2), [])
    axes.steps(0, price, INK)
    lives = (
        ("unbroken", ((0, 8, 16, GRAY),)),
        ("suspended", ((0, 3, 16, GREEN), (7, 5, 16, GREEN))),
        ("resized", ((0, 3, 24, BLUE), (3.1, 4, 8, BLUE), (7.2, 1.2, 24, BLUE))),
        ("power-capped", ((0, 3, 16, ORANGE), (3, 4, 9, "#e9b48f"), (7, 1.8, 16, ORANGE))),
    )
    for n, (name, parts) in enumerate(lives):
        base = 164 + 44 * n
        drawing.text(120, base, name, anchor="end", bold=True)
        drawing.path([(130, base + 4), (690, base + 4)], PALE, width=1)
        for begin, length, height, color in parts:
            drawing.bar(axes.x(begin), base + 4 - height, axes.x(begin + length) - axes.x(begin), height, color)
    drawing.text(
        130, 322, "Height: power. Gaps: GPUs are free. The work done is the same in every row.", size=12, color=GRAY
    )
    return drawing


def frontier() -> Drawing:
    """Draws energy against mean time of policies and of the bound, from the table of the page on dvfs-training."""
    page = (ROOT / "docs/dvfs-training.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| `([^`]+)` \| ([\d,]+) \| (\d+\.\d+) \| (\d+\.\d+) \| [\d.]+% \|$", re.MULTILINE)
    found = [(name, float(s.replace(",", "")), float(j), float(least)) for name, s, j, least in row.findall(page)]
    shown = [each for each in found if each[1] < 10_000]
    drawing = Drawing(760, 320, "Energy per unit against mean time in system, and the bound")
    axes = Axes(drawing, (60, 36, 640, 220), (math.log10(500), math.log10(6000)), (8.0, 10.8))
    ticks = [(math.log10(s), f"{s:,} s") for s in (500, 1000, 2000, 4000)]
    axes.frame("Energy, J per unit of work", ticks, [(j, f"{j:g}") for j in (8.0, 9.0, 10.0)])
    bound = sorted({(math.log10(s), least) for _, s, _, least in shown})
    axes.line(bound, INK, dash=True)
    drawing.text(axes.x(bound[-1][0]) + 6, axes.y(bound[-1][1]) + 16, "bound", bold=True, anchor="end")
    for name, s, joules, _ in shown:
        color = GREEN if name.startswith("greedy") else ORANGE
        drawing.dot(axes.x(math.log10(s)), axes.y(joules), color)
        left = name == "greedy-energy(gpus=1)"
        drawing.text(
            axes.x(math.log10(s)) + (8 if not left else 0), axes.y(joules) - (8 if not left else 10), name, size=12,
            color=color, anchor="start" if not left else "middle",
        )  # fmt: skip
    drawing.text(
        60, 300, "Mean time in system (logarithmic). Down and left is better; nothing can be below the bound.", size=12
    )
    return drawing


def gangs() -> Drawing:
    """Draws tasks on gangs of four edge servers (an example)."""
    drawing = Drawing(760, 280, "Tasks on gangs of servers over time, with the loads of models")
    drawing.text(20, 22, "Four servers over time (example)", bold=True)
    scale, left = 14.0, 90.0
    for server in range(4):
        drawing.text(80, 60 + 44 * server, f"server {server + 1}", anchor="end")
    tasks = (  # first server, servers, start, load, run, words, color
        (0, 2, 0, 8, 10, "task 1", BLUE),
        (2, 1, 1, 8, 10, "task 2", GREEN),
        (0, 2, 20, 0, 10, "task 3: the gang has the model", BLUE),
        (3, 1, 4, 8, 14, "task 4", GREEN),
        (0, 4, 32, 8, 6, "task 5: waits for all four", ORANGE),
    )
    for first, count, start, load, length, words, color in tasks:
        x, y, height = left + scale * start, 42 + 44 * first, 44 * count - 10
        drawing.bar(x, y, scale * load, height, "#fff", edge=color, dash=True)
        drawing.bar(x + scale * load, y, scale * length, height, color)
        drawing.text(x + scale * load + 6, y + height / 2 + 5, words.partition(":")[0], color="#fff", bold=True)
        if ":" in words:
            drawing.text(x + (2 if load else 0), y + height + 13, words.partition(": ")[2], size=12, color=color)
    drawing.text(
        90, 262, "Dashed: the gang loads a model. Height: servers that draw one image together.", size=12, color=GRAY
    )
    return drawing


def hand_over() -> Drawing:
    """Draws the five steps by which a job reaches its cluster."""
    drawing = Drawing(760, 330, "Five steps of handing a job to a cluster")
    columns = ((120, "store"), (380, "service"), (640, "cluster"))
    for x, name in columns:
        drawing.bar(x - 70, 14, 140, 30, "#eef3ee", edge=GREEN)
        drawing.text(x, 34, name, anchor="middle", bold=True)
        drawing.path([(x, 44), (x, 312)], PALE, width=1.5)
    steps = (
        (374, 126, "1  commit the intent and a unique token"),
        (386, 634, "2  after a restart: look the token up"),
        (386, 634, "3  submit the job held, with the token"),
        (374, 126, "4  commit the cluster's job number"),
        (386, 634, "5  release the job"),
    )
    for n, (x, to_x, words) in enumerate(steps):
        y = 82 + 48 * n
        drawing.arrow(x, y, to_x, y, GREEN)
        drawing.text((x + to_x) / 2, y - 7, words, anchor="middle", size=12)
    return drawing


def boundaries() -> Drawing:
    """Draws who talks to the live service, and where a right is checked."""
    drawing = Drawing(760, 270, "Who talks to the live service, and what is checked")
    boxes = (
        (20, 30, "browser, command line,", "your programs"),
        (20, 160, "publishers of prices", "and carbon intensities"),
        (290, 95, "live service", "(a user of its own)"),
        (560, 30, "clusters: Slurm,", "Kubernetes, Ray"),
        (560, 160, "store: SQLite folder", "or PostgreSQL"),
    )
    for x, y, first, second in boxes:
        inner = x == 290
        drawing.bar(x, y, 180, 60, "#eef3ee" if inner else "#f4f4f4", edge=GREEN if inner else GRAY)
        drawing.lines(x + 90, y + 26, (first, second), anchor="middle", bold=inner)
    drawing.arrow(200, 68, 286, 108)
    drawing.lines(208, 52, ("token: read,", "submit or admin"), size=12, color=RED)
    drawing.arrow(286, 142, 204, 184)
    drawing.text(212, 196, "asks; checks ranges", size=12, color=RED)
    drawing.arrow(470, 108, 556, 68)
    drawing.text(552, 112, "its user's rights", size=12, color=RED)
    drawing.arrow(470, 142, 556, 184)
    drawing.text(440, 200, "hashes of tokens", size=12, color=RED)
    drawing.text(20, 258, "Red: what protects each way. By default, jobs run commands as the service's user.", size=12)
    return drawing


PICTURES: dict[str, Callable[[], Drawing]] = {
    "concept-world": world,
    "concept-decisions": decision_modes,
    "concept-utility": utility,
    "concept-forecasts": forecasts,
    "concept-bid-prices": bid_prices,
    "concept-share": share,
    "concept-pairing": pairing,
    "concept-freedoms": freedoms,
    "dvfs-frontier": frontier,
    "edge-gangs": gangs,
    "concept-hand-over": hand_over,
    "concept-boundaries": boundaries,
}
"""Pictures by the names of their files in docs/images/."""


def main() -> None:
    """Writes the pictures."""
    for name, draw in PICTURES.items():
        (ROOT / f"docs/images/{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
