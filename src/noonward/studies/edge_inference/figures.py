"""Figures of the study, after EAT, Figs. 5 to 8, and responses against the bound."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from noonward.data.edge.sessions import draw_loads
from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.learned import Learned
from noonward.evaluate.report.figure_style import AXIS, DASHES, INK, POLICY_COLORS, SITE_COLORS, SYMBOLS, lay_out
from noonward.evaluate.table import Figure
from noonward.schedule.policies import policies
from noonward.studies.edge_inference.published import PAPER, Cell
from noonward.studies.edge_inference.reproduce import ENDS, EdgeInference, cell_scenario

LEAST_QUALITY: Final = 0.22
"""Policies of less quality are left out of Fig. 8, as in the paper."""
BASE: Final = "reuse-first"
"""Policy whose response is 100% in the figure of the best policies."""
DRAWS: Final = 4000
"""Loads that Fig. 6 draws per gang size."""


def study_figures(found: EdgeInference) -> list[Figure]:
    """Returns all figures, the most telling first."""
    training = [each for each in (training_figure(), scratch_figure()) if each is not None]
    return [
        response_figure(found),
        *([share_figure(found)] if BASE in found.policies else []),
        efficiency_figure(found),
        load_figure(),
        duration_figure(),
        *training,
    ]


def _panels(found: EdgeInference) -> tuple[dict[int, list[Cell]], go.Figure]:
    """Returns the cells by servers, and a figure with a panel for each."""
    by_servers: dict[int, list[Cell]] = {}
    for cell in found.cells:
        by_servers.setdefault(cell[0], []).append(cell)
    titles = [f"{servers} servers" for servers in by_servers]
    return by_servers, make_subplots(1, len(by_servers), subplot_titles=titles, horizontal_spacing=0.06)


def _style(found: EdgeInference, policy: str) -> dict[str, str]:
    """Returns colour, marker and dash of a policy, the same in all figures."""
    number = found.policies.index(policy)
    if policy == BASE:
        return {"color": INK, "symbol": "circle", "dash": "solid"}
    return {
        "color": POLICY_COLORS[number % len(POLICY_COLORS)],
        "symbol": SYMBOLS[number % len(SYMBOLS)],
        "dash": DASHES[(number // 5) % len(DASHES)],
    }


def response_figure(found: EdgeInference) -> Figure:
    """Draws the mean response by rate, with the bound, the clairvoyant beam and the paper's EAT."""
    by_servers, figure = _panels(found)
    for column, cells in enumerate(by_servers.values(), start=1):
        rates = [rate for _, rate in cells]
        place = {"row": 1, "col": column}
        for policy in found.policies:
            style, values = _style(found, policy), [found.estimate("response_s", policy, cell) for cell in cells]
            figure.add_scatter(
                x=rates, y=[None if e is None else e.value for e in values], name=policy, legendgroup=policy,
                showlegend=column == 1, mode="lines+markers", line={"color": style["color"], "dash": style["dash"]},
                marker={"symbol": style["symbol"], "size": 7},
                hovertemplate=f"{policy}, %{{x}}/s: %{{y:.1f}} s<extra></extra>", **place,
            )  # fmt: skip
        for policy, title, dash in (("bound", "lower bound", "dash"), ("beam", "clairvoyant beam", "dot")):
            ends = [found.estimate("response_s", policy, cell) for cell in cells]
            figure.add_scatter(
                x=rates, y=[None if e is None else e.value for e in ends], name=title, legendgroup=title,
                showlegend=column == 1, mode="lines", line={"color": AXIS, "dash": dash, "width": 3},
                hovertemplate=f"{title}, %{{x}}/s: %{{y:.1f}} s<extra></extra>", **place,
            )  # fmt: skip
        figure.add_scatter(
            x=rates, y=[PAPER["response_s"]["EAT"][cell] for cell in cells], name="EAT, paper's value",
            legendgroup="paper", showlegend=column == 1, mode="markers",
            marker={"color": "#d00000", "symbol": "star", "size": 12, "line": {"color": "white", "width": 1}},
            hovertemplate="EAT in the paper, %{x}/s: %{y:.1f} s<extra></extra>", **place,
        )  # fmt: skip
    lay_out(figure, 580, legend="right")
    figure.update_xaxes(title_text="arrivals per second", tickvals=None)
    for column, cells in enumerate(by_servers.values(), start=1):
        figure.update_xaxes(tickvals=[rate for _, rate in cells], row=1, col=column)
    figure.update_yaxes(type="log", tickvals=[20, 30, 40, 50, 70, 100, 150, 200], range=[np.log10(18), np.log10(260)])
    figure.update_yaxes(title_text="mean response (s, logarithmic)", col=1)
    caption = (
        f"Mean over {found.episodes} episodes, the same for every policy; lower is better at equal quality (random, "
        "genetic, harmony and eat-published give fewer steps). No policy of 24 steps is below the dashed line. The "
        "dotted line is a schedule that knows all arrivals."
    )
    return Figure(name="response", title="Response by arrival rate (Table X)", caption=caption, plot=figure)


def share_figure(found: EdgeInference) -> Figure:
    """Draws the responses of policies that hold the goal of the quality, as shares of that of reuse-first."""
    by_servers, figure = _panels(found)
    goal = cell_scenario(next(iter(found.cells))).quality_goal
    best = [policy for policy in found.policies if policy != BASE and _is_near(found, policy, goal)]
    titles, dashes = {**{name: name for name in best}, **ENDS}, {"bound": "dash", "beam": "dot"}
    for column, cells in enumerate(by_servers.values(), start=1):
        rates = [rate for _, rate in cells]
        for policy, title in titles.items():
            share = [_share(found, policy, cell) for cell in cells]
            style = {} if policy in ENDS else _style(found, policy)
            figure.add_scatter(
                x=rates, y=[None if each is None else 100 * each for each in share], name=title, legendgroup=title,
                showlegend=column == 1, mode="lines" if policy in ENDS else "lines+markers",
                line={"color": style.get("color", AXIS), "dash": style.get("dash", dashes.get(policy))},
                marker={"symbol": style.get("symbol"), "size": 7}, row=1, col=column,
                hovertemplate=f"{title}, %{{x}}/s: %{{y:.1f}}%<extra></extra>",
            )  # fmt: skip
        figure.update_xaxes(tickvals=rates, row=1, col=column)
    lay_out(figure, 520, legend="right")
    figure.update_xaxes(title_text="arrivals per second")
    figure.update_yaxes(range=[55, 102])
    figure.update_yaxes(title_text=f"mean response, % of that of {BASE}", col=1)
    caption = (
        f"As above, for the policies that respond sooner than {BASE} in every cell, at a mean quality of {goal:g} or "
        "more. The learned policies and the lookaheads with priced steps vary the steps; the bound's tasks all have 24."
    )
    return Figure(name="share", title=f"The best policies against {BASE}", caption=caption, plot=figure)


def _share(found: EdgeInference, policy: str, cell: Cell) -> float | None:
    """Returns a policy's mean response as a share of that of reuse-first."""
    estimate, base = found.estimate("response_s", policy, cell), found.estimate("response_s", BASE, cell)
    return None if estimate is None or base is None else estimate.value / base.value


def _is_near(found: EdgeInference, policy: str, goal: float) -> bool:
    """Returns whether a policy responds sooner than reuse-first in every cell, and holds the quality wanted there."""
    for cell in found.cells:
        share, quality = _share(found, policy, cell), found.estimate("quality", policy, cell)
        if share is None or quality is None or share >= 1.0 or quality.value < goal:
            return False
    return True


def efficiency_figure(found: EdgeInference) -> Figure:
    """Draws quality per second of response (EAT, Fig. 8)."""
    by_servers, figure = _panels(found)
    shown: set[str] = set()
    for column, cells in enumerate(by_servers.values(), start=1):
        rates = [rate for _, rate in cells]
        for policy in found.policies:
            both = [
                (found.estimate("quality", policy, cell), found.estimate("response_s", policy, cell)) for cell in cells
            ]
            if any(q is None or q.value < LEAST_QUALITY for q, _ in both):
                continue
            style = _style(found, policy)
            figure.add_scatter(
                x=rates, y=[1000 * q.value / r.value for q, r in both if q and r], name=policy, legendgroup=policy,
                showlegend=policy not in shown, mode="lines+markers",
                line={"color": style["color"], "dash": style["dash"]}, marker={"symbol": style["symbol"], "size": 7},
                hovertemplate=f"{policy}, %{{x}}/s: %{{y:.2f}}<extra></extra>", row=1, col=column,
            )  # fmt: skip
            shown.add(policy)
        for n, name in enumerate(("EAT", "EAT-A", "EAT-DA", "Greedy")):
            figure.add_scatter(
                x=rates,
                y=[1000 * PAPER["quality"][name][cell] / PAPER["response_s"][name][cell] for cell in cells],
                name=f"{name}, paper", legendgroup=f"paper {name}", showlegend=column == 1, mode="markers",
                marker={"color": "#d00000", "symbol": f"{SYMBOLS[n]}-open", "size": 9},
                hovertemplate=f"{name} in the paper, %{{x}}/s: %{{y:.2f}}<extra></extra>", row=1, col=column,
            )  # fmt: skip
        figure.update_xaxes(tickvals=rates, row=1, col=column)
    lay_out(figure, 540, legend="right")
    figure.update_xaxes(title_text="arrivals per second")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="quality per 1,000 s of response", col=1)
    caption = (
        f"After EAT, Fig. 8: mean quality over mean response; higher is better. Policies of a quality below "
        f"{LEAST_QUALITY:g} are left out, as in the paper. Red markers are the paper's values."
    )
    return Figure(name="efficiency", title="Quality per second of response", caption=caption, plot=figure)


def load_figure() -> Figure:
    """Draws load times by gang size (EAT, Fig. 6)."""
    paper, reference = load_scenario("edge-inference"), load_scenario("edge-inference-reference")
    figure, rng = go.Figure(), np.random.default_rng(0)
    for size in (1, 2, 4, 8):
        load_s = np.max([draw_loads(np.zeros(DRAWS, np.int64), rng) for _ in range(size)], axis=0)
        figure.add_box(
            x=[str(size)] * DRAWS, y=load_s, name="law of the real trace", legendgroup="trace", showlegend=size == 1,
            marker={"color": SITE_COLORS[0]}, boxpoints=False, width=0.4,
        )  # fmt: skip
    for n, (setting, title) in enumerate(((paper, "paper, Table VI (8: ours)"), (reference, "public simulator"))):
        figure.add_scatter(
            x=[str(size) for size in setting.gang_times], y=[time.load_s for time in setting.gang_times.values()],
            mode="markers", name=title, marker={"color": SITE_COLORS[1 + 3 * n], "symbol": SYMBOLS[1 + n], "size": 12},
        )  # fmt: skip
    lay_out(figure, 420, legend="above")
    figure.update_xaxes(title="servers of the gang", type="category")
    figure.update_yaxes(title="seconds to load", rangemode="tozero")
    caption = (
        "After EAT, Fig. 6. Boxes (median and quartiles): every server of a gang draws its load from the law fitted on "
        "the real trace, where 36% find the model in the host's memory, and the gang waits for its slowest. Markers: "
        "the constant times of both parameter sets."
    )
    return Figure(name="load-times", title="Time to load a model", caption=caption, plot=figure)


def duration_figure() -> Figure:
    """Draws the duration of a task by steps, with and without its load (EAT, Fig. 7)."""
    figure = make_subplots(1, 2, subplot_titles=["model loaded already", "with the load"], horizontal_spacing=0.08)
    steps = np.arange(5, 31)
    for n, (size, time) in enumerate(load_scenario("edge-inference").gang_times.items()):
        for column, load_s in ((1, 0.0), (2, time.load_s)):
            figure.add_scatter(
                x=steps, y=load_s + steps * time.step_s, mode="lines", name=f"{size} server{'s' * (size > 1)}",
                legendgroup=str(size), showlegend=column == 1, line={"color": SITE_COLORS[n], "dash": DASHES[n]},
                row=1, col=column,
                hovertemplate=f"{size} servers, %{{x}} steps: %{{y:.1f}} s<extra></extra>",
            )  # fmt: skip
    lay_out(figure, 400, legend="above")
    figure.update_xaxes(title_text="inference steps")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="duration (s)", col=1)
    caption = (
        "After EAT, Fig. 7: what the predictor says for the paper's values (Table VI; 8 servers: ours). The load is "
        "most of a task's time, so saving loads matters more than saving steps."
    )
    return Figure(name="durations", title="Duration of a task by steps", caption=caption, plot=figure)


_CURVES: Final = (
    ("reward", "reward of an episode"),
    ("episode_length", "length of an episode (decisions)"),
    ("loss", "loss"),
)
"""Figures of training that Fig. 5 shows, by their names in a policy's record."""
PUBLISHED: Final = "eat-published"
"""Trained on the paper's own reward, which is on another scale: its rewards have a panel of their own."""


def _best_seeds() -> list[Learned]:
    """Returns the learned policies, each with the record of its best training seed."""
    return [
        Learned(name=policy.name, members=(policy.name,), records=(policy.trained.meta["record"],))
        for policy in policies(kind="edge", trained=True)
        if policy.trained is not None and not re.search(r"-seed\d+$", policy.name)
    ]


def training_figure() -> Figure | None:
    """Draws reward, episode length and loss by epoch of the learned policies that wrote them down (EAT, Fig. 5)."""
    learned = [each for each in _best_seeds() if any(each.curve(key).size for key, _ in _CURVES)]
    if not learned:
        return None
    titles = [title for _, title in _CURVES]
    if any(each.name == PUBLISHED for each in learned):
        titles.append(f"reward of an episode, {PUBLISHED}")
    figure = make_subplots(2, 2, subplot_titles=titles, horizontal_spacing=0.1, vertical_spacing=0.16)
    for n, each in enumerate(learned):
        for place, (key, title) in enumerate(_CURVES):
            value_KE = each.curve(key)
            if not value_KE.size:
                continue
            some = ~np.isnan(value_KE[0])
            panel = 3 if (key, each.name) == ("reward", PUBLISHED) else place
            figure.add_scatter(
                x=np.flatnonzero(some) + 1, y=value_KE[0][some], mode="lines+markers", name=each.name,
                legendgroup=each.name, showlegend=place == 0, line={"color": POLICY_COLORS[n % len(POLICY_COLORS)]},
                marker={"symbol": SYMBOLS[n % len(SYMBOLS)], "size": 7}, row=1 + panel // 2, col=1 + panel % 2,
                hovertemplate=f"{each.name}, {title}, epoch %{{x}}: %{{y:.3g}}<extra></extra>",
            )  # fmt: skip
    lay_out(figure, 640, legend="right")
    figure.update_xaxes(title_text="epoch")
    caption = (
        "After EAT, Fig. 5: what the file of each packaged policy says of its training (the training seed that was "
        "best in validation). Each learner has a loss of its own, so compare the course of losses alone. "
        "docs/edge-inference.md says what the rewards are."
    )
    return Figure(name="training", title="Training of the learned policies", caption=caption, plot=figure)


def scratch_figure() -> Figure | None:
    """Draws the reward in validation over the training, begun by imitation and from scratch, of the learned policies.

    None where no packaged policy has a curve from scratch.
    """
    figure = go.Figure()
    for n, each in enumerate(_best_seeds()):
        color, symbol = POLICY_COLORS[n % len(POLICY_COLORS)], SYMBOLS[n % len(SYMBOLS)]
        alone = [run["curve"] for run in each.records[0].get("from_scratch", ())]
        if not alone:
            continue
        lines = [(each.records[0]["curve"], each.name, "solid", symbol)]
        lines += [(curve, f"{each.name}, from scratch", "dot", f"{symbol}-open") for curve in alone]
        for curve, name, dash, marker in lines:
            rows = [row for row in curve if row.get("validation_reward") is not None]
            figure.add_scatter(
                x=[row["environment_steps"] for row in rows], y=[-row["validation_reward"] for row in rows],
                mode="lines+markers", name=name, legendgroup=each.name, line={"color": color, "dash": dash},
                marker={"symbol": marker, "size": 8}, hovertemplate=f"{name}, %{{x:,}}: %{{y:.2f}}<extra></extra>",
            )  # fmt: skip
    if not figure.data:
        return None
    lay_out(figure, 460, legend="right")
    figure.update_xaxes(title_text="questions answered in training", rangemode="tozero")
    ticks = [12, 15, 20, 30, 50, 100]
    figure.update_yaxes(title_text="minus the reward of a validation run", type="log", tickvals=ticks)
    caption = (
        "Minus the reward of a validation run at random prices of quality, on a logarithmic scale; lower is better. "
        "A unit is about 3 s of response an image. Solid: the packaged training seed, which began by imitating the "
        "lookahead with priced steps. Dotted: the same algorithm by rewards alone, one seed, without any advice."
    )
    return Figure(name="from-scratch", title="Training from scratch and after imitation", caption=caption, plot=figure)
