"""A thin wrapper around the git command: fixed settings, no prompts, errors without credentials."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fleet.errors import FleetError

Entry = tuple[str, str]  # mode and object id
Tree = dict[str, Entry]  # path -> entry
NO_OBJECT = "0" * 40

# The user's settings must not decide how a merge comes out.
_SETTINGS = {
    "advice.detachedHead": "false",
    "core.abbrev": "40",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.safecrlf": "false",
    "diff.renames": "true",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.conflictStyle": "zdiff3",
    "merge.directoryRenames": "false",
    "merge.renames": "true",
}
_IDENTITY = {
    f"GIT_{who}_{key}": value
    for who in ("AUTHOR", "COMMITTER")
    for key, value in {"NAME": "fleet", "EMAIL": "fleet@localhost", "DATE": "@0 +0000"}.items()
}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a child: no repository of a surrounding hook, and no prompts."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or key.startswith(("GIT_CONFIG", "GIT_SSH", "GIT_SSL", "GIT_ASKPASS"))
    }
    kept.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", **(extra or {})}


@cache
def _settings() -> tuple[str, ...]:
    return tuple(part for key, value in _SETTINGS.items() for part in ("-c", f"{key}={value}"))


@cache
def require_git() -> None:
    """Refuse a git without `merge-tree --write-tree`."""
    try:
        said = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise FleetError("git must be installed and on the PATH, but was not found: install it.") from error
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found or (int(found[1]), int(found[2])) < (2, 38):
        raise FleetError(f"git must be 2.38 or newer, but is {said.strip()!r}: install a newer git.")


class GitError(FleetError):
    """A git command failed; the message holds what git said."""


@dataclass(frozen=True)
class Git:
    """A repository, or a folder where one is to be made."""

    folder: Path
    options: tuple[str, ...] = field(default=())

    def raw(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        ok: tuple[int, ...] = (0,),
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git and return what came; an exit status outside `ok` is a GitError."""
        command = ["git", "-C", str(self.folder), *_settings(), *self.options, *arguments]
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=environment(env),
            check=False,
        )
        if done.returncode not in ok:
            said = " ".join(text(done.stderr or done.stdout).split())
            raise GitError(f"git {arguments[0]} failed in {self.folder}: {said or done.returncode}")
        return done

    def __call__(self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
        """Run git and return its output as text, without the last line's end."""
        given = None if stdin is None else stdin.encode("utf-8", "surrogateescape")
        return text(self.raw(*arguments, stdin=given, env=env).stdout).rstrip("\n")

    def succeeds(self, *arguments: str) -> bool:
        """Return whether a git command exits 0."""
        return self.raw(*arguments, ok=tuple(range(256))).returncode == 0

    def answer(self, *arguments: str) -> str:
        """Return a git command's output, or nothing when it fails."""
        done = self.raw(*arguments, ok=tuple(range(256)))
        return text(done.stdout).rstrip("\n") if done.returncode == 0 else ""

    def tree(self, name: str) -> Tree:
        """Return the files of a tree: path to mode and object id."""
        entries: Tree = {}
        for line in fields(self("ls-tree", "-r", "-z", "--full-tree", name)):
            about, path = line.split("\t", 1)
            mode, _, oid = about.split()
            entries[path] = (mode, oid)
        return entries

    def write_tree(self, entries: Tree) -> str:
        """Store a tree of `entries` and return its object id."""
        with temporary_index() as env:
            self("update-index", "-z", "--index-info", stdin=index_info(entries), env=env)
            stored = fields(self("ls-files", "-z", env=env))
            lost = sorted(set(entries) - set(stored))
            if lost:
                raise FleetError(
                    f"{lost[0]} is a file on one side and a folder on the other, which cannot be merged: "
                    "rename yours, commit, and update again."
                )
            return self("write-tree", env=env)

    def add_folder(self, folder: Path) -> Tree:
        """Store all files of `folder`, ignored ones too, and return them as a tree's entries."""
        with temporary_index() as env:
            here = Git(folder, (f"--git-dir={self.git_dir()}", f"--work-tree={folder}"))
            # `-f`: a template may hold placeholders in folders that its own .gitignore names.
            flat = Git(folder, (*here.options, "-c", "core.autocrlf=false", "-c", "core.sparseCheckout=false"))
            flat("add", "-A", "-f", "--", ".", env=env)
            entries: Tree = {}
            for line in fields(flat("ls-files", "-s", "-z", env=env)):
                about, path = line.split("\t", 1)
                mode, oid, _ = about.split()
                entries[path] = (mode, oid)
            return entries

    def blob(self, oid: str) -> bytes:
        """Return the bytes of a stored file."""
        return self.raw("cat-file", "blob", oid).stdout

    def store(self, content: bytes) -> str:
        """Store `content` as a file and return its object id."""
        return text(self.raw("hash-object", "-w", "--stdin", stdin=content).stdout).strip()

    def commit_tree(self, tree: str, message: str, *parents: str) -> str:
        """Store a commit of `tree` that no branch points to."""
        before = [part for parent in parents for part in ("-p", parent)]
        return self("commit-tree", tree, *before, "-m", message, env=_IDENTITY)

    def git_dir(self) -> Path:
        """Return the absolute path of the repository's own folder (of this working tree)."""
        return Path(self("rev-parse", "--absolute-git-dir"))


def text(data: bytes) -> str:
    """Decode what git printed; bytes that are not UTF-8 survive the way back."""
    return data.decode("utf-8", "surrogateescape")


def fields(output: str) -> list[str]:
    """Split the output of a `-z` command."""
    return [part for part in output.split("\0") if part]


def index_info(entries: Mapping[str, Entry | None]) -> str:
    """Return the input of `update-index -z --index-info`; None takes a path out."""
    gone = [f"0 {NO_OBJECT}\t{path}\0" for path, entry in entries.items() if entry is None]
    # Removals first, so that a file may become a folder.
    return "".join(gone + [f"{e[0]} {e[1]}\t{path}\0" for path, e in entries.items() if e is not None])


@contextmanager
def temporary_index() -> Iterator[dict[str, str]]:
    """Give the environment of an index that is not the user's."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        yield {"GIT_INDEX_FILE": str(Path(folder, "index"))}
