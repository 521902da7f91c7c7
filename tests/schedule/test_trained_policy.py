"""A trained net in a file: it answers as a plain forward pass does, wherever it runs, and says what does not fit."""

import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_scenario
from noonward.decision.brief import Brief
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError
from noonward.evaluate.conformance import check_scheduler
from noonward.forecasts.forecast import Forecast
from noonward.schedule.cluster.trained_policy import TrainedPolicy, read_policy, write_policy
from noonward.schedule.net_file import Block, perceptron, write_nets
from noonward.schedule.policies import make_scheduler
from reference import small_worlds

SITES = ("site0", "site1", "site2")
KINDS = {
    "paper": Observation(kind="paper"),
    "extended": Observation(kind="extended", forecast_h=2),
    "arrival": Observation(kind="paper", protocol="on-arrival", gpus_max=5),
    "clocks": Observation(kind="paper", protocol="on-arrival", gpus_max=5, levels=4),
    "clocks-extended": Observation(kind="extended", protocol="on-arrival", gpus_max=5, levels=4),
    "arrival-extended": Observation(kind="extended", protocol="on-arrival", gpus_max=5, signals=True, forecast_h=2),
}


def environment(protocol, seed=0, levels=0):
    """A world of three sites; with `levels`, of ten jobs, where one site has so many clock levels and another fewer."""
    while True:
        world = small_worlds.draw(seed, protocol, signals=True, history_h=24, caps="none")
        if world.homes == [0, 1, 2] and max(row["gpus_min"] for row in world.rows) <= 5:
            found = sorted(len(site.clocks) for site in world.sites)
            if not levels or (found[0] < found[-1] == levels and len(world.rows) >= 10):
                return world.environment()
        seed += 100


def make(path, observation, *, head="logits", shared=False, seed=0, extra=0, sites=SITES, **changes):
    """Writes a random net of two layers and returns its arrays."""
    rng = np.random.default_rng(seed)
    count = len(sites)
    agents = count if observation.protocol == "each-slot" else 1
    inputs = observation.global_size(count) + observation.own_size(count) + extra
    outputs = observation.choices(count) + (count if head == "site-gang" else 0)
    nets = 1 if shared else agents
    sizes = [(inputs, 16), (16, outputs)]
    weights = [rng.normal(size=(nets, *size)).astype(np.float32) for size in sizes]
    biases = [rng.normal(size=(nets, size[1])).astype(np.float32) for size in sizes]
    meta = {
        "algorithm": "none",
        "scenario": "small",
        "protocol": observation.protocol,
        "sites": list(sites),
        "observation": asdict(observation),
        "head": head,
        "record": {},
        "forecast": asdict(Forecast("persistence")) if observation.forecast_h else None,
    }
    write_policy(path, weights, biases, meta | changes)
    return weights, biases


def forward(weights, biases, x, n):
    """The plain forward pass of agent n, in double precision."""
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        net = n if len(weight) > 1 else 0
        x = x.astype(np.float64) @ weight[net] + bias[net]
        x = np.maximum(x, 0.0) if layer < len(weights) - 1 else x
    return x


def plain_choices(engine, arrays, head):
    out_N = np.zeros(engine.agents, np.int64)
    for n in range(engine.agents):
        if not engine.asked_BN[0, n]:
            continue
        out = forward(*arrays, np.concatenate([engine.global_BG[0], engine.own_BNO[0, n]]), n)
        good = engine.mask_BNA[0, n].astype(bool)
        if head == "site-gang":
            gangs = good.reshape(len(SITES), -1)
            site = int(np.where(gangs.any(1), out[: len(SITES)], -np.inf).argmax())
            of_site = np.where(gangs[site], out[len(SITES) :].reshape(gangs.shape)[site], -np.inf)
            out_N[n] = site * gangs.shape[1] + of_site.argmax()
        else:
            out_N[n] = np.where(good, out, -np.inf).argmax()
    return out_N


@pytest.mark.parametrize(
    ("kind", "head", "shared"),
    [
        ("paper", "logits", False),
        ("paper", "values", True),
        ("extended", "logits", False),
        ("arrival", "logits", True),
        ("arrival", "site-gang", False),
        ("arrival-extended", "site-gang", False),
        ("clocks", "logits", False),
        ("clocks", "site-gang", False),
        ("clocks-extended", "site-gang", False),
    ],
)
def test_it_answers_as_a_plain_forward_pass_does(tmp_path, kind, head, shared):
    observation = KINDS[kind]
    arrays = make(tmp_path / "net.npz", observation, head=head, shared=shared, seed=2)
    policy = TrainedPolicy(tmp_path / "net.npz")
    world, chosen = environment(observation.protocol, levels=observation.levels), set()
    engine = BatchEngine([world], observation, seeds=[0], forecast=Forecast("persistence"))
    policy.reset(Brief.of(world, policy.needs), np.random.default_rng(0))
    while not engine.done_B[0]:
        policy.decide(engine.row_view(0), engine.row_answers(0))
        choice_N = engine.choices_of(0)
        expected_N = plain_choices(engine, arrays, head)
        asked = engine.asked_BN[0]
        assert choice_N[asked].tolist() == expected_N[asked].tolist()
        chosen |= set(choice_N[asked].tolist())
        engine.step(np.where(asked, choice_N, 0)[None])
    assert len(chosen) >= 2
    if observation.levels:
        assert len({choice % observation.levels for choice in chosen}) >= 2
    compiled = run(world, policy)
    assert compiled.job_J.tobytes() == engine.outcome(0).job_J.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_the_rules_of_the_interface(tmp_path, kind):
    observation = KINDS[kind]
    if observation.levels:
        observation = replace(observation, levels=8)  # as many as the worlds of the check have
    make(tmp_path / "net.npz", observation)
    check_scheduler(TrainedPolicy(tmp_path / "net.npz"), seeds=[0])


def test_of_equal_outputs_the_first_feasible_choice_is_taken(tmp_path):
    observation = KINDS["paper"]
    weights, biases = make(tmp_path / "net.npz", observation)
    zeros = [np.zeros_like(array) for array in weights], [np.zeros_like(array) for array in biases]
    write_policy(tmp_path / "zero.npz", *zeros, read_policy(tmp_path / "net.npz").meta)
    outcome = run(environment("each-slot"), TrainedPolicy(tmp_path / "zero.npz"))
    assert not outcome.started_J.any()  # every job is held until it is overdue


def test_it_runs_without_the_training_library(tmp_path):
    make(tmp_path / "net.npz", KINDS["paper"], sites=("north", "south"))
    code = (
        "import sys\n"
        "for name in ('torch', 'gymnasium', 'pettingzoo', 'tensorboard'): sys.modules[name] = None\n"
        "from noonward import build_environment, load_scenario, run\n"
        "from noonward.schedule.cluster.trained_policy import TrainedPolicy\n"
        f"outcome = run(build_environment(load_scenario('tiny')), TrainedPolicy({str(tmp_path / 'net.npz')!r}))\n"
        "assert outcome.steps > 10\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_sites_other_protocols_and_other_sizes_are_refused(tmp_path):
    path = tmp_path / "net.npz"
    make(path, KINDS["paper"], sites=("north", "south"))
    with pytest.raises(ScenarioError, match=r"trained for the sites north, south, but scenario 'small' has site0"):
        run(environment("each-slot"), TrainedPolicy(path))
    with pytest.raises(ScenarioError, match="answers the protocols each-slot, but scenario 'small' asks on-arrival"):
        run(environment("on-arrival"), TrainedPolicy(path))
    make(path, KINDS["paper"], extra=3)
    with pytest.raises(ScenarioError, match=r"is fed 24 numbers, but its observation of scenario 'small' has 21"):
        run(environment("each-slot"), TrainedPolicy(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "logit"}, r"unknown head 'logit'; did you mean 'logits'\?"),
        ({"head": "site-gang"}, "'site-gang' is for protocol on-arrival only"),
        ({"observation": {"kind": "papper"}}, "unknown observation or forecast: .*did you mean 'paper'"),
        ({"observation": {"kind": "paper", "colour": 1}}, "unknown observation or forecast: .*colour"),
        ({"observation": {"kind": "extended", "forecast_h": 3}}, "meta has no 'forecast'"),
        ({"protocol": "on-arrival"}, "names the protocol 'on-arrival', its observation 'each-slot'"),
        ({"sites": ["a", "b"]}, r"layer 0 .* with N = 1 or 2"),
        ({"record": ...}, "meta lacks record"),
    ],
)
def test_a_file_that_does_not_fit_is_explained(tmp_path, changes, message):
    path = tmp_path / "net.npz"
    weights, biases = make(path, KINDS["paper"])
    meta = read_policy(path).meta | changes
    meta = {name: value for name, value in meta.items() if value is not ...}
    with pytest.raises(DataError, match=message):
        write_policy(tmp_path / "other.npz", weights, biases, meta)
    write_nets(path, {"policy": perceptron(weights, biases)}, meta)
    with pytest.raises(DataError, match=message):
        TrainedPolicy(path)
    assert not (tmp_path / "other.npz").exists()


def test_weights_that_do_not_fit_are_explained(tmp_path):
    path = tmp_path / "net.npz"
    weights, biases = make(path, KINDS["paper"])
    meta = read_policy(path).meta
    with pytest.raises(DataError, match=r"layer 1 has weights of shape \(3, 16, 3\)"):
        write_policy(path, [weights[0], weights[1][:, :, :3]], biases, meta)
    with pytest.raises(DataError, match="layer 0 is of type float64 and float32"):
        write_policy(path, [weights[0].astype(np.float64), weights[1]], biases, meta)
    with pytest.raises(DataError, match="layer 1 holds a value that is not finite"):
        write_policy(path, [weights[0], weights[1] * np.float32(np.nan)], biases, meta)
    with pytest.raises(DataError, match="2 weights and 1 biases"):
        write_policy(path, weights, biases[:1], meta)


def test_a_file_that_is_no_policy_is_explained(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        TrainedPolicy(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("text", encoding="utf-8")
    with pytest.raises(DataError, match="is no trained policy"):
        TrainedPolicy(tmp_path / "text.npz")
    np.savez(tmp_path / "bare.npz", weight_0=np.zeros(1))
    with pytest.raises(DataError, match="'meta' is missing"):
        TrainedPolicy(tmp_path / "bare.npz")
    np.savez(tmp_path / "old.npz", weight_0=np.zeros(1), meta=np.array('{"format": 1}'))
    with pytest.raises(DataError, match="of format 1; this version reads format 2; export it again"):
        TrainedPolicy(tmp_path / "old.npz")


def test_nets_that_the_compiled_loop_cannot_run_are_refused(tmp_path):
    path = tmp_path / "net.npz"
    weights, biases = make(path, KINDS["paper"])
    meta, blocks = read_policy(path).meta, perceptron(weights, biases)
    write_nets(path, {"policy": blocks, "critic": blocks}, meta)
    with pytest.raises(DataError, match="holds the nets policy, critic; a policy for clusters is one net 'policy'"):
        TrainedPolicy(path)
    linear = tuple(Block(each.type, each.arrays, {"activation": "none"}) for each in blocks)
    write_nets(path, {"policy": linear}, meta)
    with pytest.raises(DataError, match="activations none, none; a policy for clusters has relu after every layer"):
        TrainedPolicy(path)


@pytest.mark.parametrize(("gang_mask", "levels"), [("site", 0), ("fleet", 0), ("site", 4)])
def test_a_drawn_answer_follows_the_softmax_over_what_fits(tmp_path, gang_mask, levels):
    observation = Observation(kind="paper", protocol="on-arrival", gpus_max=5, levels=levels)
    world, options = environment("on-arrival", levels=levels), 5 * max(1, levels)
    weights, biases = make(tmp_path / "p.npz", observation, head="site-gang")
    arrays = [0.2 * weight for weight in weights], biases
    meta = read_policy(tmp_path / "p.npz").meta | {"execute": "sample", "gang_mask": gang_mask}
    write_policy(tmp_path / "p.npz", *[[each.astype(np.float32) for each in part] for part in arrays], meta)
    engine = BatchEngine([world], observation, seeds=[0])
    for _ in range(8):  # to a question where some sites are partly busy
        engine.step(engine.mask_BNA.argmax(2))
    out = forward(*arrays, engine.global_BG[0], 0)
    mask_SG = engine.mask_BNA[0, 0].reshape(3, options).astype(bool)
    expected = np.zeros((3, options))
    sites = np.flatnonzero(mask_SG.any(1))
    site_p = np.exp(out[sites]) / np.exp(out[sites]).sum()
    for s, p in zip(sites, site_p, strict=True):
        good = np.flatnonzero(mask_SG[s] if gang_mask == "site" else mask_SG.any(0))
        logits = out[3:].reshape(3, options)[s if gang_mask == "site" else 0, good]
        for gang, q in zip(good, np.exp(logits) / np.exp(logits).sum(), strict=True):
            expected[s, min(gang, np.flatnonzero(mask_SG[s])[-1])] += p * q
    policy, counts = TrainedPolicy(tmp_path / "p.npz"), np.zeros((3, options))
    policy.reset(Brief.of(world, policy.needs), np.random.default_rng(0))
    draws = 4000
    for _ in range(draws):
        policy.decide(engine.row_view(0), engine.row_answers(0))
        counts[divmod(engine.choices_of(0)[0], options)] += 1
    assert (counts[expected == 0] == 0).all()
    spread = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(counts / draws - expected) <= 5 * spread).all()
    assert expected.max() < 0.9


@pytest.mark.parametrize("kind", ["paper", "clocks"])
def test_a_choice_drawn_by_logits_follows_the_softmax_over_what_fits(tmp_path, kind):
    observation = KINDS[kind]
    world = environment(observation.protocol, levels=observation.levels)
    weights, biases = make(tmp_path / "p.npz", observation)
    arrays = [np.float32(0.2) * weight for weight in weights], biases
    write_policy(tmp_path / "p.npz", *arrays, read_policy(tmp_path / "p.npz").meta | {"execute": "sample"})
    engine = BatchEngine([world], observation, seeds=[0])
    while engine.mask_BNA[0, int(engine.asked_BN[0].argmax())].sum() < 2:
        engine.step(engine.mask_BNA.argmax(2))
    agent = int(engine.asked_BN[0].argmax())
    good = np.flatnonzero(engine.mask_BNA[0, agent])
    x = np.concatenate([engine.global_BG[0], engine.own_BNO[0, agent]])
    logits = forward(*arrays, x, agent)[good]
    p = np.exp(logits) / np.exp(logits).sum()
    policy, counts, draws = TrainedPolicy(tmp_path / "p.npz"), np.zeros(len(engine.mask_BNA[0, agent])), 4000
    policy.reset(Brief.of(world, policy.needs), np.random.default_rng(0))
    for _ in range(draws):
        policy.decide(engine.row_view(0), engine.row_answers(0))
        counts[engine.choices_of(0)[agent]] += 1
    assert counts[good].sum() == draws
    assert (np.abs(counts[good] / draws - p) <= 5 * np.sqrt(p * (1 - p) / draws)).all()
    assert p.max() < 0.9


def test_gangs_of_the_fleet_and_clocks_to_choose_from_are_refused_together(tmp_path):
    with pytest.raises(DataError, match="gangs are chosen given the site; use gang_mask='site'"):
        make(tmp_path / "p.npz", KINDS["clocks"], head="site-gang", gang_mask="fleet")


@pytest.mark.parametrize(("name", "value"), [("execute", "dream"), ("gang_mask", "none")])
def test_unknown_ways_to_act_are_named(tmp_path, name, value):
    with pytest.raises(DataError, match=name):
        make(tmp_path / "p.npz", KINDS["arrival"], head="site-gang", **{name: value})
    with pytest.raises(DataError, match="site-gang"):
        make(tmp_path / "p.npz", KINDS["arrival"], gang_mask="fleet")
    with pytest.raises(DataError, match="no log-weights to draw from"):
        make(tmp_path / "p.npz", KINDS["arrival"], head="values", execute="sample")


@pytest.mark.parametrize("name", ["masac", "bid-price-neural"])
def test_a_policy_in_a_month_it_was_trained_on_says_so(name):
    policy, notes = make_scheduler(name), {}
    for part in ("train", "test"):
        environment = build_environment(split_scenario(load_scenario("fine-tuning"), part))
        notes[part] = policy.remarks(Brief.of(environment, policy.needs))
    assert "trained on the months 1, 2, 5, 7, 8, 11" in notes["train"][0]
    assert notes["test"] == ()


def test_a_policy_in_another_scenario_than_its_own_says_so():
    own = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    other = build_environment(load_scenario("dvfs-mixed", ["window_h=1"]))
    policy = make_scheduler("chsac-af")
    assert policy.remarks(Brief.of(own, policy.needs)) == ()
    (remark,) = policy.remarks(Brief.of(other, policy.needs))
    assert "trained in scenario 'dvfs-training'" in remark
    assert "'dvfs-mixed'" in remark
