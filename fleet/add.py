"""Bring what another answer generates into a project beside what it has: a second task in the same package."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fleet.errors import FleetError
from fleet.ownership import Patterns
from fleet.render import Job, Render
from fleet.state import STATE, State, load_state
from fleet.template import Template
from fleet.update import open_source


@dataclass
class Added:
    """What was added, what was there already and was left, and what is left for a person, file by file."""

    files: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    by_hand: dict[str, list[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return the report for people."""
        found = [f"Added {path}" for path in self.files]
        found += [f"Kept {path}, which is there already" for path in self.kept]
        found += [f"Add to {path} by hand: {line.strip()}" for path, more in self.by_hand.items() for line in more]
        return [*found, "Nothing is staged: look, then commit. Updates leave what was added to you."]


def add(project: Path, name: str, value: str) -> Added:
    """Write the files that the project's version generates for `value` of question `name` and the project lacks.

    A folder whose files are yours, such as configs/, and would have to hold two files of one name, is written as a
    whole below itself: configs/<value>/. Nothing that is there is changed.

    Raises:
        FleetError: The question has no such choice, or the project has it already.
    """
    state = load_state(project)
    with open_source(state) as source:
        _check(source.template, state, name, value)
        jobs = (Job(state.commit, answers, state.named) for answers in (state.answers, state.answers | {name: value}))
        first, second = source.renderer.render(source.template, *jobs)
        return _write(project, first, second, value)


def _check(template: Template, state: State, name: str, value: str) -> None:
    choices = template.questions(state.commit).get(name)
    if not isinstance(choices, list):
        raise FleetError(f"{name} is no question with choices; give one like task=NAME.")
    if value not in choices:
        raise FleetError(f"{name} cannot be {value}; it can be {', '.join(choices)}.")
    if state.answers.get(name) == value:
        raise FleetError(f"{name} is {value} in this project already.")


def _write(project: Path, first: Render, second: Render, value: str) -> Added:
    before, after = _files(first.folder), _files(second.folder)
    differing = {path for path in before & after if _bytes(first, path) != _bytes(second, path)} - {STATE}
    yours = Patterns(second.once)
    doubled = {_top(path) for path in differing if yours.match(path) and "/" in path}
    added = Added()
    for path in sorted(after):
        below = _top(path) in doubled
        if not below and path in before:
            continue
        target = str(PurePosixPath(_top(path), value, *PurePosixPath(path).parts[1:])) if below else path
        if not _is_free(project, target):
            added.kept.append(target)
            continue
        (project / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(second.folder / path, project / target)
        added.files.append(target)
    for path in sorted(path for path in differing if not yours.match(path)):
        there = set(_lines(project / path)) if (project / path).is_file() else set()
        if more := [line for line in _lines(second.folder / path) if line not in there]:
            added.by_hand[path] = more
    return added


def _is_free(project: Path, target: str) -> bool:
    """Return whether nothing is at `target`, no broken link either, and what is above are folders of the project."""
    place = project / target
    above = next(path for path in (place, *place.parents) if os.path.lexists(path))
    return above != place and above.is_dir() and above.resolve().is_relative_to(project.resolve())


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, which may be no text at all."""
    return path.read_bytes().decode("utf-8", errors="replace").splitlines()


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _bytes(render: Render, path: str) -> bytes:
    return (render.folder / path).read_bytes()


def _top(path: str) -> str:
    return path.split("/", 1)[0]
