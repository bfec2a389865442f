"""What is still to be made yours, in order, told from the project itself.

TODO.md is the one source: a section an item, `## id: title`, with its place, why, the steps and the proof, which the
function of that id in todo_checks.py looks up; an item of your own is proved by a ticked box. A mark `TODO(you): id`
shows the place, and holds the reason where an item is decided or dismissed.
"""

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..parsing import Parser
from ..practices.errors import UserError
from .todo_checks import CHECKS, LOADER, OF_SOME, Project

PAGE = "TODO.md"
FILES = ("pyproject.toml", "configs/**/*.yaml", "src/**/*.py", PAGE, "runs/latest/MODEL_CARD.md")
MARK = re.compile(r"TODO\(you\): *([a-z_]+)(?: (decided|dismissed): *(\w.*))?")
HEADING = re.compile(r"## ([a-z_]+): (.+)")


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
    state: str = "open"
    missing: str | None = None
    why: str = ""
    steps: list[str] = field(default_factory=list)
    proof: str = ""


def read_marks(project: Project) -> Iterator[Mark]:
    """Yield every mark; on a page of prose only those that start a line, as the others are spoken of."""
    names = [path.relative_to(project.folder) for pattern in FILES for path in sorted(project.folder.glob(pattern))]
    for name in (name for name in names if "workbench" not in name.parts):
        for number, line in enumerate(project.text(str(name)).splitlines(), 1):
            if (found := MARK.search(line)) and (name.suffix != ".md" or found.start() == 0):
                reason = found[3] and found[3].strip(' "')
                yield Mark(name.as_posix(), number, found[1], found[2], reason)


def read_items(project: Project) -> Iterator[tuple[Item, str]]:
    """Yield every section of TODO.md as an item, and its text.

    Raises:
        UserError: There is no TODO.md.
    """
    text = project.text(PAGE)
    if not text:
        raise UserError(f"{PAGE} does not exist here; start the command in the project's folder, or restore the page.")
    for part in re.split(r"(?m)^(?=## )", text)[1:]:
        if found := HEADING.match(part):
            line = text[: text.index(part)].count("\n") + 1
            yield Item(found[1], found[2], line=line), part


def paragraph(part: str, name: str) -> str:
    """Return the words of a section after `name:`, up to the next step, name or empty line, as one line."""
    found = re.search(rf"(?ms)^{name}: (.+?)(?=\n- |\n\w+: |\nTODO|\n\n|\s*\Z)", part)
    return " ".join(found[1].split()) if found else ""


def look(project: Project) -> list[Item]:
    """Return every item and how it stands, those first that nothing in TODO.md explains."""
    marks, items = list(read_marks(project)), []
    for item, part in read_items(project):
        own = [mark for mark in marks if mark.id == item.id]
        judge(project, item, part, own)
        steps = re.findall(r"(?m)^- (?!\[)(.+)", part)
        item.steps = [step for step in (instruct(project, step, own) for step in steps) if step]
        items.append(item)
    known = {item.id for item in items}
    advice = f"write a section for it in {PAGE}, or delete both"
    stray = {m.id: Item(m.id, "A mark without a section", m.file, m.line, missing=advice) for m in reversed(marks)}
    lost = {i: Item(i, "A section is gone", missing=f"restore it in {PAGE}") for i in sorted({*CHECKS} - OF_SOME)}
    return [*(item for item in (lost | stray).values() if item.id not in known), *items]


def judge(project: Project, item: Item, part: str, marks: list[Mark]) -> None:
    """Set an item's place and state."""
    item.why, item.proof = paragraph(part, "Why"), paragraph(part, "Proof")
    place = paragraph(part, "Place").strip("`")
    if marks:
        item.file, item.line = marks[0].file, marks[0].line
    if check := CHECKS.get(item.id):
        try:
            proved = inspect.signature(check).bind(project, *re.findall(r"`([^`]+)`", item.proof))
            item.missing = check(*proved.args)
        except TypeError:
            item.missing = f"the proof in {PAGE} lacks the names between backticks that it is looked up by"
    elif "- [ ]" in part or "- [x]" not in part:
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
    node: Any = yaml.compose(text, LOADER)
    line = None
    for name in key.split("."):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        key_node, node = next(((k, v) for k, v in pairs if k.value == name), (None, None))
        if key_node is None:
            return None
        line = key_node.start_mark.line + 1
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
