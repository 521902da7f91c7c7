"""``noonward bound`` where no schedule is looked for: what is said, and that nothing undefined is printed."""

from command_line import CommandLine
from noonward.bound.cluster_utility.nonclairvoyant import NonclairvoyantBound
from noonward.evaluate.nonclairvoyant import NonclairvoyantRun


def test_a_bound_without_a_schedule_prints_no_nan(noonward: CommandLine) -> None:
    """Jobs of load-shaping differ in class, for which no schedule is looked for."""
    asked = ("bound", "load-shaping", "--set", "window_h=24", "-n", 1, "--workers", 1)
    for more in ((), ("--json",)):
        answer = noonward(*asked, *more)
        assert answer.code == 0, answer.err
        assert "nan" not in answer.out.lower()
    assert "no schedule was looked for, so its optimality gap is not known" in noonward(*asked).out


def test_a_mean_over_few_environments_is_refused_as_a_bound(noonward: CommandLine) -> None:
    answer = noonward("bound", "fine-tuning", "--non-clairvoyant", "-n", 3)
    assert answer.code == 2
    assert "--non-clairvoyant with 3 environments" in answer.err
    assert "give at least 10 (-n 10)" in answer.err


def test_a_mean_over_enough_environments_is_printed_with_its_interval(noonward: CommandLine, monkeypatch) -> None:
    def drawn(self):
        return NonclairvoyantBound(penalised_usd=100.0 + self.index, clairvoyant_usd=120.0 + 2 * self.index)

    monkeypatch.setattr(NonclairvoyantRun, "run", drawn)
    answer = noonward("bound", "fine-tuning", "--non-clairvoyant", "-n", 10, "--workers", 1)
    assert answer.code == 0, answer.err
    assert "mean nonclairvoyant_bound_usd: 104.50 [102.33, 106.67] USD" in answer.out
    assert "in which a policy may earn more" in answer.out
