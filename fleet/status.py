"""Look at every project of a fleet: version, behind by, drift, open conflicts, waiting branch."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.clones import Clone, Sources, branches, cloned
from fleet.drift import drift
from fleet.errors import FleetError, mask
from fleet.fleetfile import Fleet, Member
from fleet.git import Git, fields, require_git, text
from fleet.render import Renderer
from fleet.state import load_state
from fleet.update import check


@dataclass
class Standing:
    """Where one project stands."""

    name: str
    version: str = ""
    newest: str = ""
    behind_by: int = 0
    drift: int = 0
    conflicts: int = 0
    branch: str = ""
    message: str = ""

    def document(self) -> dict[str, Any]:
        """Return the standing for JSON."""
        return asdict(self)

    @property
    def well(self) -> bool:
        """Return whether nothing is left to do."""
        return not (self.behind_by or self.conflicts or self.message)


def standings(fleet: Fleet, only: list[str], jobs: int, done: Callable[[Standing], None]) -> list[Standing]:
    """Return where the projects stand; one that cannot be read says why."""
    require_git()
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
        Renderer(Path(folder)) as renderer,
        ThreadPoolExecutor(jobs) as pool,
    ):
        sources = Sources(renderer)

        def look(member: Member) -> Standing:
            standing = Standing(member.name)
            try:
                _look(member, sources, standing)
            except FleetError as error:
                standing.message = str(error)
            except Exception as error:  # one project that cannot be read must not hide the others
                standing.message = mask(f"{type(error).__name__}: {error}")
            done(standing)
            return standing

        return list(pool.map(look, fleet.chosen(only)))


def _look(member: Member, sources: Sources, standing: Standing) -> None:
    standing.branch = ", ".join(branches(member))
    with cloned(member) as clone:
        state = load_state(clone.project)
        source = sources.of(state)
        report = check(clone.project, source)
        standing.version, standing.newest = report.before, report.after
        standing.behind_by = report.behind_by
        standing.conflicts = len(_marked(clone))
        standing.drift = len(drift(clone.project, source))


def _marked(clone: Clone) -> list[str]:
    """Return the committed files that still hold both outer markers of a conflict."""
    outer = ("-e", "^<<<<<<< ", "--or", "-e", "^>>>>>>> ")
    flags = ("grep", "-l", "-z", "-I", "--all-match", *outer, "HEAD", "--", ".")
    return fields(text(Git(clone.project).raw(*flags, ok=(0, 1)).stdout))
