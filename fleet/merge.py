"""Merge the template's change three-way into a project's tree, in the object store alone."""

import re
from dataclasses import dataclass, field
from typing import TypeVar

from fleet.git import Entry, Git, Tree, fields, text
from fleet.ownership import Sides

T = TypeVar("T")
Stages = dict[int, Entry]


@dataclass
class Merged:
    """The merged tree, with markers where a conflict is, and the conflicts' index entries."""

    tree: Tree
    conflicts: dict[str, Stages] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    kept_deletions: list[str] = field(default_factory=list)


def three_way(git: Git, sides: Sides, old: str, new: str) -> Merged:
    """Merge base -> theirs into ours; `old` and `new` name the template's versions in markers."""
    _match_line_ends(git, sides)
    base = git.commit_tree(git.write_tree(sides.base), "base")
    ours = git.commit_tree(git.write_tree(sides.ours), "yours", base)
    theirs = git.commit_tree(git.write_tree(sides.theirs), "template", base)
    names = {base: f"template {old}", ours: "yours", theirs: f"template {new}"}
    done = git.raw("merge-tree", "--write-tree", "-z", "--messages", ours, theirs, ok=(0, 1))
    head, _, tail = text(done.stdout).partition("\0\0")
    tree, *stages = fields(head)
    merged = Merged(git.tree(tree))
    for line in stages:
        about, path = line.split("\t", 1)
        mode, oid, stage = about.split()
        merged.conflicts.setdefault(path, {})[int(stage)] = (mode, oid)
    merged.kinds = _kinds(tail)
    _keep_deletions(merged)
    _name_markers(git, merged, names)
    return merged


def _kinds(output: str) -> dict[str, str]:
    """Read the kind of each path's conflict from git's messages: count, paths, kind, sentence."""
    kinds, parts = {}, output.split("\0")
    while len(parts) > 1 and parts[0].isdigit():
        count = int(parts[0])
        paths, kind = parts[1 : count + 1], parts[count + 1]
        if kind.startswith("CONFLICT"):
            kinds.update(dict.fromkeys(paths, kind.removeprefix("CONFLICT ").strip("()")))
        del parts[: count + 3]
    return kinds


def _keep_deletions(merged: Merged) -> None:
    """Settle the files that the user deleted and the template changed: they stay deleted."""
    for path in [path for path, stages in merged.conflicts.items() if set(stages) == {1, 3}]:
        del merged.conflicts[path]
        merged.tree.pop(path, None)
        merged.kept_deletions.append(path)


def _name_markers(git: Git, merged: Merged, names: dict[str, str]) -> None:
    """Put the sides' names where git wrote the ids of commits that nobody knows: markers and paths."""
    signs = dict(zip(names, (b"|||||||", b"<<<<<<<", b">>>>>>>"), strict=True))
    for path, stages in merged.conflicts.items():
        mode, oid = merged.tree.get(path, ("", ""))
        if {2, 3} <= set(stages) and (mode, oid) in stages.values():
            merged.kinds[path] = "unmergeable"  # binary files and symlinks: git keeps the user's
        if not mode.startswith("100") or (mode, oid) in stages.values():
            continue
        content = git.blob(oid)
        for commit, name in names.items():
            content = re.sub(
                rb"(?m)^(" + re.escape(signs[commit]) + rb"+) " + commit.encode(),
                rb"\1 " + name.encode(),
                content,
            )
        merged.tree[path] = (mode, git.store(content))
    for commit, name in names.items():
        merged.tree = _said(merged.tree, commit, name)
        merged.conflicts = _said(merged.conflicts, commit, name)
        merged.kinds = _said(merged.kinds, commit, name)


def _said(mapping: dict[str, T], commit: str, name: str) -> dict[str, T]:
    """Name the side in paths such as `file~<commit>`, where git made room for a folder."""
    return {path.replace(f"~{commit}", f"~{name.split()[0]}"): v for path, v in mapping.items()}


def _match_line_ends(git: Git, sides: Sides) -> None:
    """Give the template's versions of a file the line ends that the user's version has.

    An editor that changed every line's end would otherwise turn each later change into a conflict.
    """
    for path, mine in sides.ours.items():
        before, after = sides.base.get(path), sides.theirs.get(path)
        if not before or not after or mine in (before, after) or before == after:
            continue
        if not all(entry[0].startswith("100") for entry in (mine, before, after)):
            continue
        lines = git.blob(mine[1])
        for side in (sides.base, sides.theirs):
            mode, oid = side[path]
            content = git.blob(oid)
            if _ends(lines) == b"\r\n" and _ends(content) == b"\n":
                side[path] = (mode, git.store(content.replace(b"\n", b"\r\n")))


def _ends(content: bytes) -> bytes | None:
    """Return the one kind of line end that a text has, or None for another or a binary file."""
    crlf, lf = content.count(b"\r\n"), content.count(b"\n")
    if not lf or b"\0" in content or 0 < crlf < lf:
        return None
    return b"\r\n" if crlf else b"\n"
