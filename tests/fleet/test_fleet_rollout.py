"""Many repositories: bare remotes on this machine, cloned, updated, proven, pushed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fleet_helpers import Project, Run, Said, Template, git, lines, project_of, write

MAKEFILE = (
    "setup:\n\t@true\ncheck:\n\t@grep -q good state.txt || { echo check says no; exit 1; }\ntest-fast:\n\t@true\n"
)


@dataclass
class Remotes:
    """A fleet of bare repositories and the file that lists them."""

    folder: Path
    template: Template
    fleet: Run

    def add(self, name: str, files: dict[str, str | bytes | None] | None = None) -> Path:
        """Make a project's bare repository and return it."""
        project = project_of(self.template, self.folder / name, "v0.1.0")
        if files:
            project.commit(files)
        bare = self.folder / f"{name}.git"
        git(self.folder, "clone", "-q", "--bare", str(project.folder), str(bare))
        return bare

    def edit(self, name: str, branch: str, files: dict[str, str | bytes | None]) -> None:
        """Commit files to a branch of a project's remote."""
        work = self.folder / f"{name}-work"
        if not work.exists():
            git(self.folder, "clone", "-q", str(self.folder / f"{name}.git"), str(work))
        git(work, "fetch", "-q")
        git(work, "checkout", "-q", "-B", branch, f"origin/{branch}")
        Project(work).commit(files)
        git(work, "push", "-q", "origin", f"HEAD:{branch}")

    def listed(self, *names: str, top: str = "", **extra: str) -> Path:
        """Write fleet.toml; extra holds lines for a project by name."""
        entries = [f'[[project]]\nurl = "{n}.git"\nname = "{n}"\n{extra.get(n, "")}\n' for n in names]
        path = self.folder / "fleet.toml"
        path.write_text(top + "\n" + "".join(entries))
        return path

    def rollout(self, to: str, *flags: str) -> tuple[Said, dict[str, dict[str, Any]]]:
        """Roll out, and return the projects' outcomes by name."""
        stem = self.folder / "report"
        said = self.fleet("rollout", self.folder / "fleet.toml", "--to", to, "--report", stem, *flags)
        found = json.loads((self.folder / "report.json").read_text())["projects"] if said.code < 2 else []
        return said, {project["name"]: project for project in found}

    def branches(self, name: str) -> list[str]:
        """Return the branches of a project's remote."""
        return git(self.folder / f"{name}.git", "branch", "--format=%(refname:short)").splitlines()


@pytest.fixture
def remotes(tmp_path: Path, fleet: Run) -> Remotes:
    """Return an empty fleet whose template has two versions."""
    template = Template(tmp_path / "template")
    files = {"a.txt": lines(), "state.txt": "good\n", "Makefile": MAKEFILE}
    template.version("v0.1.0", files)
    log = "## 0.2.0\n### What an existing project must do\nRun `make two`.\n"
    template.version("v0.2.0", {"a.txt": lines(l3="three")}, {"CHANGELOG.md": log})
    folder = tmp_path / "fleet"
    folder.mkdir()
    return Remotes(folder, template, fleet)


def test_rollout_pushes_reports_and_does_nothing_twice(remotes: Remotes) -> None:
    remotes.add("good")
    remotes.add("conflict", {"a.txt": lines(l3="mine")})
    remotes.add("red", {"state.txt": "bad\n"})
    file = remotes.listed("good", "conflict", "red", "missing")
    said, found = remotes.rollout("v0.2.0")
    assert said.code == 1 and "2 green" in said.text, said.text
    assert {name: project["status"] for name, project in found.items()} == {
        "good": "pushed",
        "conflict": "conflicts",
        "red": "pushed",
        "missing": "failed",
    }
    assert found["conflict"]["conflicts"] == ["a.txt"] and found["red"]["checks_before"] == "red"
    assert "check says no" in found["red"]["log"]
    assert remotes.branches("good") == ["fleet/v0.2.0", "main"] and remotes.branches("conflict") == ["main"]
    bare = remotes.folder / "good.git"
    assert git(bare, "show", "fleet/v0.2.0:a.txt") + "\n" == lines(l3="three")
    assert git(bare, "rev-parse", "fleet/v0.2.0^") == git(bare, "rev-parse", "main")
    page = (remotes.folder / "report.md").read_text()
    assert "| good | pushed |" in page and "Run `make two`." in page
    head = git(bare, "rev-parse", "fleet/v0.2.0")
    _, again = remotes.rollout("v0.2.0")
    assert again["good"]["status"] == "already pushed" and git(bare, "rev-parse", "fleet/v0.2.0") == head
    git(bare, "branch", "-f", "main", "fleet/v0.2.0")
    assert remotes.rollout("v0.2.0")[1]["good"]["status"] == "current"
    standing = remotes.fleet("status", file, "--json")
    rows = {row["name"]: row for row in json.loads(standing.text)}
    assert standing.code == 1 and rows["good"]["behind_by"] == 0 and rows["conflict"]["behind_by"] == 1
    assert rows["conflict"]["drift"] == 1 and "could not" not in rows["good"]["message"]
    assert rows["missing"]["message"]


def test_update_that_turns_a_green_project_red_is_not_pushed(remotes: Remotes) -> None:
    remotes.template.version("v0.3.0", {"state.txt": "bad\n"})
    remotes.add("one")
    remotes.listed("one")
    said, found = remotes.rollout("v0.3.0")
    assert said.code == 1 and found["one"]["status"] == "red" and remotes.branches("one") == ["main"]
    assert (found["one"]["checks_before"], found["one"]["checks_after"]) == ("green", "red")
    assert "check says no" in found["one"]["log"]


def test_newer_rollout_supersedes_the_older_branch_unless_someone_worked_on_it(
    remotes: Remotes,
) -> None:
    for name in ("plain", "worked"):
        remotes.add(name)
    remotes.listed("plain", "worked")
    remotes.rollout("v0.2.0", "--no-checks")
    remotes.edit("worked", "fleet/v0.2.0", {"by-hand.txt": "mine\n"})
    remotes.template.version("v0.3.0", {"a.txt": lines(l3="three", l9="nine")})
    said, found = remotes.rollout("v0.3.0", "--no-checks")
    assert said.code == 0
    assert remotes.branches("plain") == ["fleet/v0.3.0", "main"]
    assert remotes.branches("worked") == ["fleet/v0.2.0", "fleet/v0.3.0", "main"]
    assert "superseded" in str(found["plain"]["notes"]) and "was kept" in str(found["worked"]["notes"])


def test_canary_stops_the_others(remotes: Remotes) -> None:
    remotes.add("a", {"a.txt": lines(l3="mine")})
    remotes.add("b")
    remotes.add("c")
    remotes.listed("a", "b", "c")
    said, found = remotes.rollout("v0.2.0", "--no-checks", "--canary", "1")
    assert said.code == 1 and [found[n]["status"] for n in "abc"] == ["conflicts", "waiting", "waiting"]
    assert remotes.branches("b") == ["main"]
    said, found = remotes.rollout("v0.2.0", "--no-checks", "--canary", "1", "--only", "[bc]")
    assert said.code == 0 and [found[n]["status"] for n in "bc"] == ["pushed", "pushed"]


@pytest.mark.slow
def test_limit_only_pin_skip_and_base(remotes: Remotes) -> None:
    for name in ("one", "two", "pinned", "left", "part"):
        remotes.add(name)
    git(remotes.folder / "two.git", "branch", "work", "main")
    extra = {"pinned": 'pin = "0.1.0"', "left": "skip = true", "part": 'skip = ["a.*"]', "two": 'base = "work"'}
    remotes.listed("one", "two", "pinned", "left", "part", **extra)
    _, found = remotes.rollout("v0.2.0", "--no-checks", "--limit", "1", "--jobs", "1")
    assert [found[n]["status"] for n in ("one", "two", "part")] == ["pushed", "waiting", "waiting"]
    assert (found["pinned"]["status"], found["left"]["status"]) == ("pinned", "skipped")
    _, found = remotes.rollout("v0.2.0", "--no-checks", "--limit", "2", "--jobs", "1")
    assert [found[n]["status"] for n in ("one", "two", "part")] == ["already pushed", "pushed", "pushed"]
    bare = remotes.folder / "part.git"
    assert git(bare, "show", "fleet/v0.2.0:a.txt") + "\n" == lines()
    assert json.loads(git(bare, "show", "fleet/v0.2.0:.cruft.json"))["skip"] == ["a.*"]


def test_monorepo_projects_get_a_branch_each(remotes: Remotes) -> None:
    top = remotes.folder / "mono"
    for name in ("x", "y"):
        remotes.template.generate(top / "services" / name, "v0.1.0")
    git(top, "init", "-q", "-b", "main")
    Project(top).commit()
    git(remotes.folder, "clone", "-q", "--bare", str(top), "mono.git")
    entries = [f'[[project]]\nurl = "mono.git"\nfolder = "services/{n}/demo"\n' for n in ("x", "y")]
    (remotes.folder / "fleet.toml").write_text("".join(entries))
    said, _ = remotes.rollout("v0.2.0")
    assert said.code == 0, said.text
    expected = ["fleet/services-x-demo/v0.2.0", "fleet/services-y-demo/v0.2.0", "main"]
    assert remotes.branches("mono") == expected


def test_pr_command_runs_only_after_a_push(remotes: Remotes) -> None:
    remotes.add("one")
    remotes.add("conflict", {"a.txt": lines(l3="mine")})
    remotes.listed("one", "conflict")
    out = remotes.folder / "asked.txt"
    command = f'printf "%s|%s|%s\\n%s" "$FLEET_PROJECT" "$FLEET_BRANCH" "$FLEET_TITLE" "$FLEET_BODY" >> {out}'
    remotes.rollout("v0.2.0", "--no-checks", "--pr-command", command)
    text = out.read_text()
    assert text.startswith("one|fleet/v0.2.0|Update the template from v0.1.0 to v0.2.0\n")
    assert "Run `make two`." in text and "conflict|" not in text
    remotes.rollout("v0.2.0", "--no-checks", "--pr-command", command)
    assert out.read_text() == text, "nothing twice"


def test_dry_run_pushes_nothing(remotes: Remotes) -> None:
    remotes.add("one")
    remotes.listed("one")
    said, found = remotes.rollout("v0.2.0", "--dry-run")
    assert said.code == 0 and found["one"]["status"] == "would be pushed"
    assert remotes.branches("one") == ["main"]


def test_checks_that_write_files_or_never_end(remotes: Remotes) -> None:
    remotes.add("one")
    top = 'setup = ""\ncheck = "echo x > a.txt; echo y > junk.txt"\ntest = "sleep 60"\ntimeout_minutes = 0.01\n'
    remotes.listed("one", top=top)
    _, found = remotes.rollout("v0.2.0")
    assert found["one"]["status"] == "pushed" and "no end after" in found["one"]["log"]
    names = git(remotes.folder / "one.git", "ls-tree", "--name-only", "fleet/v0.2.0").splitlines()
    assert "junk.txt" not in names


def test_tokens_never_reach_the_screen_or_a_report(remotes: Remotes, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "ghp_verysecrettoken123"
    monkeypatch.setenv("TEAM_TOKEN", token)
    url = "https://user:${TEAM_TOKEN}@localhost:1/team/x.git"
    (remotes.folder / "fleet.toml").write_text(f'[[project]]\nurl = "{url}"\nname = "x"\n')
    said, found = remotes.rollout("v0.2.0")
    assert said.code == 1 and found["x"]["status"] == "failed"
    said2 = remotes.fleet("status", remotes.folder / "fleet.toml")
    everything = said.text + said2.text + "".join(p.read_text() for p in remotes.folder.glob("report.*"))
    assert token not in everything and "localhost:1" in everything


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[[project]\n", "TOML"),
        ("jobs = 3\n[[project]]\nurl='x'\n", "jobs"),
        ("[[project]]\nurls = 'x'\n", "urls"),
        ("[[project]]\nurl = 3\n", "url"),
        ("[[project]]\nname = 'x'\n", "url"),
        ("[[project]]\nurl='x'\n[[project]]\nurl='x'\n", "twice"),
        ("[[project]]\nurl='x'\nfolder='../y'\n", "folder"),
        ("check = 'x'\n", "lists none"),
    ],
)
def test_broken_fleet_file_is_refused_in_a_sentence(remotes: Remotes, text: str, word: str) -> None:
    (remotes.folder / "fleet.toml").write_text(text)
    for command in (("status",), ("rollout", "--to", "v0.2.0")):
        said = remotes.fleet(command[0], remotes.folder / "fleet.toml", *command[1:])
        assert said.code == 2 and word in said.text


def test_status_counts_committed_conflict_markers_and_waiting_branches(remotes: Remotes) -> None:
    remotes.add("one", {"notes.md": "<<<<<<< yours\na\n=======\nb\n>>>>>>> theirs\n"})
    file = remotes.listed("one")
    remotes.rollout("v0.2.0", "--no-checks")
    row = json.loads(remotes.fleet("status", file, "--json").text)[0]
    assert row["conflicts"] == 1 and row["branch"] == "fleet/v0.2.0"
    assert "one" in remotes.fleet("status", file).text


def test_files_that_hold_only_underlines_are_no_conflict(remotes: Remotes) -> None:
    remotes.add("one", {"page.rst": "Title\n=======\n"})
    file = remotes.listed("one")
    assert json.loads(remotes.fleet("status", file, "--json").text)[0]["conflicts"] == 0
    write(remotes.folder, {})
