"""Show differences: a project from its own version, and one version of the template from another."""

from pathlib import Path

from fleet.apply import WorkingTree
from fleet.git import Tree, temporary_index
from fleet.ownership import Patterns
from fleet.render import Job, Render
from fleet.state import STATE, State, load_state
from fleet.update import Options, Source, Update, open_source, version_name


def _owned(state: State, *renders: Render) -> Patterns:
    return Patterns([STATE, *state.skip, *(pattern for render in renders for pattern in render.once)])


def _present(work: WorkingTree) -> Tree:
    """Return the tracked files as they are now, uncommitted changes included."""
    with temporary_index() as env:
        work.git("read-tree", "HEAD", env=env)
        work.git("add", "-u", "--", ".", env=env)
        tree = work.git("write-tree", env=env)
    return work.git.tree(f"{tree}:{work.prefix}" if work.prefix else tree)


def drift(project: Path, source: Source | None = None) -> dict[str, str]:
    """Return the diff of each managed file from what the project's own version generates."""
    state = load_state(project)
    if source is None:
        with open_source(state) as own:
            return drift(project, own)
    work = WorkingTree(project)
    render = source.renderer.render(source.template, Job(state.commit, state.answers, state.named))[0]
    base, owned = work.git.add_folder(render.folder), _owned(state, render)
    here = _present(work)
    managed = {path: entry for path, entry in base.items() if not owned.match(path)}
    return _diff(work, managed, {path: here[path] for path in managed if path in here})


def template_diff(project: Path, before: str | None, after: str | None, paths: list[str]) -> dict[str, str]:
    """Return what the template changed between two versions, rendered with the project's answers."""
    state, work = load_state(project), WorkingTree(project)
    with open_source(state) as source:
        template = source.template
        commits = [
            template.resolve(before) if before else state.commit,
            template.resolve(after or template.newest()),
        ]
        jobs = []
        for commit in commits:
            name = version_name(template, commit)
            update = Update(project, work, state, Options(), source, [])
            jobs.append(Job(commit, update.migrate(commit, name).answers, state.named))
        old, new = (work.git.add_folder(r.folder) for r in source.renderer.render(template, *jobs))
    named = Patterns(paths or ["**"])
    old, new = ({p: e for p, e in side.items() if named.match(p) and p != STATE} for side in (old, new))
    return _diff(work, old, new)


def _diff(work: WorkingTree, before: Tree, after: Tree) -> dict[str, str]:
    names = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    trees = [work.git.write_tree({p: side[p] for p in names if p in side}) for side in (before, after)]
    found = {}
    for path in names:
        found[path] = work.git("diff", "--no-ext-diff", "--no-color", "--no-renames", *trees, "--", f":(literal){path}")
    return found
