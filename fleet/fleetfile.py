"""Read fleet.toml: which projects there are, where, and what each wants of a rollout."""

import os
import re
import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from fleet.errors import FleetError, learn_secrets


@dataclass(frozen=True)
class Member:
    """One project of the fleet."""

    url: str
    name: str
    folder: str = ""
    base: str | None = None
    pin: str | None = None
    skip: bool | list[str] = False

    @property
    def prefix(self) -> str:
        """Return how the names of this project's update branches begin."""
        return f"fleet/{re.sub(r'[^A-Za-z0-9]+', '-', self.folder).strip('-')}/" if self.folder else "fleet/"

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return the patterns of files that updates leave alone."""
        return tuple(self.skip) if isinstance(self.skip, list) else ()


@dataclass(frozen=True)
class Fleet:
    """All projects, and the commands that prove one."""

    members: list[Member]
    setup: str = "make setup"
    check: str = "make check"
    test: str = "make test-fast"
    timeout_minutes: float = 30

    def chosen(self, only: list[str]) -> list[Member]:
        """Return the members whose name matches one of `only`, or all."""
        found = [m for m in self.members if not only or any(fnmatch(m.name, o) for o in only)]
        if not found:
            known = ", ".join(member.name for member in self.members)
            raise FleetError(f"--only {' '.join(only)} must name a project, but there are only {known}.")
        return found


def load_fleet(path: Path) -> Fleet:
    """Read and check a fleet file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FleetError(f"{path} must be a TOML file that lists projects, but cannot be read: {error}.") from error
    entries = document.pop("project", [])
    if not isinstance(entries, list) or not entries:
        raise FleetError(f"{path} must list projects as [[project]] with a url each, but lists none.")
    _check(path, document, {"setup": str, "check": str, "test": str, "timeout_minutes": (int, float)}, "at the top")
    members = [_member(path, entry) for entry in entries]
    names = [member.name for member in members]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FleetError(f"{path} must name each project once, but names {twice[0]} twice: set `name`.")
    return Fleet(members, **document)


def _member(path: Path, entry: Any) -> Member:
    kinds = {field.name: str for field in fields(Member)} | {"skip": (bool, list)}
    _check(path, entry, kinds, "in [[project]]")
    if not entry.get("url"):
        raise FleetError(f"{path}: a [[project]] must have a url, but one has only {sorted(entry)}.")
    url = os.path.expandvars(entry["url"])
    learn_secrets(url)
    if ":" not in url and not Path(url).is_absolute():
        url = str((path.parent / url).resolve())
    folder = entry.get("folder", "").strip("/")
    if ".." in Path(folder).parts:
        raise FleetError(f"{path}: folder must lie in the repository, but is {folder!r}.")
    last = url.rstrip("/").removesuffix(".git").replace(":", "/").rsplit("/", 1)[-1]
    name = entry.get("name") or "/".join(filter(None, (last, folder)))
    return Member(**{**entry, "url": url, "name": name, "folder": folder})


def _check(path: Path, given: Any, kinds: dict[str, Any], where: str) -> None:
    """Refuse an unknown key or a value of another kind."""
    if not isinstance(given, dict):
        raise FleetError(f"{path}: a project {where} must be a table, but is {given!r}.")
    for key, value in given.items():
        if key not in kinds:
            raise FleetError(f"{path}: {key!r} {where} is not known, only {', '.join(kinds)}: correct it.")
        if not isinstance(value, kinds[key]):
            raise FleetError(f"{path}: {key} {where} has a value of another kind: {value!r}.")
