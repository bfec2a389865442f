"""Roll a version of the template out over many repositories: update, prove, push a branch, report."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleet.clones import Clone, Sources, branches, cloned, run_shell
from fleet.errors import FleetError, mask
from fleet.fleetfile import Fleet, Member
from fleet.git import Git, require_git
from fleet.render import Renderer
from fleet.report import Report
from fleet.state import load_state
from fleet.template import parse_version
from fleet.update import Options, is_newer, update, version_name

GREEN = ("pushed", "current", "already pushed", "would be pushed")
LEFT_OUT = ("pinned", "skipped", "waiting")


@dataclass(frozen=True)
class Plan:
    """What the command line asks of a rollout."""

    to: str
    only: list[str] = field(default_factory=list)
    limit: int | None = None
    jobs: int = 2
    canary: int = 0
    checks: bool = True
    pr_command: str | None = None
    dry_run: bool = False


@dataclass
class Outcome:
    """What became of one project."""

    name: str
    status: str = "waiting"
    message: str = ""
    before: str = ""
    after: str = ""
    branch: str = ""
    checks_before: str = ""
    checks_after: str = ""
    files: int = 0
    conflicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    todo: dict[str, str] = field(default_factory=dict)
    log: str = ""
    seconds: float = 0

    def document(self) -> dict[str, Any]:
        """Return the outcome for JSON."""
        found = asdict(self)
        return {"name": found.pop("name"), "from": found.pop("before"), "to": found.pop("after"), **found}


Done = Callable[[Outcome], None]


class Rollout:
    """One rollout; projects are worked on side by side, and none stops another."""

    def __init__(self, fleet: Fleet, plan: Plan, done: Done) -> None:
        self.fleet, self.plan, self.done = fleet, plan, done
        self._lock = threading.Lock()
        self._left = plan.limit

    def run(self) -> list[Outcome]:
        """Roll out: the canaries first, and the others only when those are green."""
        require_git()
        if not Git(Path()).succeeds("var", "GIT_COMMITTER_IDENT"):
            raise FleetError("A rollout commits: set user.name and user.email with git config first.")
        members = self.fleet.chosen(self.plan.only)
        able = [m for m in members if m.skip is not True and not self._pinned(m)]
        first = able[: self.plan.canary]
        rest = [member for member in members if member not in first]
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder, Renderer(Path(folder)) as renderer:
            sources = Sources(renderer)
            found = self._all(first, sources)
            if all(outcome.status in GREEN for outcome in found.values()):
                found |= self._all(rest, sources)
        for member in members:
            if member.name not in found:
                found[member.name] = Outcome(member.name, message="Not started: a canary is not green.")
        return [found[member.name] for member in members]

    def _all(self, members: Iterable[Member], sources: Sources) -> dict[str, Outcome]:
        found = {}
        pool = ThreadPoolExecutor(self.plan.jobs)
        try:
            waiting = [pool.submit(self._one, member, sources) for member in members]
            for future in as_completed(waiting):
                outcome = future.result()
                found[outcome.name] = outcome
                self.done(outcome)
        finally:
            pool.shutdown(cancel_futures=True)
        return found

    def _pinned(self, member: Member) -> bool:
        return member.pin is not None and is_newer(self.plan.to, member.pin)

    def _one(self, member: Member, sources: Sources) -> Outcome:
        outcome, start = Outcome(member.name), time.monotonic()
        try:
            if member.skip is True:
                outcome.status, outcome.message = "skipped", "skip = true in the fleet file."
            elif self._pinned(member):
                outcome.status, outcome.message = "pinned", f"Pinned at {member.pin} in the fleet file."
            else:
                self._work(member, sources, outcome)
        except FleetError as error:
            outcome.status, outcome.message = "failed", str(error)
        except Exception as error:  # a fault in one project must not stop the others
            outcome.status, outcome.message = "failed", mask(f"{type(error).__name__}: {error}")
        outcome.seconds = round(time.monotonic() - start, 2)
        return outcome

    def _work(self, member: Member, sources: Sources, outcome: Outcome) -> None:
        heads = branches(member)
        with cloned(member) as clone:
            state = load_state(clone.project)
            source = sources.of(state)
            target = source.template.resolve(self.plan.to)
            tag = source.template.tag_of(target) or self.plan.to
            outcome.before, outcome.after = version_name(source.template, state.commit), tag
            outcome.branch = member.prefix + tag
            if target == state.commit or not source.template.passed(state.commit, target):
                outcome.status, outcome.message = "current", f"At {outcome.before} already."
            elif outcome.branch in heads:
                outcome.status, outcome.message = "already pushed", "The branch is there; nothing done."
            elif not self._take_turn():
                outcome.message = f"Left for a later rollout by --limit {self.plan.limit}."
            else:
                options = Options(to=tag, skip=member.patterns, branch=outcome.branch)
                report = update(clone.project, options, source)
                self._judge(member, clone, outcome, report, heads)

    def _take_turn(self) -> bool:
        """Return whether the limit allows one more project."""
        with self._lock:
            if self._left is None:
                return True
            self._left -= 1
            return self._left >= 0

    def _prove(self, clone: Clone, outcome: Outcome, moment: str) -> None:
        """Run the project's own setup, checks and fast tests; each setup follows what was merged."""
        commands = [self.fleet.setup, self.fleet.check, self.fleet.test] if self.plan.checks else []
        failures = (run_shell(c, clone.project, self.fleet.timeout_minutes) for c in commands if c)
        outcome.log = next((failure for failure in failures if failure), "")
        setattr(outcome, f"checks_{moment}", "red" if outcome.log else "green" if any(commands) else "not run")
        # What the checks wrote must not be taken for work of the project's people.
        clone.git("reset", "-q", "--hard")
        clone.git("clean", "-q", "-f", "-d")

    def _judge(self, member: Member, clone: Clone, outcome: Outcome, report: Report, heads: dict[str, str]) -> None:
        """Push an update that is merged and does not make a green project red."""
        outcome.files, outcome.todo = len(report.merged), report.todo
        outcome.conflicts = list(report.conflicts)
        outcome.notes += report.notes + [f"Not in the project: {p}" for p in report.kept_deletions]
        outcome.notes += [f"Theirs, but {how} in the template: {p}" for p, how in report.once_changed.items()]
        if report.conflicts:
            outcome.status = "conflicts"
            outcome.message = f"Not pushed: run `fleet update --to {outcome.after}` in the project."
            return
        title = f"Update the template from {outcome.before} to {outcome.after}"
        tree = clone.git("write-tree")
        clone.git("commit", "-q", "-m", title, "-m", f"Fleet-Tree: {tree}")
        clone.git("switch", "-q", "--detach", "HEAD~1")
        self._prove(clone, outcome, "before")
        clone.git("switch", "-q", outcome.branch)
        self._prove(clone, outcome, "after")
        if outcome.checks_after == "red" and outcome.checks_before == "green":
            outcome.status = "red"
            outcome.message = "Not pushed: the checks passed before the update and fail after it."
        elif self.plan.dry_run:
            outcome.status = "would be pushed"
        else:
            self._push(member, clone, outcome, title, heads)

    def _push(self, member: Member, clone: Clone, outcome: Outcome, title: str, heads: dict[str, str]) -> None:
        clone.git("push", "-q", "origin", f"HEAD:refs/heads/{outcome.branch}")
        outcome.status, outcome.message = "pushed", f"{outcome.files} file(s) merged."
        if outcome.checks_after == "red":
            outcome.message += " The checks fail as they did before the update."
        for branch, commit in heads.items():
            self._supersede(member, clone, outcome, branch, commit)
        if self.plan.pr_command:
            self._open_request(member, clone, outcome, title)

    def _supersede(self, member: Member, clone: Clone, outcome: Outcome, branch: str, commit: str) -> None:
        """Delete the branch of an older version, unless someone has worked on it."""
        tag = branch.removeprefix(member.prefix)
        if not parse_version(tag) or not is_newer(outcome.after, tag):
            return
        clone.git("fetch", "-q", "--depth", "1", "origin", commit)
        tree = clone.git("rev-parse", f"{commit}^{{tree}}")
        if f"Fleet-Tree: {tree}" not in clone.git("log", "-1", "--format=%B", commit).splitlines():
            outcome.notes.append(f"{branch} was kept, as someone has worked on it: merge or delete it.")
            return
        lease = f"--force-with-lease=refs/heads/{branch}:{commit}"
        clone.git("push", "-q", lease, "origin", f":refs/heads/{branch}")
        outcome.notes.append(f"{branch} was superseded and deleted.")

    def _open_request(self, member: Member, clone: Clone, outcome: Outcome, title: str) -> None:
        """Run the user's command that opens a pull request."""
        asks = [f"{tag}:\n{text}" for tag, text in outcome.todo.items()]
        extra = {
            "FLEET_PROJECT": member.name,
            "FLEET_BRANCH": outcome.branch,
            "FLEET_BASE": member.base or "",
            "FLEET_TITLE": title,
            "FLEET_BODY": mask("\n\n".join([outcome.message, *asks, *outcome.notes])),
        }
        failed = run_shell(self.plan.pr_command or "", clone.project, self.fleet.timeout_minutes, extra)
        if failed:
            outcome.status, outcome.log = "failed", failed
            outcome.message = "Pushed, but the --pr-command failed: open the pull request by hand."
