"""The template's repository: a cached copy of it, its versions, its questions, its change log."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet.errors import FleetError, learn_secrets, mask, strip_credentials
from fleet.git import Git, GitError

_SEMVER = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_HOSTS = {"gh": "https://github.com/{}.git", "gl": "https://gitlab.com/{}.git", "bb": "https://bitbucket.org/{}"}
_REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")

SemVer = tuple[int, int, int, tuple[tuple[int, int, str], ...]]


def parse_version(tag: str) -> SemVer | None:
    """Return a sortable key for a semantic version tag such as v1.2.0 or 1.2.0-rc.1, else None."""
    found = _SEMVER.fullmatch(tag)
    if not found:
        return None
    # A release sorts after its own candidates; numbers sort before words, as the standard says.
    words = found[4].split(".") if found[4] else []
    before = tuple((0, int(w), "") if w.isdigit() else (1, 0, w) for w in words)
    return int(found[1]), int(found[2]), int(found[3]), before or ((2, 0, ""),)


def is_release(tag: str) -> bool:
    """Return whether `tag` is a semantic version and no pre-release."""
    version = parse_version(tag)
    return version is not None and version[3][0][0] == 2


def cache_folder() -> Path:
    """Return the folder of this program below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "fleet")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that the system gives back even when the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Template:
    """A template at an address, read from a bare copy in the cache."""

    url: str
    directory: str | None
    git: Git
    notes: list[str] = field(default_factory=list)
    _questions: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def tags(self) -> dict[str, str]:
        """Return the semantic version tags and their commits, oldest first."""
        form = "%(refname:strip=2) %(objectname) %(*objectname)"
        lines = [line.split() for line in self.git("for-each-ref", f"--format={form}", "refs/tags").splitlines()]
        found = {line[0]: line[-1] for line in lines if parse_version(line[0])}
        return dict(sorted(found.items(), key=lambda item: parse_version(item[0]) or ()))

    def newest(self) -> str:
        """Return the newest release tag; a template without one is refused, never read at a branch."""
        releases = [tag for tag in self.tags if is_release(tag)]
        if not releases:
            raise FleetError(
                f"The template {self.url} must have a semantic version tag such as v0.1.0, but has none: "
                "tag a version there."
            )
        return releases[-1]

    def tag_of(self, commit: str) -> str | None:
        """Return the newest version tag on `commit`."""
        return next((tag for tag, at in reversed(self.tags.items()) if at == commit), None)

    def resolve(self, name: str) -> str:
        """Return the commit of a version tag (with or without the v) or of a full commit id."""
        for tag in (name, f"v{name}", name.removeprefix("v")):
            if tag in self.tags:
                return self.tags[tag]
        if re.fullmatch("[0-9a-f]{40}", name) and self.has(name):
            return name
        known = ", ".join(list(self.tags)[-10:]) or "none"
        raise FleetError(f"{name!r} must be a version tag of {self.url} (there: {known}): choose one of them.")

    def has(self, commit: str) -> bool:
        """Return whether the copy holds `commit`, asking the template once for a commit off its branches."""
        if self.git.succeeds("cat-file", "-e", f"{commit}^{{commit}}"):
            return True
        self.git.succeeds("fetch", "-q", "--no-write-fetch-head", "--", self.url, commit)
        return self.git.succeeds("cat-file", "-e", f"{commit}^{{commit}}")

    def passed(self, old: str, new: str) -> list[str]:
        """Return the version tags after commit `old` up to commit `new`, oldest first."""
        names = self.git("tag", "--merged", new, "--no-merged", old).splitlines()
        return [tag for tag in self.tags if tag in names]

    def read(self, commit: str, name: str) -> str | None:
        """Return the text of a file of the template at `commit`, or None."""
        path = f"{self.directory}/{name}" if self.directory else name
        done = self.git.raw("cat-file", "blob", f"{commit}:{path}", ok=(0, 128))
        return done.stdout.decode("utf-8") if done.returncode == 0 else None

    def questions(self, commit: str) -> dict[str, Any]:
        """Return cookiecutter.json at `commit`."""
        if commit not in self._questions:
            self._questions[commit] = self._read_questions(commit)
        return self._questions[commit]

    def _read_questions(self, commit: str) -> dict[str, Any]:
        text = self.read(commit, "cookiecutter.json")
        try:
            found = json.loads(text or "")
        except ValueError as error:
            what = "is not valid JSON" if text else "is missing"
            raise FleetError(
                f"cookiecutter.json of {self.url} at {commit[:10]} {what}: choose another version with --to."
            ) from error
        return dict(found)

    def checkout(self, commit: str, folder: Path) -> None:
        """Write the template at `commit` to `folder`, as a repository that borrows the cache's objects."""
        folder.mkdir()
        git = Git(folder, ("-c", "core.autocrlf=false"))
        git("init", "-q")
        lent = self.git.folder / "objects"
        (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{lent}\n")
        git("checkout", "-q", "--detach", commit)

    def todo(self, commit: str, tags: list[str]) -> dict[str, str]:
        """Return what the change log at `commit` asks of an existing project, by version in `tags`."""
        wanted = {parse_version(tag): tag for tag in tags}
        found: dict[str, str] = {}
        for section in re.split(r"(?m)^## ", self.read(commit, "CHANGELOG.md") or "")[1:]:
            title = re.match(r"\[?([^\]\s]+)", section)
            tag = wanted.get(parse_version(title[1])) if title else None
            part = re.search(r"(?ims)^### [^\n]*existing project[^\n]*\n(.*?)(?=^#{1,3} |\Z)", section)
            if tag and part and part[1].strip(" -*.\n").lower() not in ("", "nothing", "none"):
                found[tag] = part[1].strip()
        return {tag: found[tag] for tag in tags if tag in found}


def full_url(url: str) -> str:
    """Return `url` with a hosted abbreviation such as gh:org/name written out."""
    host, _, rest = url.partition(":")
    return _HOSTS[host].format(rest) if host in _HOSTS and rest else url


def open_template(url: str, directory: str | None = None) -> Template:
    """Fetch a template into the cache; without a connection the cached copy is used, and that is said."""
    url = full_url(url)
    learn_secrets(url)
    name = hashlib.sha256(strip_credentials(url).encode()).hexdigest()[:20]
    folder = cache_folder() / "templates" / f"{name}.git"
    with locked(folder.with_suffix(".lock")):
        git = Git(folder)
        if not (folder / "HEAD").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            # Not `clone`, which would store the address, with its credentials, in the cache.
            git("init", "-q", "--bare")
        notes = _fetch(git, url)
    return Template(url, directory, git, notes)


def _fetch(git: Git, url: str) -> list[str]:
    """Update the copy from `url`; return a note when only the cached copy could be used."""
    flags = ("-q", "--prune", "--force", "--update-shallow", "--no-write-fetch-head", "--no-auto-gc")
    try:
        git("fetch", *flags, "--", url, *_REFS)
    except GitError as error:
        if not git("for-each-ref", "--count=1"):
            raise FleetError(
                f"The template {url} could not be fetched, and no copy of it is in the cache ({error}): "
                "check the address, your access and the connection."
            ) from error
        return [f"The template {mask(url)} could not be fetched; its copy in the cache was used ({error})."]
    return []
