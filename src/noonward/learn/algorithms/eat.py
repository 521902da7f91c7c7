"""EAT: a diffusion actor over attention features, trained by advice and by soft actor-critic (EAT, Sec. V).

Its ablations are settings: ``attention=false`` (EAT-A), ``diffusion=false`` (EAT-D), both (EAT-DA, a plain soft
actor-critic). The public code's faults are settings too, for a control: ``PublishedConfig``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from noonward.arrays import I8
from noonward.errors import ScenarioError
from noonward.learn.algorithms.algorithm import PolicyArrays
from noonward.learn.algorithms.learner import Learner
from noonward.learn.core.experience import Moment, Transition
from noonward.learn.core.nets import adam, follow, load_module_state, module_state
from noonward.learn.core.replay import Batch, Replay
from noonward.learn.core.settings import at_least, between, check_nets, one_of
from noonward.learn.core.token_nets import Actor, Critic, Drawn, Shape, noise_schedule

EXECUTE, STEPS, WHOLE = 0, 1, 2
"""Positions of an action's numbers of the whole, and how many there are; the places' scores follow (EAT, Sec. V.A)."""
SHARPNESS: Final = 4.0
"""Logits of an action whose numbers are 1 apart."""
CODE: Final = 0.8
"""An action's numbers for yes and no are plus and minus this."""


@dataclass(frozen=True, kw_only=True)
class EatConfig:
    """Settings of EAT. Defaults: the paper's (Tables VII and VIII), or ours where it is silent or corrected [ours].

    Attributes:
        attention: Tokens attend to each other; off: EAT-A.
        diffusion: The actor denoises its action; off: EAT-D, it answers at once.
        hidden: Units of the two layers of trunk and critics (256, 256).
        width: Features of a token [ours].
        heads: Heads of the attention [ours].
        context: Units of the layer over the pooled tokens [ours].
        rounds: Rounds of denoising, T (10).
        betas: ``preserving`` [ours] or ``linear`` (the public code's, which leaves 0.90 of the signal).
        predicts: What the trunk predicts in a round: the ``action`` [ours] or the ``noise`` (Eq. 11).
        tanh_noise: The predicted noise goes through tanh (the public code).
        limit: Largest number of a denoised action; 0: none [ours].
        noisy_execution: The exported policy keeps its start noise and the noise of its rounds, and its waits last one
            tick, so that it is asked again until the noise launches something (the public code).
        critic_sees: ``decoded``: what is carried out [ours]; ``numbers``: the raw numbers (the paper).
        critic_guides: The actor follows the critics' gradient; off: its soft loss is its entropy alone (the public
            code).
        batch: Transitions in an update (512).
        actor_rate: Adam's step of the actor (3e-4).
        critic_rate: Adam's step of the critics (3e-4).
        last_rate: Share of the actor's step that is left after ``updates_all`` updates; it falls along a cosine [ours].
        updates_all: Updates over which it falls [ours].
        gamma: Discount of a second [ours]: 1 - 1/300; the paper's 0.95 is of a tick of 0.1 s.
        target_rate: Share by which target critics follow (0.005).
        temperature: Weight of the entropy, in units of reward (0.05).
        noise: Spread of the exploring action's numbers where the critics do not train the actor [ours].
        capacity: Decision steps kept in the replay (the paper: 1e6).
        imitation: Weight of imitating the cheapest choice by the tasks known now, for ``imitation_updates`` [ours].
        imitation_updates: Updates with that weight; afterwards ``imitation_kept`` [ours].
        imitation_kept: Weight after those [ours].
        hindsight: Weight, after those updates, of the expected cost in hindsight of the policy's choices [ours].
        soft: Weight of the soft actor-critic's loss of the actor, after ``critic_alone`` updates [ours].
        critic_alone: First updates in which the critics alone learn from rewards [ours]; the critics learn only where
            ``soft`` is above 0.
        precision: ``float32`` or ``float64``.
    """

    attention: bool = True
    diffusion: bool = True
    hidden: tuple[int, ...] = (256, 256)
    width: int = 32
    heads: int = 4
    context: int = 128
    rounds: int = 10
    betas: str = "preserving"
    predicts: str = "action"
    tanh_noise: bool = False
    limit: float = 2.0
    noisy_execution: bool = False
    critic_sees: str = "decoded"
    critic_guides: bool = True
    batch: int = 512
    actor_rate: float = 3e-4
    critic_rate: float = 3e-4
    last_rate: float = 1.0
    updates_all: int = 10_000
    gamma: float = 1.0 - 1.0 / 300.0
    target_rate: float = 0.005
    temperature: float = 0.05
    noise: float = 0.3
    capacity: int = 60_000
    imitation: float = 1.0
    imitation_updates: int = 3_000
    imitation_kept: float = 0.1
    hindsight: float = 1.0
    soft: float = 0.0
    critic_alone: int = 1_000
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_nets(self)
        if len(self.hidden) != 2:
            raise ScenarioError(f"hidden is {self.hidden}; trunk and critics have two layers, as [256, 256]")
        at_least(self, 1, "width", "heads", "context", "rounds", "batch", "capacity", "updates_all")
        at_least(self, 0, "imitation_updates", "critic_alone", "limit", "noise", "temperature")
        at_least(self, 0, "imitation", "imitation_kept", "hindsight", "soft", "actor_rate", "critic_rate")
        between(self, 0.0, 1.0, "gamma", "target_rate", "last_rate")
        one_of(self, "betas", ("preserving", "linear"))
        one_of(self, "predicts", ("action", "noise"))
        one_of(self, "critic_sees", ("decoded", "numbers"))
        if self.width % self.heads:
            raise ScenarioError(f"width is {self.width}, which {self.heads} heads do not divide; choose another")

    @property
    def shape(self) -> Shape:
        """Sizes of the actor."""
        first, second = self.hidden
        rounds = self.rounds if self.diffusion else 0
        return Shape(self.width, self.heads, self.context, first, second, 64, self.attention, rounds)


@dataclass(frozen=True, kw_only=True)
class AttentionlessConfig(EatConfig):
    """EAT-A: EAT without attention."""

    attention: bool = False


@dataclass(frozen=True, kw_only=True)
class DirectConfig(EatConfig):
    """EAT-D: EAT without diffusion."""

    diffusion: bool = False


@dataclass(frozen=True, kw_only=True)
class PlainConfig(EatConfig):
    """EAT-DA: EAT without either, a soft actor-critic."""

    attention: bool = False
    diffusion: bool = False


@dataclass(frozen=True, kw_only=True)
class PublishedConfig(EatConfig):
    """EAT as its public code trains it: every correction is off. For a control."""

    betas: str = "linear"
    predicts: str = "noise"
    tanh_noise: bool = True
    limit: float = 0.0
    noisy_execution: bool = True
    critic_sees: str = "numbers"
    critic_guides: bool = False
    gamma: float = 0.95**10
    imitation: float = 0.0
    imitation_updates: int = 0
    imitation_kept: float = 0.0
    hindsight: float = 0.0
    soft: float = 1.0
    critic_alone: int = 0


class Advice(NamedTuple):
    """What the choices of a batch lead to, in units of reward."""

    known_BP: torch.Tensor
    """Cost of the wait and of each place by the tasks known now."""
    known_BL: torch.Tensor
    """Cost of each level of steps by the tasks known now."""
    later_BP: torch.Tensor
    """The first in hindsight."""
    later_BL: torch.Tensor
    """The second in hindsight."""


class Eat(Learner):
    """EAT over tokens: an action is (execute, steps, a score per place), each a number of order 1.

    Carried out: where ``execute > 0``, or where there is nothing to wait for, the feasible place of highest score is
    launched, with steps linear in ``(steps + 1) / 2`` from the least to the most, rounded; else the scheduler waits.

    Actor: the trunk answers at once, or from noise in T rounds (``_chain``); greedily from 0 and without noise.

    Losses of the actor, at weights from the settings:

    - imitation: ``-log p(c)`` of the cheapest choice c by the tasks known now, and the squared distance of the steps
      from the cheapest ones; with ``predicts=noise`` the error of the predicted noise (the denoising loss);
    - hindsight: ``sum_c p(c) cost(c)``, costs played on with the tasks that really come. It is linear in the costs, so
      its mean over the futures is least where the policy takes the choices of least expected cost;
    - soft actor-critic: ``temperature log p(a) - min_i Q_i(s, a)``, through all rounds of the chain.

    ``p`` is soft: execute with ``sigmoid(8 execute)``, then place q with ``softmax(4 score)``; steps near ``steps``.
    Under diffusion the first two are taken at a random round, from the actor's own answer noised to it.

    Critics (twins, own encoder) see what is carried out; for the actor's gradient through a straight-through softmax.
    Target ``r + g (min_i Q'_i(s', a') - temperature log p(a'))``, g the discount of the elapsed seconds.

    Args:
        dimensions: Sizes.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    name: ClassVar[str] = "eat"
    consumes = "replay"
    config: EatConfig
    NETS = ("actor", "critic", "target")
    ADAMS = ("actor_adam", "critic_adam")
    PARTS = ("replay",)

    def _make_nets(self, generator: torch.Generator) -> None:
        config, d = self.config, self.dimensions
        if d.tokens is None or d.agents != 1 or len(d.actions.heads) != 2:
            raise ScenarioError(
                f"{self.name} is for one agent that sees tokens and chooses a place and a level, as in edge scenarios; "
                "train masac, madqn or mappo here"
            )
        advised = config.imitation or config.imitation_kept or config.hindsight
        if advised and not d.advised:
            raise ScenarioError(
                "imitation and hindsight need advice; set advice=patient, or imitation=0, imitation_kept=0 and "
                "hindsight=0"
            )
        self.tokens, (place, level) = d.tokens, d.actions.heads
        self.places, self.levels = place.size - 1, level.size
        drawn = Drawn(generator, self.dtype)
        self.actor = Actor(self.tokens, config.shape, WHOLE, drawn).to(self.device)
        self.critic = Critic(self.tokens, config.shape, WHOLE, 2, drawn).to(self.device)
        self.target = Critic(self.tokens, config.shape, WHOLE, 2, drawn).to(self.device).requires_grad_(False)
        load_module_state(self.target, module_state(self.critic))
        self.actor_adam = adam(self.actor.parameters(), config.actor_rate)
        self.critic_adam = adam(self.critic.parameters(), config.critic_rate)
        self.replay = Replay(d, capacity=config.capacity, gamma=config.gamma, per_slot=True)
        self.keep_T, self.signal_T = noise_schedule(config.betas, config.shape.rounds)
        code_L = np.linspace(-1.0, 1.0, self.levels) if self.levels > 1 else np.zeros(1)
        self.code_L = self.tensor(code_L, self.dtype)

    # Actions

    def _tokens_of(self, seen_BI: Any) -> torch.Tensor:
        """Returns the tokens of what is seen."""
        count = sum(self.tokens.counts) * self.tokens.width
        seen = self.tensor(np.asarray(seen_BI)[..., :count], self.dtype)
        return seen.reshape(-1, sum(self.tokens.counts), self.tokens.width)

    def _normal(self, *shape: int) -> torch.Tensor:
        """Returns standard normal numbers of the exploration's stream."""
        return self.tensor(self.explore_rng.standard_normal(shape), self.dtype)

    def _clean(self, out_BA: torch.Tensor, noisy_BA: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
        """Returns the action that the trunk's outputs of a round stand for."""
        if self.config.predicts == "noise":
            guess = out_BA.tanh() if self.config.tanh_noise else out_BA
            return (noisy_BA - (1.0 - signal).sqrt() * guess) / signal.sqrt()
        return out_BA

    def _limited(self, action_BA: torch.Tensor) -> torch.Tensor:
        limit = self.config.limit
        return action_BA.clamp(-limit, limit) if limit > 0.0 else action_BA

    def mean_action(self, tokens_BTW: torch.Tensor, start_BA: torch.Tensor | None = None) -> tuple[Any, Any]:
        """Returns the action before its last noise [B, A], and the logarithms of its spreads.

        Args:
            tokens_BTW: Tokens.
            start_BA: Noise from which a diffusion actor begins, with noise in its rounds; None: from 0, without.
        """
        seen = self.actor.features(tokens_BTW)
        if not self.config.diffusion:
            return self.actor(seen)
        return self._chain(seen, start_BA)

    def _chain(self, seen: Any, start_BA: torch.Tensor | None) -> tuple[Any, Any]:
        """Runs the reverse chain (Ho et al. 2020, Eqs. 6 and 7; EAT, Eqs. 10 to 13)."""
        batch = len(seen.seen_BF)
        x = torch.zeros(batch, WHOLE + self.places, dtype=self.dtype) if start_BA is None else start_BA
        spread = x
        for i in range(self.config.rounds - 1, -1, -1):
            keep, signal = self.keep_T[i], self.signal_T[i]
            before = self.signal_T[i - 1] if i else 1.0
            out, spread = self.actor(seen, x, torch.full((batch,), i))
            clean = self._limited(self._clean(out, x, torch.tensor(signal, dtype=self.dtype)))
            x = (
                math.sqrt(before) * (1 - keep) / (1 - signal) * clean
                + math.sqrt(keep) * (1 - before) / (1 - signal) * x
            )
            if start_BA is not None and i:
                x = x + math.sqrt((1 - keep) * (1 - before) / (1 - signal)) * self._normal(*x.shape)
        return x, spread

    def _decoded(self, action_BA: torch.Tensor, fits_BP: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what is carried out: the place (0 waits), and the level of a launch."""
        score = action_BA[:, WHOLE:].masked_fill(~fits_BP[:, 1:], -math.inf)
        launches = ((action_BA[:, EXECUTE] > 0.0) | ~fits_BP[:, 0]) & fits_BP[:, 1:].any(-1)
        place = torch.where(launches, 1 + score.argmax(-1), 0)
        share = ((action_BA[:, STEPS] + 1.0) / 2.0).clamp(0.0, 1.0)
        level = torch.where(launches, (share * (self.levels - 1) + 0.5).floor().long(), 0)
        return place, level

    def _fits(self, mask_BA: Any) -> torch.Tensor:
        """Returns which places, 0 for the wait, are feasible, [B, P]."""
        mask = self.tensor(np.asarray(mask_BA)) != 0
        return mask.reshape(len(mask), 1 + self.places, self.levels).any(-1)

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns choices, [B, 1]; exploring, with noise in the action."""
        with torch.no_grad():
            tokens, fits = self._tokens_of(moment.global_BG), self._fits(moment.mask_BNA[:, 0])
            size = (len(tokens), WHOLE + self.places)
            start = self._normal(*size) if (explore or self.config.noisy_execution) else None
            action, spread = self.mean_action(tokens, start)
            if explore:
                width = spread.exp() if self.config.soft > 0.0 else self.config.noise
                action = action + width * self._normal(*size)
            place, level = self._decoded(action, fits)
        return (place * self.levels + level).cpu().numpy()[:, None]

    def observe(self, transition: Transition) -> None:
        """Stores a decision step."""
        self.replay.observe(transition)

    # Learning

    def update(self) -> dict[str, float]:
        """Makes one step of the actor, and of the critics where they are used."""
        batch = self.replay.sample(self.batch_rng, self.config.batch)
        soft = self.config.soft > 0.0
        figures: dict[str, float] = {}
        if soft:
            loss = self.critic_loss(batch)
            self.critic_adam.zero_grad()
            loss.backward()
            self.critic_adam.step()
            follow(self.target.parameters(), self.critic.parameters(), self.config.target_rate)
            figures["critic_loss"] = loss.item()
        losses = self.actor_losses(batch)
        total = sum((weight * each for weight, each in losses.values()), torch.zeros((), dtype=self.dtype))
        if total.requires_grad:
            self.actor_adam.zero_grad()
            total.backward()
            nn_clip(self.actor, 1.0)
            share = min(self.updates / self.config.updates_all, 1.0)
            fall = 0.5 * (1.0 + math.cos(math.pi * share))
            last = self.config.last_rate
            for group in self.actor_adam.param_groups:
                group["lr"] = self.config.actor_rate * (last + (1.0 - last) * fall)
            self.actor_adam.step()
        self.updates += 1
        return figures | {f"{name}_loss": each.item() for name, (_, each) in losses.items()}

    def actor_losses(self, batch: Batch) -> dict[str, tuple[float, torch.Tensor]]:
        """Returns the actor's losses with their weights, by name, those of weight 0 left out."""
        config, early = self.config, self.updates < self.config.imitation_updates
        tokens, fits = self._tokens_of(batch.seen_NBI[0]), self._fits(batch.mask_NBA[0])
        imitation, hindsight = (config.imitation, 0.0) if early else (config.imitation_kept, config.hindsight)
        losses: dict[str, tuple[float, torch.Tensor]] = {}
        if imitation or hindsight:
            advice = self._advice(batch)
            best = self._cheapest(advice, fits)
            action, denoising = self._answers(tokens, *best)
            if imitation:
                told = denoising if denoising is not None else self._imitation_loss(action, fits, *best)
                losses["imitation"] = imitation, told
            if hindsight:
                losses["hindsight"] = hindsight, self._hindsight_loss(action, fits, advice)
        if config.soft and self.updates >= config.critic_alone:
            losses["soft"] = config.soft, self._soft_loss(tokens, fits)
        return losses

    def _advice(self, batch: Batch) -> Advice:
        """Returns the advice of a batch, which stands behind the tokens."""
        count = sum(self.tokens.counts) * self.tokens.width
        places, levels = 1 + self.places, self.levels
        parts = np.split(batch.seen_NBI[0][:, count:], np.cumsum([places, levels, places]), -1)
        return Advice(*(self.tensor(part, self.dtype) for part in parts))

    def _cheapest(self, advice: Advice, fits_BP: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the cheapest places and levels by the tasks known now."""
        return advice.known_BP.masked_fill(~fits_BP, math.inf).argmin(-1), advice.known_BL.argmin(-1)

    def _answers(
        self, tokens: torch.Tensor, place_B: torch.Tensor, level_B: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the actor's answers, and its denoising loss if it predicts noise.

        A diffusion actor answers in a random round: from its own first answer, or from the taught one where it predicts
        noise, noised to that round.
        """
        seen = self.actor.features(tokens)
        if not self.config.diffusion:
            return self.actor(seen)[0], None
        batch, noise = len(tokens), self.tensor(self.batch_rng.standard_normal((len(tokens), WHOLE + self.places)))
        noise = noise.to(self.dtype)
        round_B = self.tensor(self.batch_rng.integers(0, self.config.rounds, batch))
        signal_B1 = self.tensor(self.signal_T, self.dtype)[round_B][:, None]
        if self.config.predicts == "noise":
            clean = self._taught(place_B, level_B)
        else:
            with torch.no_grad():
                clean = self._limited(self.actor(seen, noise, torch.full((batch,), self.config.rounds - 1))[0])
            noise = self.tensor(self.batch_rng.standard_normal(noise.shape), self.dtype)
        noisy = signal_B1.sqrt() * clean + (1.0 - signal_B1).sqrt() * noise
        out = self.actor(seen, noisy, round_B)[0]
        if self.config.predicts == "noise":
            guess = out.tanh() if self.config.tanh_noise else out
            return self._limited(self._clean(out, noisy, signal_B1)), (guess - noise).square().mean()
        return out, None

    def _taught(self, place_B: torch.Tensor, level_B: torch.Tensor) -> torch.Tensor:
        """Returns choices as actions, [B, A]: yes and no as plus and minus 0.8."""
        action = torch.full((len(place_B), WHOLE + self.places), -CODE, dtype=self.dtype)
        action[:, EXECUTE] = torch.where(place_B > 0, CODE, -CODE)
        action[:, STEPS] = self.code_L[level_B]
        rows = torch.nonzero(place_B > 0)[:, 0]
        action[rows, WHOLE + place_B[rows] - 1] = CODE
        return action

    def log_soft(self, action_BA: torch.Tensor, fits_BP: torch.Tensor) -> torch.Tensor:
        """Returns the logarithms of the soft probabilities of waiting and of each place, [B, P]; -1e9 if infeasible."""
        score = (SHARPNESS * action_BA[:, WHOLE:]).masked_fill(~fits_BP[:, 1:], -1e9).log_softmax(-1)
        execute = 2.0 * SHARPNESS * action_BA[:, :1]
        waits_B1 = fits_BP[:, :1]
        wait = torch.where(waits_B1, logsigmoid(-execute), -1e9)
        launch = torch.where(waits_B1, logsigmoid(execute), 0.0)
        return torch.cat([wait, launch + score], -1)

    def _imitation_loss(
        self, action: torch.Tensor, fits: torch.Tensor, place_B: torch.Tensor, level_B: torch.Tensor
    ) -> torch.Tensor:
        """Returns ``-log p`` of the taught choices plus the squared distance from the taught steps."""
        log_p = self.log_soft(action, fits).gather(-1, place_B[:, None])[:, 0]
        far = (action[:, STEPS] - self.code_L[level_B]).square() * (place_B > 0)
        return (far - log_p).mean()

    def _hindsight_loss(self, action: torch.Tensor, fits: torch.Tensor, advice: Advice) -> torch.Tensor:
        """Returns the expected cost in hindsight of the policy's places and steps."""
        place = (self.log_soft(action, fits).exp() * advice.later_BP).sum(-1)
        width = 1.5 * 2.0 / max(self.levels - 1, 1)
        level_BL = (-0.5 * ((self.code_L - action[:, STEPS, None]) / width).square()).softmax(-1)
        return (place + (level_BL * advice.later_BL).sum(-1)).mean()

    def _sampled(self, tokens: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions with their last noise, and the logarithms of their densities given the rounds."""
        mean, spread = self.mean_action(tokens, start)
        noise = self._normal(*mean.shape)
        density = (-0.5 * noise.square() - spread - 0.5 * math.log(2.0 * math.pi)).sum(-1)
        return mean + spread.exp() * noise, density

    def _shown(self, action: torch.Tensor, fits: torch.Tensor) -> torch.Tensor:
        """Returns what the critics see of actions: carried out, with the gradient of the soft ones; or raw numbers."""
        if self.config.critic_sees == "numbers":
            return action
        place, level = self._decoded(action, fits)
        soft = self.log_soft(action, fits).exp()
        hard = torch.nn.functional.one_hot(place, 1 + self.places).to(self.dtype)
        weight = hard + soft - soft.detach()
        code = self.code_L[level] + action[:, STEPS] - action[:, STEPS].detach()
        launches = weight[:, 1:].sum(-1, keepdim=True)
        return torch.cat([launches, launches * code[:, None], weight[:, 1:]], -1)

    def _taken(self, batch: Batch, fits: torch.Tensor) -> torch.Tensor:
        """Returns what the critics see of the choices of a batch."""
        place, level = np.divmod(batch.choice_NB[0], self.levels)
        taken = self._taught(self.tensor(place), self.tensor(level))
        return self._shown(taken, fits)

    def critic_loss(self, batch: Batch) -> torch.Tensor:
        """Returns the mean squared error of both critics."""
        with torch.no_grad():
            following, next_fits = self._tokens_of(batch.next_seen_NBI[0]), self._fits(batch.next_mask_NBA[0])
            action, density = self._sampled(following, self._normal(len(following), WHOLE + self.places))
            value = self.target(following, self._shown(action, next_fits)).amin(0)
            value = value - self.config.temperature * density
            target = self.tensor(batch.reward_NB[0], self.dtype) + self.tensor(batch.discount_NB[0], self.dtype) * value
        tokens, fits = self._tokens_of(batch.seen_NBI[0]), self._fits(batch.mask_NBA[0])
        return (self.critic(tokens, self._taken(batch, fits)) - target).square().mean()

    def _soft_loss(self, tokens: torch.Tensor, fits: torch.Tensor) -> torch.Tensor:
        """Returns the soft actor-critic's loss of the actor."""
        action, density = self._sampled(tokens, self._normal(len(tokens), WHOLE + self.places))
        if not self.config.critic_guides:
            return self.config.temperature * density.mean()
        value = self.critic(tokens, self._shown(action, fits)).amin(0)
        return (self.config.temperature * density - value).mean()

    # State

    def policy_arrays(self) -> PolicyArrays:
        """Returns a copy of the actor."""
        net = {
            **self.config.shape._asdict(),
            "noise_is_predicted": self.config.predicts == "noise",
            "tanh": self.config.tanh_noise,
            "limit": self.config.limit,
            "noisy": self.config.noisy_execution,
            "every_tick": self.config.noisy_execution,
        }
        arrays = self.actor.arrays(self.keep_T, self.signal_T)
        return PolicyArrays(arrays, [], {"algorithm": self.name, "head": "action", "net": net})


def nn_clip(net: torch.nn.Module, longest: float) -> None:
    """Scales a net's gradient to a Euclidean norm of at most ``longest``."""
    torch.nn.utils.clip_grad_norm_(net.parameters(), longest)


class EatA(Eat):
    """EAT-A: EAT without attention."""

    name = "eat-a"


class EatD(Eat):
    """EAT-D: EAT without diffusion."""

    name = "eat-d"


class EatDA(Eat):
    """EAT-DA: EAT without either."""

    name = "eat-da"


class EatPublished(Eat):
    """EAT as its public code trains it."""

    name = "eat-published"
