"""Who owns which file: what is generated once or skipped is the user's, and an update leaves it alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.git import Tree
from fleet.state import STATE


class Patterns:
    """Glob patterns relative to the project: * within a folder, ** across folders."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._regex = re.compile("|".join(_regex(pattern) for pattern in patterns) or r"(?!)")

    def match(self, path: str) -> bool:
        """Return whether `path`, or a folder that it lies in, is named."""
        return self._regex.fullmatch(path) is not None


def _regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.strip().removeprefix("./").rstrip("/"))
    signs = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    return "(?:" + "".join(signs.get(part, re.escape(part)) for part in parts) + ")(?:/.*)?"


@dataclass
class Sides:
    """The three trees of a merge, and what ownership made of them."""

    base: Tree
    ours: Tree
    theirs: Tree
    once_changed: dict[str, str] = field(default_factory=dict)
    once_added: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    kept_deletions: list[str] = field(default_factory=list)

    def rename(self, renames: dict[str, str]) -> None:
        """Move the files that the template declares as renamed, where its own renders show it."""
        for old, new in renames.items():
            for path in [p for p in self.base if p == old or p.startswith(f"{old}/")]:
                target = new + path.removeprefix(old)
                if target not in self.theirs or path in self.theirs or target in self.ours:
                    continue
                self.base[target] = self.base.pop(path)
                if path in self.ours:
                    self.ours[target] = self.ours.pop(path)
                    self.moved[path] = target

    def take_out(self, once: Patterns, skip: Patterns) -> None:
        """Make the user's own files equal on all sides, so that nothing happens to them.

        They stay in the trees: were they only missing from the template's sides, git could take one
        for the renamed copy of a file that the user deleted.
        """
        for path in sorted({*self.base, *self.theirs, STATE}):
            skipped = path == STATE or skip.match(path)
            if not skipped and not once.match(path):
                continue
            before, after, mine = (side.get(path) for side in (self.base, self.theirs, self.ours))
            if path != STATE and before != after and after != mine:
                self._tell(path, skipped)
            if mine:
                self.base[path] = self.theirs[path] = mine
            else:
                self.base.pop(path, None)
                if before or skipped:
                    self.theirs.pop(path, None)

    def _tell(self, path: str, skipped: bool) -> None:
        if path not in self.ours and path not in self.base:
            if not skipped:
                self.once_added.append(path)
        elif path not in self.ours:
            self.kept_deletions.append(path)
        else:
            gone, new = path not in self.theirs, path not in self.base
            self.once_changed[path] = "removed" if gone else "added" if new else "changed"
