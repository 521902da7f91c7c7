"""The page for a meeting: what it says first, its pictures, its size, and the files beside it."""

import dataclasses
import itertools
import re

import numpy as np
import polars as pl
import pytest

from noonward.evaluate.answer import headline
from noonward.evaluate.report.charts import LETTER, WIDTH, Bar, Point, bar_chart, difference_map, scatter, ticks
from noonward.evaluate.report.figure_style import SITE_COLORS
from noonward.evaluate.report.meeting import improvement, write_meeting_report


def written(comparison, folder):
    path = write_meeting_report(comparison, folder / "report.html", command="noonward compare tiny")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(money, tmp_path_factory):
    return written(money, tmp_path_factory.mktemp("meeting"))


def test_the_page_opens_with_the_answer(money, html):
    first = re.search(r"<h1>(.*?)</h1>", html, re.DOTALL)[1].replace("&nbsp;", " ")
    assert first == headline(money)[0]
    assert html.index("<h1>") < html.index("<svg")


def test_no_name_stands_before_nothing_and_no_color_for_nobody(money, tmp_path):
    bare = dataclasses.replace(money, scenario=money.scenario.model_copy(update={"description": ""}))
    assert f"<p class='caption'>{money.scenario.name}</p>" in written(bare, tmp_path)
    alone = dataclasses.replace(money, records={money.reference: money.records[money.reference]})
    assert "green:" not in written(alone, tmp_path)


def test_it_is_small_and_holds_no_program(html):
    assert len(html.encode()) < 200_000
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org", "")


def test_methods_are_folded_and_complete(money, html):
    folded = html[html.index("<details>") :]
    assert "open" not in re.findall(r"<details[^>]*>", html)[0]
    for words in (
        "id='results'",
        money.scenario.digest,
        "noonward compare tiny",
        "its optimality gap",
        "policies are told each job",
    ):
        assert words in folded


def test_every_policy_has_its_bar_and_its_point(money, html):
    for policy in money.records:
        assert html.count(policy) >= 2
    assert "booked-perfect (knows the future)" in html


def test_nothing_moves_where_todays_policy_stays(money, tmp_path):
    alone = dataclasses.replace(money, records={money.reference: money.records[money.reference]})
    assert "What moves where and when" not in written(alone, tmp_path)


def test_what_moves_is_shown_where_a_policy_is_to_be_adopted(money, tmp_path):
    better = [
        dataclasses.replace(record, ledger=dataclasses.replace(record.ledger, utility_usd=100.0 + n))
        for n, record in enumerate(money.records["random"])
    ]
    kept = {"local-fcfs": money.records["local-fcfs"], "random": better}
    html = written(dataclasses.replace(money, records=kept), tmp_path)
    assert "<h1>Adopt random: " in html
    assert "What moves where and when" in html
    assert all(site["name"] in html for site in better[0].manifest["sites"])


def test_an_improvement_is_positive_where_a_policy_is_better(money, energy):
    best = money.ranked()[0]
    difference = money.values(best, "utility_usd") - money.values(money.reference, "utility_usd")
    assert improvement(money, best).value == difference.mean() > 0
    assert improvement(energy, "greedy-energy(gpus=2)").value > 0
    saved = money.scenario.model_copy(update={"goal": "least-cost"})
    changed = improvement(dataclasses.replace(money, scenario=saved), best).value
    assert changed != difference.mean()


def test_a_caption_says_which_way_the_bars_count(money, energy, tmp_path):
    saved = dataclasses.replace(money, scenario=money.scenario.model_copy(update={"goal": "least-cost"}))
    assert "Gain in utility" in written(money, tmp_path)
    assert "Reduction of energy per unit" in written(energy, tmp_path)
    assert "USD of total cost saved against" in written(saved, tmp_path)


def test_a_page_without_signals_has_no_cost(energy, tmp_path):
    assert "Cost and carbon" not in written(energy, tmp_path)


def test_bars_start_at_zero_and_are_in_proportion():
    bars = [
        Bar(name="a", value=10.0, low=None, high=None, text="+10", color="#000"),
        Bar(name="b & c", value=-5.0, low=-10.0, high=0.0, text="-5", color="#000"),
    ]
    svg = bar_chart(bars, "USD")
    one, other = (
        (float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    )
    assert one[1] == pytest.approx(2 * other[1], abs=0.2)
    assert other[0] + other[1] == pytest.approx(one[0], abs=0.2)
    assert "b &amp; c" in svg


def test_a_long_name_does_not_run_into_the_value():
    long = Bar(name="own_scheduler:" + 50 * "x", value=1.0, low=None, high=None, text="+1", color="#000")
    (text,) = re.findall(r'class="name">([^<]*)<', bar_chart([long], "USD"))
    assert text.startswith("own_scheduler:xxx")
    assert text.endswith("…")
    assert (len(text) + len("+1")) * LETTER < WIDTH


def test_points_lie_in_their_order_and_those_without_values_are_left_out():
    points = [Point(name=n, x=x, y=y, color="#000") for n, x, y in (("a", 1, 5), ("b", 2, 1), ("c", np.nan, 1))]
    svg = scatter(points, "x", "y")
    places = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert len(places) == 2
    assert places[0][0] < places[1][0]
    assert places[0][1] < places[1][1]
    assert scatter([], "x", "y") == ""


def test_a_name_without_room_near_its_point_is_left_out_unless_it_must_be_there():
    crowd = [Point(name=f"policy-number-{n}", x=n % 3 / 100, y=n / 100, color="#000", always=n < 2) for n in range(30)]
    svg = scatter([*crowd, Point(name="far", x=1.0, y=100.0, color="#000")], "x", "y")
    names = re.findall(r'class="name">([^<]+)<', svg)
    assert {"policy-number-0", "policy-number-1", "far"} <= set(names)
    assert len(names) < 20
    assert svg.count("<circle") == 31


def test_a_map_is_white_at_zero_and_full_at_the_largest_difference():
    svg = difference_map(np.array([[0.0, 4.0], [-4.0, 2.0]]), ["a", "b"], ["00:00", "01:00"], "GPUs")
    colors = re.findall(r'fill="(#\w{6})"', svg)[:4]
    assert colors[0] == "#ffffff"
    assert colors[1] == "#b45309"
    assert colors[2] == "#1d5fa8"
    assert "a, 01:00: +4.0 GPUs" in svg


def test_ticks_of_nothing_are_one():
    assert ticks(2.0, 2.0) == [2.0]


def test_twenty_four_sites_have_colours_of_their_own():
    assert len(set(SITE_COLORS)) == len(SITE_COLORS) == 24


def test_tables_are_exported(money, tmp_path):
    pytest.importorskip("xlsxwriter")
    from noonward.cli.export import export

    export(money, tmp_path / "runs.csv", tmp_path / "runs.xlsx", tmp_path / "jobs.parquet")
    runs = pl.read_csv(tmp_path / "runs.csv")
    assert runs["policy"].unique(maintain_order=True).to_list() == money.ranked()
    jobs = pl.read_parquet(tmp_path / "jobs.parquet")
    assert jobs.height == sum(record.ledger.jobs for records in money.records.values() for record in records)
    assert jobs.schema["arrival"] == pl.Datetime("us", "UTC")
    assert (tmp_path / "runs.xlsx").read_bytes()[:2] == b"PK"


@pytest.mark.parametrize("width", [920, 380])
def test_texts_below_a_map_of_long_names_do_not_touch_and_names_are_cut_on_narrow_screens(width):
    rows = [f"site-{n:02d}-us-cal-ciso" for n in range(24)]
    columns = [f"25 Dec {hour % 24:02d}:00" for hour in range(48)]
    drawn = difference_map(np.zeros((24, 48)), rows, columns, "GPUs", width=width)
    below = [float(x) for x in re.findall(r'<text x="([0-9.]+)" y="544">', drawn)]
    letter = 9.4 if width > 600 else 10.6
    assert below
    assert all(later - earlier >= letter * len(columns[0]) for earlier, later in itertools.pairwise(below))
    assert below[-1] + letter * len(columns[0]) <= width + letter
    names = re.findall(r'class="name">(.*?)</text>', drawn)
    assert names == rows if width > 600 else all(len(name) == 14 and name.endswith("…") for name in names)
