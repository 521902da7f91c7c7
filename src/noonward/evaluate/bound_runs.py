"""Bounds of environments as specs that ``map_runs`` carries out: read back where they were computed already."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from noonward.bound.cluster_utility.pieces import MapPieces, Piece
from noonward.evaluate.comparison import Bound, objective_of
from noonward.ledger.folder import read_sealed, write_sealed
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import find_kind
from noonward.runtime.by_kind import environment_digest
from noonward.runtime.executor import Executor, PlainSpec, Progress, Spec, map_runs
from noonward.runtime.rests_on import bound_digest
from noonward.runtime.runs import Draw, environment_of


@dataclass(frozen=True, kw_only=True)
class FoundBound:
    """What a ``BoundRun`` found.

    Attributes:
        bound: The bound; None where it is left to all workers together (``map_with_bounds``).
        notes: What a reader must know about the environment's data.
        of: What a new bound is of: digests of the environment and of the sources; None for one that was read back.
    """

    bound: Bound | None
    notes: tuple[str, ...]
    of: dict[str, Any] | None = None

    @property
    def value(self) -> Bound:
        """The bound, where it is there."""
        assert self.bound is not None
        return self.bound


@dataclass(frozen=True)
class BoundRun:
    """A spec: the bound of an environment, read back where it was computed already.

    Attributes:
        scenario: Scenario.
        index: Number of the environment.
        seed: Seed.
        folder: Folder of the comparison; None: it is computed in any case and not written.
        seconds: Seconds it may take; None: as long as it needs. One that was cut stands for no more seconds than it
            had itself.
        left: Whether a bound that is found in pieces is left to all workers together.
        last: Bounds begin when no run is left to begin.
    """

    last: ClassVar[bool] = True

    scenario: Scenario
    index: int
    seed: int
    folder: Path | None = None
    seconds: float | None = None
    left: bool = False

    @property
    def label(self) -> str:
        """Which environment's bound."""
        return f"bound, environment {self.index}"

    @property
    def portable(self) -> bool:
        """Whether another process knows the kind of scenario."""
        return find_kind(self.scenario.kind).portable

    @property
    def group(self) -> Hashable:
        """Bound and runs share the environment."""
        return self.scenario.name, self.index

    @property
    def shares(self) -> Draw:
        """The environment."""
        return Draw(self.scenario, self.index, self.seed)

    @property
    def place(self) -> Path:
        """File of the bound."""
        return (self.folder or Path()) / "bound" / f"{self.index:03d}.json"

    def run(self) -> FoundBound:
        """Returns the bound."""
        return self._found(None)

    def in_pieces(self, executor: Executor | None) -> FoundBound:
        """Returns the bound, whose pieces an executor carries out."""
        return self._found(pieces_by(executor, self.label))

    def _found(self, map_pieces: MapPieces | None) -> FoundBound:
        environment = environment_of(self.scenario, self.index, self.seed)
        objective = objective_of(self.scenario)
        code = bound_digest(find_kind(self.scenario.kind), objective)
        of = {"environment_digest": environment_digest(environment), "code": code}
        notes = tuple(environment.notes)
        if self.folder is not None:
            try:
                content = read_sealed(self.place)
                kept, had = Bound(**content["bound"]), content.get("seconds")
                enough = "cut" not in kept or (self.seconds is not None and had is not None and had >= self.seconds)
                if content["of"] == of and enough:
                    return FoundBound(bound=kept, notes=notes)
            except (OSError, ValueError, KeyError, TypeError):
                pass  # none there, or one that was cut short or changed: it is computed again
        if map_pieces is not None:
            bound = objective.bound_in_pieces(environment, self.seconds, map_pieces)
            return FoundBound(bound=bound, notes=notes, of=of)
        if self.left and objective.has_pieces(environment):
            return FoundBound(bound=None, notes=notes, of=of)
        limit = {} if self.seconds is None else {"seconds": self.seconds}
        return FoundBound(bound=objective.compute_bound(environment, **limit), notes=notes, of=of)

    def keep(self, found: FoundBound) -> FoundBound:
        """Writes a new bound to its file and returns it."""
        if found.bound is not None and found.of is not None and self.folder is not None:
            content: dict[str, Any] = {"of": found.of, "bound": found.bound}
            if "cut" in found.bound:
                content["seconds"] = self.seconds
            write_sealed(self.place, content)
        return found


@dataclass(frozen=True)
class PieceRun(PlainSpec):
    """A spec: a piece of a bound.

    Attributes:
        of: Which bound.
        piece: The piece.
    """

    of: str
    piece: Piece

    @property
    def label(self) -> str:
        """Which piece of which bound."""
        return f"{self.of}: {self.piece.label}"

    def run(self) -> Any:
        """Returns what it finds."""
        return self.piece.found()


def pieces_by(executor: Executor | None, of: str) -> MapPieces:
    """Returns what has an executor carry out the pieces of a bound.

    Args:
        executor: As ``map_runs`` takes it.
        of: Which bound.
    """
    return lambda pieces: map_runs([PieceRun(of, piece) for piece in pieces], executor)


def map_with_bounds(
    specs: Sequence[Spec],
    executor: Executor | None = None,
    progress: Progress | None = None,
    kept_one: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Carries out specs as ``map_runs`` does, and afterwards the bounds that were left to all workers together.

    Those are found one after the other, each in pieces that all workers share.

    Args:
        specs: What to do; each ``BoundRun`` among them may leave its bound.
        executor: As ``map_runs`` takes it.
        progress: As there.
        kept_one: As there.

    Raises:
        BaseException: As there.
    """
    left: list[int] = []

    def kept(place: int, found: Any) -> None:
        if isinstance(found, FoundBound) and found.bound is None:
            left.append(place)
            return
        if kept_one is not None:
            kept_one(place, found)
        if progress is not None:
            progress(specs[place].label)

    results = map_runs(specs, executor, None, kept)
    for place in sorted(left):
        spec = specs[place]
        assert isinstance(spec, BoundRun)
        results[place] = spec.keep(spec.in_pieces(executor))
        kept(place, results[place])
    return results
