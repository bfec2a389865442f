"""`fleet add`: a second task in a project, beside what is there, without touching it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_helpers import ROOT, Project, Run, Template, cookiecutter, git

PAGE = "# {{ cookiecutter.task }}\n"
CONFIG = "task: {{ cookiecutter.task }}\n"


@pytest.fixture
def two(template: Template, make: Callable[..., Project]) -> Project:
    """Return a vision project of a template that also has text."""
    hook = (
        '\nimport shutil\nTASK = json.loads(r"""{{ cookiecutter | jsonify }}""")["task"]\n'
        'for other in {"vision", "text"} - {TASK}:\n    shutil.rmtree(f"src/demo/{other}")\n'
        '    Path(f"configs/{other}.yaml").unlink()\n'
    )
    text = (template.folder / "hooks/post_gen_project.py").read_text()
    files = {
        "README.md": PAGE,
        "pyproject.toml": '[project]\nname = "demo"\ndependencies = ["{{ cookiecutter.task }}-tools"]\n',
        "configs/default.yaml": CONFIG,
        "configs/vision.yaml": "vision: 1\n",
        "configs/text.yaml": "text: 1\n",
        "src/demo/shared.py": "SHARED = 1\n",
        "src/demo/vision/data.py": "VISION = 1\n",
        "src/demo/text/data.py": "TEXT = 1\n",
        "src/demo/text/module.py": "TEXT = 2\n",
    }
    root = {"hooks/post_gen_project.py": text + hook}
    template.version("v0.1.0", files, root, _once=["README.md", "configs/**", "src/demo/{{ cookiecutter.task }}/**"])
    return make(template, task="vision")


def test_what_the_project_lacks_comes_in_and_nothing_else_changes(two: Project, fleet: Run) -> None:
    two.commit({"src/demo/shared.py": "MINE = 1\n", "src/demo/text/module.py": "MINE = 2\n"})
    said = fleet("add", "task=text", two.folder)
    assert said.code == 1, "pyproject.toml is left to do"
    assert two.read("src/demo/text/data.py") == "TEXT = 1\n"
    assert two.read("configs/text/default.yaml") == "task: text\n"
    assert two.read("configs/text/text.yaml") == "text: 1\n"
    assert not two.has("configs/text.yaml")
    assert 'Add to pyproject.toml by hand: dependencies = ["text-tools"]' in said.text
    assert "Kept src/demo/text/module.py" in said.text
    assert two.status().splitlines() == ["?? configs/text/", "?? src/demo/text/data.py"]


def test_what_cannot_be_added_is_refused_with_what_can(two: Project, fleet: Run) -> None:
    before = two.snapshot()
    for answer, told in (
        ("task=sound", "task cannot be sound; it can be vision, text"),
        ("task=vision", "task is vision in this project already"),
        ("project=other", "project is no question with choices"),
        ("task", "must be NAME=VALUE"),
    ):
        said = fleet("add", answer, two.folder)
        assert said.code == 2
        assert told in said.text
    assert two.snapshot() == before


@pytest.mark.parametrize("blocked", ["file", "dangling", "folder"])
def test_what_is_in_the_place_of_a_file_is_kept_and_nothing_is_written_through_it(
    two: Project, fleet: Run, tmp_path: Path, blocked: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    place = two.folder / ("src/demo/text/data.py" if blocked == "dangling" else "src/demo/text")
    place.parent.mkdir(parents=True, exist_ok=True)
    if blocked == "file":
        place.write_text("MINE\n")
    else:
        if blocked == "folder":
            elsewhere.mkdir()
        place.symlink_to(elsewhere)
    said = fleet("add", "task=text", two.folder)
    assert said.code == 1
    assert "Kept src/demo/text/data.py" in said.text
    assert two.read("configs/text/text.yaml") == "text: 1\n", "the rest is added"
    assert not elsewhere.exists() if blocked == "dangling" else place.is_file() or not list(elsewhere.iterdir())


def test_a_shared_file_that_is_no_text_is_told_of(two: Project, fleet: Run) -> None:
    two.commit({"pyproject.toml": b"\xff\xfe\x00"})
    said = fleet("add", "task=text", two.folder)
    assert said.code == 1
    assert 'Add to pyproject.toml by hand: dependencies = ["text-tools"]' in said.text


@pytest.mark.slow
def test_a_second_task_trains_and_passes_its_tests_beside_the_first(tmp_path: Path, fleet: Run) -> None:
    pytest.importorskip("lightning")
    git(tmp_path, "clone", "-q", str(ROOT), "template")
    git(tmp_path / "template", "remote", "remove", "origin")
    cookiecutter(tmp_path / "template", tmp_path / "out", {"task": "tabular_regression", "logger": "csv"})
    project = Project(next((tmp_path / "out").iterdir()))
    git(project.folder, "init", "-q")
    project.commit()
    said = fleet("add", "task=text_classification", project.folder)
    assert said.code == 1
    assert "faker" in said.text, "the packages of the second task are named"
    assert not [line for line in project.status().splitlines() if not line.startswith("??")]

    def run(*words: str, **variables: str) -> str:
        env = {**os.environ, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1", **variables}
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=project.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    config = "configs/text_classification/default.yaml"
    run("digit_reader", "fit", f"--config={config}", "--trainer.max_epochs=1", "--trainer.limit_train_batches=9")
    run("digit_reader", "test")
    measured = json.loads((project.folder / "runs/latest/test_metrics.json").read_text())
    assert "test/macro_f1" in measured, "the run is the second task's"
    fast = ("-q", "-m", "not slow")
    run("pytest", *fast, "tests/test_contract.py", "tests/test_text_classification.py", DEFAULT_CONFIG=config)
    run("pytest", *fast, "tests/test_contract.py", "tests/test_tabular_regression.py")
