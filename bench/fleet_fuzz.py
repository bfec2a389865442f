"""Random template changes against random user edits: nothing may be lost or left unsaid.

    python bench/fleet_fuzz.py --cases 1000

A case is one template with two versions and one project with edits, updated from the first to the
second. After it, every line that the user wrote is in the tree (or between conflict markers), every
change of the template is applied, in conflict, or named in the report, the exit code tells the truth,
and `--abort` brings back every byte.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.errors import FleetError
from fleet.render import Renderer
from fleet.report import Report
from fleet.template import open_template
from fleet.update import Options, Source, abort, update

Files = dict[str, tuple[bytes, bool]]  # path to content and whether it is executable
FOLDERS = ("", "src/", "src/deep/", "docs/", "größe und mehr/")
ONCE = "yours/**"


def git(folder: Path, *arguments: str) -> str:
    """Run git and return what it prints."""
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@dataclass
class Side:
    """What one side did to the files it started with."""

    files: Files
    renamed: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)


class Case:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.serial = 0
        self.base = self._first()
        self.theirs, self.ours = Side(dict(self.base)), Side(dict(self.base))
        for side, who in ((self.theirs, "template"), (self.ours, "user")):
            for _ in range(self.random.randint(1, 6)):
                self._change(side, who)

    def _line(self, who: str) -> bytes:
        self.serial += 1
        return f"{who} {self.serial} {self.random.getrandbits(32):x}\n".encode()

    def _text(self, who: str, count: int) -> bytes:
        return b"".join(self._line(who) for _ in range(count))

    def _path(self) -> str:
        self.serial += 1
        folder = self.random.choice((*FOLDERS, "yours/"))
        return f"{folder}{self.random.choice(('a', 'b c', 'ü'))}{self.serial}.txt"

    def _first(self) -> Files:
        made: Files = {}
        for _ in range(self.random.randint(3, 8)):
            content = self._text("base", self.random.randint(0, 40))
            if self.random.random() < 0.1:
                content = content.replace(b"\n", b"\r\n")
            if self.random.random() < 0.1:
                content = b"\0" + content
            made[self._path()] = (content, self.random.random() < 0.2)
        return made

    def _change(self, side: Side, who: str) -> None:
        kinds = {
            "edit": 8,
            "rename": 2,
            "delete": 2,
            "add": 2,
            "mode": 1,
            "binary": 1,
            "ends": 1,
            "indent": 1,
            "same": 1,
        }
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        side.told.append(kind)
        if kind in ("add", "same") or not side.files:
            # Both sides may add a file of the same name.
            path = "both/added.txt" if kind == "same" else self._path()
            if path not in side.files:
                side.files[path] = (self._text(who, self.random.randint(1, 20)), False)
            return
        path = self.random.choice(sorted(side.files))
        content, executable = side.files[path]
        if kind == "edit":
            side.files[path] = (self._edit(content, who), executable)
        elif kind == "rename":
            target = self._path()
            side.files[target] = side.files.pop(path)
            origin = next((old for old, new in side.renamed.items() if new == path), path)
            side.renamed[origin] = target
        elif kind == "delete":
            del side.files[path]
            side.deleted.add(path)
        elif kind == "mode":
            side.files[path] = (content, not executable)
        elif kind == "binary":
            side.files[path] = (b"\0" + self._text(who, 5), executable)
        elif kind == "ends":
            side.files[path] = (content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), executable)
        else:
            side.files[path] = (b"".join(b"    " + line for line in content.splitlines(True)), executable)

    def _edit(self, content: bytes, who: str) -> bytes:
        lines = content.splitlines(True)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(lines))
            kind = self.random.choice(("insert", "replace", "remove"))
            new = self._line(who)
            if kind == "insert" or at == len(lines):
                lines.insert(at, new)
            elif kind == "replace":
                lines[at] = new
            else:
                del lines[at]
        return b"".join(lines)

    # -- laying it out as repositories --

    def lay_out(self, folder: Path) -> Path:
        """Make the template and the project and return the project's folder."""
        template, project = folder / "template", folder / "project"
        (template / "{{cookiecutter.project}}").mkdir(parents=True)
        questions = {"project": "project", "_once": [ONCE], "_copy_without_render": ["*"]}
        (template / "cookiecutter.json").write_text(json.dumps(questions))
        git(folder, "init", "-q", str(template))
        for tag, files in (("v0.1.0", self.base), ("v0.2.0", self.theirs.files)):
            # The folder may not be empty, or git would not keep it.
            write(template / "{{cookiecutter.project}}", {**files, "LICENSE": (b"MIT\n", False)})
            git(template, "add", "-A", "-f")
            git(template, "commit", "-q", "--allow-empty", "-m", tag)
            git(template, "tag", tag)
        git(folder, "init", "-q", str(project))
        state = {
            "template": str(template),
            "commit": git(template, "rev-parse", "v0.1.0").strip(),
            "context": {"cookiecutter": {"project": "project"}},
        }
        stamp = (json.dumps(state).encode(), False)
        write(project, {**self.ours.files, "LICENSE": (b"MIT\n", False), ".cruft.json": stamp})
        git(project, "add", "-A", "-f")
        git(project, "commit", "-q", "-m", "All")
        return project

    # -- judging --

    def faults(self, before: Files, after: Files, report: Report, unmerged: list[str]) -> list[str]:
        """Return what was lost or left unsaid."""
        text = b"\n".join(content for content, _ in after.values())
        present = {line.strip() for line in text.splitlines()}
        found = [
            f"the user's line is lost: {line!r} of {path}"
            for path, (content, _) in before.items()
            for line in (part.strip() for part in content.splitlines())
            if line.startswith(b"user ") and line not in present
        ]
        named = {*report.conflicts, *report.kept_deletions, *report.once_changed}
        for path in sorted({*self.base, *self.theirs.files}):
            target = self.theirs.renamed.get(path, path)
            old, new = self.base.get(path), self.theirs.files.get(target)
            spots = {path, target, self.ours.renamed.get(path, path)}
            if old == new or spots & named or path in self.theirs.renamed.values():
                continue
            found += self._applied(path, old, new, target, after, present)
        if (report.status == "conflicts") != bool(unmerged) or set(unmerged) != set(report.conflicts):
            found.append(f"report and index disagree: {report.conflicts} and {unmerged}")
        if not unmerged and any(line.startswith(b"<<<<<<< ") for line in present):
            found.append("markers without a conflict")
        return found

    def _applied(
        self,
        path: str,
        old: tuple[bytes, bool] | None,
        new: tuple[bytes, bool] | None,
        target: str,
        after: Files,
        present: set[bytes],
    ) -> list[str]:
        """Return how a change of the template that nothing was said about is not applied."""
        lines_old, lines_new = (
            {line.strip() for line in (side[0] if side else b"").splitlines()} for side in (old, new)
        )
        if new is None:
            return [f"deleted by the template, still there: {path}"] if path in after else []
        missing = {line for line in lines_new - lines_old if line not in present}
        said = [f"the template's line is not applied: {line!r} of {path}" for line in missing]
        # A file that is the user's and that the user moved stays as it was.
        theirs = path.startswith("yours/") and path in self.ours.renamed
        kept = {line for line in lines_old - lines_new if line in present and not theirs}
        said += [f"a line that the template removed is still there: {line!r} of {path}" for line in kept]
        place = next((p for p in (target, self.ours.renamed.get(path, path)) if p in after), None)
        if place is None:
            said.append(f"changed by the template, in no place and not said: {path}")
        elif old and old[1] != new[1] and after[place][1] != new[1]:
            said.append(f"mode not applied: {path}")
        return said


def write(folder: Path, files: Files) -> None:
    """Make the folder hold exactly `files`, git's own folder aside."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if ".git" not in path.relative_to(folder).parts:
            path.rmdir() if path.is_dir() else path.unlink()
    for name, (content, executable) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if executable else 0o644)


def read(folder: Path) -> Files:
    """Return the files of a working tree."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


@cache
def renderer() -> Renderer:
    """Return one renderer for all cases of a process, as a rollout has."""
    return Renderer(Path(tempfile.mkdtemp(prefix="fuzz-")))


def run_case(seed: int) -> tuple[int, str, float, list[str]]:
    """Run one case; return its seed, how it ended, the seconds of the update, and its faults."""
    case = Case(seed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name).resolve()
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        project = case.lay_out(folder)
        before = read(project)
        source = Source(open_template(str(folder / "template")), renderer())
        start = time.perf_counter()
        try:
            report = update(project, Options(), source)
        except FleetError as error:
            touched = read(project) != before
            return seed, "refused", 0, [f"refused, and touched: {error}"] if touched else []
        seconds = time.perf_counter() - start
        unmerged = git(project, "diff", "--name-only", "--diff-filter=U", "-z").split("\0")[:-1]
        after = read(project)
        found = case.faults(before, after, report, unmerged)
        abort(project)
        if read(project) != before:
            found.append("--abort did not bring back the files")
        return seed, report.status, seconds, found


def main() -> int:
    """Run the cases and say how they ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.cases)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        tempfile.tempdir = folder  # for the processes too, which leave their renders there
        with ProcessPoolExecutor(given.jobs) as pool:
            results = list(pool.map(run_case, seeds, chunksize=5))
    for seed, _, _, found in results:
        for fault in found:
            print(f"case {seed}: {fault}")
    ended = Counter(status for _, status, _, _ in results)
    bad = sum(bool(found) for *_, found in results)
    times = [seconds for _, _, seconds, _ in results if seconds]
    print(f"{len(results)} cases: {dict(ended)}, median {statistics.median(times):.2f} s an update")
    print(f"{len(results) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
