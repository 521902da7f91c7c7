"""Trained edge policies: a net over tokens in a file, run inside the compiled loop; no training library is needed."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, model_validator

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.observation import PRESENT, TOKEN, observe_edge
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import WAIT, EdgeAnswers, EdgeMemory, EdgeView
from noonward.draws import normal
from noonward.errors import DataError, ScenarioError, nearest
from noonward.model.edge.quality import steps_least
from noonward.model.edge.scenario import EdgeScenario, TraceTasks
from noonward.schedule import net_file
from noonward.schedule.edge.goal import rehearsed
from noonward.schedule.edge.rehearsal import law_of
from noonward.schedule.net_file import Block
from noonward.schedule.nets import add_product, set_bias

NET: Final = "edge-policy"
"""Name of the net in a file."""
PARTS: Final = (
    *("embed_w", "embed_b", "mix_w", "mix_b", "after_w", "after_b", "norm_w", "norm_b", "pool_w", "pool_b"),
    *("seen_w", "noisy_w", "time_b", "second_w", "second_b", "whole_w", "whole_b"),
    *("slot_whole_w", "slot_token_w", "slot_noisy_w", "slot_b", "score_w", "score_b", "keep_T", "signal_T"),
)
"""Arrays of a net, in the order in which a file's ``weights`` hold them; ``Net`` in ``learn.core.token_nets``."""
HEADS: Final = ("action", "choice")
FOLDER: Final = Path(__file__).parent / "trained"
"""Where the packaged policies lie: ``NAME.npz``, of three training seeds the one with the highest reward in validation,
and the others, ``NAME-seed0.npz`` and so on."""
NEEDED: Final = ("algorithm", "scenario", "observation", "steps", "prices", "head", "net", "record")
"""Keys of ``meta``."""
_NUMBERS: Final = (
    *("servers", "price_s", "steps_low", "steps_high", "width", "heads", "context", "first", "second", "slot"),
    *("levels", "attention", "rounds", "noise_is_predicted", "tanh", "limit", "noisy", "choice", "steps_least"),
    "every_tick",
)
SERVERS, PRICE_S, STEPS_LOW, STEPS_HIGH, WIDTH, HEADS_AT, CONTEXT, FIRST, SECOND, SLOT = range(10)
LEVELS, ATTENTION, ROUNDS, NOISE_IS_PREDICTED, TANH, LIMIT, NOISY, CHOICE, STEPS_LEAST, EVERY_TICK = range(
    10, len(_NUMBERS)
)
"""Positions in ``memory.number_P``; the places of PARTS in ``weight_W`` follow."""
AT: Final = len(_NUMBERS)
EMBED_W, EMBED_B, MIX_W, MIX_B, AFTER_W, AFTER_B, NORM_W, NORM_B, POOL_W, POOL_B = range(10)
SEEN_W, NOISY_W, TIME_B, SECOND_W, SECOND_B, WHOLE_W, WHOLE_B = range(10, 17)
SLOT_WHOLE_W, SLOT_TOKEN_W, SLOT_NOISY_W, SLOT_B, SCORE_W, SCORE_B, KEEP_T, SIGNAL_T = range(17, len(PARTS))
PRICES_S: Final = (20.0, 2_000.0)
"""Prices of quality among which that of a run outside the training is looked for, s per unit; those of the training
were 60 to 600."""
HALVINGS: Final = 9
"""How often the range of the prices, on a logarithmic scale, is halved: to 0.9 %."""
EPISODES, TASKS = 200, 4_000
"""Most sampled episodes and tasks that such a price is found on."""
MARGIN: Final = 0.0025
"""How far the mean quality of those tasks is above the goal; its standard error is 0.0005."""
_FOUND: dict[tuple[Path, str], float] = {}
"""Prices found so far in this process, by file and scenario."""
EPSILON: Final = 1e-5
"""Added to the variance where tokens are normalised."""


_Size = Annotated[StrictInt, Field(ge=1)]


class _NetMeta(BaseModel):
    """The shape of a net, as its file says it."""

    model_config = ConfigDict(extra="forbid")

    width: _Size
    heads: _Size
    context: _Size
    first: _Size
    second: _Size
    slot: _Size
    attention: StrictBool
    rounds: Annotated[StrictInt, Field(ge=0)]
    noise_is_predicted: StrictBool
    tanh: StrictBool
    limit: Annotated[FiniteFloat, Field(ge=0)]
    noisy: StrictBool
    every_tick: StrictBool = False

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} does not fall into {self.heads} heads")
        return self


class _Shown(BaseModel):
    """What a net is fed: at most as many servers as a word has bits, and as many tasks."""

    servers: Annotated[StrictInt, Field(ge=1, le=64)]
    places: _Size


class _Meta(net_file.Meta):
    """Types of what a file for edge scenarios says about itself."""

    observation: _Shown  # type: ignore[assignment]
    net: _NetMeta
    steps: tuple[_Size, _Size]
    prices: list[tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]]

    @model_validator(mode="after")
    def _steps_rise(self) -> Self:
        if self.steps[1] < self.steps[0]:
            raise ValueError(f"steps go from {self.steps[0]} to {self.steps[1]}; the first must not be larger")
        return self


@kernel(inline=True, allocates=False)
def _mish(x: float) -> float:
    """Returns ``x tanh(log(1 + e^x))``."""
    if x > 30.0:
        return x
    e = math.exp(x)
    return x * (e * (e + 2.0)) / (e * (e + 2.0) + 2.0)


@kernel(inline=True, allocates=False)
def _at(memory: EdgeMemory, part: int) -> int:
    """Returns where a part's weights begin."""
    return np.int64(memory.number_P[AT + part])  # type: ignore[return-value]


@kernel(inline=True, allocates=False)
def _mish_all(y_O: F8, outs: int) -> None:
    """Applies mish."""
    for j in range(outs):
        y_O[j] = _mish(y_O[j])


@kernel(allocates=False)
def _embed(memory: EdgeMemory, servers: int, token_TW: F8, hidden_TD: F8) -> None:
    """Embeds every token that stands for something, by its kind."""
    width = int(memory.number_P[WIDTH])
    for t in range(token_TW.shape[0]):
        if token_TW[t, PRESENT] == 0.0:
            continue
        kind = 0 if t == 0 else (1 if t <= servers else 2)
        set_bias(memory.weight_W, _at(memory, EMBED_B) + kind * width, hidden_TD[t], width)
        add_product(
            memory.weight_W, _at(memory, EMBED_W) + kind * TOKEN * width, token_TW[t], TOKEN, hidden_TD[t], width
        )
        _mish_all(hidden_TD[t], width)


@kernel(allocates=False)
def _attend(memory: EdgeMemory, token_TW: F8, mixed_TE: F8, t: int, out_D: F8, weight_T: F8) -> None:
    """Writes what the heads of a token gather from all tokens: ``softmax(q k / sqrt(size)) v``, head by head."""
    width, heads = int(memory.number_P[WIDTH]), int(memory.number_P[HEADS_AT])
    size = width // heads
    scale = 1.0 / math.sqrt(size)
    for head in range(heads):
        first = head * size
        largest = -np.inf
        for s in range(token_TW.shape[0]):
            if token_TW[s, PRESENT] == 0.0:
                continue
            total = 0.0
            for i in range(first, first + size):
                total += mixed_TE[t, i] * mixed_TE[s, width + i]
            weight_T[s] = total * scale
            largest = max(largest, weight_T[s])
        norm = 0.0
        for i in range(first, first + size):
            out_D[i] = 0.0
        for s in range(token_TW.shape[0]):
            if token_TW[s, PRESENT] == 0.0:
                continue
            share = math.exp(weight_T[s] - largest)
            norm += share
            for i in range(first, first + size):
                out_D[i] += share * mixed_TE[s, 2 * width + i]
        for i in range(first, first + size):
            out_D[i] /= norm


@kernel(allocates=False)
def _mix(memory: EdgeMemory, token_TW: F8, hidden_TD: F8, mixed_TE: F8, row_D: F8, weight_T: F8) -> None:
    """Adds to every token what attention, or its own layer, makes of it, and normalises it."""
    width, attention = int(memory.number_P[WIDTH]), memory.number_P[ATTENTION] != 0.0
    tokens = token_TW.shape[0]
    if attention:
        for t in range(tokens):
            if token_TW[t, PRESENT] != 0.0:
                set_bias(memory.weight_W, _at(memory, MIX_B), mixed_TE[t], 3 * width)
                add_product(memory.weight_W, _at(memory, MIX_W), hidden_TD[t], width, mixed_TE[t], 3 * width)
    for t in range(tokens):
        if token_TW[t, PRESENT] == 0.0:
            continue
        if attention:
            _attend(memory, token_TW, mixed_TE, t, row_D, weight_T)
        else:
            for i in range(width):
                row_D[i] = hidden_TD[t, i]
        out_D = weight_T
        set_bias(memory.weight_W, _at(memory, AFTER_B), out_D, width)
        add_product(memory.weight_W, _at(memory, AFTER_W), row_D, width, out_D, width)
        mean = 0.0
        for i in range(width):
            out_D[i] += hidden_TD[t, i]
            mean += out_D[i]
        mean /= width
        variance = 0.0
        for i in range(width):
            variance += (out_D[i] - mean) ** 2
        scale = 1.0 / math.sqrt(variance / width + EPSILON)
        for i in range(width):
            hidden_TD[t, i] = (out_D[i] - mean) * scale * memory.weight_W[_at(memory, NORM_W) + i]
            hidden_TD[t, i] += memory.weight_W[_at(memory, NORM_B) + i]


@kernel(allocates=False)
def _pool(memory: EdgeMemory, token_TW: F8, hidden_TD: F8, pooled_I: F8, context_C: F8) -> None:
    """Writes the context: a layer over mean and maximum of the tokens and the token of the whole."""
    width, context = int(memory.number_P[WIDTH]), int(memory.number_P[CONTEXT])
    present = 0
    for i in range(width):
        pooled_I[i], pooled_I[width + i], pooled_I[2 * width + i] = 0.0, -np.inf, hidden_TD[0, i]
    for t in range(token_TW.shape[0]):
        if token_TW[t, PRESENT] == 0.0:
            continue
        present += 1
        for i in range(width):
            pooled_I[i] += hidden_TD[t, i]
            pooled_I[width + i] = max(pooled_I[width + i], hidden_TD[t, i])
    for i in range(width):
        pooled_I[i] /= present
    set_bias(memory.weight_W, _at(memory, POOL_B), context_C, context)
    add_product(memory.weight_W, _at(memory, POOL_W), pooled_I, 3 * width, context_C, context)
    _mish_all(context_C, context)


@kernel(allocates=False)
def _evaluate(memory: EdgeMemory, rounds: int, x_A: F8, seen_F: F8, slot_QS: F8, scratch_XY: F8, out_A: F8) -> None:
    """Evaluates the trunk at a round of denoising: writes the numbers of the whole, then the scores of the places."""
    first, second, slot = int(memory.number_P[FIRST]), int(memory.number_P[SECOND]), int(memory.number_P[SLOT])
    whole = int(memory.number_P[LEVELS])
    places = slot_QS.shape[0]
    one_F, two_S, slot_S = scratch_XY[0], scratch_XY[1], scratch_XY[2]
    set_bias(memory.weight_W, _at(memory, TIME_B) + rounds * first, one_F, first)
    for j in range(first):
        one_F[j] += seen_F[j]
    if memory.number_P[ROUNDS] > 0.0:
        add_product(memory.weight_W, _at(memory, NOISY_W), x_A, whole + places, one_F, first)
    _mish_all(one_F, first)
    set_bias(memory.weight_W, _at(memory, SECOND_B), two_S, second)
    add_product(memory.weight_W, _at(memory, SECOND_W), one_F, first, two_S, second)
    _mish_all(two_S, second)
    set_bias(memory.weight_W, _at(memory, WHOLE_B), out_A, whole)
    add_product(memory.weight_W, _at(memory, WHOLE_W), two_S, second, out_A, whole)
    set_bias(memory.weight_W, _at(memory, SLOT_B), slot_S, slot)
    add_product(memory.weight_W, _at(memory, SLOT_WHOLE_W), two_S, second, slot_S, slot)
    for q in range(places):
        score = memory.weight_W[_at(memory, SCORE_B)]
        for j in range(slot):
            value = slot_S[j] + slot_QS[q, j]
            if memory.number_P[ROUNDS] > 0.0:
                value += x_A[whole + q] * memory.weight_W[_at(memory, SLOT_NOISY_W) + j]
            score += _mish(value) * memory.weight_W[_at(memory, SCORE_W) + j]
        out_A[whole + q] = score


@kernel(allocates=False)
def _denoise(memory: EdgeMemory, x_A: F8, seen_F: F8, slot_QS: F8, scratch_XY: F8, out_A: F8) -> None:
    """Runs the reverse chain of the diffusion actor in ``x`` (Ho et al. 2020, Eqs. 6 and 7; EAT, Eqs. 10 to 13).

    ``x_0`` of a round is what the net predicts, or follows from the noise that it predicts; it is limited, and
    ``x_i-1 = sqrt(s_i-1) b_i / (1 - s_i) x_0 + sqrt(k_i) (1 - s_i-1) / (1 - s_i) x_i``, with ``k_i`` what a round
    keeps, ``b_i = 1 - k_i``, and ``s_i`` the product of the first i of them. From 0 and without noise, unless the file
    says so.
    """
    rounds, size = int(memory.number_P[ROUNDS]), int(memory.number_P[LEVELS]) + slot_QS.shape[0]
    noisy, limit = memory.number_P[NOISY] != 0.0, memory.number_P[LIMIT]
    for j in range(size):
        x_A[j] = normal(memory.random_1) if noisy else 0.0
    for i in range(rounds - 1, -1, -1):
        _evaluate(memory, i, x_A, seen_F, slot_QS, scratch_XY, out_A)
        keep = memory.weight_W[_at(memory, KEEP_T) + i]
        signal = memory.weight_W[_at(memory, SIGNAL_T) + i]
        before = memory.weight_W[_at(memory, SIGNAL_T) + i - 1] if i > 0 else 1.0
        of_clean = math.sqrt(before) * (1.0 - keep) / (1.0 - signal)
        of_noisy = math.sqrt(keep) * (1.0 - before) / (1.0 - signal)
        spread = math.sqrt((1.0 - keep) * (1.0 - before) / (1.0 - signal))
        for j in range(size):
            clean = out_A[j]
            if memory.number_P[NOISE_IS_PREDICTED] != 0.0:
                guess = math.tanh(clean) if memory.number_P[TANH] != 0.0 else clean
                clean = (x_A[j] - math.sqrt(1.0 - signal) * guess) / math.sqrt(signal)
            if limit > 0.0:
                clean = min(max(clean, -limit), limit)
            x_A[j] = of_clean * clean + of_noisy * x_A[j]
            if noisy and i > 0:
                x_A[j] += spread * normal(memory.random_1)


@kernel(inline=True, allocates=False)
def _answer(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory, out_A: F8) -> None:
    """Answers with the place and the steps that the outputs stand for."""
    whole, low, high = int(memory.number_P[LEVELS]), memory.number_P[STEPS_LOW], memory.number_P[STEPS_HIGH]
    choice = memory.number_P[CHOICE] != 0.0
    best = -1
    for q in range(view.task_Q.shape[0]):
        if view.mask_A[1 + q] and (best < 0 or out_A[whole + q] > out_A[whole + best]):
            best = q
    waits = best < 0 or (out_A[0] > out_A[whole + best] if choice else out_A[0] <= 0.0)
    run = view.run_1[0]
    if waits and memory.number_P[EVERY_TICK] != 0.0 and run.now_t < run.latest_t:
        answers.answer_1[0].until_s = (run.now_t + 1) * run.tick_s
        return
    if waits and view.mask_A[WAIT]:
        return
    span = high - low
    if choice:
        level = 1
        for j in range(2, whole):
            if out_A[j] > out_A[level]:
                level = j
        steps = low + span * (level - 1) / max(whole - 2, 1)
    else:
        steps = low + np.floor(span * min(max((out_A[1] + 1.0) / 2.0, 0.0), 1.0) + 0.5)
    answers.answer_1[0].choice = 1 + best
    answers.answer_1[0].steps = min(max(steps, memory.number_P[STEPS_LEAST]), view.task_Q[best].steps_max)


@edge_rule
def net_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Feeds the net with the question and answers with what it says."""
    servers, places = int(memory.number_P[SERVERS]), view.task_Q.shape[0]
    tokens = 1 + servers + places
    width, slot = int(memory.number_P[WIDTH]), int(memory.number_P[SLOT])
    scratch_XY = memory.scratch_XY
    token_TW = scratch_XY[:tokens]
    hidden_TD = scratch_XY[tokens : 2 * tokens]
    mixed_TE = scratch_XY[2 * tokens : 3 * tokens]
    slot_QS = scratch_XY[3 * tokens : 3 * tokens + places]
    rest_XY = scratch_XY[3 * tokens + places :]
    observe_edge(view, servers, memory.number_P[PRICE_S], token_TW)
    _embed(memory, servers, token_TW, hidden_TD)
    _mix(memory, token_TW, hidden_TD, mixed_TE, rest_XY[0], rest_XY[1])
    context_C, seen_F, x_A, out_A = rest_XY[3], rest_XY[4], rest_XY[5], rest_XY[6]
    _pool(memory, token_TW, hidden_TD, rest_XY[0], context_C)
    first = int(memory.number_P[FIRST])
    for j in range(first):
        seen_F[j] = 0.0
    add_product(memory.weight_W, _at(memory, SEEN_W), context_C, int(memory.number_P[CONTEXT]), seen_F, first)
    for q in range(places):
        for j in range(slot):
            slot_QS[q, j] = 0.0
        if token_TW[1 + servers + q, PRESENT] != 0.0:
            add_product(memory.weight_W, _at(memory, SLOT_TOKEN_W), hidden_TD[1 + servers + q], width, slot_QS[q], slot)
    if memory.number_P[ROUNDS] > 0.0:
        _denoise(memory, x_A, seen_F, slot_QS, rest_XY, out_A)
        _answer(view, answers, memory, x_A)
    else:
        _evaluate(memory, 0, x_A, seen_F, slot_QS, rest_XY, out_A)
        _answer(view, answers, memory, out_A)


def write_policy(
    path: Path, weights: Sequence[NDArray[Any]], biases: Sequence[Any], meta: dict[str, Any], *, half: bool = False
) -> None:
    """Writes a trained policy, whole or not at all.

    Args:
        path: File, ``.npz``.
        weights: The arrays of PARTS.
        biases: Nothing; a perceptron's would stand here.
        meta: ``algorithm``, ``scenario`` (names), ``observation`` (fields of EdgeObservation), ``steps`` (least and
            most), ``prices`` (rows of servers, arrivals per s, seconds to load a gang of one, price of quality),
            ``head`` ("action" or "choice"), ``net`` (its shape), ``record`` (how it was trained).
        half: Store float16, half the size: the policy that runs is the rounded one. The rounds of noise are stored as
            they are: what the first ones leave of the signal would become 1.

    Raises:
        DataError: Something is missing or does not fit.
    """
    if biases:
        raise DataError(f"{path}: a policy for edge scenarios has no biases apart; it was given {len(biases)}")
    arrays = dict(zip(PARTS, weights, strict=True))
    _check(arrays, meta, path)
    net_file.write_nets(path, {NET: (Block("token-net", arrays, {}),)}, meta, half=half, exact=("keep_T", "signal_T"))


def read_meta(path: Path) -> dict[str, Any]:
    """Returns what a trained policy's file says about itself (``write_policy``); its arrays stay unread.

    Raises:
        DataError: The file is missing, damaged, or of another format.
    """
    return _checked(net_file.read_meta(path), path)


def read_policy(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Returns the arrays of a trained policy by name, and what its file says about it.

    Raises:
        DataError: The file is missing, damaged, of another format or another kind, or its parts do not fit.
    """
    nets, meta = net_file.read_nets(path)
    if set(nets) != {NET} or [block.type for block in nets[NET]] != ["token-net"]:
        raise DataError(f"{path} holds the nets {', '.join(nets)}; a policy for edge scenarios is one net {NET!r}")
    arrays = dict(nets[NET][0].arrays)
    _check(arrays, meta, path)
    return arrays, meta


def _check(arrays: dict[str, NDArray[Any]], meta: dict[str, Any], path: Path) -> None:
    """Raises DataError unless a policy's parts fit each other."""
    _checked(meta, path)
    for name, shape in _shapes(meta).items():
        array = arrays[name]
        if array.shape != shape:
            raise DataError(f"{path}: {name} has shape {array.shape}; by its meta it must have {shape}")
        if not np.isfinite(array).all():
            raise DataError(f"{path}: {name} holds a value that is not finite; the training diverged")


def _checked(meta: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns what a file says about itself, if it says all that is needed."""
    missing = [name for name in NEEDED if name not in meta]
    if missing:
        raise DataError(f"{path}: meta lacks {', '.join(missing)}; export the policy again")
    if meta["head"] not in HEADS:
        raise DataError(f"{path}: meta has the unknown head {meta['head']!r}; {nearest(str(meta['head']), HEADS)}")
    net_file.check_meta(meta, _Meta, path)
    return meta


def _shapes(meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that the arrays of a net have."""
    net, (low, high) = meta["net"], meta["steps"]
    d, c, f, s, k = (int(net[name]) for name in ("width", "context", "first", "second", "slot"))
    whole = high - low + 2 if meta["head"] == "choice" else 2
    rounds, size = int(net["rounds"]), whole + int(meta["observation"]["places"])
    noisy, times = (size, rounds) if rounds else (0, 1)
    return {
        "embed_w": (3, TOKEN, d),
        "embed_b": (3, d),
        "mix_w": (d, 3 * d) if net["attention"] else (0, 0),
        "mix_b": (3 * d,) if net["attention"] else (0,),
        "after_w": (d, d),
        "after_b": (d,),
        "norm_w": (d,),
        "norm_b": (d,),
        "pool_w": (3 * d, c),
        "pool_b": (c,),
        "seen_w": (c, f),
        "noisy_w": (noisy, f),
        "time_b": (times, f),
        "second_w": (f, s),
        "second_b": (s,),
        "whole_w": (s, whole),
        "whole_b": (whole,),
        "slot_whole_w": (s, k),
        "slot_token_w": (d, k),
        "slot_noisy_w": (k,) if rounds else (0,),
        "slot_b": (k,),
        "score_w": (k,),
        "score_b": (1,),
        "keep_T": (rounds,),
        "signal_T": (rounds,),
    }


TRAINED: Final = ("edge-inference", "edge-inference-real", "edge-inference-reference")
"""Packaged scenarios whose cells the policies are trained on."""
LAW: Final = (
    *("gang_times", "visible", "tick_s", "first_s", "steps_min", "steps_max"),
    *("quality", "quality_min", "quality_goal", "choice"),
)
"""Fields of a scenario, besides its tasks and the number of servers, that decide what price its quality has."""


@functools.cache
def _packaged(name: str) -> EdgeScenario:
    """Returns a packaged scenario."""
    found = load_scenario(name)
    assert isinstance(found, EdgeScenario)
    return found


def is_trained_on(setting: EdgeScenario, servers: float, rate_per_s: float, load_s: float) -> bool:
    """Returns whether a scenario is a cell of a packaged one that a price stands for.

    It is if nothing that decides the price differs from a packaged scenario but the number of servers and the arrival
    rate, and if these and the load time are the price's. Tasks have every gang size that the servers allow. Tasks from
    a file pass for those of the packaged scenario at any rate.

    Args:
        setting: Scenario of a run.
        servers: Servers of the price.
        rate_per_s: Arrival rate of the price.
        load_s: Seconds to load a gang of one, of the price.
    """
    if setting.servers.count != servers or setting.gang_times[min(setting.gang_times)].load_s != load_s:
        return False
    for name in TRAINED:
        packaged = _packaged(name)
        if any(getattr(setting, field) != getattr(packaged, field) for field in LAW):
            continue
        sizes = tuple(size for size in sorted(packaged.gang_times) if size <= servers)
        if isinstance(setting.tasks, TraceTasks):
            return True
        cell = packaged.tasks.model_copy(update={"rate_per_s": rate_per_s, "sizes": sizes})
        if setting.tasks.model_copy(update={"deadline_s": None}) == cell:
            return True
    return False


class EdgePolicy(CompiledEdgeScheduler):
    """A trained net: launches the feasible place that it scores highest with the steps that it names, or waits.

    A launch gets at least the scenario's fewest steps, and those that reach its least quality, in training too.

    Args:
        path: File that ``write_policy`` wrote.
        price_s: Price of quality, s per unit; None: that which the file holds for the scenario, or one that is found by
            rehearsal where the scenario is none of its training.

    Raises:
        DataError: The file is missing, damaged, of another format, or its parts do not fit.
    """

    rule = staticmethod(net_rule)

    def __init__(self, path: Path | str, price_s: float | None = None) -> None:
        self.path, self.price_s = Path(path), price_s
        self.arrays, self.meta = read_policy(self.path)

    def price_in(self, brief: EdgeBrief) -> float:
        """Returns the price of quality in a run.

        The file holds a price for each scenario of its training, at which its mean quality was the target in
        validation. A run in one of them takes that price (with tasks from a file, whose rate is not known beforehand,
        the highest of as many servers). Any other run takes the least price at which sampled tasks of its own law,
        which no run sees, reach its goal: it is looked for once in a process.
        """
        if self.price_s is not None:
            return self.price_s
        rows = [row for row in self.meta["prices"] if is_trained_on(brief.setting, *row[:3])]
        if self.meta["net"].get("every_tick"):  # one price in training; the rehearsal asks at events alone
            rows = self.meta["prices"][:1]
        if rows:
            return float(max(row[3] for row in rows))
        key = (self.path, brief.setting.digest)
        if key not in _FOUND:
            _FOUND[key] = self._rehearsed(brief)
        return _FOUND[key]

    def _rehearsed(self, brief: EdgeBrief) -> float:
        """Looks for the price of a scenario by rehearsal, on a logarithmic scale."""
        law = law_of(brief.setting)
        told = replace(brief, setting=law)
        made = self._memory_at(0.0, told, 0)

        def memory_at(number: float) -> EdgeMemory:
            made.number_P[PRICE_S] = math.exp(number)
            return made

        low, high = (math.log(each) for each in PRICES_S)
        number = rehearsed(law, net_rule, memory_at, low, high, HALVINGS, episodes=EPISODES, tasks=TASKS, margin=MARGIN)
        return math.exp(number)

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns the numbers of the net's shape, its weights, and room for what they make.

        Raises:
            ScenarioError: The run has more servers, or shows another number of tasks, than the net was trained for.
        """
        return self._memory_at(None, brief, int(rng.integers(2**63)))

    def _memory_at(self, price_s: float | None, brief: EdgeBrief, random_state: int) -> EdgeMemory:
        """Returns the memory at a price of quality; None: that of the run."""
        meta, net, setting = self.meta, self.meta["net"], brief.setting
        shown = meta["observation"]
        if setting.servers.count > shown["servers"] or setting.visible != shown["places"]:
            raise ScenarioError(
                f"policy {self.path.name} sees at most {shown['servers']} servers and {shown['places']} tasks, but "
                f"scenario {brief.scenario!r} has {setting.servers.count} and shows {setting.visible}; train one for it"
            )
        whole = len(self.arrays["whole_b"])
        said = {
            "servers": shown["servers"],
            "price_s": self.price_in(brief) if price_s is None else price_s,
            "levels": whole,
            "steps_low": meta["steps"][0],
            "steps_high": meta["steps"][1],
            "steps_least": steps_least(setting.steps_min, setting.quality_min),
            "choice": meta["head"] == "choice",
            "every_tick": False,
            **{name: net[name] for name in _NUMBERS if name in net},
        }
        at, numbers, flat = 0, [float(said[name]) for name in _NUMBERS], []
        for name in PARTS:
            numbers.append(at)
            at += self.arrays[name].size
            flat.append(self.arrays[name].ravel().astype(np.float64))
        tokens = 1 + shown["servers"] + shown["places"]
        widest = max(
            TOKEN, 3 * net["width"], net["context"], net["first"], net["second"], whole + shown["places"], tokens
        )
        return EdgeMemory.make(
            numbers=numbers,
            random_state=random_state,
            weights=np.concatenate(flat),
            scratch=np.zeros((3 * tokens + shown["places"] + 7, max(widest, net["slot"]))),
        )
