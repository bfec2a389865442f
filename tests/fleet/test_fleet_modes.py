"""What the flags do: check, diff, dry run, branch, commit, JSON, abort; and a kill at any moment."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_helpers import ROOT, Make, Project, Run, Template, git, lines, write


@pytest.fixture
def behind(template: Template, make: Make) -> Project:
    """Return a project with edits and a newer version that holds every kind of change."""
    files = {"a.txt": lines(), "b.txt": lines(), "gone.txt": "gone\n", "old.txt": lines(l1="old")}
    template.version("v0.1.0", files)
    project = make(template)
    project.commit({"a.txt": lines(l20="mine")})
    changed = {"a.txt": lines(l3="three"), "b.txt": lines(l3="three"), "gone.txt": None}
    moved = {"old.txt": None, "deep/renamed.txt": lines(l1="old"), "new.txt": "new\n" * 100}
    template.version("v0.2.0", {**changed, **moved})
    return project


def test_check_says_behind_and_current(behind: Project, fleet: Run) -> None:
    said = fleet("update", behind.folder, "--check")
    assert said.code == 1 and "1 version(s) behind v0.2.0" in said.text
    assert fleet("update", behind.folder, "--commit").code == 0
    said = fleet("update", behind.folder, "--check")
    assert said.code == 0 and "the newest version" in said.text


def test_diff_shows_drift_of_managed_files_only(behind: Project, fleet: Run) -> None:
    write(behind.folder, {"b.txt": lines(l5="uncommitted"), "extra.txt": "extra\n"})
    said = fleet("update", behind.folder, "--diff")
    assert said.code == 0 and "+mine" in said.text and "+uncommitted" in said.text
    assert "extra" not in said.text and "three" not in said.text
    found = json.loads(fleet("update", behind.folder, "--diff", "--json").text)
    assert sorted(found) == ["a.txt", "b.txt"]


def test_dry_run_touches_nothing(behind: Project, fleet: Run) -> None:
    before = behind.snapshot()
    said = fleet("update", behind.folder, "--dry-run")
    assert said.code == 0 and "would be updated" in said.text and behind.snapshot() == before
    behind.commit({"b.txt": lines(l3="mine")})
    before = behind.snapshot()
    said = fleet("update", behind.folder, "--dry-run")
    assert said.code == 1 and "b.txt" in said.text and behind.snapshot() == before


def test_json_report(behind: Project, fleet: Run) -> None:
    report = json.loads(fleet("update", behind.folder, "--json").text)
    assert (report["from"], report["to"], report["status"]) == ("v0.1.0", "v0.2.0", "merged")
    merged = ["a.txt", "b.txt", "deep/renamed.txt", "gone.txt", "new.txt", "old.txt"]
    assert report["merged"] == merged and report["conflicts"] == {}
    report = json.loads(fleet("update", behind.folder, "--json").text)
    assert report["status"] == "refused" and "a.txt" in report["message"]


def test_branch_and_commit(behind: Project, fleet: Run) -> None:
    main = git(behind.folder, "rev-parse", "main")
    said = fleet("update", behind.folder, "--branch", "--commit")
    assert said.code == 0 and behind.status() == ""
    assert git(behind.folder, "branch", "--show-current") == "fleet/v0.2.0"
    assert git(behind.folder, "rev-parse", "main") == main
    assert git(behind.folder, "log", "-1", "--format=%s") == "Update the template from v0.1.0 to v0.2.0"
    git(behind.folder, "switch", "-q", "main")
    said = fleet("update", behind.folder, "--branch")
    assert said.code == 2 and "fleet/v0.2.0 exists already" in said.text


def test_commit_is_not_made_with_conflicts(behind: Project, fleet: Run) -> None:
    behind.commit({"b.txt": lines(l3="mine")})
    head = git(behind.folder, "rev-parse", "HEAD")
    assert fleet("update", behind.folder, "--commit").code == 1
    assert git(behind.folder, "rev-parse", "HEAD") == head and behind.unmerged() == ["b.txt"]
    assert "resolve and commit" in fleet("update", behind.folder).text


def test_commit_without_identity_is_refused_before_anything(behind: Project, fleet: Run, home: Path) -> None:
    (home / "gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    before = behind.snapshot()
    said = fleet("update", behind.folder, "--commit")
    assert said.code == 2 and "user.name" in said.text and behind.snapshot() == before


def test_failing_commit_hook_leaves_the_merge_staged(behind: Project, fleet: Run) -> None:
    write(behind.folder / ".git/hooks", {"pre-commit": "#!/bin/sh\necho no such luck >&2\nexit 1\n"})
    said = fleet("update", behind.folder, "--commit")
    assert said.code == 1 and "no such luck" in said.text and behind.has("new.txt")


@pytest.mark.parametrize("conflict", [True, False])
@pytest.mark.parametrize("branch", [True, False])
def test_abort_undoes_an_update(behind: Project, fleet: Run, conflict: bool, branch: bool) -> None:
    if conflict:
        behind.commit({"b.txt": lines(l3="mine")})
    before = behind.snapshot()
    flags = ["--branch", "try"] if branch else []
    assert fleet("update", behind.folder, *flags).code == int(conflict)
    said = fleet("update", behind.folder, "--abort")
    assert said.code == 0 and behind.snapshot() == before and behind.status() == ""
    assert git(behind.folder, "branch", "--show-current") == "main"
    assert git(behind.folder, "branch", "--format=%(refname:short)") == "main"
    assert fleet("update", behind.folder, "--abort").code == 2


def test_abort_sets_later_edits_aside(behind: Project, fleet: Run) -> None:
    assert fleet("update", behind.folder).code == 0
    write(behind.folder, {"b.txt": "worked on\n", "LICENSE": "also\n"})
    said = fleet("update", behind.folder, "--abort")
    assert said.code == 0 and "set aside" in said.text
    assert (behind.folder / ".git/fleet/aside/b.txt").read_text() == "worked on\n"
    assert behind.read("LICENSE") == "also\n" and behind.read("b.txt") == lines()


def test_abort_after_the_commit_has_nothing_to_undo(behind: Project, fleet: Run) -> None:
    assert fleet("update", behind.folder).code == 0
    behind.commit()
    assert fleet("update", behind.folder, "--abort").code == 2


KILL = """
import os, signal, sys
from fleet.cli import main
from fleet.git import Git
raw, moment, seen = Git.raw, sys.argv.pop(1), []
def killed(self, *arguments, **given):
    hit = " ".join(arguments).startswith(moment)
    if hit and moment == "read-tree -m":  # git itself dies half-way: files written, the index locked
        folder = self.folder
        (folder / "new.txt").write_text("new\\n" * 50)
        (folder / "gone.txt").unlink()
        (folder / ".git/index.lock").write_text("")
    if hit:
        os.kill(os.getpid(), signal.SIGKILL)
    return raw(self, *arguments, **given)
Git.raw = killed
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "moment", ["merge-tree", "read-tree HEAD", "switch", "read-tree -m", "update-index -z --index-info"]
)
def test_update_killed_and_run_again(behind: Project, fleet: Run, moment: str) -> None:
    behind.commit({"b.txt": lines(l3="mine")})
    write(behind.folder, {"untracked.txt": "mine\n"})
    before = behind.snapshot()
    command = [sys.executable, "-c", KILL, moment, "update", str(behind.folder), "--branch", "try"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    said = fleet("update", behind.folder)
    assert said.code == 1, said.text
    assert behind.unmerged() == ["b.txt"] and behind.read("new.txt") == "new\n" * 100
    assert behind.read("a.txt") == lines(l3="three", l20="mine") and not behind.has("gone.txt")
    assert fleet("update", behind.folder, "--abort").code == 0
    assert behind.snapshot() == before


def test_killed_update_and_then_edited_file_is_set_aside(behind: Project, fleet: Run) -> None:
    command = [sys.executable, "-c", KILL, "read-tree -m", "update", str(behind.folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, capture_output=True, check=False)
    write(behind.folder, {"a.txt": "edited in between\n"})
    said = fleet("update", behind.folder)
    assert said.code == 0 and "had been interrupted" in said.text and "aside" in said.text
    assert (behind.folder / ".git/fleet/aside/a.txt").read_text() == "edited in between\n"


def test_two_updates_at_once_do_not_mix(behind: Project) -> None:
    command = [sys.executable, "-m", "fleet", "update", str(behind.folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        process.communicate()
    assert sorted(process.returncode for process in both) == [0, 2]
    assert behind.read("a.txt") == lines(l3="three", l20="mine")
