import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from noonward.evaluate.comparison import summary_rows
from noonward.evaluate.energy_objective import energy_figures
from noonward.evaluate.report.page import default_command, write_report
from noonward.studies.dvfs_training.tables import paper_tables


class Page(HTMLParser):
    """Tags with their attributes, visible text, scripts, and the cells of the results table."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.words, self.rows = [], [], [], []
        self.within, self.results = [], False
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.within.append(tag)
        self.results = dict(attrs).get("id") == "results" or (self.results and tag != "table")
        if tag == "tr" and self.results:
            self.rows.append([])

    def handle_endtag(self, tag):
        while self.within and self.within.pop() != tag:
            pass
        if tag == "table":
            self.results = False

    def handle_data(self, data):
        where = self.within[-1] if self.within else ""
        if where == "script":
            self.scripts.append(data)
        elif where != "style":
            self.words.append(data)
        if where in ("td", "th") and self.results:
            self.rows[-1].append(data)


@pytest.fixture(scope="module")
def html(money, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    assert write_report(money, path) == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


@pytest.fixture(scope="module")
def energy_page(energy, frontier, tmp_path_factory):
    path = write_report(
        energy, tmp_path_factory.mktemp("report") / "energy.html", figures=energy_figures(energy, frontier)
    )
    return Page(path.read_text(encoding="utf-8"))


def test_nothing_is_loaded_from_anywhere(html, page):
    loaded = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href", "data")]
    assert loaded == ["data:,"]
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_plotlys_program_stands_in_the_file_once(page):
    assert sum(len(script) > 1_000_000 for script in page.scripts) == 1
    assert sum("Plotly.newPlot(" in script and len(script) < 1_000_000 for script in page.scripts) == 6


def test_numbers_in_the_table_are_the_ledgers(money, page):
    rows = {row[0].removesuffix(" (baseline)"): row[1:] for row in page.rows}
    for policy, records in money.records.items():
        values = np.array([record.ledger.utility_usd for record in records])
        half = 12.7062 * values.std(ddof=1) / 2**0.5  # Student's t of two environments
        assert rows[policy][0] == f"{values.mean():,.2f} ± {half:,.2f}"  # a tiny utility takes decimals
        assert rows[policy][3].split(" ±")[0] == f"{np.mean([r.ledger.gpu_hours for r in records]):,.0f}"
    assert set(rows) >= {"upper bound", "best known schedule", *money.records}


def test_table_is_the_one_that_the_terminal_prints(energy, energy_page):
    shown = [row[1:] for row in energy_page.rows[1:]]
    assert shown == [list(row.cells) for row in summary_rows(energy).rows]


def test_report_says_what_was_compared(money, page):
    record = money.records[money.reference][1]
    for words in (
        "tiny: 4 policies in 2 environments",
        money.scenario.description,
        money.scenario.digest,
        f"1: {record.manifest['start'][:10]} ({record.ledger.jobs} jobs)",
        "generated from the statistics of the year 2022",
        f"numpy {np.__version__}",
        default_command(money),
        "its optimality gap",
        "whatever a policy does",
    ):
        assert words in page.text


def test_command_names_policies_environments_and_seed(money, tmp_path):
    policies = "price-greedy,local-fcfs,random,booked-perfect"
    assert default_command(money) == f"noonward compare tiny --policies {policies} --environments 2 --seed 3"
    path = write_report(money, tmp_path / "r.html", command="noonward compare 'my file.yaml'")
    assert "noonward compare 'my file.yaml'" in Page(path.read_text(encoding="utf-8")).text


def test_notes_stand_before_the_results_and_markup_is_text(money, tmp_path):
    note = "south price: <em>stand-in</em> & no market"
    records = {
        policy: [dataclasses.replace(r, manifest={**r.manifest, "notes": [note]}) for r in records]
        for policy, records in money.records.items()
    }
    scenario = money.scenario.model_copy(update={"description": "<script>alert(1)</script>"})
    path = write_report(dataclasses.replace(money, records=records, scenario=scenario), tmp_path / "r.html")
    found = Page(path.read_text(encoding="utf-8"))
    assert found.text.count(note) == 1
    assert found.text.index(note) < found.text.index("Results")
    assert not any(script == "alert(1)" for script in found.scripts)


def test_no_notes_no_box(page):
    assert "About the data" not in page.text


def test_every_figure_has_its_caption(page):
    figures = [attrs["id"] for tag, attrs in page.tags if tag == "div" and attrs.get("id", "").startswith("figure-")]
    captions = [attrs for tag, attrs in page.tags if tag == "p" and attrs.get("class") == "caption"]
    assert figures[0] == "figure-gain"
    assert len(figures) == 6
    assert len(captions) == len(figures) + 1


def test_energy_report_has_bound_and_latency_and_no_money(energy_page):
    assert re.search(r"Lower bound: \d\.\d+ ± \d\.\d+ J/unit", energy_page.text)
    assert "frontier of the fluid bound" in " ".join(energy_page.scripts)
    assert "USD" not in energy_page.text.replace("money and carbon are not", "").split("The scenario, complete")[0]


def test_papers_tables_appear_only_for_its_seven_days(energy, energy_page, published, tmp_path):
    assert "Table II" not in energy_page.text
    assert paper_tables(energy) == []
    path = write_report(published, tmp_path / "r.html", tables=paper_tables(published))
    text = Page(path.read_text(encoding="utf-8")).text
    assert "Table III" in text
    assert "One environment: the numbers have no spread" in text


def test_same_comparison_gives_the_same_file(money, html, tmp_path):
    assert write_report(money, tmp_path / "again.html").read_text(encoding="utf-8") == html
