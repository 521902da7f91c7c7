"""Random small worlds, each as the package's environment and as the oracles' input."""

import math
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from noonward.model.cluster.environment import Environment, GpuCaps
from noonward.model.cluster.failures import JobFailures
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.tenant import Tenants
from noonward.model.cluster.withheld import StandingJobs, Withheld
from noonward.model.economics import Economics
from noonward.model.network import Network
from noonward.model.signals import Signals
from reference import each_slot, ledger
from reference.on_arrival import Job, Site
from reference.tenants import Budgets, Quotas, Tenant

START = datetime(2022, 3, 1, tzinfo=UTC)
HOUR_S = 3600.0
JOB_COLUMNS = ("arrival_s", "origin", "work", "class_", "gpus_min", "gpus_max", "slack_s", "move_gb", "result_gb")


def serves(policy):
    """Whether a cluster policy runs in small worlds: no net of forecasts knows their zones."""
    forecast = policy.sample.needs.forecast
    return forecast is None or not forecast.by_net


@dataclass
class World:
    """A small world in plain numbers; `rows` holds a dict per job, sorted by arrival, with JOB_COLUMNS and preset."""

    protocol: str
    sites: list
    homes: list
    network: dict  # name of the Network's field -> [ingress][site]
    rows: list
    window_h: int
    drained: bool
    slot_s: float = 300.0
    price: list | None = None
    carbon: list | None = None
    history_h: int = 0
    alpha: float = 0.0
    mu: float = 0.0
    caps: list | None = None
    hard: bool = True
    late_until_s: float = -math.inf
    late_usd: float = 0.0
    queued: bool = False
    freedoms: dict = field(default_factory=dict)  # class -> reference.suspension.Freedom
    failures: list | None = None  # (work at which it fails, [GPU-seconds between failures]) per job
    withheld: list | None = None  # withheld[site] = [(time_s, GPUs that no job may take from then on), ...]
    connections: list | None = None  # connections[site] = [(time_s, kW that no start may exceed), ...] or None
    standing: list = field(default_factory=list)  # (site, GPUs, end_s) of jobs that were running before the run
    tenants: list = field(default_factory=list)  # reference.tenants.Tenant; none for no quotas
    half_life_s: float | None = None
    start: datetime = START
    ranked: bool = False  # whether the rows' priorities count
    extra: dict = field(default_factory=dict)
    another: object = None  # draws the rows of another such world, given a random.Random

    def hours(self):
        """Hours that a run may touch."""
        end_s = self.window_h * HOUR_S
        gangs = range(1, max(row["gpus_max"] for row in self.rows) + 1)
        slowest_C = {
            c: max(site.unit_s(n, level, c) for site in self.sites for n in gangs for level in range(len(site.clocks)))
            for c in {row["class_"] for row in self.rows if self.drained}
        }
        for row in self.rows if self.drained else ():
            slot_s = self.slot_s if self.protocol == "each-slot" else 0.0
            last_s = row["arrival_s"] + row["slack_s"]
            last_s = self.late_until_s if math.isinf(last_s) else max(last_s, self.late_until_s)
            if self.late_until_s > -math.inf:
                last_s += max((freedom.load_s for freedom in self.freedoms.values()), default=0.0)
            end_s = max(end_s, last_s + row["work"] * slowest_C[row["class_"]] + slot_s)
        return math.ceil(end_s / HOUR_S)

    @property
    def hard_caps(self):
        return self.caps if self.hard else None

    def environment(self):
        """The package's environment."""
        fleet = self.fleet()
        signals = None
        if self.price is not None:
            signals = Signals(
                start=datetime.fromtimestamp(self.start.timestamp() - self.history_h * HOUR_S, UTC),
                zones=tuple(site.zone for site in fleet.sites),
                value_ZH={
                    "price_usd_per_mwh": np.array(self.extra["price"]),
                    "carbon_g_per_kwh": np.array(self.extra["carbon"]),
                },
            )
        return Environment(
            scenario="small",
            index=0,
            seed=0,
            start=self.start,
            protocol=self.protocol,
            slot_s=self.slot_s,
            window_s=self.window_h * HOUR_S,
            drained=self.drained,
            fleet=fleet,
            links=Network(**self.network, queued=self.queued).links(fleet),
            jobs=self.table(),
            signals=signals,
            economics=Economics(revenue_usd_per_gpu_hour=self.alpha, carbon_usd_per_t=self.mu) if signals else None,
            late_until_s=self.late_until_s,
            late_usd_per_gpu_hour=self.late_usd,
            sample_jobs=None if self.another is None else self.sample,
            withheld=self.announced(fleet),
            standing=self.standing_jobs(),
            failures=self.job_failures(),
            **self.stated_tenants(),
            caps=None if self.caps is None else GpuCaps(gpus_SH=np.array(self.caps, dtype=np.float64), hard=self.hard),
        )

    def stated_tenants(self):
        """Tenants and priorities, as the package's environment holds them."""
        ranks = (
            {"priorities": {}, "priority_J": np.array([row["priority"] for row in self.rows])} if self.ranked else {}
        )
        if not self.tenants:
            return ranks
        said = {f"tenant{t}": tenant.spec() for t, tenant in enumerate(self.tenants)}
        half_life_h = None if self.half_life_s is None else self.half_life_s / HOUR_S
        tenant_J = np.array([row["tenant"] for row in self.rows])
        tenants = Tenants.model_validate({"of": said, "half_life_h": half_life_h})
        return {"tenants": tenants, "tenant_J": tenant_J, **ranks}

    def stated_most(self):
        """The most that each tenant may ever hold: its quota in an empty world."""
        return [self.quotas().room(t) for t in range(len(self.tenants))]

    def quotas(self):
        """Tenants, as the oracles take them; None for none."""
        if not self.tenants:
            return Quotas([Tenant(10**9)], None, self.slot_s) if self.ranked else None
        budgets = Budgets(self.start, self.sites, self.price, self.carbon)
        return Quotas(self.tenants, self.half_life_s, self.slot_s, budgets)

    def announced(self, fleet):
        """What is withheld, as the package's environment holds it."""
        changes = [
            (time_s, s, gpus - (steps[k - 1][1] if k else 0))
            for s, steps in enumerate(self.withheld or ())
            for k, (time_s, gpus) in enumerate(steps)
        ]
        return Withheld.of(changes, fleet.tables(1).gpus_S)

    def job_failures(self):
        if self.failures is None:
            return None
        work_J, gpu_s_JK = zip(*self.failures, strict=True)
        return JobFailures(work_J=np.array(work_J), gpu_s_JK=np.array(gpu_s_JK))

    def standing_jobs(self):
        if not self.standing:
            return None
        site_J, gpus_J, end_s_J = (np.array(column) for column in zip(*self.standing, strict=True))
        return StandingJobs(
            site_J=site_J, gpus_J=gpus_J, end_s_J=end_s_J, told_end_s_J=end_s_J, power_w_J=100.0 * gpus_J
        )

    def unavailable(self):
        """Withheld GPUs with those of standing jobs, as the oracles take them; None for none."""
        if self.withheld is None and not self.standing:
            return None
        out = []
        for s, site in enumerate(self.sites):
            steps = (self.withheld or [[(0.0, 0)]] * len(self.sites))[s]
            mine = [(gpus, end_s) for where, gpus, end_s in self.standing if where == s]
            times = sorted({0.0, *(time_s for time_s, _ in steps), *(end_s for _, end_s in mine)})
            held = [sum(gpus for gpus, end_s in mine if time_s < end_s) for time_s in times]
            said = [ledger.withheld_at([steps], 0, time_s) for time_s in times]
            out.append([(t, min(site.gpus, h + w)) for t, h, w in zip(times, held, said, strict=True)])
        return out

    def sample(self, rng):
        """Another table of jobs like these, for schedulers that plan for jobs to come."""
        return self.table(self.another(random.Random(int(rng.integers(2**32)))))

    def table(self, rows=None):
        rows = self.rows if rows is None else rows
        column = {name: np.array([row[name] for row in rows]) for name in (*JOB_COLUMNS, "preset_site")}
        number_J = np.arange(len(rows))
        recorded = {
            "recorded_site": number_J % len(self.sites),
            "recorded_start_s": column["arrival_s"] + 400.0 * (number_J % 7),
        }
        return Jobs.build(data_gb=column["move_gb"] * 0.75, model_gb=column.pop("move_gb") * 0.25, **column, **recorded)

    def fleet(self):
        kinds = {}
        for s, site in enumerate(self.sites):
            classes = {}
            for c, (power, time) in enumerate(((site.power, site.time), *site.more)):
                curve = dict(zip(("constant_s", "per_clock_s", "per_gpu_s"), time, strict=True)) if time else "duration"
                watts = dict(zip(("cubic_w", "linear_w", "constant_w"), power, strict=True))
                classes[f"class{c}"] = {"power": watts, "time": curve}
            kinds[f"type{s}"] = {"idle_w": site.free_w, "clocks": site.clocks, "classes": classes}
        return Fleet.model_validate(
            {
                "gpu_types": kinds,
                "sites": tuple(
                    {"name": f"site{s}", "zone": f"Z{s}", "gpu_type": f"type{s}", "gpus": site.gpus, "pue": site.pue}
                    | ({} if self.connections is None or self.connections[s] is None else {"meter": self.meter(s)})
                    for s, site in enumerate(self.sites)
                ),
                "ingress": tuple(
                    {"name": f"ingress{i}", "home": None if home < 0 else f"site{home}"}
                    for i, home in enumerate(self.homes)
                ),
                "ranges": {
                    f"class{c}": tuple(f"site{s}" for s, site in enumerate(self.sites) if c not in site.barred)
                    for c in sorted({c for site in self.sites for c in site.barred})
                },
                "freedoms": {f"class{c}": freedom.spec() for c, freedom in self.freedoms.items()},
            }
        )

    def meter(self, s):
        """The meter of a site whose connection is hard."""
        steps = [{"from": self.start + timedelta(seconds=time_s), "kw": kw} for time_s, kw in self.connections[s]]
        return {"connection_kw": steps, "hard_connection": True}

    def carried(self):
        """What connections carry beside the standing jobs (100 W per GPU), as the oracles take it; None for none."""
        if self.connections is None:
            return None
        out = []
        for s, steps in enumerate(self.connections):
            mine = [(0.1 * gpus, end_s) for where, gpus, end_s in self.standing if where == s]
            times = sorted({0.0, *(time_s for time_s, _ in steps or ()), *(end_s for _, end_s in mine)})
            stand = [sum(kw for kw, end_s in mine if time_s < end_s) for time_s in times]
            said = [[kw for from_s, kw in steps or ((0.0, 0.0),) if from_s <= time_s][-1] for time_s in times]
            merged = [(t, max(0.0, kw - h)) for t, kw, h in zip(times, said, stand, strict=True)]
            out.append(None if steps is None else merged)
        return out

    def jobs(self):
        """The oracles' jobs."""
        return [
            Job(
                row["arrival_s"],
                row["origin"],
                row["work"],
                row["gpus_min"],
                row["gpus_max"],
                self.late_until_s
                if math.isinf(row["slack_s"]) and self.late_until_s > -math.inf
                else row["arrival_s"] + row["slack_s"],
                row["move_gb"],
                row["result_gb"],
                row["preset_site"] if row["preset_site"] >= 0 else None,
                row["class_"],
                row.get("tenant", 0),
                row["priority"] if self.ranked else 0,
            )
            for row in self.rows
        ]

    def ledger(self):
        return ledger.Ledger(*self.ledger_arguments())

    def ledger_arguments(self):
        return (
            self.sites,
            self.homes,
            self.network["usd_per_gb"],
            self.network["kwh_per_gb"],
            self.price,
            self.carbon,
            self.alpha,
            self.mu,
            self.window_h * HOUR_S,
            self.late_usd,
            self.unavailable(),
        )

    def plant(self):
        return each_slot.Plant(
            self.sites,
            self.homes,
            self.latency_s(),
            self.s_per_gb(),
            self.slot_s,
            self.window_h * HOUR_S,
            self.drained,
            self.hard_caps,
            self.late_until_s,
            self.unavailable(),
            self.quotas(),
            self.carried(),
        )

    def latency_s(self):
        return [[ms / 1000 for ms in row] for row in self.network["latency_ms"]]

    def s_per_gb(self):
        return [[60.0 / rate for rate in row] for row in self.network["throughput_gb_per_min"]]


def plain(
    gpus,
    jobs,
    *,
    protocol="each-slot",
    price=None,
    carbon=None,
    caps=None,
    clocks=(1.0,),
    time=None,
    more=(),
    **options,
):
    """A world for exact answers: one class of 100 W a GPU (at any clock), free GPUs draw nothing, links are free.

    Args:
        gpus: GPUs per site.
        jobs: A dict per job: `gpus` and whatever else of a row is not to be 0 (run 600 s, slack 1 h).
        protocol: Protocol.
        price: price[site][hour], the last value holds on; USD/MWh. None for a world without signals.
        carbon: carbon[site][hour]; zero where only prices are given.
        caps: caps[site][hour].
        clocks: Clock levels of every site.
        time: Coefficients of the seconds a unit; None: work is the run time in seconds.
        more: (power, time) of further classes.
        options: Further fields of World; `network` overrides single matrices.
    """
    count = len(gpus)
    sites = [Site(number, 0.0, clocks, (0.0, 0.0, 100.0), time, more=more) for number in gpus]
    default = {"work": 600.0, "slack_s": HOUR_S, "preset_site": -1}
    rows = []
    for job in jobs:
        job = dict(job)
        gang = job.pop("gpus", 1)
        rows.append(dict.fromkeys(JOB_COLUMNS, 0) | default | {"gpus_min": gang, "gpus_max": gang} | job)
    network = {"latency_ms": 0.0, "throughput_gb_per_min": 1.0, "usd_per_gb": 0.0, "kwh_per_gb": 0.0}
    matrices = {name: ((value,) * count,) * count for name, value in network.items()} | options.pop("network", {})
    options = {"window_h": 24, "drained": True, "slot_s": 60.0, "alpha": 1.0} | options
    world = World(protocol, sites, list(range(count)), matrices, rows, **options)
    if price is not None:
        hours = world.history_h + world.hours()
        carbon = carbon or [[0.0]] * count
        world.extra = {
            name: [list(row) + [row[-1]] * (hours + 1 - len(row)) for row in rows]
            for name, rows in (("price", price), ("carbon", carbon))
        }
        world.price, world.carbon = ([row[world.history_h : -1] for row in rows] for rows in world.extra.values())
    if caps is not None:
        world.caps = [list(row) + [row[-1]] * (world.hours() - len(row)) for row in caps]
    return world


def draw_site(rng, *, large):
    """A site of 1 to 8 GPUs (8 where `large`) with one to four clocks, a class of units and one of durations."""
    clocks = tuple(sorted(rng.sample((0.25, 0.5, 0.6, 0.75, 0.9, 1.0), rng.randint(1, 4))))
    power, further = (tuple(rng.choice((0.0, 10.0, 75.0, 120.0)) for _ in range(3)) for _ in range(2))
    time = (rng.choice((0.0, 0.5, 1.0)), rng.choice((0.5, 1.0, 2.0)), rng.choice((0.0, 0.125, 0.3)))
    gpus = 8 if large else rng.randint(1, 8)
    free_w, pue = rng.choice((0.0, 8.0, 25.0)), rng.choice((1.0, 1.25, 1.4))
    return Site(gpus, free_w, clocks, power, time, pue, ((further, None),))


def barred(rng, sites):
    """The sites, some of them (never the first, which takes every job) barred for some of the classes."""
    return [
        replace(site, barred=frozenset(c for c in range(2) if s and rng.random() < 0.4)) for s, site in enumerate(sites)
    ]


def draw_row(rng, points, *, ties, drained, span_s, grid_s):
    """A job; with `ties` its times are multiples of a grid, so that many things happen at one instant."""
    smallest = rng.choice((1, 1, 1, 2, 3, 8))
    work = rng.choice((0.5, 1.0, 2.0, 4.0)) * grid_s if ties else rng.lognormvariate(math.log(2 * grid_s), 1.0)
    slacks = [0.0, grid_s, 4 * grid_s, 20 * grid_s, *([] if drained else [math.inf])]
    slack = rng.choice(slacks)
    return {
        "arrival_s": rng.randrange(int(span_s / grid_s)) * grid_s if ties else rng.uniform(0.0, span_s),
        "origin": rng.randrange(points),
        "work": work,
        "class_": rng.randrange(2),
        "gpus_min": smallest,
        "gpus_max": smallest + rng.choice((0, 0, 1, 3, 10)),
        "slack_s": slack if ties else slack * rng.uniform(0.5, 1.5),
        "move_gb": rng.choice((0.0, 0.5, 1.0, 8.0)),
        "result_gb": rng.choice((0.0, 0.0, 0.5, 2.0)),
        "preset_site": -1,
    }


def draw(seed, protocol, *, drained=None, caps=None, signals=None, history_h=0):
    """A random world: 1 to 4 sites, 1 to 40 jobs; what is not given is drawn too (`caps`: none, hard or advisory)."""
    rng = random.Random(f"{seed} {protocol}")
    ties = rng.random() < 0.5
    drained = rng.random() < 0.5 if drained is None else drained
    caps = rng.choice(("none", "none", "hard", "advisory")) if caps is None else caps
    count = rng.randint(1, 4)
    sites = [draw_site(rng, large=s == 0) for s in range(count)]
    homes = rng.sample(range(count), count)
    if protocol == "on-arrival" and rng.random() < 0.5:
        homes = [rng.choice((-1, *range(count))) for _ in range(rng.randint(1, 3))]
    if random.Random(f"{seed} {protocol} ranges").random() < 0.5:
        sites = barred(random.Random(f"{seed} {protocol} barred"), sites)
    window_h, slot_s = rng.randint(1, 4), rng.choice((60.0, 300.0, 900.0, 3600.0))
    grid_s = rng.choice((300.0, 600.0))

    def matrix(*values):
        return tuple(tuple(float(rng.choice(values)) for _ in range(count)) for _ in homes)

    network = {
        "latency_ms": matrix(0, 1000, 60000, 300000),
        "throughput_gb_per_min": matrix(0.1, 1, 1, 2),
        "usd_per_gb": matrix(0, 0.01, 0.05),
        "kwh_per_gb": matrix(0, 0.005, 0.05),
    }
    number = rng.randint(1, 40)

    def another(rng):
        span_s = window_h * HOUR_S * 1.1
        rows = [
            draw_row(rng, len(homes), ties=ties, drained=drained, span_s=span_s, grid_s=grid_s) for _ in range(number)
        ]
        return sorted(rows, key=lambda row: row["arrival_s"])

    rows = another(rng)
    world = World(protocol, sites, homes, network, rows, window_h, drained, slot_s)
    world.another = another
    lateness = random.Random(f"{seed} {protocol} lateness")
    if lateness.random() < 0.3:
        world.late_until_s = window_h * HOUR_S + lateness.choice((-600.0, 0.0, 5000.0))
        world.late_usd = lateness.choice((0.0, 0.7))
        if drained and lateness.random() < 0.5:
            rows[0]["slack_s"] = math.inf
    add_signals(world, rng, rng.random() < 0.8 if signals is None else signals, history_h)
    if caps != "none":
        world.hard = caps == "hard"
        hours = world.hours() + 1  # an event may fall on the very end
        world.caps = [[rng.randint(0, site.gpus + 1) + rng.choice((0.0, 0.5)) for _ in range(hours)] for site in sites]
    return world


def withholding(world, seed):
    """Gives a world GPUs that are withheld for a time, some of them again and again, and jobs that stand at its start.

    Steps lie anywhere, on slots, on hours and on arrivals; a site may lose all its GPUs.
    """
    rng = random.Random(f"{seed} withheld")
    span_s = world.window_h * HOUR_S * 1.5
    times = [0.0, 3600.0, 2 * world.slot_s, *(row["arrival_s"] for row in world.rows)]
    if rng.random() < 0.8:
        world.withheld = []
        for site in world.sites:
            count = rng.randint(0, 4)
            at = sorted({rng.choice((rng.choice(times), rng.uniform(0.0, span_s))) for _ in range(count)} - {0.0})
            world.withheld.append([(time_s, rng.choice((0, rng.randint(0, site.gpus)))) for time_s in (0.0, *at)])
    if rng.random() < 0.6:
        for _ in range(rng.randint(1, 4)):
            s = rng.randrange(len(world.sites))
            end_s = rng.choice((rng.uniform(1.0, span_s), 3600.0, world.slot_s))
            world.standing.append((s, rng.randint(1, world.sites[s].gpus), end_s))
    return world


def connected(world, seed):
    """Gives most sites of a world a hard connection, of one power or of several in turn, some of which carry little."""
    rng = random.Random(f"{seed} connections")
    span_s = world.window_h * HOUR_S * 1.5
    world.connections = []
    for site in world.sites:
        most = max(site.power_w(1, level, c) for level in range(len(site.clocks)) for c in range(1 + len(site.more)))
        most_kw = site.gpus * max(most, site.free_w) * site.pue / 1000
        at = sorted({rng.uniform(0.0, span_s) for _ in range(rng.randint(0, 3))})
        steps = [(time_s, rng.uniform(0.05, 1.1) * most_kw) for time_s in (0.0, *at)]
        world.connections.append(steps if rng.random() < 0.8 else None)
    return world


def with_tenants(world, seed):
    """Gives a world one to four tenants, in cohorts or alone, and every job one of them that it fits into."""
    rng = random.Random(f"{seed} tenants")
    gpus = sum(site.gpus for site in world.sites)
    for _ in range(rng.randint(1, 4)):
        limits = {"borrow": rng.choice((None, 0, rng.randint(1, 6))), "lend": rng.choice((None, 0, rng.randint(1, 6)))}
        cohort = rng.choice((None, "a", "a", "b"))
        world.tenants.append(Tenant(rng.randint(0, gpus), cohort, **limits, weight=rng.choice((1.0, 2.0, 0.5))))
    world.tenants.append(Tenant(rng.randint(8, 12), rng.choice((None, "a"))))
    most = world.stated_most()
    for row in world.rows:
        row["tenant"] = rng.choice([t for t in range(len(most)) if row["gpus_min"] <= most[t]])
    world.half_life_s = rng.choice((None, 0.0, 900.0, 7200.0, 604800.0))
    return world


def with_priorities(world, seed):
    """Gives the jobs of a world priorities."""
    rng = random.Random(f"{seed} priorities")
    few = rng.sample(range(-100, 101), rng.randint(1, 4))
    for row in world.rows:
        row["priority"] = rng.choice(few)
    world.ranked = True
    return world


def with_budgets(world, seed):
    """Gives most tenants of a world a budget, of about what some of its jobs use, and a start before a new period."""
    rng = random.Random(f"{seed} budgets")
    world.start = START - timedelta(hours=rng.choice((1, 2, 3, 25, 26)))  # the last of February 2022 was a Monday
    site = world.sites[0]
    kwh = sum(row["work"] for row in world.rows) * site.unit_j(1, 0, 0) / 3.6e6 / len(world.rows) or 1.0
    for tenant in world.tenants:
        some = rng.randint(1, 4) * kwh * rng.choice((0.3, 1.0, 2.0))
        amounts = {"kwh": some}
        if world.price is not None:
            amounts |= {"usd": 0.05 * some, "kg": 0.3 * some}
        chosen = rng.sample(sorted(amounts), rng.randint(1, len(amounts)))
        period, limit = rng.choice(("day", "week", "month", "window")), rng.choice(("wait", "refuse"))
        if rng.random() < 0.8:
            tenant.budget = {name: amounts[name] for name in chosen} | {"period": period, "at_limit": limit}
    return world


def on_time(world):
    """Takes the rule of lateness from a world: every job must start within a finite slack."""
    world.late_until_s, world.late_usd = -math.inf, 0.0
    for row in world.rows:
        if math.isinf(row["slack_s"]):
            row["slack_s"] = 4 * HOUR_S


def add_signals(world, rng, wanted, history_h=0):
    """Gives a world hourly prices (some negative) and intensities over all the hours its run may touch."""
    if not wanted:
        return
    hours = history_h + world.hours() + 1
    price = [[rng.uniform(-20.0, 250.0) for _ in range(hours)] for _ in world.sites]
    carbon = [[rng.uniform(0.0, 800.0) for _ in range(hours)] for _ in world.sites]
    world.history_h, world.extra = history_h, {"price": price, "carbon": carbon}
    world.price, world.carbon = ([row[history_h:-1] for row in rows] for rows in (price, carbon))
    world.alpha, world.mu = rng.choice((0.05, 1.0)), rng.choice((0.0, 100.0))
