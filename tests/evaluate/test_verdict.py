"""The verdict: adopt, keep, run more windows; honest although the best of several policies was chosen."""

import dataclasses

import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.evaluate import answer
from noonward.evaluate.answer import best_to_adopt, headline, verdict_of
from noonward.evaluate.asked import currency_given
from noonward.evaluate.comparison import Bound, summary_rows
from noonward.evaluate.verdict import decide, halves

WINDOWS, POLICIES, MADE = 12, 8, 2000


def made_costs(rng, gains):
    """Costs of today's policy and of others whose true mean gains are given, in windows with a course in common."""
    common_E = 100 + 20 * rng.standard_normal(WINDOWS)
    costs = {f"p{n}": common_E - gain + 5 * rng.standard_normal(WINDOWS) for n, gain in enumerate(gains)}
    return {"today": common_E + 5 * rng.standard_normal(WINDOWS), **costs}


def test_policies_that_are_equal_in_truth_are_hardly_ever_adopted():
    rng = np.random.default_rng(7)
    kinds = [
        decide(costs, "today", list(costs), "down").kind
        for costs in (made_costs(rng, np.zeros(POLICIES)) for _ in range(MADE))
    ]
    assert kinds.count("adopt") / MADE <= 0.05


def test_the_interval_after_the_choice_covers_the_true_gain():
    rng = np.random.default_rng(8)
    covered = []
    for _ in range(MADE):
        gains = rng.uniform(0, 6, POLICIES)
        costs = made_costs(rng, gains)
        found = decide(costs, "today", list(costs), "down")
        if found.leader != "today":
            covered.append(found.gain.low <= gains[int(found.leader[1:])] <= found.gain.high)
    assert len(covered) >= 400
    assert 0.93 <= np.mean(covered) <= 0.97


def test_choosing_and_measuring_in_the_same_windows_would_flatter():
    rng = np.random.default_rng(9)
    found = []
    for _ in range(400):
        costs = made_costs(rng, np.zeros(POLICIES))
        best = min(costs, key=lambda name: costs[name].mean())
        found.append((costs["today"] - costs[best]).mean())
    assert np.mean(found) > 2


@pytest.mark.parametrize(
    ("today", "other", "kind"),
    [
        ([9, 9, 9, 9], [7, 8, 7, 8], "adopt"),
        ([9, 9, 9, 9], [7, 12, 7, 8], "more"),
        ([9, 9, 9, 9], [9, 9, 9, 9], "keep"),
        ([9, 9, 9, 9], [11, 10, 11, 10], "keep"),
        ([9], [7], "once"),
        ([9], [10], "keep"),
        ([9, 9], [7, 7.5], "more"),
    ],
)
def test_one_other_policy_is_judged_by_all_windows(today, other, kind):
    values = {"today": np.array(today, float), "other": np.array(other, float)}
    found = decide(values, "today", ["other"], "down")
    assert found.kind == kind
    assert found.policy == ("today" if kind == "keep" else "other")
    assert len(found.measured) == len(today)


def test_of_several_policies_other_windows_measure_the_one_chosen():
    values = {
        "today": np.full(6, 9.0),
        "a": np.array([1.0, 9.5, 1.0, 9.5, 1.0, 9.5]),  # chosen by windows 0, 2, 4; worse in the others
        "b": np.array([8.0, 7.0, 8.0, 7.1, 8.0, 7.2]),
    }
    assert halves(6, 2) == ((0, 2, 4), (1, 3, 5))
    found = decide(values, "today", ["a", "b"], "down")
    assert (found.leader, found.kind, found.gain.value) == ("a", "keep", -0.5)
    assert decide(values, "today", ["b"], "down").kind == "adopt"
    assert decide({k: -v for k, v in values.items()}, "today", ["b"], "up").kind == "adopt"


def test_where_nothing_is_known_of_a_policy_it_is_not_chosen():
    values = {"today": np.full(4, 9.0), "a": np.full(4, np.nan)}
    assert decide(values, "today", ["a"], "down").kind == "keep"


ZERO = dict.fromkeys(("job_energy_usd", "free_energy_usd", "move_usd", "result_usd", "carbon_usd", "late_usd"), 0.0)
SERVED = {"overdue": 0, "unfinished": 0, "revenue_usd": 20.0}


@pytest.fixture
def priced(money, monkeypatch):
    """Makes comparisons by cost: policy -> what it pays per window; further fields of its ledger; its late jobs."""

    def made(usd, late=None, **changes):
        records, late_in = {}, {}
        for policy, amounts in usd.items():
            records[policy] = []
            for record, amount in zip(money.records[policy] * 3, amounts, strict=False):
                ledger = dataclasses.replace(
                    record.ledger, **{**ZERO, **SERVED, **changes.get(policy, {}), "job_energy_usd": amount}
                )
                records[policy].append(dataclasses.replace(record, ledger=ledger))
                late_in[record.folder] = (late or {}).get(policy, 0)
        figures = answer.job_figures
        monkeypatch.setattr(
            answer,
            "job_figures",
            lambda record: dataclasses.replace(figures(record), late=late_in.get(record.folder, 0)),
        )
        scenario = money.scenario.model_copy(update={"goal": "least-cost"})
        bounds = [Bound(utility_usd=16.0)] * len(next(iter(usd.values())))
        return dataclasses.replace(money, scenario=scenario, records=records, bounds=bounds)

    return made


def test_a_clear_saving_is_adopted_in_twelve_words_and_a_sentence(priced):
    found = priced({"local-fcfs": [10.0, 10.2, 10.0, 10.2], "random": [8.0, 8.1, 8.0, 8.1]})
    first, second, *rest = headline(found)
    assert first == "Adopt random: 20% cheaper than local-fcfs."
    assert second.startswith("It saves 2.05 USD (20.3%) [1.96, 2.14] per window of 12 hours, 1,498 USD a year, with ")
    assert second.endswith(" than local-fcfs: 34% of the possible improvement.")
    assert any("100 USD/t; lateness and waiting without a price" in sentence for sentence in rest)
    assert any(sentence.startswith("Worst of these windows") for sentence in rest)


@pytest.mark.parametrize(
    ("paid", "size"), [(9.75, "2%"), (9.97, "0.3%"), (9.9999, "less than 0.1%")], ids=["whole", "tenths", "words"]
)
def test_a_change_below_rounding_is_no_0_percent(priced, paid, size):
    first, second, *_ = headline(priced({"local-fcfs": [10.0, 10.0, 10.0], "random": [paid, paid, paid]}))
    assert first == f"Adopt random: {size} cheaper than local-fcfs."
    assert " (0.0%)" not in second


ONCE = "random was better in this environment: 20% cheaper than local-fcfs."


@pytest.mark.parametrize(
    ("usd", "starts"),
    [
        ({"local-fcfs": [10.0, 10.0], "random": [10.0, 10.0]}, "Keep local-fcfs."),
        ({"local-fcfs": [10.0, 10.0], "random": [13.0, 14.0]}, "Keep local-fcfs."),
        ({"local-fcfs": [10.0], "random": [14.0]}, "Keep local-fcfs."),
        (
            {"local-fcfs": [10.0], "random": [8.0]},
            ONCE,
        ),
        ({"local-fcfs": [10.0, 10.0, 10.0], "random": [5.0, 11.0, 8.0]}, "Run more environments: 3 cannot tell yet."),
        (
            {"local-fcfs": [10.0, 10.0], "random": [5.0, 5.1], "price-greedy": [6.0, 6.0]},
            "Run more environments: 2 cannot tell yet.",
        ),
    ],
)
def test_every_verdict_has_its_words(priced, usd, starts):
    said = headline(priced(usd))
    assert said[0] == starts
    assert len(said[0].split()) <= 12
    assert " more" not in said[0].replace("Run more", "")
    assert "-" not in "".join(word for word in " ".join(said).split() if word.endswith("%"))


def test_what_leaves_more_jobs_late_or_undone_is_not_adopted(priced):
    usd = {"local-fcfs": [10.0] * 4, "random": [5.0, 5.1, 5.0, 5.1]}
    assert best_to_adopt(priced(usd)) == "random"
    late = priced(usd, late={"local-fcfs": 3, "random": 4})
    assert headline(late)[:2] == [
        "Keep local-fcfs.",
        "No other policy that can run is better by total cost within the limits.",
    ]
    assert "random (1 more job late per window)" in " ".join(headline(late))
    assert late.ranked()[-1] == "random"
    undone = priced(usd, random={"unfinished": 2})
    assert "random (2 more jobs not done per window)" in " ".join(headline(undone))
    assert best_to_adopt(priced(usd, late={"local-fcfs": 3, "random": 3})) == "random"


def test_with_a_price_of_lateness_late_jobs_are_paid_for(priced):
    usd = {"local-fcfs": [10.0] * 4, "random": [5.0, 5.1, 5.0, 5.1]}
    found = priced(usd, late={"random": 4}, random={"late_usd": 4.0})
    lateness = found.scenario.lateness.model_copy(update={"usd_per_gpu_hour": 2.0})
    paid = dataclasses.replace(found, scenario=found.scenario.model_copy(update={"lateness": lateness}))
    assert verdict_of(paid).kind == "adopt"
    assert verdict_of(paid).gain.value == pytest.approx(0.95)
    assert "Of this: energy 4.95 USD (49.5% of the electricity bill) less, lateness 4.00 USD more." in headline(paid)


def test_the_measure_that_decides_is_the_one_in_the_table(priced):
    found = priced({"local-fcfs": [10.0, 20.0], "random": [8.0, 15.0]}, random={"move_usd": 1.0})
    summary = summary_rows(found)
    titles = [column.title for column in summary.columns]
    cells = {row.name: dict(zip(titles, row.cells, strict=True)) for row in summary.rows}
    assert titles[:4] == ["Total cost", "Saved", "Saved", "Share of the possible improvement"]
    assert cells["random"]["Total cost"].startswith("12.5 ")
    assert cells["random"]["Energy"].startswith("11.5 ")
    assert cells["random"]["Transfers"].startswith("1.0 ")
    assert "Lateness" not in titles
    # the bound: 20 of revenue less 16 of utility: a total of at least 4 per window
    assert found.improvement_share("random").value == pytest.approx((15 - 12.5) / (15 - 4))
    assert found.improvement_share("local-fcfs").value == 0


def test_money_is_shown_in_the_currency_given(priced):
    found = priced({"local-fcfs": [10.0, 10.0, 10.0], "random": [5.0, 5.0, 5.0]})
    found = dataclasses.replace(found, currency=currency_given("EUR=1.25"))
    assert headline(found)[1].startswith("It saves 4.00 EUR (50.0%) [4.00, 4.00] per window")
    assert summary_rows(found).columns[0].unit == "EUR"
    for wrong in ("EUR", "EUR=0", "euro=1.1", "EUR=x"):
        with pytest.raises(ScenarioError, match="write its three letters"):
            currency_given(wrong)


def test_where_the_bound_may_be_far_off_the_share_is_a_range(priced):
    found = priced({"local-fcfs": [10.0, 10.2, 10.0, 10.2], "random": [8.0, 8.1, 8.0, 8.1]})
    known = [Bound(utility_usd=16.0, best_known_usd=13.0)] * 4  # totals of at least 4; 7 are known to be reached
    wide = dataclasses.replace(found, bounds=known)
    assert headline(wide)[1].endswith(": 34% to 66% of the possible improvement.")
    tight = dataclasses.replace(found, bounds=[Bound(utility_usd=16.0, best_known_usd=15.9)] * 4)
    assert headline(tight)[1].endswith(": 34% of the possible improvement.")


def test_the_price_that_would_let_a_policy_in_is_said(priced):
    usd = {"local-fcfs": [10.0] * 4, "random": [5.0] * 4}
    found = priced(usd, late={"random": 1}, random={"late_gpu_hours": 4.0}, **{"local-fcfs": {"late_gpu_hours": 2.0}})
    said = " ".join(headline(found))
    assert "random saves 5.00 USD per window apart from that" in said
    assert "a price of lateness (lateness.usd_per_gpu_hour) below 2.5 USD per GPU-hour" in said


def test_a_policy_that_starts_jobs_sooner_at_the_same_cost_is_named(priced, monkeypatch):
    found = priced({"local-fcfs": [10.0] * 2, "random": [10.0] * 2})
    figures = answer.job_figures
    slow = {record.folder for record in found.records["local-fcfs"]}
    monkeypatch.setattr(
        answer,
        "job_figures",
        lambda record: dataclasses.replace(figures(record), mean_delay_s=7200.0 if record.folder in slow else 1800.0),
    )
    said = headline(found)
    assert said[0] == "Keep local-fcfs."
    assert "At the same cost random starts jobs sooner: 30 minutes of mean delay (local-fcfs: 2.0 hours)." in said


def test_the_bound_of_a_total_and_the_best_schedule_known_are_rows(priced):
    found = priced({"local-fcfs": [10.0, 10.2], "random": [8.0, 8.1]})
    found = dataclasses.replace(found, bounds=[Bound(utility_usd=16.0, best_known_usd=13.0)] * 2)
    rows = {row.name: row.cells for row in summary_rows(found).rows if row.kind == "bound"}
    assert list(rows) == ["lower bound", "best known schedule"]
    assert rows["lower bound"][0].startswith("4.0")  # revenue of 20 less a utility of at most 16
    assert rows["lower bound"][3].startswith("100.0")
    assert rows["best known schedule"][0].startswith("7.0")
    assert {len(cells) for cells in rows.values()} == {len(summary_rows(found).columns)}


def test_half_a_late_job_per_window_is_shown_as_such(priced):
    found = priced({"local-fcfs": [10.0, 10.0], "random": [8.0, 8.0]}, late={"random": 1})
    titles = [column.title for column in summary_rows(found).columns]
    rows = {row.name: dict(zip(titles, row.cells, strict=True)) for row in summary_rows(found).rows}
    assert rows["random"]["Late"].startswith("1 ")

    assert (
        "What comes from moving jobs and what from waiting: run 'noonward sensitivity' with --policy random."
        in " ".join(found.objective.consequences(found, "random"))
    )
