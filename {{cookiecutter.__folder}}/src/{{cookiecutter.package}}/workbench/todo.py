"""What is still to be made yours, in order, told from the project itself.

TODO.md is the one source: a section an item, `## id: title`, with its place, why, the steps and the proof, which the
function of that id in todo_checks.py looks up; an item of your own is proved by a ticked box. A mark `TODO(you): id`
shows the place, and holds the reason where an item is decided or dismissed.
"""

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from ..mistakes import Parser, require_yaml
from ..practices.errors import UserError
from .todo_checks import CHECKS, LOADER, OF_SOME, Project

PAGE = "TODO.md"
FILES = ("pyproject.toml", "configs/**/*.yaml", "src/**/*.py", PAGE, "runs/latest/MODEL_CARD.md")
MARK = re.compile(r"TODO\(you\): *([\w-]+)(?: (decided|dismissed): *(['\"]?\w.*))?")
SECTION = re.compile(r"(?ms)^## (?P<id>[\w-]+): (?P<title>[^\n]+)(?P<body>.*?)(?=^## |\Z)")


class Mark(NamedTuple):
    """A mark in a file: where, and what it says."""

    file: str
    line: int
    id: str
    decision: str | None
    reason: str | None


@dataclass
class Item:
    """An item of TODO.md and how it stands: `missing` says why it is open, `steps` what to do about it."""

    id: str
    title: str
    file: str = PAGE
    line: int = 0
    missing: str | None = None
    state: str = "open"
    why: str = ""
    proof: str = ""
    steps: Sequence[str] = ()


def read_marks(project: Project) -> Iterator[Mark]:
    """Yield every mark; on a page of prose only those that start a line, as the others are spoken of."""
    names = [path.relative_to(project.folder) for pattern in FILES for path in sorted(project.folder.glob(pattern))]
    for name in (name for name in names if "workbench" not in name.parts):
        for number, line in enumerate(project.text(str(name)).splitlines(), 1):
            if (found := MARK.search(line)) and (name.suffix != ".md" or found.start() == 0):
                reason = found[3] and found[3].strip(' "')
                yield Mark(name.as_posix(), number, found[1], found[2], reason)


def look(project: Project) -> list[Item]:
    """Return every item and how it stands, those first that nothing in TODO.md explains.

    Raises:
        UserError: There is no TODO.md, or the default configuration is broken.
    """
    if (default := project.folder / "configs/default.yaml").is_file():
        require_yaml(default)
    page, marks, items = project.text(PAGE), list(read_marks(project)), {}
    if not page:
        raise UserError(f"{PAGE} does not exist here; start the command in the project's folder, or restore the page.")
    for found in SECTION.finditer(page):
        own = [mark for mark in marks if mark.id == found["id"]]
        place = (own[0].file, own[0].line) if own else (PAGE, page[: found.start()].count("\n") + 1)
        items[found["id"]] = Item(found["id"], found["title"], *place)
        judge(project, items[found["id"]], found["body"], own)
    advice = f"write a section for it in {PAGE}, or delete both"
    stray = {m.id: Item(m.id, "A mark without a section", m.file, m.line, advice) for m in reversed(marks)}
    lost = {i: Item(i, "A section is gone", missing=f"restore it in {PAGE}") for i in sorted({*CHECKS} - OF_SOME)}
    return [*(item for item in (lost | stray).values() if item.id not in items), *items.values()]


def judge(project: Project, item: Item, part: str, marks: list[Mark]) -> None:
    """Set an item's words and state."""
    words = {name: text.strip() for name, text in re.findall(r"(?m)^(Place|Why|Proof): (.+)$", part)}
    item.why, item.proof, place = words.get("Why", ""), words.get("Proof", ""), words.get("Place", "").strip("`")
    steps = [instruct(project, step, marks) for step in re.findall(r"(?m)^- (?!\[)(.+)", part)]
    item.steps = [step for step in steps if step]
    if check := CHECKS.get(item.id):
        names = re.findall(r"`([^`]+)`", item.proof)
        try:
            inspect.signature(check).bind(project, *names)
        except TypeError:
            item.missing = f"its proof in {PAGE} lacks the names between backticks that it is looked up by"
        else:
            item.missing = check(project, *names)
    elif "- [ ]" in part or "- [x]" not in part.lower():
        item.missing = f"its box in {PAGE} is not ticked"
    decided = next((mark for mark in marks if mark.reason), None)
    if item.missing is None:
        item.state = "done"
    elif decided:
        item.state, item.missing = str(decided.decision), decided.reason
    elif place and not marks and project.text(place):
        item.state, item.missing = "mark missing", f"{item.missing}; restore `TODO(you): {item.id}` in {place}"


def instruct(project: Project, step: str, marks: list[Mark]) -> str | None:
    """Return a step with the line it is about; None where it is already done."""
    found = re.match(r"(Set|Replace|Write) (?:`([^`]+)`|<[^>]+>).* in `([^`]+)`", step)
    if not found:
        return step
    verb, what, file = found.groups()
    if verb == "Set":
        line = line_of_key(project.text(file), what)
    elif verb == "Write":
        line = next((mark.line for mark in marks if mark.file == file), None)
    else:
        line = next((n for n, text in enumerate(project.text(file).splitlines(), 1) if what in text), None)
    if line is None:
        return None if verb == "Replace" else step
    return step.replace(f"in `{file}`", f"in `{file}` (line {line})")


def line_of_key(text: str, key: str) -> int | None:
    """Return the line of a dotted key in a YAML file."""
    node, line = yaml.compose(text, LOADER), None
    for name in key.split("."):
        pairs = {k.value: (k, value) for k, value in node.value} if isinstance(node, yaml.MappingNode) else {}
        if name not in pairs:
            return None
        line, node = pairs[name][0].start_mark.line + 1, pairs[name][1]
    return line


def show(items: list[Item]) -> list[str]:
    """Return the list as lines, and the first open item with all that is to be done."""
    open_items = [item for item in items if item.state in ("open", "mark missing")]
    wide = max(len(f"{item.file}:{item.line}") for item in items)
    lines = [f"{n:>2} {i.state:<13}{i.id:<13}{f'{i.file}:{i.line}':<{wide}}  {i.title}" for n, i in enumerate(items, 1)]
    lines += ["", f"{len(items) - len(open_items)} of {len(items)} are done."]
    if open_items:
        item = open_items[0]
        lines[-1] += f" Next: {item.id}, {item.title[0].lower()}{item.title[1:]}."
        lines += [f"  Open: {item.missing}.", *([f"  Why: {item.why}"] if item.why else [])]
        lines += [f"  {number}. {step}" for number, step in enumerate(item.steps, 1)]
        lines += [f"  Proof: {item.proof}"] if item.proof else []
    return lines


def main(arguments: Sequence[str]) -> None:
    """Print the items; with --check, exit 1 while any is open."""
    parser = Parser(prog="todo", description="List what is still to be made yours, in order.")
    parser.add_argument("--check", action="store_true", help="exit with 1 while any is open")
    parser.add_argument("--json", action="store_true", help="print everything that is known, as JSON")
    options = parser.parse_args(arguments)
    items = look(Project(Path.cwd()))
    print(json.dumps([asdict(item) for item in items], indent=2) if options.json else "\n".join(show(items)))
    if options.check and any(item.state in ("open", "mark missing") for item in items):
        raise SystemExit(1)
