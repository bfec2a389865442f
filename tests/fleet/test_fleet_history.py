"""The template of this repository: each task, edited as people do, brought over every kind of change.

While there are fewer than two version tags, the history is made here, on top of the current commit.
"""

import compileall
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_helpers import ROOT, Project, Run, cookiecutter, git

# The commit, not the working tree, is what a project is made from.
QUESTIONS = json.loads(git(ROOT, "show", "HEAD:cookiecutter.json"))
FOLDER = next(path.name for path in ROOT.iterdir() if path.name.startswith("{{"))
HOOK = '\nfrom pathlib import Path as _Path\n_Path("made-by-the-hook.txt").write_text("{}\\n")\n'


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def version(top: Path, tag: str, **questions: object) -> None:
    """Commit and tag what stands in the template's folder, with questions changed."""
    found = json.loads((top / "cookiecutter.json").read_text()) | questions
    kept = {key: value for key, value in found.items() if value is not None}
    (top / "cookiecutter.json").write_text(json.dumps(kept, indent=2))
    git(top, "add", "-A", "-f")
    git(top, "commit", "-q", "-m", tag)
    git(top, "tag", tag)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Return a clone of this repository with a history of every kind of change."""
    git(tmp_path, "clone", "-q", str(ROOT), "template")
    top = tmp_path / "template"
    git(top, "remote", "remove", "origin")
    for tag in git(top, "tag").splitlines():
        git(top, "tag", "-d", tag)
    inside, hook = top / FOLDER, top / "hooks" / "post_gen_project.py"
    text = "".join(f"line {number}\n" for number in range(40))
    for name in ("kept", "renamed", "deleted", "mode", "binary"):
        # Of equal files git could take any for the one that was renamed.
        write(inside / "history" / f"{name}.txt", f"{text}{name}\n".replace("ine 1", f"ine {name} 1").encode())
    # The generated code never asks these, so that they can come and go.
    once = [*QUESTIONS["_once"], "mine/**"]
    write(inside / "mine" / "once.txt", b"generated once\n")
    plain = hook.read_text()
    hook.write_text(plain + HOOK.format("first"))
    version(top, "v0.1.0", old_name="16", leaves="x", choice=["a", "b", "gone"], _once=once)
    (inside / "history" / "renamed.txt").rename(inside / "history" / "new-name.txt")
    (inside / "history" / "deleted.txt").unlink()
    (inside / "history" / "mode.txt").chmod(0o755)
    kept = inside / "history" / "kept.txt"
    kept.write_text(kept.read_text().replace("line 3\n", "template's line\n"))
    rules = {"old_name": {"to": "new_name", "map": {"16": "sixteen"}}, "leaves": {"drop": True}}
    questions = {"old_name": None, "leaves": None, "new_name": "none", "added": "default"}
    version(top, "v0.2.0", **questions, _migrate=rules)
    write(inside / "history" / "binary.txt", b"\0\1\2")
    write(inside / "mine" / "once.txt", b"changed by the template\n")
    hook.write_text(plain + HOOK.format("second"))
    version(top, "v0.3.0", choice=["a", "b"], _migrate={"choice": {"map": {"gone": "b"}}})
    return top


@pytest.mark.parametrize("task", QUESTIONS["task"])
def test_each_task_updates_over_every_kind_of_change(history: Path, tmp_path: Path, fleet: Run, task: str) -> None:
    git(history, "checkout", "-q", "v0.1.0")
    cookiecutter(history, tmp_path / "out", {"task": task, "leaves": "said", "choice": "gone"})
    project = Project(next((tmp_path / "out").iterdir()))
    git(project.folder, "init", "-q")
    project.commit()
    package = project.state["context"]["cookiecutter"]["package"]
    folder = f"src/{package}/{task}"
    mine: dict[str, str | bytes | None] = {
        f"{folder}/data.py": project.read(f"{folder}/data.py") + "\n\nMINE = 1\n",
        f"{folder}/extra.py": "MINE = 2\n",
        "README.md": "# Mine\n",
        "history/kept.txt": project.read("history/kept.txt").replace("line 30\n", "my line\n"),
        "history/renamed.txt": project.read("history/renamed.txt").replace("line 30\n", "my line\n"),
        "mine/once.txt": "mine\n",
    }
    project.commit(mine)
    said = fleet("update", project.folder, "--commit")
    assert said.code == 0, said.text
    answers = project.state["context"]["cookiecutter"]
    assert (answers["new_name"], answers["added"], answers["choice"]) == ("sixteen", "default", "b")
    assert "old_name" not in answers and "leaves" not in answers and answers["task"] == task
    kept, moved = project.read("history/kept.txt"), project.read("history/new-name.txt")
    assert "my line\n" in kept and "template's line\n" in kept and "my line\n" in moved
    assert not project.has("history/renamed.txt") and not project.has("history/deleted.txt")
    assert (project.folder / "history/mode.txt").stat().st_mode & 0o100
    assert (project.folder / "history/binary.txt").read_bytes() == b"\0\1\2"
    assert project.read("made-by-the-hook.txt") == "second\n"
    for name in (f"{folder}/data.py", f"{folder}/extra.py", "README.md", "mine/once.txt"):
        assert project.read(name) == mine[name], name
    assert "mine/once.txt: changed" in said.text
    assert compileall.compile_dir(project.folder / "src", quiet=1)


@pytest.mark.slow
@pytest.mark.parametrize("task", QUESTIONS["task"])
def test_an_updated_project_passes_its_own_contract_tests(history: Path, tmp_path: Path, fleet: Run, task: str) -> None:
    pytest.importorskip("lightning")
    git(history, "checkout", "-q", "v0.1.0")
    cookiecutter(history, tmp_path / "out", {"task": task})
    project = Project(next((tmp_path / "out").iterdir()))
    git(project.folder, "init", "-q")
    project.commit()
    assert fleet("update", project.folder, "--commit").code == 0
    env = {**os.environ, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "tests/test_contract.py"]
    done = subprocess.run(command, cwd=project.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
