"""Give a state file to a project that has none: find the version and the answers it is closest to."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.answers import check_choices, override, public
from fleet.apply import WorkingTree
from fleet.errors import FleetError, strip_credentials
from fleet.git import Tree, require_git
from fleet.render import Job, Render, Renderer
from fleet.report import Report
from fleet.state import STATE, Answers, State, load_state
from fleet.template import Template, full_url, open_template

# A project that shares less with every version was hardly made from this template.
LEAST_SHARED = 0.3


@dataclass
class Match:
    """How close a render is to the project, in lines."""

    tag: str = ""
    answers: Answers = field(default_factory=dict)
    shared: int = 0
    missing: int = 0

    @property
    def score(self) -> int:
        """Return a number that grows with what is shared and falls with what is not there."""
        return self.shared - self.missing


def adopt(project: Path, url: str, directory: str | None, given: dict[str, str]) -> Report:
    """Write the state file that fits best; the user reviews and commits it."""
    require_git()
    work = WorkingTree(project)
    _refuse_adopted(project)
    if not work.head():
        raise FleetError(f"{project} must have a commit, but has none: commit it, then adopt.")
    template = open_template(url, directory)
    if not template.tags:
        template.newest()  # refuses, and says what to do
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, Renderer(Path(folder)) as renderer:
        best = Search(work, template, renderer, given).best()
    total = best.shared + best.missing
    if best.shared < LEAST_SHARED * total:
        raise FleetError(
            f"{project} must be made from {template.url}, but shares only {best.shared} of {total} lines with "
            f"the closest version, {best.tag or 'none'}: check the address, or give answers with --set NAME=VALUE."
        )
    start = State({"template": full_url(url), "directory": directory, "context": {"cookiecutter": {}}})
    state = start.moved(template.tags[best.tag], best.tag, best.answers, [])
    (project / STATE).write_text(state.text(), encoding="utf-8")
    report = Report(str(project), "adopted", after=best.tag, notes=list(template.notes))
    report.answers_new = best.answers
    report.message = (
        f"{project} is closest to {best.tag}: {best.shared} of {total} generated lines are in it. {STATE} was "
        f"written with the answers below: correct what is wrong (or run again with --set NAME=VALUE), commit it, "
        "then update."
    )
    return report


def _refuse_adopted(project: Path) -> None:
    if not (project / STATE).exists():
        return
    try:
        state = load_state(project)
    except FleetError:
        return  # unversioned, dirty or broken: that is what adopting mends
    if open_template(state.template, state.directory).has(state.commit):
        raise FleetError(f"{project} has a state file that works already: run `fleet update`.")


class Search:
    """The search for the closest version of one template."""

    def __init__(self, work: WorkingTree, template: Template, renderer: Renderer, given: dict[str, str]) -> None:
        self.work, self.template, self.renderer, self.given = work, template, renderer, given
        self.url = strip_credentials(template.url)
        self.ours: Tree = work.git.tree(f"HEAD:{work.prefix}" if work.prefix else "HEAD")
        self._lines: dict[str, Counter[bytes]] = {}

    def best(self) -> Match:
        """Return the closest version: the answers are found at the newest, then each tag is tried."""
        tags = list(self.template.tags)
        answers = self._guess(tags[-1])
        found = [self._match(tag, answers) for tag in reversed(tags)]
        best = max(found, key=lambda match: match.score)
        # The answers may be told better by the version that the project was made from.
        better = self._match(best.tag, self._guess(best.tag)) if best.tag else best
        return max(better, best, key=lambda match: match.score)

    def _guess(self, tag: str) -> Answers:
        """Return the answers that make the version look most like the project."""
        questions = self.template.questions(self.template.tags[tag])
        answers: Answers = {}
        override(answers, {k: v for k, v in self.given.items() if k in public(questions)}, questions, tag)
        check_choices(answers, questions, tag)
        read_off = {**answers, **self._texts(tag, questions, answers)}
        answers = max(answers, read_off, key=lambda a: self._match(tag, a).score)
        for key, choices in public(questions).items():
            if isinstance(choices, list) and key not in self.given:
                tried = [answers, *({**answers, key: choice} for choice in choices)]
                answers = max(tried, key=lambda a: self._match(tag, a).score)
        return answers

    def _texts(self, tag: str, questions: dict[str, Any], known: Answers) -> Answers:
        """Read the free answers off the project: render with marks, and see what stands in their place."""
        asked = [k for k, raw in public(questions).items() if isinstance(raw, str) and k not in known]
        marks = {key: f"zq{chr(97 + number)}qz" for number, key in enumerate(asked[:26])}
        render = self._render(tag, {**known, **marks})
        if not render:
            return {}
        votes: dict[str, Counter[str]] = {key: Counter() for key in marks}
        for path in (p for p in render.folder.rglob("*") if p.is_file()):
            pattern = _pattern(path.relative_to(render.folder).as_posix(), marks)
            for name in (n for n in self.ours if n != STATE and re.fullmatch(pattern, n)):
                _vote(votes, re.fullmatch(pattern, name))
                ours = self.work.git.blob(self.ours[name][1]).decode("utf-8", "replace").splitlines()
                for line in _marked_lines(path, marks):
                    for found in filter(None, (re.fullmatch(_pattern(line, marks), mine) for mine in ours)):
                        _vote(votes, found)
        return {key: count.most_common(1)[0][0] for key, count in votes.items() if count}

    def _render(self, tag: str, answers: Answers) -> Render | None:
        try:
            return self.renderer.render(self.template, Job(self.template.tags[tag], answers, self.url))[0]
        except FleetError:  # a hook of the template refuses these answers
            return None

    def _match(self, tag: str, answers: Answers) -> Match:
        questions = public(self.template.questions(self.template.tags[tag]))
        fitting = {
            key: value
            for key, value in answers.items()
            if key in questions and not (isinstance(questions[key], list) and value not in questions[key])
        }
        render = self._render(tag, fitting)
        if not render:
            return Match(tag, missing=10**9)
        match = Match(tag, render.context)
        for path, (_, oid) in self.work.git.add_folder(render.folder).items():
            if path != STATE:
                made = self._count(oid)
                mine = self._count(self.ours[path][1]) if path in self.ours else Counter[bytes]()
                shared = (made & mine).total()
                match.shared += shared
                match.missing += made.total() - shared
        return match

    def _count(self, oid: str) -> Counter[bytes]:
        if oid not in self._lines:
            self._lines[oid] = Counter(self.work.git.blob(oid).splitlines() or [b""])
        return self._lines[oid]


def _marked_lines(path: Path, marks: dict[str, str]) -> Iterator[str]:
    text = path.read_bytes().decode("utf-8", "replace")
    return (line for line in text.splitlines() if any(mark in line for mark in marks.values()))


def _pattern(text: str, marks: dict[str, str]) -> str:
    """Return a regular expression with a group in place of each mark."""
    pattern = re.escape(text)
    for key, mark in marks.items():
        pattern = pattern.replace(mark, f"(?P<{key}>.+?)", 1).replace(mark, f"(?P={key})")
    return pattern


def _vote(votes: dict[str, Counter[str]], found: re.Match[str] | None) -> None:
    for key, value in (found.groupdict() if found else {}).items():
        votes[key][value] += 1
