"""MASAC-credit: the paper's multi-agent actor-critic with each job's own value as the return, and what follows from it.

A critic per question (site, job): one small net, which all sites share, scores a choice. It learns by Monte Carlo: the
return of every question about a job is what the job earned in the end, less what its GPU-hours could have earned for
others (the capacity duals of the training window). There is no discount and no bootstrapping. The actor is soft: it
draws choices by the Boltzmann law of the scores, and its temperature falls. The net starts at zero, so the first policy
books every job at its best planned start (``schedule.cluster.choices``); the critic learns what plans are worth less
or more than they promise.

The capacity price that plans reckon with is learned first: a small net of forecast costs, fitted to the same duals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, get_args

import numpy as np
import torch

from noonward.arrays import F4
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast, ForecastKind
from noonward.learn.algorithms.algorithm import PolicyArrays, RunAlgorithm
from noonward.learn.core.experience import Credit, Played, Studied
from noonward.learn.core.nets import (
    StackedMLP,
    adam,
    load_module_state,
    load_optimizer_state,
    module_state,
    optimizer_state,
    shorten_gradients,
)
from noonward.learn.core.settings import at_least, between, one_of
from noonward.schedule.cluster.choices.file import ChoiceNets
from noonward.schedule.cluster.choices.layout import INPUTS, PRICE_INPUTS
from noonward.schedule.cluster.choices.policy import ChoicePolicy
from noonward.seeding import stream

PLANNED: Final = 3
"""Position of a choice's planned value among its inputs."""
PRICE_UNIT: Final = 0.4
"""Price at which the price net's softplus is 1, share of the revenue (``choices.prices.UNIT``)."""
PRICE_HELD: Final = 0.1
"""Share of the price net's rows that it is not fitted to."""


@dataclass(frozen=True, kw_only=True)
class MasacCreditConfig:
    """Settings of MASAC-credit. Values are shares of a job's revenue.

    Attributes:
        hidden: Units of the scoring net's two layers.
        rate: Adam's step.
        passes: Passes over the kept questions after each epoch's runs.
        batch: Questions in a batch.
        kept: Epochs whose questions are learned from.
        questions: Questions of a run that are kept, drawn at random.
        gradient_norm: Longest gradient.
        temperature_first: Temperature of the actor in the first epoch.
        temperature_last: Temperature from epoch ``cooling`` on; in between it falls geometrically.
        cooling: Epochs over which it falls.
        deviate: Share of questions whose choice is drawn in training; the others take the best. Below 1, most returns
            are those of one choice that differs, after which the policy is followed.
        weight_gpu_hours: A question weighs its job's GPU-hours over this, at most ``weight_most``.
        weight_most: See above.
        credit: Whose value is the return: the job's ``own``, or the ``team``'s from the question on.
        gamma: Discount a slot of a minute.
        capacity_price: Factor on the dual prices that are taken off a job's return; 0: its value alone.
        learned_price: Factor on the learned price that plans reckon with; 0: none is learned.
        residual: The net learns what a choice earns beyond its planned value; else its whole value.
        inputs: ``all``; ``state``: only what the paper's state holds (cost now, room, queue, job, time of day).
        ask_min: A hold stands so many minutes, or until the plan calls for a start.
        windows: Training windows that runs are drawn from, and whose duals are known.
        price_hidden: Units of the price net.
        price_steps: Its updates.
        price_rate: Adam's step for it.
        price_batch: Site-hours in one of its batches.
        plan_forecast: Kind of forecast that plans rest on.
    """

    hidden: tuple[int, ...] = (32, 32)
    rate: float = 5e-4
    passes: int = 2
    batch: int = 4096
    kept: int = 16
    questions: int = 1500
    gradient_norm: float = 5.0
    temperature_first: float = 0.01
    temperature_last: float = 0.001
    cooling: int = 40
    deviate: float = 1.0
    weight_gpu_hours: float = 15.0
    weight_most: float = 6.0
    credit: Literal["own", "team"] = "own"
    gamma: float = 1.0
    capacity_price: float = 1.0
    learned_price: float = 1.0
    residual: bool = True
    inputs: Literal["all", "state"] = "all"
    ask_min: float = 15.0
    windows: int = 64
    price_hidden: int = 24
    price_steps: int = 1000
    price_rate: float = 5e-3
    price_batch: int = 4096
    plan_forecast: ForecastKind = "regression"

    def __post_init__(self) -> None:
        at_least(self, 1, "passes", "batch", "kept", "questions", "cooling", "windows", "price_hidden", "price_batch")
        at_least(self, 1e-9, "rate", "gradient_norm", "weight_gpu_hours", "weight_most", "price_rate", "ask_min")
        at_least(self, 1e-9, "temperature_first", "temperature_last")
        at_least(self, 0.0, "capacity_price", "learned_price", "price_steps")
        between(self, 0.0, 1.0, "gamma", "deviate")
        one_of(self, "credit", ("own", "team"))
        one_of(self, "inputs", ("all", "state"))
        one_of(self, "plan_forecast", get_args(ForecastKind))
        if len(self.hidden) != 2 or min(self.hidden) < 1:
            raise ScenarioError(f"hidden is {self.hidden}; masac-credit has two layers of units, as [32, 32]")


class MasacCredit(RunAlgorithm):
    """The learner; see the module.

    Args:
        config: Settings.
        seed: Seed; streams ``learner``.
    """

    name: ClassVar[str] = "masac-credit"

    def __init__(self, config: MasacCreditConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.rng = stream(seed, "learner", "batch")
        generator = torch.Generator().manual_seed(int(stream(seed, "learner", "nets").integers(2**62)))
        self.net = StackedMLP(1, (INPUTS, *config.hidden, 1), generator)
        self.price_net = StackedMLP(1, (PRICE_INPUTS, config.price_hidden, 1), generator)
        with torch.no_grad():
            self.net.weights[-1].zero_()
            self.net.biases[-1].zero_()
        self.adam = adam(self.net.parameters(), config.rate)
        self.epoch = 0
        self.kept: list[tuple[F4, F4, F4]] = []
        self.runs: list[Played] = []

    @property
    def windows(self) -> int:
        """Training windows whose dual prices it needs."""
        return self.config.windows

    @property
    def credit(self) -> Credit:
        """How returns are counted."""
        return Credit(gamma=self.config.gamma, capacity_price=self.config.capacity_price)

    @property
    def temperature(self) -> float:
        """Temperature of the actor in this epoch."""
        config = self.config
        part = min(1.0, self.epoch / max(1, config.cooling - 1))
        return float(config.temperature_first * (config.temperature_last / config.temperature_first) ** part)

    def study(self, studied: Studied) -> dict[str, float]:
        """Fits the learned price to the duals of training windows, if it is used; returns how well, as R squared."""
        config = self.config
        if config.learned_price == 0.0 or config.price_steps == 0:
            return {}
        rng = stream(self.seed, "learner", "prices")
        inputs_RI = torch.from_numpy(studied.inputs_RI)
        target_R = torch.from_numpy((studied.price_R / PRICE_UNIT).astype(np.float32))
        fitted = round((1.0 - PRICE_HELD) * len(target_R))
        mean_I, spread_I = inputs_RI.mean(0), inputs_RI.std(0) + 1e-6
        spread_I[spread_I < 1e-5] = 1.0
        scaled_RI = (inputs_RI - mean_I) / spread_I
        optimizer = adam(self.price_net.parameters(), config.price_rate)
        steps = config.price_steps
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            rows = torch.from_numpy(rng.integers(fitted, size=min(config.price_batch, fitted)))
            loss = (self._price(scaled_RI[rows]) - target_R[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            falling.step()
        with torch.no_grad():
            error_R = self._price(scaled_RI) - target_R
            held = slice(fitted, None)
            price_r2 = float(1.0 - error_R[held].square().mean() / target_R[held].var().clamp(min=1e-12))
            weight, bias = self.price_net.weights[0], self.price_net.biases[0]
            bias -= (mean_I / spread_I) @ weight[0]
            weight /= spread_I[:, None]
        return {"price_r2": price_r2}

    def _price(self, scaled_RI: torch.Tensor) -> torch.Tensor:
        """Returns the price net's prices, in units."""
        return torch.nn.functional.softplus(self.price_net(scaled_RI[None])[0, :, 0])

    def scheduler(self, *, explore: bool) -> ChoicePolicy:
        """Returns the policy as it stands."""
        config = self.config
        return ChoicePolicy(
            self._nets(),
            Forecast(config.plan_forecast),
            ask_s=60.0 * config.ask_min,
            residual=config.residual,
            price_scale=config.learned_price,
            state_only=config.inputs == "state",
            temperature=self.temperature if explore else 0.0,
            deviate=config.deviate,
            notes=config.questions if explore else 0,
        )

    def observe(self, played: Played) -> None:
        """Takes in a run."""
        self.runs.append(played)

    def update(self) -> dict[str, float]:
        """Learns from the runs observed since the last call and from those of earlier epochs that are kept."""
        config, runs = self.config, self.runs
        self.runs = []
        target = [run.team_Q if config.credit == "team" else run.own_Q for run in runs]
        weight = [np.minimum(run.gpu_hours_Q / config.weight_gpu_hours, config.weight_most) for run in runs]
        self.kept.append(
            (
                np.concatenate([run.inputs_QI for run in runs]),
                np.concatenate(target).astype(np.float32),
                np.concatenate(weight).astype(np.float32),
            )
        )
        self.kept = self.kept[-config.kept :]
        inputs_QI, return_Q, weight_Q = (
            torch.from_numpy(np.concatenate([each[part] for each in self.kept])) for part in range(3)
        )
        target_Q = return_Q - inputs_QI[:, PLANNED] if config.residual else return_Q
        losses = []
        for _ in range(config.passes):
            order = torch.from_numpy(self.rng.permutation(len(target_Q)))
            for rows in order.split(config.batch):
                error = self.net(inputs_QI[rows][None])[0, :, 0] - target_Q[rows]
                loss = (weight_Q[rows] * error.square()).sum() / weight_Q[rows].sum()
                self.adam.zero_grad()
                loss.backward()
                shorten_gradients(self.net, config.gradient_norm)
                self.adam.step()
                losses.append(float(loss.detach()))
        figures = {"critic_loss": float(np.mean(losses)), "temperature": self.temperature}
        self.epoch += 1
        return figures

    def _nets(self) -> ChoiceNets:
        """Returns a copy of the nets as the policy's file holds them."""
        (weights, biases), (price_weights, price_biases) = self.net.arrays(), self.price_net.arrays()
        return ChoiceNets(tuple(weights), tuple(biases), tuple(price_weights), tuple(price_biases))

    def policy_arrays(self) -> PolicyArrays:
        """Returns a copy of both nets, one after the other, and how the policy uses them."""
        nets, config = self._nets(), self.config
        meta = {
            "algorithm": self.name,
            "head": "choices",
            "forecast": {"kind": config.plan_forecast},
            "ask_s": 60.0 * config.ask_min,
            "residual": config.residual,
            "price_scale": config.learned_price,
            "state_only": config.inputs == "state",
        }
        return PolicyArrays([*nets.weights, *nets.price_weights], [*nets.biases, *nets.price_biases], meta)

    def state(self) -> dict[str, Any]:
        """Returns nets, optimizer, random stream and the questions that are kept."""
        return {
            "net": module_state(self.net),
            "price_net": module_state(self.price_net),
            "adam": optimizer_state(self.adam),
            "rng": self.rng.bit_generator.state,
            "epoch": self.epoch,
            "kept": {str(n): {str(part): array for part, array in enumerate(each)} for n, each in enumerate(self.kept)},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        load_module_state(self.net, state["net"])
        load_module_state(self.price_net, state["price_net"])
        load_optimizer_state(self.adam, state["adam"])
        self.rng.bit_generator.state = state["rng"]
        self.epoch = state["epoch"]
        kept = state["kept"]
        self.kept = [tuple(kept[str(n)][str(part)] for part in range(3)) for n in range(len(kept))]
