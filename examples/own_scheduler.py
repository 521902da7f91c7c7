"""A scheduler of one's own in plain Python, checked and compared with two of the package's on a tiny scenario.

Run it with ``python examples/own_scheduler.py``, or from this folder with
``noonward compare tiny --policies local-fcfs,own_scheduler:CheapestSite``.
"""

from noonward import Needs, Scheduler, check_scheduler, compare, load_scenario, register


class CheapestSite(Scheduler):
    """Runs each job at the site of lowest price among those with room now; without room it waits."""

    needs = Needs(protocols=("each-slot",), signals=True)

    def decide(self, view, answers):
        """Answers for every site that asks about a job."""
        for here, job in view.asked():
            gpus = view.job_J["gpus_min"][job]
            room = [d for d, free in enumerate(view.free_S) if free >= gpus and view.allowed(here, d)]
            if room:
                answers.send(here, min(room, key=view.price_S.__getitem__))


def main() -> None:
    """Checks the scheduler against the rules of the interface, then prints what it earns."""
    check_scheduler(CheapestSite())
    register("cheapest-site", CheapestSite)
    found = compare(load_scenario("tiny"), ["local-fcfs", "cheapest-feasible", "cheapest-site"], environments=5)
    for policy in found.records:
        print(f"{policy:18s} {found.mean(policy, 'utility_usd').value:6.2f} USD, gain {found.gain(policy).value:+.1%}")
    print(f"{'bound':18s} {found.bound_values('utility_usd').mean():6.2f} USD")


if __name__ == "__main__":
    main()
