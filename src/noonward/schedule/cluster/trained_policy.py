"""Trained policies: a net in a file, run inside the compiled loop; no training library is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import StrictStr

from noonward.arrays import F4
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.gangs import largest_gang, some_room, write_gang_choice
from noonward.decision.cluster.observation import GPUS_MAX, LEVELS, Observation, observe_each_slot, observe_on_arrival
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.view import Answers, ClusterView, RuleMemory
from noonward.decision.scheduler import CompiledScheduler, months_remarks
from noonward.draws import random_below
from noonward.errors import DataError, ScenarioError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.schedule import net_file
from noonward.schedule.cluster.choices.file import HEAD as CHOICES
from noonward.schedule.nets import layer

NET: Final = "policy"
"""Name of the net in a file."""
HEADS: Final = ("logits", "values", "site-gang", CHOICES)
NEEDED: Final = (*("algorithm", "scenario", "protocol", "sites", "observation", "head", "record"),)
"""Keys of ``meta``."""
EXECUTE: Final = ("greedy", "sample")
GANG_MASK: Final = ("site", "fleet")
LAYERS, GLOBAL_SIZE, OWN_SIZE, SITE_GANG, SAMPLED, OF_FLEET = range(6)
"""Positions in row 0 of ``memory.index_XY``."""
INS, OUTS, WEIGHT_AT, NETS = range(4)
"""Positions in the row of a layer, 1 + l; weights and biases of its nets lie one net after the other."""


class _Meta(net_file.Meta):
    """Types of what a file for clusters says about itself."""

    protocol: StrictStr
    sites: list[StrictStr]
    forecast: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Net:
    """A trained net as its file holds it. Axes: N nets (one per agent, or one for all), inputs x outputs.

    Attributes:
        weights: Weights of the layers, float32 [N, in, out].
        biases: Biases of the layers, float32 [N, out].
        meta: What the file says about it (``write_policy``).
        observation: What it is fed.
        forecast: Forecast it is fed, or None.
    """

    weights: tuple[F4, ...]
    biases: tuple[F4, ...]
    meta: dict[str, Any]
    observation: Observation
    forecast: Forecast | None


def write_policy(
    path: Path, weights: Sequence[F4], biases: Sequence[F4], meta: dict[str, Any], *, half: bool = False
) -> None:
    """Writes a trained policy, whole or not at all.

    The net of agent n is fed [global part, own part of n] and answers with the feasible choice of highest output. With
    the head ``site-gang`` (protocol on-arrival) the outputs are S log-weights of the sites and S x G of the gangs
    there (S x G x F of gang and clock where the observation has clock levels); the site of highest weight is taken,
    then the best gang (and clock) there. Two keys of ``meta`` change this. ``execute`` ("greedy" unless given), for
    the heads ``logits`` and ``site-gang``: "sample" draws the choice, or site and gang, from the softmax over the
    feasible ones instead. ``gang_mask`` ("site" unless given), for the head ``site-gang``: under "fleet" the gang is
    chosen, by the weights that stand for the first site, among those that fit anywhere, and cut to what fits at the
    site.

    Args:
        path: File, ``.npz``.
        weights: Weights of the layers, float32 [N or 1, in, out].
        biases: Biases of the layers, float32 [N or 1, out].
        meta: ``algorithm``, ``scenario`` (names), ``protocol``, ``sites`` (names in order), ``observation`` (fields of
            Observation), ``head`` ("logits", "values" or "site-gang"), ``record`` (how it was trained), and
            ``forecast`` (fields of Forecast) where the observation shows one.
        half: Store float16, half the size: the policy that runs is the rounded one, computed in float32.

    Raises:
        DataError: Something is missing or does not fit, or a value is too large for float16 (above 65,504).
    """
    _net(list(weights), list(biases), meta, path)
    net_file.write_nets(path, {NET: net_file.perceptron(weights, biases)}, meta, half=half)


def read_meta(path: Path) -> dict[str, Any]:
    """Returns what a trained policy's file says about itself (``write_policy``); its weights stay unread.

    Raises:
        DataError: The file is missing, damaged, or of another format.
    """
    return _checked_meta(net_file.read_meta(path), path)


def read_policy(path: Path) -> Net:
    """Returns a trained policy's net.

    Raises:
        DataError: The file is missing, damaged, of another format, or its parts do not fit.
    """
    nets, meta = net_file.read_nets(path)
    blocks = nets.get(NET, ())
    if set(nets) != {NET} or any(block.type != "dense" for block in blocks):
        raise DataError(f"{path} holds the nets {', '.join(nets)}; a policy for clusters is one net {NET!r}, dense")
    activations = [block.settings["activation"] for block in blocks]
    if activations != ["relu"] * (len(blocks) - 1) + ["none"] * bool(blocks):
        raise DataError(
            f"{path} has the activations {', '.join(activations)}; a policy for clusters has relu after every layer "
            "but the last"
        )
    weights, biases = ([block.arrays[name] for block in blocks] for name in ("weight", "bias"))
    return _net(weights, biases, meta, path)


def _net(weights: list[F4], biases: list[F4], meta: dict[str, Any], path: Path) -> Net:
    """Returns the net of a file's parts, checked."""
    meta = _checked_meta(meta, path)
    try:
        observation = Observation(**meta["observation"])
        forecast = Forecast(**meta["forecast"]) if meta.get("forecast") else None
    except (TypeError, ValueError, ScenarioError) as error:
        raise DataError(f"{path}: unknown observation or forecast: {error}; export it with this version") from error
    if observation.forecast_h and forecast is None:
        raise DataError(f"{path}: the observation shows forecasts, but meta has no 'forecast'; export the policy again")
    if observation.protocol != meta["protocol"]:
        raise DataError(
            f"{path}: meta names the protocol {meta['protocol']!r}, its observation {observation.protocol!r}"
        )
    if meta["head"] == "site-gang" and observation.protocol != "on-arrival":
        raise DataError(f"{path}: the head 'site-gang' is for protocol on-arrival only; use 'logits' or 'values'")
    if meta.get("gang_mask") == "fleet" and observation.levels:
        raise DataError(f"{path}: where clocks are choices, gangs are chosen given the site; use gang_mask='site'")
    _check_layers(weights, biases, meta, observation, path)
    return Net(weights=tuple(weights), biases=tuple(biases), meta=meta, observation=observation, forecast=forecast)


def _checked_meta(meta: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns what a file says about itself, if it says all that is needed."""
    missing = [name for name in NEEDED if name not in meta]
    if missing:
        raise DataError(f"{path}: meta lacks {', '.join(missing)}; export the policy again")
    for name, allowed in (("head", HEADS), ("execute", EXECUTE), ("gang_mask", GANG_MASK)):
        given = meta.get(name, allowed[0])
        if given not in allowed:
            raise DataError(f"{path}: meta has the unknown {name} {given!r}; {nearest(str(given), allowed)}")
    if meta["head"] != "site-gang" and "gang_mask" in meta:
        raise DataError(f"{path}: 'gang_mask' is for the head 'site-gang'; leave it out")
    if meta["head"] == "values" and meta.get("execute") == "sample":
        raise DataError(f"{path}: values of choices are no log-weights to draw from; leave 'execute' out")
    net_file.check_meta(meta, _Meta, path)
    return meta


def _check_layers(
    weights: list[F4], biases: list[F4], meta: dict[str, Any], observation: Observation, path: Path
) -> None:
    """Raises DataError if the layers do not fit each other or the outputs."""
    sites = len(meta["sites"])
    agents = sites if observation.protocol == "each-slot" else 1
    outputs = observation.choices(sites) + (sites if meta["head"] == "site-gang" else 0)
    if not weights or len(weights) != len(biases):
        raise DataError(f"{path} has {len(weights)} weights and {len(biases)} biases; give one of each per layer")
    ins = weights[0].shape[1] if weights[0].ndim == 3 else 0
    for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        outs = outputs if place == len(weights) - 1 else weight.shape[-1]
        nets = weight.shape[0]
        if nets not in (1, agents) or weight.shape != (nets, ins, outs) or bias.shape != (nets, outs):
            raise DataError(
                f"{path}: layer {place} has weights of shape {weight.shape} and biases of shape {bias.shape}; expected "
                f"(N, {ins}, {outs}) and (N, {outs}) with N = 1 or {agents}"
            )
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise DataError(f"{path}: layer {place} is of type {weight.dtype} and {bias.dtype}; both must be float32")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise DataError(f"{path}: layer {place} holds a value that is not finite; the training diverged")
        ins = outs


@kernel(inline=True, allocates=False)
def _forward(memory: RuleMemory, agents: int, n: int) -> int:
    """Feeds agent n's net with what was observed; returns the row of ``scratch_XY`` with its outputs.

    Args:
        memory: The rule's memory.
        agents: Number of agents.
        n: Agent.
    """
    seen, own = memory.index_XY[0, GLOBAL_SIZE], memory.index_XY[0, OWN_SIZE]
    scratch_XY, here, there = memory.scratch_XY, agents + 1, agents + 2
    for i in range(seen):
        scratch_XY[here, i] = scratch_XY[agents, i]
    for i in range(own):
        scratch_XY[here, seen + i] = scratch_XY[n, i]
    layers = memory.index_XY[0, LAYERS]
    for row in range(1, layers + 1):
        ins, outs = memory.index_XY[row, INS], memory.index_XY[row, OUTS]
        net = n if memory.index_XY[row, NETS] > 1 else 0
        at = memory.index_XY[row, WEIGHT_AT] + net * (ins + 1) * outs
        layer(memory.weight_W, at, ins, outs, scratch_XY[here], scratch_XY[there], row < layers)
        here, there = there, here
    return here


@kernel(inline=True, allocates=False)
def _weight(memory: RuleMemory, output: float) -> float:
    """Returns an output; with Gumbel noise where choices are drawn, so that the largest is a draw of the softmax."""
    if not memory.index_XY[0, SAMPLED]:
        return output
    uniform = (random_below(memory.random_1, 1 << 53) + 0.5) / (1 << 53)
    return output - np.log(-np.log(uniform))


@rule
def _each_slot(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    agents = view.asked_N.shape[0]
    seen, own = memory.index_XY[0, GLOBAL_SIZE], memory.index_XY[0, OWN_SIZE]
    scratch_XY = memory.scratch_XY
    observe_each_slot(view, memory.number_P, scratch_XY[agents, :seen], scratch_XY[:agents, :own])
    for n in range(agents):
        if view.asked_N[n] < 0:
            continue
        out_A = scratch_XY[_forward(memory, agents, n)]
        best, highest = -1, -np.inf
        for choice in range(view.mask_NA.shape[1]):
            if not view.mask_NA[n, choice]:
                continue
            weight = _weight(memory, out_A[choice])
            if best < 0 or weight > highest:
                best, highest = choice, weight
        answers.answer_N[n].choice = best


@kernel(inline=True, allocates=False)
def _best_gang(memory: RuleMemory, out_A: F4, at: int, least: int, most: int, clocks: int, within: int) -> int:
    """Returns the gang and clock of highest weight as one number, (gang - 1) x clocks + level.

    Args:
        memory: The rule's memory.
        out_A: Outputs.
        at: Where the weight of gang 1 at level 0 stands.
        least: Smallest gang.
        most: Largest gang.
        clocks: Clocks of a gang among the outputs.
        within: How many of them there are at the site.
    """
    best, highest = (least - 1) * clocks, -np.inf
    for gpus in range(least, most + 1):
        for level in range(within):
            which = (gpus - 1) * clocks + level
            weight = _weight(memory, out_A[at + which])
            if weight > highest:
                best, highest = which, weight
    return best


@kernel(inline=True, allocates=False)
def _site_then_gang(view: ClusterView, memory: RuleMemory, out_A: F4, answers: Answers) -> None:
    """Answers with a site by the first outputs and a gang, and a clock where that is a choice, by the others."""
    job, sites, largest = view.asked_N[0], view.site_S.shape[0], int(memory.number_P[GPUS_MAX])
    levels = int(memory.number_P[LEVELS])
    clocks = max(1, levels)
    room, least = some_room(view, job), view.job_J[job].gpus_min
    site, gang, highest, widest = -1, 0, -np.inf, 0
    for s in range(sites):
        most = largest_gang(view, job, s, largest, room)
        if most == 0:
            continue
        widest = max(widest, most)
        weight = _weight(memory, out_A[s])
        if site < 0 or weight > highest:
            site, gang, highest = s, most, weight
    at = site * largest * clocks
    if memory.index_XY[0, OF_FLEET]:  # without clocks among the choices
        best = min(gang - 1, _best_gang(memory, out_A, sites, least, widest, 1, 1))
    else:
        best = _best_gang(memory, out_A, sites + at, least, gang, clocks, min(clocks, view.site_S[site].levels))
    write_gang_choice(answers, at + best, largest, levels)


@kernel(inline=True, allocates=False)
def _joint(view: ClusterView, memory: RuleMemory, out_A: F4, answers: Answers) -> None:
    """Answers with the feasible choice of highest output."""
    job, largest, levels = view.asked_N[0], int(memory.number_P[GPUS_MAX]), int(memory.number_P[LEVELS])
    room, clocks = some_room(view, job), max(1, levels)
    best, highest = -1, -np.inf
    for s in range(view.site_S.shape[0]):
        within = min(clocks, view.site_S[s].levels)
        for gpus in range(view.job_J[job].gpus_min, largest_gang(view, job, s, largest, room) + 1):
            for clock in range(within):
                choice = (s * largest + gpus - 1) * clocks + clock
                weight = _weight(memory, out_A[choice])
                if best < 0 or weight > highest:
                    best, highest = choice, weight
    write_gang_choice(answers, best, largest, levels)


@rule
def _on_arrival(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    seen, scratch_XY = memory.index_XY[0, GLOBAL_SIZE], memory.scratch_XY
    observe_on_arrival(view, memory.number_P, scratch_XY[1, :seen], scratch_XY[:1, :0])
    out_A = scratch_XY[_forward(memory, 1, 0)]
    if memory.index_XY[0, SITE_GANG]:
        _site_then_gang(view, memory, out_A, answers)
    else:
        _joint(view, memory, out_A, answers)


class TrainedPolicy(CompiledScheduler):
    """A trained net: answers with the feasible choice of highest output, or draws one where its file says so.

    Args:
        path: File that ``write_policy`` wrote.
        net: The file's content, if it has been read.

    Raises:
        DataError: The file is missing, damaged, of another format, or its parts do not fit.
    """

    def __init__(self, path: Path | str, net: Net | None = None) -> None:
        self.path = Path(path)
        self.net = read_policy(self.path) if net is None else net
        observation = self.net.observation
        each_slot = observation.protocol == "each-slot"
        self.rule = _each_slot if each_slot else _on_arrival
        self.needs = Needs(
            protocols=(observation.protocol,),
            signals=each_slot or observation.signals or observation.forecast_h > 0,
            economics=each_slot and observation.kind == "extended",
            forecast=self.net.forecast,
            lookahead_h=observation.forecast_h + 1,
            levers=observation.levers,
        )

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns notes where the run is of another scenario, or of months, that the policy was trained in."""
        trained, what = self.net.meta["scenario"], f"policy {self.path.name}"
        notes = months_remarks(what, self.net.meta["record"], brief)
        if trained == brief.scenario:
            return notes
        return (
            f"{what} was trained in scenario {trained!r}: on {brief.scenario!r} its results say how it carries "
            "over, not what learning reaches there",
            *notes,
        )

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns the observation's numbers, the layers' places (index), the weights and room for what they make.

        Raises:
            ScenarioError: The policy was trained for other sites, or for another number of ingress points.
        """
        net, sites = self.net, brief.sites
        if tuple(net.meta["sites"]) != sites:
            raise ScenarioError(
                f"policy {self.path.name} was trained for the sites {', '.join(net.meta['sites'])}, but scenario "
                f"{brief.scenario!r} has {', '.join(sites)}; train one for these sites"
            )
        agents = len(sites) if brief.protocol == "each-slot" else 1
        seen = net.observation.global_size(len(sites), len(brief.fleet.ingress_points))
        own = net.observation.own_size(len(sites))
        inputs = seen + own
        if net.weights[0].shape[1] != inputs:
            raise ScenarioError(
                f"policy {self.path.name} is fed {net.weights[0].shape[1]} numbers, but its observation of scenario "
                f"{brief.scenario!r} has {inputs}; train one for this scenario"
            )
        meta = net.meta
        sampled, of_fleet = meta.get("execute") == "sample", meta.get("gang_mask") == "fleet"
        index = [[len(net.weights), seen, own, meta["head"] == "site-gang", sampled, of_fleet]]
        at, flat = 0, []
        for weight, bias in zip(net.weights, net.biases, strict=True):
            nets, *sizes = weight.shape
            index.append([*sizes, at, nets, 0, 0])
            at += weight.size + bias.size
            flat.append(np.concatenate([weight.reshape(nets, -1), bias], axis=1).ravel())
        width = max(inputs, *(weight.shape[2] for weight in net.weights))
        return RuleMemory.make(
            numbers=net.observation.numbers(brief),
            index=index,
            random_state=int(rng.integers(2**63)),
            weights=np.concatenate(flat),
            scratch=np.zeros((agents + 3, width)),
        )
