"""Update one project: render the old and the new version, merge the difference, say what happened."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleet import answers as asking
from fleet.apply import Journal, WorkingTree, changes
from fleet.errors import FleetError
from fleet.git import GitError, Tree, require_git
from fleet.merge import Merged, three_way
from fleet.ownership import Patterns, Sides
from fleet.render import Job, Render, Renderer
from fleet.report import Report
from fleet.state import STATE, State, load_state
from fleet.template import Template, is_release, open_template, parse_version


@dataclass(frozen=True)
class Options:
    """What the command line asks of an update."""

    to: str | None = None
    set: dict[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    dry_run: bool = False
    commit: bool = False
    branch: str | None = None


@dataclass(frozen=True)
class Source:
    """A template and where its renders are kept; a rollout shares one among projects."""

    template: Template
    renderer: Renderer


@contextmanager
def open_source(state: State) -> Iterator[Source]:
    """Open the template of a project, with a folder for renders that goes away afterwards."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, Renderer(Path(folder)) as renderer:
        yield Source(open_template(state.template, state.directory), renderer)


def name_of(project: Path) -> str:
    """Return how a project is named in a report: as it was given, or by its folder."""
    return str(project) if project.name else project.resolve().name


def version_name(template: Template, commit: str) -> str:
    """Return a commit's tag, or its short id."""
    return template.tag_of(commit) or commit[:10]


def target_of(template: Template, state: State, to: str | None) -> str:
    """Return the commit to update to: the newest tag unless another version is named."""
    if not template.has(state.commit):
        raise FleetError(
            f"{STATE} names the commit {state.commit[:10]}, which the template {template.url} does not "
            "have (its history may have been rewritten): run `fleet adopt` to find the closest version."
        )
    if to:
        return template.resolve(to)
    newest = template.tags[template.newest()]
    ahead = template.git.succeeds("merge-base", "--is-ancestor", newest, state.commit)
    # A project at an untagged commit, or at a candidate, past the newest tag never goes back by itself.
    return state.commit if ahead else newest


def check(project: Path, source: Source | None = None) -> Report:
    """Say how far a project is behind the template's newest version."""
    require_git()
    state = load_state(project)
    template = source.template if source else open_template(state.template, state.directory)
    target = target_of(template, state, None)
    report = Report(name_of(project), notes=list(template.notes))
    report.before, report.after = (version_name(template, c) for c in (state.commit, target))
    report.behind_by = len([t for t in template.passed(state.commit, target) if is_release(t)])
    report.status = "behind" if target != state.commit else "current"
    where = f"{report.project} is at {report.before}"
    report.message = f"{where}, the newest version."
    if report.status == "behind":
        report.message = f"{where}, {report.behind_by} version(s) behind {report.after}: run `fleet update`."
    return report


def update(project: Path, options: Options, source: Source | None = None) -> Report:
    """Update one project as `options` ask; raises FleetError when refused with nothing touched."""
    require_git()
    work = WorkingTree(project)
    with work.exclusive():
        notes = recover(work)
        refuse_unready(work, options)
        state = load_state(project)
        if source:
            return Update(project, work, state, options, source, notes).run()
        with open_source(state) as own:
            return Update(project, work, state, options, own, notes).run()


def recover(work: WorkingTree) -> list[str]:
    """Undo an update that was killed half-way, and say so."""
    journal = work.journal()
    if not journal or journal.done:
        return []
    aside = work.restore(journal)
    notes = ["An update that had been interrupted was undone first."]
    return notes + [f"Your {path} was set aside as {work.folder / 'aside' / path}." for path in aside]


def abort(project: Path) -> Report:
    """Undo an update that is not committed yet."""
    work = WorkingTree(project)
    with work.exclusive():
        journal = work.journal()
        if not journal or not (work.dirty() or work.unmerged() or journal.branch):
            raise FleetError(f"{project} holds no update that waits to be committed: there is nothing to undo.")
        aside = work.restore(journal)
    report = Report(name_of(project), "aborted", message=f"The update of {name_of(project)} was undone.")
    report.notes = [f"Your {path} was set aside as {work.folder / 'aside' / path}." for path in aside]
    return report


def refuse_unready(work: WorkingTree, options: Options) -> None:
    """Refuse a repository in which an update could mix with other unfinished work."""
    state, git = work.prefix + STATE, work.git
    if not work.head() or not git.succeeds("cat-file", "-e", f"HEAD:{state}"):
        if (git.folder / state).is_file():
            raise FleetError(
                f"{state} must be committed, so that an update can be undone, but is not: "
                "commit the project as it was generated (`git add -A`, `git commit`), then update."
            )
        load_state(git.folder / work.prefix)  # says that there is none
    if busy := work.busy():
        raise FleetError(f"A {busy} is under way in {git.folder}: finish or abort it, then update.")
    if unmerged := work.unmerged():
        raise FleetError(
            f"{', '.join(unmerged)} has conflicts: resolve and commit them, or undo an update with "
            "`fleet update --abort`, then update."
        )
    if dirty := work.dirty():
        more = f" and {len(dirty) - 5} more" if len(dirty) > 5 else ""
        raise FleetError(
            f"{git.folder} must have no uncommitted changes, but has some in {', '.join(dirty[:5])}{more}: "
            "commit or stash them (or undo an update with `fleet update --abort`), then update."
        )
    work.forget()
    if options.commit and not git.succeeds("var", "GIT_COMMITTER_IDENT"):
        raise FleetError("--commit needs your name and e-mail: set user.name and user.email with git config.")


@dataclass
class Update:
    """One update on its way."""

    project: Path
    work: WorkingTree
    state: State
    options: Options
    source: Source
    notes: list[str]

    def run(self) -> Report:
        """Render, merge, and bring the result into the working tree."""
        template, state = self.source.template, self.state
        target = target_of(template, state, self.options.to)
        report = Report(name_of(self.project), notes=[*self.notes, *template.notes])
        report.before, report.after = (version_name(template, c) for c in (state.commit, target))
        if target == state.commit and not self.options.set:
            report.message = f"{report.project} is at {report.before} already; nothing to do."
            return report
        migration = self.migrate(target, report.after)
        old, new = self.render(target, migration)
        offered = template.questions(target)
        asking.drop_unasked(migration, offered, old.defaults, report.after, self.options.drop)
        report.answers_migrated, report.answers_dropped = migration.migrated, migration.dropped
        report.answers_new = {k: v for k, v in new.context.items() if k not in migration.answers}
        sides = self.sides(old, new, migration)
        report.once_changed, report.once_added, report.moved = sides.once_changed, sides.once_added, sides.moved
        ours = self.tree()
        merged = three_way(self.work.git, sides, report.before, report.after)
        skip = list(dict.fromkeys([*state.skip, *self.options.skip]))
        stamped = state.moved(target, template.tag_of(target), new.context, skip)
        merged.tree[STATE] = ("100644", self.work.git.store(stamped.text().encode()))
        self.tell(report, merged, sides, ours)
        report.todo = template.todo(target, template.passed(state.commit, target))
        if not self.options.dry_run:
            self.write(report, ours, merged)
        return report

    def migrate(self, target: str, version: str) -> asking.Migration:
        """Return the answers for the target version; refuses those that it does not offer."""
        template, commit = self.source.template, self.state.commit
        before, offered = template.questions(commit), template.questions(target)
        back = template.passed(target, commit)
        if back and not template.passed(commit, target):
            steps = [template.questions(template.tags[tag]) for tag in reversed(back)]
            result = asking.migrate_back(self.state.answers, steps, offered)
        else:
            passed = [template.tags[tag] for tag in template.passed(commit, target)]
            steps = [template.questions(at) for at in [*[p for p in passed if p != target], target]]
            result = asking.migrate(self.state.answers, steps, before)
        asking.override(result.answers, self.options.set, offered, version)
        asking.check_choices(result.answers, offered, version)
        return result

    def render(self, target: str, migration: asking.Migration) -> tuple[Render, Render]:
        """Render the project's own version and the target."""
        old = Job(self.state.commit, self.state.answers, self.state.named)
        new = Job(target, migration.answers, self.state.named)
        renders = self.source.renderer.render(self.source.template, old, new)
        return renders[0], renders[1]

    def tree(self) -> Tree:
        """Return the project's committed files."""
        return self.work.git.tree(f"HEAD:{self.work.prefix}" if self.work.prefix else "HEAD")

    def sides(self, old: Render, new: Render, migration: asking.Migration) -> Sides:
        """Return the three trees of the merge, with the user's own files taken out."""
        git = self.work.git
        sides = Sides(git.add_folder(old.folder), self.tree(), git.add_folder(new.folder))
        sides.rename({**migration.renames, **new.renames})
        skip = Patterns([*self.state.skip, *self.options.skip])
        sides.take_out(Patterns([*old.once, *new.once]), skip)
        return sides

    def tell(self, report: Report, merged: Merged, sides: Sides, ours: Tree) -> None:
        """Fill the report from the merge."""
        touched = {p for p in {*ours, *merged.tree} if ours.get(p) != merged.tree.get(p)}
        once = {*report.once_added, *merged.conflicts, STATE}
        report.merged = sorted(touched - once)
        report.conflicts = {p: merged.kinds.get(p, "conflict") for p in sorted(merged.conflicts)}
        report.kept_deletions = sorted({*merged.kept_deletions, *sides.kept_deletions})
        report.status = "conflicts" if merged.conflicts else "merged"
        would = "would be" if self.options.dry_run else "was"
        report.message = f"{report.project} {would} updated from {report.before} to {report.after}"
        report.message += f"; {len(report.merged)} file(s) merged"
        if merged.conflicts:
            report.message += (
                f", {len(merged.conflicts)} with conflicts: resolve them, `git add`, `git commit`; "
                "or undo all with `fleet update --abort`"
            )
        report.message += "."

    def write(self, report: Report, ours: Tree, merged: Merged) -> None:
        """Bring the merge into the index and the working tree; on failure everything is put back."""
        work = self.work
        before, after = changes(ours, merged.tree, work.prefix)
        branch = f"fleet/{report.after}" if self.options.branch == "" else self.options.branch
        if branch and work.git.succeeds("rev-parse", "--verify", "-q", f"refs/heads/{branch}"):
            raise FleetError(f"The branch {branch} exists already: delete it or name another.")
        journal = Journal(work.head(), before, after, branch=branch)
        journal.back_to = work.git.answer("symbolic-ref", "--short", "-q", "HEAD") or None
        if blocked := work.in_the_way(journal):
            raise FleetError(
                f"{', '.join(blocked)} is not under version control and in the way of a file of "
                f"{report.after}: move it, or add and commit it, then update."
            )
        title = f"Update the template from {report.before} to {report.after}\n"
        conflicts = {work.prefix + path: stages for path, stages in merged.conflicts.items()}
        try:
            work.apply(journal, conflicts, title)
        except GitError:
            work.restore(journal)
            raise
        report.branch = branch
        if self.options.commit and not conflicts:
            self.commit(report, title)

    def commit(self, report: Report, title: str) -> None:
        """Commit a merge without conflicts."""
        try:
            self.work.git("commit", "-q", "-m", title)
        except GitError as error:
            report.status = "uncommitted"
            report.message += f" It is staged but could not be committed: {error}"
            return
        self.work.forget()
        report.committed = True


def is_newer(tag: str, other: str) -> bool:
    """Return whether version `tag` comes after version `other`."""
    one, two = parse_version(tag), parse_version(other)
    return one is not None and two is not None and one > two
