"""``noonward tenants``: what tenants' quotas cost, and a ledger per tenant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    Environments,
    FleetPolicy,
    Json,
    Out,
    Seed,
    command_line,
    executor_of,
    open_scenario,
    print_text_table,
    print_work,
    require_cluster,
)
from noonward.cli.progress import progress_bar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noonward.model.cluster.scenario import Scenario
    from noonward.runtime.executor import Executor


@option_groups(executors=executor_of, scenario=open_scenario)
def tenants(
    *,
    policy: FleetPolicy = None,
    one_more: Annotated[
        bool, typer.Option("--one-more", help="Also show what one more guaranteed GPU is worth, per tenant.")
    ] = False,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help="Also bound what any policy could reach with and without quotas, and one more GPU's worth to it.",
        ),
    ] = False,
    environments: Environments = 4,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Show what tenants' quotas and budgets cost.

    Runs one policy with the scenario's quotas and budgets and without any, on the same jobs, and
    shows the difference, a ledger per tenant, and what was spent of each budget.
    """
    from noonward.errors import ScenarioError
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.report.page import write_tables
    from noonward.evaluate.tenant_tables import budget_table, ledger_table, price_table
    from noonward.evaluate.tenants import stated_tenants, study_tenants

    require_cluster(scenario, "tenants")
    names = stated_tenants(scenario).names
    chosen = policy or scenario.baseline
    if chosen is None:
        raise ScenarioError(f"scenario {scenario.name!r} names no baseline; choose a policy with --policy")
    runs = environments * (2 + len(names) * one_more + bound)
    with executors as executor, progress_bar(runs, "tenants", results=out) as step:
        study = study_tenants(
            scenario,
            chosen,
            environments=environments,
            seed=seed,
            one_more=one_more,
            bound=bound,
            executor=executor,
            progress=step,
        )
    budgets = budget_table(study)
    tables = [price_table(study), ledger_table(study), *([] if budgets is None else [budgets])]
    report = write_tables(
        f"Tenants of {scenario.name}",
        f"Policy {chosen}, seed {seed}, environments: {environments}.",
        tables,
        [],
        out / f"tenants-{scenario.name}-seed{seed}" / "report.html",
        command=command_line(),
    )
    if json:
        more = {"scenario": scenario.name, "policy": chosen, "seed": seed, "environments": environments}
        print(to_json(study.metrics(), **more, report=str(report)))
        return
    for table in tables:
        print_text_table(table)
    print_work(executor)
    print(f"report:  {report}")
