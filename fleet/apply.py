"""Bring a merged tree into the working tree so that a kill at any moment can be undone.

What is about to be written is first noted in a journal in the repository's own folder. A run that
finds the journal of a killed one restores those files, sets aside what it does not know, and starts
anew; `--abort` does the same on demand.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fleet.errors import FleetError
from fleet.git import Entry, Git, Tree, fields, index_info, temporary_index
from fleet.template import locked


@dataclass
class Journal:
    """An update under way, or waiting to be committed."""

    head: str
    before: dict[str, Entry | None]
    after: dict[str, Entry | None]
    adopted: list[str] = field(default_factory=list)
    branch: str | None = None
    back_to: str | None = None
    done: bool = False
    conflicts: bool = False


class WorkingTree:
    """The user's repository; `top` is its root, and paths are relative to it."""

    def __init__(self, project: Path) -> None:
        # One question for all three: a line each.
        asked = ("rev-parse", "--show-toplevel", "--absolute-git-dir", "--show-prefix")
        found = Git(project).answer(*asked).split("\n") if project.is_dir() else []
        if len(found) < 2:
            raise FleetError(
                f"{project} must be a project in a git repository, but is none: name the project's "
                "folder, or run `git init`, `git add -A` and `git commit` in it first."
            )
        self.git = Git(Path(found[0]))
        self.own = Path(found[1])
        self.prefix = found[2] if len(found) > 2 else ""
        self.folder = self.own / "fleet"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one update at a time work on the repository."""
        with locked(self.folder / "lock"):
            yield

    def head(self) -> str:
        """Return the current commit, or nothing before the first."""
        return self.git.answer("rev-parse", "--verify", "-q", "HEAD")

    def journal(self) -> Journal | None:
        """Return the journal of an update that the current commit does not yet hold."""
        try:
            found = json.loads((self.folder / "journal.json").read_text(encoding="utf-8"))
            journal = Journal(**found)
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return journal if journal.head == self.head() else None

    def write_journal(self, journal: Journal) -> None:
        """Write the journal in one step."""
        part = self.folder / "journal.part"
        part.write_text(json.dumps(asdict(journal)), encoding="utf-8")
        part.replace(self.folder / "journal.json")

    def forget(self) -> None:
        """Remove the journal."""
        (self.folder / "journal.json").unlink(missing_ok=True)

    def dirty(self) -> list[str]:
        """Return the tracked files that differ from the current commit."""
        flags = ("--porcelain", "-z", "--untracked-files=no", "--no-renames")
        return [line[3:] for line in fields(self.git("status", *flags, "--ignore-submodules=dirty"))]

    def unmerged(self) -> list[str]:
        """Return the files with open conflicts."""
        return fields(self.git("diff", "--name-only", "--diff-filter=U", "-z"))

    def busy(self) -> str | None:
        """Return the operation of git that waits to be finished, if any."""
        signs = {
            "MERGE_HEAD": "merge",
            "CHERRY_PICK_HEAD": "cherry-pick",
            "REVERT_HEAD": "revert",
            "rebase-merge": "rebase",
            "rebase-apply": "rebase",
        }
        folder = self.own
        return next((name for sign, name in signs.items() if (folder / sign).exists()), None)

    def in_the_way(self, journal: Journal) -> list[str]:
        """Return untracked files that the update would write over; equal ones are taken as they are."""
        found = []
        for path in [path for path, entry in journal.after.items() if entry and not journal.before[path]]:
            entry = journal.after[path]
            if os.path.lexists(self.git.folder / path):
                if entry and self._holds(path, entry):
                    journal.adopted.append(path)
                elif not self._replaced(path, journal):
                    found.append(path)
                continue
            for parent in Path(path).parents:
                place = self.git.folder / parent
                blocks = place.is_symlink() or (place.exists() and not place.is_dir())
                if parent.parts and blocks and journal.before.get(str(parent)) is None:
                    found.append(str(parent))
        return sorted(set(found))

    def _replaced(self, path: str, journal: Journal) -> bool:
        """Return whether `path` is a folder whose every file the update takes away."""
        place = self.git.folder / path
        if not place.is_dir() or place.is_symlink():
            return False
        files = [str(p.relative_to(self.git.folder)) for p in place.rglob("*") if p.is_symlink() or not p.is_dir()]
        return all(journal.before.get(file) and not journal.after.get(file) for file in files)

    def _holds(self, path: str, entry: Entry) -> bool:
        place, (mode, oid) = self.git.folder / path, entry
        if place.is_symlink():
            return mode == "120000" and os.fsencode(place.readlink()) == self.git.blob(oid)
        if not place.is_file() or mode == "120000":
            return False
        executable = bool(place.stat().st_mode & 0o100)
        return executable == (mode == "100755") and self.git("hash-object", "--", path) == oid

    def apply(self, journal: Journal, conflicts: dict[str, dict[int, Entry]], message: str) -> None:
        """Write the journal's files to the index and the working tree, then the conflicts to the index."""
        journal.conflicts = bool(conflicts)
        self.write_journal(journal)
        with temporary_index() as env:
            self.git("read-tree", "HEAD", env=env)
            self.git("update-index", "-z", "--index-info", stdin=index_info(journal.after), env=env)
            tree = self.git("write-tree", env=env)
        if journal.adopted:
            adopted = {path: journal.after[path] for path in journal.adopted}
            self.git("update-index", "-z", "--index-info", stdin=index_info(adopted))
        if journal.branch:
            self.git("switch", "-q", "-c", journal.branch)
        self.git("read-tree", "-m", "-u", "HEAD", tree)
        lines = [f"0 {'0' * 40}\t{path}\0" for path in conflicts]
        lines += [f"{e[0]} {e[1]} {n}\t{path}\0" for path, stages in conflicts.items() for n, e in stages.items()]
        self.git("update-index", "-z", "--index-info", stdin="".join(lines))
        (self.own / "MERGE_MSG").write_text(message, encoding="utf-8")
        journal.done = True
        self.write_journal(journal)

    def restore(self, journal: Journal) -> list[str]:
        """Undo an update; return the files of the user's that were set aside."""
        git = self.git
        (self.own / "index.lock").unlink(missing_ok=True)  # held by the killed run
        aside = [path for path in journal.after if self._set_aside(path, journal)]
        git("read-tree", "HEAD")
        for path in journal.after:
            if not journal.before[path] and path not in journal.adopted:
                self._remove(path)
        old = [path for path, entry in journal.before.items() if entry]
        git("checkout-index", "-f", "-z", "--stdin", stdin="".join(f"{path}\0" for path in old))
        git.succeeds("update-index", "-q", "--refresh")
        (self.own / "MERGE_MSG").unlink(missing_ok=True)
        if journal.branch and git.answer("symbolic-ref", "--short", "-q", "HEAD") == journal.branch:
            git("switch", "-q", *([journal.back_to] if journal.back_to else ["--detach"]))
            git("branch", "-q", "-D", journal.branch)
        self.forget()
        return aside

    def _set_aside(self, path: str, journal: Journal) -> bool:
        """Keep a copy of a file that is neither the old, the new nor a half-written new version."""
        place = self.git.folder / path
        if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
            return False
        if any(entry and self._holds(path, entry) for entry in (journal.before[path], journal.after[path])):
            return False
        if place.is_symlink():
            return False
        content, target = place.read_bytes(), journal.after[path]
        versions = [self.git.blob(e[1]) for e in (target, journal.before[path]) if e and e[0] != "160000"]
        if any(version.startswith(content) for version in versions):
            return False
        copy = self.folder / "aside" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        return True

    def _remove(self, path: str) -> None:
        place = self.git.folder / path
        if place.is_symlink() or place.is_file():
            place.unlink()
        for parent in place.parents:
            if parent == self.git.folder or not parent.is_dir() or any(parent.iterdir()):
                break
            parent.rmdir()


def changes(before: Tree, after: Tree, prefix: str) -> tuple[dict[str, Entry | None], dict[str, Entry | None]]:
    """Return the entries that differ, before and after, with paths from the repository's root."""
    paths = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    return {prefix + p: before.get(p) for p in paths}, {prefix + p: after.get(p) for p in paths}
