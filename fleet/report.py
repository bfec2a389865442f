"""What an update did, as sentences and as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.errors import mask

KINDS = {
    "contents": "both changed the same lines; edit the part between the markers",
    "modify/delete": "the template deleted it, you changed it; `git rm` it or `git add` yours",
    "unmergeable": "both changed it, it has no lines to merge, yours is kept; "
    "`git checkout --theirs` takes the template's",
    "distinct modes": "a file on one side, another type on the other; keep one",
    "rename/delete": "the template deleted it, you renamed it; `git rm` it or `git add` yours",
    "rename/rename": "both renamed it to different names; keep one",
}


@dataclass
class Report:
    """The outcome of one update of one project."""

    project: str
    status: str = "current"
    before: str = ""
    after: str = ""
    merged: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)
    kept_deletions: list[str] = field(default_factory=list)
    once_changed: dict[str, str] = field(default_factory=dict)
    once_added: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    answers_new: dict[str, Any] = field(default_factory=dict)
    answers_migrated: dict[str, str] = field(default_factory=dict)
    answers_dropped: dict[str, str] = field(default_factory=dict)
    todo: dict[str, str] = field(default_factory=dict)
    behind_by: int = 0
    committed: bool = False
    branch: str | None = None
    notes: list[str] = field(default_factory=list)
    message: str = ""

    @property
    def exit_code(self) -> int:
        """Return 0 when merged or up to date, 1 when something is left to do, 2 when refused."""
        return {"refused": 2, "conflicts": 1, "uncommitted": 1, "behind": 1}.get(self.status, 0)

    def document(self) -> dict[str, Any]:
        """Return the report for JSON, with `from` and `to` as people say them."""
        found = asdict(self)
        return {"from": found.pop("before"), "to": found.pop("after"), **found}

    def lines(self) -> list[str]:
        """Return the report for the screen."""
        out = [self.message]
        out += _part("Merged", self.merged)
        kinds = {path: KINDS.get(kind, kind) for path, kind in self.conflicts.items()}
        out += _part("Conflicts, to be resolved in", _pairs(kinds))
        out += _part("Not in your project and left so, though the template changed them", self.kept_deletions)
        out += _part("Yours, not touched, though the template's own version did", _pairs(self.once_changed))
        if self.once_changed or self.kept_deletions:
            out.append(f"  See what: fleet diff --from {self.before} --to {self.after} -- PATH")
        out += _part("Generated once, and yours from now on", self.once_added)
        out += _part("Renamed with the template", [f"{a} -> {b}" for a, b in self.moved.items()])
        out += _part("New answers", [f"{key}={value}" for key, value in self.answers_new.items()])
        out += _part("Migrated answers", list(self.answers_migrated.values()))
        out += _part("Dropped answers", _pairs(self.answers_dropped))
        out += self.notes
        for tag, text in self.todo.items():
            out += [f"What {tag} asks of an existing project:", *(f"  {line}" for line in text.splitlines())]
        return [mask(line) for line in out if line]


def _pairs(mapping: dict[str, str]) -> list[str]:
    return [f"{key}: {value}" for key, value in mapping.items()]


def _part(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *(f"  {line}" for line in lines)] if lines else []
