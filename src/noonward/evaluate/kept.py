"""Comparisons that were carried out: what each was, kept with its records, and how it is read back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from noonward.errors import DataError, NoonwardError, ScenarioError
from noonward.evaluate.asked import comparison_folder
from noonward.evaluate.compare import ComparisonResult
from noonward.evaluate.comparison import Bound, Comparison, Knowing
from noonward.evaluate.given import scenario_given
from noonward.evaluate.knowing import told
from noonward.evaluate.table import Currency
from noonward.files import file_name
from noonward.ledger.folder import read_sealed, write_sealed
from noonward.runtime.by_kind import read_record
from noonward.schedule.registry import Policy

PREFIX: Final = "comparison-"
"""How the name of a kept comparison begins; its digest and ``.json`` follow."""


def _not_run() -> Any:
    """Makes no scheduler: what is read back is never run."""
    raise ScenarioError("a comparison that was read back runs nothing; run 'noonward compare' again")


def keep(comparison: Comparison, command: str) -> Path:
    """Writes what a comparison was to the folder of its records, for ``read_comparison``, and returns the file.

    Args:
        comparison: Comparison.
        command: The command that made it.
    """
    path, knowing = comparison.folder / f"{PREFIX}{comparison.digest}.json", comparison.knowing
    content = {
        "command": command,
        "scenario": comparison.scenario.model_dump(mode="json"),
        "seed": comparison.seed,
        "policies": [
            {
                "name": each.name,
                "summary": each.summary,
                "family": each.family,
                "roles": sorted({*each.roles, *(("clairvoyant",) if each.clairvoyant else ())}),
            }
            for each in comparison.policies.values()
        ],
        "reference": comparison.reference,
        "bounds": comparison.bounds,
        "bounded": comparison.bounded,
        "currency": asdict(comparison.currency),
        "knowing": None if knowing is None else {"policy": knowing.policy, "ways": list(knowing.by_way)},
    }
    write_sealed(path, content)
    return path


def kept_comparisons(folder: Path) -> list[Path]:
    """Returns the files of the comparisons that are kept in a folder of records, the oldest first.

    Raises:
        DataError: There is none.
    """
    files = sorted(folder.glob(f"{PREFIX}*.json"), key=lambda path: (path.stat().st_mtime, path.name))
    if not files:
        raise DataError(
            f"{folder} holds no comparison ({PREFIX}*.json); give the folder that 'noonward compare' printed as "
            "'records:', or run the comparison again"
        )
    return files


def read_comparison(path: str | Path) -> tuple[ComparisonResult, str]:
    """Returns a comparison from its records, and the command that made it; nothing is simulated.

    Runs that were told of run times in other ways (``Knowing``) are read from the folders that lie next to its own.

    Args:
        path: File of a kept comparison.

    Raises:
        DataError: The file is no kept comparison or is not as it was written, or one of its records is missing or
            damaged.
    """
    path = Path(path)
    try:
        content = read_sealed(path)
        bounds = [Bound(**bound) for bound in content["bounds"]]
        scenario = scenario_given(content["scenario"])
        folder, seed, command = path.parent, int(content["seed"]), str(content["command"])
        policies = {
            str(said["name"]): Policy(
                make=_not_run,
                kind=scenario.kind,
                **{**said, "roles": frozenset(said["roles"])},
                registered=False,
                foresees="clairvoyant" in said["roles"],
            )
            for said in content["policies"]
        }
        records = {name: _records(folder, name, len(bounds)) for name in policies}
        reference, currency = content["reference"], Currency(**content["currency"])
        if reference not in records:
            raise KeyError(reference)
        bounded, knowing = bool(content["bounded"]), content["knowing"]
        if knowing is not None:
            name, own = knowing["policy"], scenario.jobs.knowledge.run_time
            by_way = {
                way: records[name]
                if way == own
                else _records(comparison_folder(told(scenario, way), seed, folder.parent), name, len(bounds))
                for way in knowing["ways"]
            }
            knowing = Knowing(policy=name, by_way=by_way)
    except NoonwardError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no kept comparison, or is damaged ({error}); run the comparison again") from error
    found = ComparisonResult(
        scenario=scenario,
        seed=seed,
        folder=folder,
        reference=reference,
        policies=policies,
        records=records,
        bounds=bounds,
        bounded=bounded,
        currency=currency,
        knowing=knowing,
    )
    return found, command


def _records(folder: Path, policy: str, count: int) -> list[Any]:
    """Returns the records of a policy in a folder of records, one per environment."""
    return [read_record(folder / file_name(policy) / f"{index:03d}") for index in range(count)]
