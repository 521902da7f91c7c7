"""The figure of jobs that were stopped or capped, on records made by hand."""

from types import SimpleNamespace

import polars as pl

from noonward.evaluate.report.segments_figure import MOST_JOBS, segments_figures

COLUMNS = ("job", "kind", "site", "gpus", "from_s", "to_s", "power_w", "throughput", "cap")


def comparison(**tables):
    """Records by policy; a table is a list of rows of segments, or None."""
    manifest = {"start": "2022-03-01T00:00:00+00:00"}
    records = {
        name: [
            SimpleNamespace(
                manifest=manifest, segments=None if rows is None else pl.DataFrame(rows, schema=COLUMNS, orient="row")
            )
        ]
        for name, rows in tables.items()
    }
    return SimpleNamespace(records=records, ranked=lambda: list(records))


def row(job, kind, from_s, to_s, *, site="a", gpus=8, cap=0):
    return (job, kind, site, gpus, float(from_s), float(to_s), 100.0, 1.0, cap)


STOPPED = [
    row(3, "run", 0, 3600),
    row(3, "stop", 3600, 3720),
    row(3, "load", 7200, 7500, site="b"),
    row(3, "run", 7500, 9000, site="b", cap=1),
]


def test_every_phase_is_a_bar_from_its_begin_on():
    (figure,) = segments_figures(comparison(plain=None, stops=STOPPED))
    bars = {bar.name: (list(bar.y), [float(x) for x in bar.x]) for bar in figure.plot.data}
    assert bars == {
        "runs": (["job 3"], [3.6e6]),
        "runs under a power cap": (["job 3"], [1.5e6]),
        "writes its checkpoint": (["job 3"], [1.2e5]),
        "loads it": (["job 3"], [3e5]),
    }
    assert str(figure.plot.data[0].base[0]).startswith("2022-03-01T00:00")
    assert [note.text for note in figure.plot.layout.annotations] == ["b"]
    assert figure.caption.startswith("stops, environment 0")


def test_the_policy_with_most_phases_is_drawn_and_of_its_jobs_those_with_most():
    many = [
        each
        for job in range(20)
        for each in (row(job, "run", 0, 60), row(job, "stop", 60, 90), row(job, "run", 90, 99))
    ]
    (figure,) = segments_figures(comparison(stops=STOPPED, more=many))
    assert figure.caption.startswith("more,")
    assert len({name for bar in figure.plot.data for name in bar.y}) == MOST_JOBS


def test_without_such_jobs_there_is_no_figure():
    assert segments_figures(comparison(plain=None)) == []
    assert segments_figures(comparison(kills=[row(0, "run", 0, 60), row(0, "kill", 60, 60)])) == []
