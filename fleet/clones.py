"""Clone the projects of a fleet, and share the templates and renders among them."""

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FleetError, mask
from fleet.fleetfile import Member
from fleet.git import Git, environment
from fleet.render import Renderer
from fleet.state import State
from fleet.template import open_template
from fleet.update import Source


class Sources:
    """The templates of a fleet: each fetched once, each version rendered once for equal answers."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str | None], Source] = {}

    def of(self, state: State) -> Source:
        """Return the source of a project's template."""
        key = (state.template, state.directory)
        with self._lock:
            if key not in self._found:
                self._found[key] = Source(open_template(*key), self._renderer)
            return self._found[key]


@dataclass(frozen=True)
class Clone:
    """A fresh clone of one project's repository."""

    git: Git
    project: Path


def branches(member: Member) -> dict[str, str]:
    """Return the update branches of a project at its remote: name to commit."""
    lines = Git(Path()).raw("ls-remote", "--heads", "--", member.url).stdout.decode().splitlines()
    heads = {ref.removeprefix("refs/heads/"): commit for commit, ref in (x.split("\t") for x in lines)}
    start = member.prefix
    return {name: at for name, at in heads.items() if name.startswith(start) and "/" not in name[len(start) :]}


@contextmanager
def cloned(member: Member) -> Iterator[Clone]:
    """Clone a project's newest commit into a folder that goes away afterwards."""
    with tempfile.TemporaryDirectory(prefix="fleet-", ignore_cleanup_errors=True) as folder:
        top = Path(folder).resolve() / "clone"
        base = ["--branch", member.base] if member.base else []
        Git(top.parent)("clone", "-q", "--depth", "1", *base, "--", member.url, str(top))
        project = top / member.folder
        if not project.is_dir():
            raise FleetError(f"{member.name} must have a folder {member.folder!r}, but has none: correct fleet.toml.")
        yield Clone(Git(top), project)


def run_shell(command: str, folder: Path, minutes: float, extra: dict[str, str] | None = None) -> str | None:
    """Run a command of the project; return None when it passes, else the end of what it printed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=folder,
            env=environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(minutes * 60)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = f"no end after {minutes:g} minutes"
        # Only the end is kept, so that memory does not grow with what forty projects print.
        output.seek(max(0, output.seek(0, os.SEEK_END) - 2000))
        said = output.read().decode("utf-8", "replace")
    return None if code == 0 else mask(f"`{command}` failed ({code}):\n{said.strip()}")
