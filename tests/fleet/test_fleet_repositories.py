"""The state of the repository decides: refused with nothing touched, or merged whatever its history."""

import json
import shutil
from pathlib import Path

import pytest
from fleet_helpers import Make, Project, Run, Template, git, lines, project_of, write


@pytest.fixture
def behind(template: Template, make: Make) -> Project:
    """Return a project with a newer version of its template waiting."""
    template.version("v0.1.0", {"a.txt": lines(), "b.txt": "b\n"})
    project = make(template)
    template.version("v0.2.0", {"a.txt": lines(l3="three"), "new.txt": "new\n"})
    return project


def refused(fleet: Run, project: Project, *arguments: str) -> str:
    """Update, and return the words of the refusal after checking that nothing was touched."""
    before = project.snapshot() if project.has(".git") else {}
    said = fleet("update", project.folder, *arguments)
    assert said.code == 2, said.text
    assert not before or project.snapshot() == before
    assert len(said.text.strip().splitlines()) == 1, "one sentence"
    return said.text


def test_dirty_tree_is_refused_by_name(behind: Project, fleet: Run) -> None:
    write(behind.folder, {"b.txt": "changed\n"})
    assert "b.txt" in refused(fleet, behind) and behind.read("b.txt") == "changed\n"


def test_untracked_file_in_the_way_is_refused_by_name(behind: Project, fleet: Run) -> None:
    write(behind.folder, {"new.txt": "mine\n", "notes.txt": "mine\n"})
    said = refused(fleet, behind)
    assert "new.txt" in said and "notes.txt" not in said
    (behind.folder / "new.txt").unlink()
    write(behind.folder, {"new.txt": "new\n"})
    assert fleet("update", behind.folder).code == 0, "an equal file is taken as it is"
    assert fleet("update", behind.folder, "--abort").code == 0
    assert behind.read("new.txt") == "new\n" and behind.status() == "?? new.txt\n?? notes.txt"


def test_untracked_file_where_a_folder_is_needed(template: Template, behind: Project, fleet: Run) -> None:
    template.version("v0.3.0", {"docs/page.txt": "page\n"})
    write(behind.folder, {"docs": "mine\n"})
    assert "docs" in refused(fleet, behind)


def test_first_render_never_committed(template: Template, tmp_path: Path, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = Project(template.generate(tmp_path / "out", "v0.1.0"))
    template.version("v0.2.0", {"a.txt": "a\n"})
    assert "git init" in refused(fleet, project)
    git(project.folder, "init", "-q")
    said = fleet("update", project.folder)
    assert said.code == 2 and "commit the project as it was generated" in said.text
    write(project.folder, {"other.txt": "x\n"})
    git(project.folder, "add", "other.txt")
    git(project.folder, "commit", "-q", "-m", "Only this")
    assert "commit the project as it was generated" in refused(fleet, project)


def test_no_state_file(behind: Project, fleet: Run) -> None:
    behind.commit({".cruft.json": None})
    assert "fleet adopt" in refused(fleet, behind)


@pytest.mark.parametrize("text", ["{", "[]", '{"template": "x"}', '{"template": 3, "context": {"cookiecutter": {}}}'])
def test_broken_state_file(behind: Project, fleet: Run, text: str) -> None:
    behind.commit({".cruft.json": text})
    assert ".cruft.json" in refused(fleet, behind)


def test_made_from_an_unversioned_or_dirty_template(template: Template, behind: Project, fleet: Run) -> None:
    state = behind.state
    behind.commit({".cruft.json": json.dumps({**state, "commit": None})})
    assert "without version control" in refused(fleet, behind)
    behind.commit({".cruft.json": json.dumps({**state, "dirty": True})})
    assert "uncommitted changes" in refused(fleet, behind)


def test_template_history_was_rewritten(behind: Project, fleet: Run) -> None:
    behind.commit({".cruft.json": json.dumps({**behind.state, "commit": "1" * 40})})
    assert "history may have been rewritten" in refused(fleet, behind)


def test_unknown_version_and_template_without_tags(template: Template, behind: Project, fleet: Run) -> None:
    assert "v0.1.0, v0.2.0" in refused(fleet, behind, "--to", "v9.9.9")
    assert fleet("update", behind.folder, "--to", "0.2.0").code == 0, "the v may be left out"
    behind.commit()
    git(template.top, "tag", "-d", "v0.1.0", "v0.2.0")
    assert "semantic version tag" in refused(fleet, behind)


def test_newest_is_the_highest_release_not_a_branch_or_candidate(
    template: Template, behind: Project, fleet: Run
) -> None:
    template.version("v0.10.0", {"c.txt": "c\n"})
    template.version("v0.11.0-rc.1", {"rc.txt": "rc\n"})
    template.version(None, {"head.txt": "head\n"})
    assert fleet("update", behind.folder).code == 0
    assert behind.state["tag"] == "v0.10.0" and not behind.has("head.txt") and not behind.has("rc.txt")


@pytest.mark.parametrize("folder", ["services/vision/", "größe und mehr/"])
def test_project_in_a_subfolder_of_a_monorepo(template: Template, tmp_path: Path, fleet: Run, folder: str) -> None:
    template.version("v0.1.0", {"a.txt": lines(), "old.txt": "old\n"})
    top = tmp_path / "mono"
    project = Project(template.generate(top / folder, "v0.1.0"))
    git(top, "init", "-q")
    write(top, {"a.txt": "another\n", "other/a.txt": lines()})
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "All")
    project.commit({"a.txt": lines(l20="mine")})
    template.version("v0.2.0", {"a.txt": lines(l3="three"), "old.txt": None, "n/new.txt": "new\n"})
    assert fleet("update", project.folder).code == 0
    assert project.read("a.txt") == lines(l3="three", l20="mine")
    assert project.has("n/new.txt") and not project.has("old.txt")
    assert (top / "a.txt").read_text() == "another\n" and (top / "other/a.txt").read_text() == lines()
    assert fleet("update", project.folder, "--abort").code == 0 and project.status() == ""
    project.commit({"a.txt": lines(l3="mine")})
    assert fleet("update", project.folder).code == 1
    assert f"{folder}demo/a.txt" in git(top, "-c", "core.quotePath=no", "diff", "--name-only", "--diff-filter=U")
    assert fleet("update", project.folder, "--abort").code == 0 and project.status() == ""


def test_fresh_shallow_clone(behind: Project, tmp_path: Path, fleet: Run) -> None:
    behind.commit({"a.txt": lines(l20="mine")})
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{behind.folder}", "shallow")
    clone = Project(tmp_path / "shallow")
    assert fleet("update", clone.folder).code == 0
    assert clone.read("a.txt") == lines(l3="three", l20="mine")


def test_after_a_squash_merged_update(template: Template, behind: Project, fleet: Run) -> None:
    git(behind.folder, "switch", "-q", "-c", "work")
    behind.commit({"b.txt": "mine\n"})
    assert fleet("update", behind.folder, "--commit").code == 0
    git(behind.folder, "switch", "-q", "main")
    git(behind.folder, "merge", "-q", "--squash", "work")
    git(behind.folder, "commit", "-q", "-m", "Squashed")
    git(behind.folder, "branch", "-D", "work")
    template.version("v0.3.0", {"a.txt": lines(l3="three", l9="nine")})
    assert fleet("update", behind.folder).code == 0
    assert behind.read("a.txt") == lines(l3="three", l9="nine") and behind.read("b.txt") == "mine\n"


def test_two_versions_at_once(template: Template, behind: Project, fleet: Run) -> None:
    behind.commit({"a.txt": lines(l20="mine")})
    template.version("v0.3.0", {"a.txt": lines(l3="three", l9="nine"), "new.txt": None})
    assert "2 version(s) behind v0.3.0" in fleet("update", behind.folder, "--check").text
    assert fleet("update", behind.folder).code == 0
    assert behind.read("a.txt") == lines(l3="three", l9="nine", l20="mine")
    assert not behind.has("new.txt")


def test_downgrade_only_when_asked(template: Template, behind: Project, fleet: Run) -> None:
    behind.commit({"a.txt": lines(l20="mine")})
    assert fleet("update", behind.folder, "--commit").code == 0
    assert fleet("update", behind.folder, "--to", "v0.1.0").code == 0
    assert behind.read("a.txt") == lines(l20="mine") and not behind.has("new.txt")
    assert behind.state["tag"] == "v0.1.0"


def test_template_without_network_comes_from_the_cache(template: Template, behind: Project, fleet: Run) -> None:
    assert fleet("update", behind.folder, "--check").code == 1
    shutil.move(template.top, template.top.parent / "away")
    said = fleet("update", behind.folder)
    assert said.code == 0 and "its copy in the cache was used" in said.text
    assert behind.read("new.txt") == "new\n"


def test_template_unreachable_and_not_in_the_cache(template: Template, behind: Project, fleet: Run) -> None:
    shutil.move(template.top, template.top.parent / "away")
    assert "no copy of it is in the cache" in refused(fleet, behind)


def test_credentials_never_show(behind: Project, fleet: Run, home: Path) -> None:
    url = "https://someone:s3cret-token@localhost:1/x.git"
    behind.commit({".cruft.json": json.dumps({**behind.state, "template": url})})
    said = refused(fleet, behind)
    assert "s3cret" not in said and "https://***@localhost:1/x.git" in said
    for file in (home / "cache").rglob("*"):
        assert not file.is_file() or b"s3cret" not in file.read_bytes()


def test_template_in_a_subfolder_of_its_repository(tmp_path: Path, fleet: Run) -> None:
    template = Template(tmp_path / "templates", "lightning")
    template.version("v0.1.0", {"a.txt": lines()})
    project = project_of(template, tmp_path / "out", "v0.1.0")
    assert project.state["directory"] == "lightning"
    template.version("v0.2.0", {"a.txt": "a\n"})
    assert fleet("update", project.folder).code == 0 and project.read("a.txt") == "a\n"


def test_template_whose_hook_fails_is_refused_with_its_words(template: Template, behind: Project, fleet: Run) -> None:
    hook = "import sys\nsys.exit('project must be longer')\n"
    template.version("v0.3.0", {}, {"hooks/pre_gen_project.py": hook})
    before = behind.snapshot()
    said = fleet("update", behind.folder)
    assert said.code == 2 and "project must be longer" in said.text
    assert behind.snapshot() == before


def test_merge_under_way_is_refused(behind: Project, fleet: Run) -> None:
    git(behind.folder, "switch", "-q", "-c", "side")
    behind.commit({"b.txt": "side\n"})
    git(behind.folder, "switch", "-q", "main")
    behind.commit({"c.txt": "main\n"})
    git(behind.folder, "merge", "-q", "--no-commit", "--no-ff", "side")
    assert "merge is under way" in refused(fleet, behind)


def test_update_run_from_a_git_hook_and_from_a_linked_worktree(
    behind: Project, fleet: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    git(behind.folder, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    linked = tmp_path / "linked"
    assert fleet("update", linked).code == 0
    monkeypatch.delenv("GIT_DIR")
    assert Project(linked).read("new.txt") == "new\n" and behind.status() == ""
