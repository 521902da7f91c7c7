"""What ``.plot_...()`` returns: the figures' values are those of the results, and what cannot be drawn is refused."""

import numpy as np
import plotly.graph_objects as go
import pytest

from noonward import compare, sensitivity, trade_off
from noonward.errors import ScenarioError
from noonward.evaluate.answer import bills


@pytest.fixture(scope="module")
def curves():
    return trade_off("tiny", "cheapest-feasible", environments=2, carbon_prices=(0, 100))


def test_bars_are_the_paired_gains(money):
    bars = money.plot_savings().data[0]
    gains = money.values("random", "utility_usd") - money.values("local-fcfs", "utility_usd")
    assert bars.x[list(bars.y).index("random")] == pytest.approx(gains.mean())
    assert bars.error_x.visible


def test_points_are_bills_and_emissions(money):
    points = money.plot_cost_carbon().data[0]
    at = list(points.text).index("random")
    assert points.x[at] == pytest.approx(bills(money, "random").mean())
    assert points.y[at] == pytest.approx(money.mean("random", "carbon_kg").value)


def test_moves_sum_to_the_change_of_gpu_hours(money):
    heat = money.plot_moves("random", 1).data[0]
    own, base = (money.records[policy][1].hours for policy in ("random", "local-fcfs"))
    within = heat.z.shape[1]
    expected = sum(
        sign * each.filter(each["hour"] < within)["busy_gpu_hours"].sum() for sign, each in ((1, own), (-1, base))
    )
    assert heat.z.sum() == pytest.approx(expected)


def test_the_map_needs_no_network(money):
    figure = money.plot_sites("random")
    assert {trace.type for trace in figure.data} == {"scatter"}
    assert list(figure.data[1].text) == [site.name for site in money.scenario.fleet.sites]


def test_every_figure_of_the_page_is_there(money):
    assert {"gain", "money", "signals"} <= set(money.figures())
    assert all(isinstance(each, go.Figure) for each in money.figures().values())


def test_curves_and_bars_of_studies(curves):
    line, _, today = curves.plot_cost_carbon().data
    assert line.x[0] == pytest.approx(1000 * curves.per_gpu_hour(curves.curves[0].cases[0], "usd").value)
    assert today.name == "local-fcfs"
    delay = curves.plot_delay().data[0]
    np.testing.assert_allclose(delay.y, [100 * curves.saved(case).value for case in curves.curves[1].cases])
    with pytest.raises(ScenarioError, match="has no single changes"):
        curves.plot_sensitivity()
    html = curves._repr_html_()
    assert html.count("<svg") == 2
    assert curves.words()[0].replace(" %", "&nbsp;%") in html
    single = sensitivity("tiny", "cheapest-feasible", environments=1)
    assert single.plot_sensitivity().data[0].y[0] == "as it is"
    with pytest.raises(ScenarioError, match="has no curve"):
        single.plot_delay()


def test_what_was_not_compared_is_refused(money):
    for call, says in (
        (lambda: money.plot_moves("dp"), "was not compared"),
        (lambda: money.plot_moves(environment=2), "give a number from 0 to 1"),
        (lambda: money.plot_sites("dp"), "was not compared"),
    ):
        with pytest.raises(ScenarioError, match=says):
            call()


def test_settings_without_prices_or_sites_are_refused():
    found = compare("edge-inference", ["fifo", "random"], environments=1, bound=False)
    for call in (found.plot_cost_carbon, found.plot_moves, found.plot_sites):
        with pytest.raises(ScenarioError, match="this"):
            call()
