"""CHSAC-AF: losses by plain loops, masks, multipliers, the toy that is learned corrected and is not as published."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learn import two_dispatch_sites as toy
from noonward import build_environment, load_scenario, make_scheduler, run
from noonward.errors import ScenarioError
from noonward.learn.algorithms.chsac import Chsac, ChsacConfig, PublishedChsac, PublishedConfig, quantile_huber
from noonward.learn.core.experience import ActionSpec, Dimensions, Transition
from noonward.learn.core.replay import Batch
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.source import Source
from noonward.learn.train.run_config import with_settings
from noonward.schedule.policy_files import load_policy

SIZES = Dimensions(
    agents=1,
    actions=ActionSpec.of(site=2, gpus=3),
    global_size=4,
    own_size=0,
    costs=("mean_latency_s",),
    counts=("work", "decisions"),
)
SMALL: dict[str, Any] = {"hidden": (8, 8), "quantiles": 4, "batch": 16, "precision": "float64", "capacity": 1000}
FAST: dict[str, Any] = {
    "hidden": (32, 32),
    "quantiles": 8,
    "batch": 128,
    "rate": 3e-3,
    "target_rate": 0.02,
    "gamma": 0.5,
    "temperature": 0.02,
    "temperature_rate": 0.0,
    "fewer_gpus": 0.0,
    "average_rate": 0.02,
    "capacity": 20_000,
}
SETTLING: dict[str, Any] = {**FAST, "dual_rate": 0.005, "dual_damping": 0.3, "average_rate": 0.05}
CONFIGS = [
    ChsacConfig(**SMALL),
    ChsacConfig(**{**SMALL, "kappa": 0.3, "centre": False, "fewer_gpus": 0.2}),
    ChsacConfig(**{**SMALL, "gang_head": "fleet", "weigh_by_size": False}),
]


def batch(seed: int, size: int = 16) -> Batch:
    rng = np.random.default_rng(seed)

    def mask() -> Any:
        out = rng.random((1, size, 6)) < 0.5
        out[..., 2] |= ~out.any(-1)
        return out

    first = mask()
    return Batch(
        seen_NBI=rng.normal(size=(1, size, 4)).astype(np.float32),
        mask_NBA=first,
        asked_NB=np.ones((1, size), bool),
        choice_NB=np.where(first, rng.random(first.shape), -1).argmax(-1),
        reward_NB=rng.normal(size=(1, size)),
        cost_NBK=rng.uniform(0.5, 1.5, size=(1, size, 3)),
        discount_NB=np.where(rng.random((1, size)) < 0.2, 0.0, 0.9),
        next_seen_NBI=rng.normal(size=(1, size, 4)).astype(np.float32),
        next_mask_NBA=mask(),
    )


def made(config: ChsacConfig) -> Chsac:
    out = Chsac(SIZES, config, seed=3)
    out.multiplier_K[:] = 0.7
    out.mean_X[:] = [-3.0, 0.1, 1.2, 1.0]
    return out


def latent(net: Any, seen: Any) -> Any:
    h = torch.tensor(seen, dtype=torch.float64)
    for weight, bias in zip(net.weights, net.biases, strict=True):
        h = torch.clamp(h @ weight[0] + bias[0, 0], min=0.0)
    return h


def policy(chsac: Chsac, h: Any, mask: Any) -> dict[tuple[int, int], Any]:
    """Returns pi(d) pi(n | d) (pi(d) pi(n) with one head) of every pair that is not masked, by its definition."""
    out = h @ chsac.actor.weights[0][0] + chsac.actor.biases[0][0, 0]
    sites = [d for d in range(2) if mask[3 * d : 3 * d + 3].any()]
    top = sum(torch.exp(out[d]) for d in sites)
    p = {}
    for d in sites:
        per_site = chsac.config.gang_head == "site"
        gangs = [n for n in range(3) if (mask[3 * d + n] if per_site else mask[n] or mask[3 + n])]
        at = 2 + 3 * d if per_site else 2
        total = sum(torch.exp(out[at + n]) for n in gangs)
        for n in gangs:
            p[d, n] = torch.exp(out[d]) / top * torch.exp(out[at + n]) / total
    return p


def quantiles(critics: Any, twin: int, h: Any, a: int) -> Any:
    return torch.stack([h @ critics.weight_KAQH[twin, a, q] + critics.bias_KAQ[twin, a, q] for q in range(4)])


def plain_losses(chsac: Chsac, b: Batch) -> tuple[float, float]:
    """Returns the critics' and the actor's loss, sample by sample and quantile by quantile."""
    c, alpha, critic, actor = chsac.config, chsac.temperature, 0.0, 0.0
    size = b.reward_NB.shape[1]
    column = 1 if c.weigh_by_size else 2
    centre = (-3.0 - 0.7 * 0.1) / chsac.mean_X[1 + column] if c.centre else 0.0
    for i in range(size):
        h, following = latent(chsac.encoder, b.seen_NBI[0, i]), latent(chsac.encoder, b.next_seen_NBI[0, i])
        apart = latent(chsac.target_encoder, b.next_seen_NBI[0, i])
        p = policy(chsac, following, b.next_mask_NBA[0, i])
        spread = -sum(x * torch.log(x) for x in p.values())
        twins = [
            sum(x * quantiles(chsac.target_critics, k, apart, 3 * d + n) for (d, n), x in p.items()) for k in range(2)
        ]
        value = min(twins, key=lambda z: float(z.mean()))
        cost = b.cost_NBK[0, i]
        y = b.reward_NB[0, i] - 0.7 * cost[0] - cost[column] * centre + b.discount_NB[0, i] * (value + alpha * spread)
        for k, q in itertools.product(range(2), range(4)):
            z = quantiles(chsac.critics, k, h, int(b.choice_NB[0, i]))[q]
            for other in range(4):
                error = float(y[other] - z)
                huber = 0.5 * error**2 if abs(error) <= c.kappa else c.kappa * (abs(error) - 0.5 * c.kappa)
                critic += abs((q + 0.5) / 4 - (error < 0)) * huber / c.kappa / 4 / size
        now = policy(chsac, h, b.mask_NBA[0, i])
        for (d, n), x in now.items():
            least = min(float(quantiles(chsac.critics, k, h, 3 * d + n).mean()) for k in range(2))
            actor += float(x * (alpha * torch.log(x) - least)) / size
    return critic, actor


@pytest.mark.parametrize("config", CONFIGS, ids=("default", "other", "fleet"))
def test_losses_are_those_of_a_plain_loop(config: ChsacConfig) -> None:
    chsac, b = made(config), batch(1)
    losses = chsac.losses(b)
    with torch.no_grad():
        critic, actor = plain_losses(chsac, b)
    assert losses.critic.item() == pytest.approx(critic, rel=1e-9)
    assert losses.actor.item() == pytest.approx(actor, rel=1e-9)


def test_infeasible_choices_have_no_probability_in_acting_and_in_targets() -> None:
    chsac, b = made(CONFIGS[0]), batch(2)
    with torch.no_grad():
        h = chsac._latent(chsac.encoder, b.next_seen_NBI[0])
        p_BA = chsac._log_policy(chsac.actor, h, b.next_mask_NBA[0]).exp().numpy()
    assert (p_BA[~b.next_mask_NBA[0]] == 0.0).all()
    assert p_BA.sum(1) == pytest.approx(1.0)
    one_site = b._replace(next_mask_NBA=np.broadcast_to(np.arange(6) < 3, (1, 16, 6)).copy())
    before = chsac._targets(one_site)
    with torch.no_grad():
        chsac.target_critics.weight_KAQH[:, 3:] += 1e6
    assert torch.equal(before, chsac._targets(one_site))
    assert not torch.equal(before, chsac._targets(b))


def gradient_of_the_heads(algorithm: Chsac, lift: float) -> Any:
    """Returns the actor's gradient on a batch when every second choice is worth so much more."""
    with torch.no_grad():
        algorithm.critics.bias_KAQ[:, ::2] += lift
    algorithm.actor.zero_grad()
    algorithm.losses(batch(4)).actor.backward()
    return algorithm.actor.weights[0].grad.clone()


def test_no_gradient_of_the_values_reaches_the_published_policy() -> None:
    for kind, config, moves in ((Chsac, ChsacConfig, True), (PublishedChsac, PublishedConfig, False)):
        found = [gradient_of_the_heads(kind(SIZES, config(**SMALL), seed=1), lift) for lift in (0.0, 5.0)]
        assert torch.equal(*found) != moves


def test_the_published_targets_are_the_rewards_alone() -> None:
    chsac = PublishedChsac(SIZES, PublishedConfig(**SMALL), seed=1)
    assert chsac._targets(batch(5))[:, 0].numpy() == pytest.approx(batch(5).reward_NB[0])


def test_the_toy_is_learned_corrected_and_not_as_published() -> None:
    least, _, _ = toy.best_of(None)
    learner = Chsac(toy.dimensions(), ChsacConfig(**FAST), seed=0)
    toy.play(learner, 400)
    assert toy.play(learner, 200, learn=False)[0] == pytest.approx(least, rel=0.02)
    published = PublishedChsac(toy.dimensions(), PublishedConfig(**FAST), seed=0)
    toy.play(published, 400)
    always_the_same = toy.ENERGY.min()  # mean price 1
    assert toy.play(published, 200, learn=False)[0] > always_the_same > 1.1 * least


def test_a_limit_that_binds_is_met_and_its_multiplier_settles() -> None:
    limit_s = 200.0
    least, _, known = toy.best_of(limit_s)
    assert known > 0.1
    learner = Chsac(toy.dimensions("mean_latency_s"), ChsacConfig(**SETTLING), seed=0)
    told = toy.play(learner, 900, limit_s=limit_s)[2]
    found_J, latency_s, _ = toy.play(learner, 400, learn=False)
    late = np.array([each["multiplier/mean_latency_s"] for each in told[-300:]])
    assert latency_s == pytest.approx(limit_s, rel=0.02)
    assert found_J == pytest.approx(least, rel=0.03)
    assert late.mean() == pytest.approx(known, rel=0.15)
    assert late.std() < 0.1 * known


def test_a_cooled_policy_is_less_random_and_keeps_the_limit() -> None:
    limit_s = 200.0
    least, _, _ = toy.best_of(limit_s)
    cooled = {"cooled_entropy": 0.05, "cooling_from": 400, "cooling_until": 1200}
    spread = []
    for more, steps in (({}, 600), (cooled, 1500)):
        config = ChsacConfig(**{**SETTLING, "target_entropy": 0.3, "temperature_rate": 0.005, **more})
        learner = Chsac(toy.dimensions("mean_latency_s"), config, seed=0)
        told = toy.play(learner, steps, limit_s=limit_s)[2]
        spread.append(np.mean([each["entropy"] for each in told[-200:]]))
    found_J, latency_s, _ = toy.play(learner, 400, learn=False)
    assert spread[1] < 0.5 * spread[0]
    assert latency_s == pytest.approx(limit_s, rel=0.02)
    assert found_J == pytest.approx(least, rel=0.02)


def test_the_steps_of_the_multipliers_cool_with_the_entropy() -> None:
    steps = []
    for updates in (0, 100):
        learner = Chsac(SIZES, ChsacConfig(**SMALL, cooled_entropy=0.01, cooling_until=100), seed=1)
        learner.updates = updates
        learner.fresh_X[:] = [-3.0, 0.2, 1.0, 1.0]
        learner._dual_step()
        steps.append(learner.multiplier_K[0])
    assert steps == pytest.approx([0.2 * (0.1 + 0.5), 0.1 * 0.2 * (0.1 + 0.5)])


@pytest.mark.parametrize(
    "given",
    [
        {"cooling_until": 5},
        {"cooled_entropy": 0.2, "cooling_until": 5},
        {"cooled_entropy": 0.0, "cooling_until": 5},
        {"cooled_entropy": 0.05, "cooling_from": 5, "cooling_until": 5},
    ],
)
def test_a_cooling_that_cannot_be_is_refused(given: Any) -> None:
    with pytest.raises(ScenarioError, match="cooled_entropy"):
        ChsacConfig(**given)


CLOCKED = Dimensions(
    agents=1,
    actions=ActionSpec.of(site=2, gpus=2, clock=3),
    global_size=4,
    own_size=0,
    costs=("mean_latency_s",),
    counts=("work", "decisions"),
)


def test_fewer_gpus_are_preferred_whatever_the_clock() -> None:
    learner = Chsac(CLOCKED, ChsacConfig(**SMALL, fewer_gpus=0.3), seed=1)
    rows = 12
    moment = toy.moment(np.ones((rows, 2)), np.ones((rows, 12), bool))
    moment = moment._replace(global_BG=np.zeros((rows, 4), np.float32))
    none_B, ones_B = np.zeros(rows, bool), np.ones(rows)
    kept: list[Any] = []
    learner.replay.observe = lambda transition: kept.append(transition.reward_B)  # type: ignore[method-assign]
    transition = Transition(
        moment, np.arange(rows)[:, None], -ones_B, ones_B, np.ones((rows, 3)), none_B, none_B, moment
    )
    learner.observe(transition)
    assert kept[0] == pytest.approx(-1.0 + np.tile(np.repeat([0.3, 0.15], 3), 2))


def test_clocks_to_choose_from_and_one_head_of_gangs_are_refused() -> None:
    with pytest.raises(ScenarioError, match="set gang_head=site or clocks=oracle"):
        Chsac(CLOCKED, ChsacConfig(**SMALL, gang_head="fleet"), seed=1)


def test_a_limit_that_does_not_bind_has_multiplier_0() -> None:
    learner = Chsac(toy.dimensions("mean_latency_s"), ChsacConfig(**{**FAST, "dual_rate": 0.05}), seed=0)
    learner.held_K[:] = 0.5
    told = toy.play(learner, 400, limit_s=450.0)[2]
    assert max(each["multiplier/mean_latency_s"] for each in told[-50:]) == 0.0
    published = PublishedChsac(toy.dimensions("mean_latency_s"), PublishedConfig(**FAST), seed=0)
    published.held_K[:] = 0.5
    assert toy.play(published, 50, limit_s=450.0)[2][-1]["multiplier/mean_latency_s"] == 0.5


def test_the_quantiles_of_a_known_distribution_are_found() -> None:
    rng = torch.Generator().manual_seed(0)
    q = torch.zeros((1, 1, 5), dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([q], lr=0.02)
    for _ in range(1500):
        target = torch.rand((256, 1), generator=rng, dtype=torch.float64)
        adam.zero_grad()
        quantile_huber(q.expand(1, 256, 5), target, 1e-3).backward()
        adam.step()
    assert q.detach().numpy().ravel() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9], abs=0.04)


def test_errors_are_weighed_by_the_quantile_of_either_side() -> None:
    taken, target = torch.tensor([[[0.0, 10.0]]]), torch.tensor([[4.0, 6.0]])
    # Huber losses with kappa 1: errors 4, 6, -6, -4 cost 3.5, 5.5, 5.5, 3.5; tau 0.25 and 0.75.
    by_prediction = (0.25 * 3.5 + 0.25 * 5.5 + 0.25 * 5.5 + 0.25 * 3.5) / 2
    by_target = (0.25 * 3.5 + 0.75 * 5.5 + 0.75 * 5.5 + 0.25 * 3.5) / 2
    assert quantile_huber(taken, target, 1.0).item() == pytest.approx(by_prediction)
    assert quantile_huber(taken, target, 1.0, by_target=True).item() == pytest.approx(by_target)


@pytest.mark.parametrize(
    ("name", "value"),
    [("quantiles", 0), ("actor_gradient", "hard"), ("gamma", 1.5), ("hidden", ()), ("excess", "both"), ("kappa", 0.0)],
)
def test_a_setting_out_of_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ScenarioError, match=name):
        ChsacConfig(**{name: value})


def test_an_each_slot_scenario_is_refused(tmp_path: Path) -> None:

    with pytest.raises(ScenarioError, match="on-arrival"):
        with_settings("chsac-af", ClusterTask(sources=(Source(scenario="tiny"),)), ["reward=energy"]).open()


@pytest.mark.parametrize("name", ["chsac-af", "chsac-af-published"])
def test_a_shipped_policy_answers_the_same_in_both_loops_and_says_how_it_was_made(name: str) -> None:
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1"]), 0, 0)
    tracks = [run(environment, make_scheduler(name), compiled=way).job_J for way in (True, False)]
    assert tracks[0].tobytes() == tracks[1].tobytes()
    record = make_scheduler(name).net.meta["record"]  # type: ignore[attr-defined]
    assert record["config"]["algorithm"] == name
    assert record["seeds"]["train"] == 10_000
    assert record["curve"][-1]["best_epoch"] == record["best_epoch"]


def test_a_policy_that_chooses_clocks_is_trained_exported_and_runs_the_same_in_both_loops(tmp_path: Path) -> None:
    from noonward.learn.train.export import export_policy
    from noonward.learn.train.trainer import Trainer

    given = [
        *("reward=energy", "clocks=free", "steps=30", "updates=2", "environments=2", "hidden=[8]", "quantiles=3"),
        *("batch=8", "capacity=400", "validation_environments=1", "validate_every=1"),
    ]
    source = Source(scenario="dvfs-training", settings=("window_h=1",))
    config = with_settings("chsac-af", ClusterTask(sources=(source,)), given, epochs=1)
    trainer = Trainer(config, config.open(), tmp_path / "run")
    assert trainer.algorithm.dimensions.choices == 8 * 8 * 8
    trainer.run()
    export_policy(tmp_path / "run", tmp_path / "policy.npz", half=True)
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1"]), 0, 0)
    policy = load_policy(tmp_path / "policy.npz")
    tracks = [run(environment, policy, compiled=way).job_J for way in (True, False)]
    assert tracks[0].tobytes() == tracks[1].tobytes()
    started = ~np.isnan(tracks[0]["start_s"])
    assert len(set(tracks[0]["level"][started].tolist())) == 8  # hardly trained: every clock is drawn
    with pytest.raises(ScenarioError, match="leave out clocks=free"):
        with_settings("masac", ClusterTask(sources=(Source(scenario="tiny"),)), ["clocks=free"]).open()


def test_the_clock_that_weighs_time_reaches_training_and_what_was_trained(tmp_path: Path) -> None:
    from noonward.learn.train.trainer import Trainer

    given = [
        *("reward=energy", "steps=100", "updates=1", "environments=2", "hidden=[8]", "quantiles=3", "batch=8"),
        "capacity=400",
    ]
    joules, clocks, times = [], [], []
    for watts in (0, 300):
        settings = ("window_h=1", f"fleet.clock_weight_w={watts}")
        config = with_settings(
            "chsac-af", ClusterTask(sources=(Source(scenario="dvfs-training", settings=settings),)), given, epochs=1
        )
        trainer = Trainer(config, config.open(), tmp_path / str(watts))
        clocks.append(trainer.rows.moment.global_BG[0, 3])  # of us-west, one GPU
        trainer.run()
        joules.append(trainer.curves[0]["reward_per_step"])
        outcome = run(
            build_environment(load_scenario("dvfs-training", list(settings)), 0, 0),
            make_scheduler("chsac-af-published"),
        )
        times.append(np.nanmean(outcome.job_J["finish_s"] - outcome.environment.jobs.arrival_s_J))
    assert clocks[0] == pytest.approx(0.8)
    assert clocks[1] == pytest.approx(1.0)
    assert joules[1] < joules[0]  # the faster clock takes more energy
    assert times[1] < 0.95 * times[0]
