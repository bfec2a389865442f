"""L2 and L3: what comes out passes its own checks and tests, trains, and is as small as promised.

All renders share the environment of these tests; nothing is installed for a render.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rendering import CHOICES, TEMPLATE, run, turn

TASKS = CHOICES["task"]
# Tests of a project in which the task plays no part, and those that depend most on it.
ALIKE = [f"tests/test_{name}.py" for name in ("progress", "record", "repeat", "resuming", "schedules", "search")]
OWN = ("test_contract", "test_code_rules", "test_blocks", "test_doctor", "test_todo", "test_report_*", "test_options")
LONGEST = "a" + "bcdefghij_" * 3 + "k"  # 32 characters, as many as are accepted


@pytest.fixture(scope="session")
def projects(render) -> Callable[[str], Path]:
    """Return the rendered project of a task, the same one for all tests."""
    made: dict[str, Path] = {}

    def of(task: str) -> Path:
        if task not in made:
            made[task] = render(task=task)
        return made[task]

    return of


@pytest.mark.parametrize("package", ["digit_reader", LONGEST])
@pytest.mark.parametrize("task", TASKS)
def test_lint_and_format_are_clean_whatever_the_names(render, task: str, package: str):
    project = render(task=task, package=package)
    for words in (["ruff", "check", "."], ["ruff", "format", "--check", "."]):
        result = run(*words, cwd=project)
        assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_types_are_clean(projects, tmp_path_factory, task: str):
    cache = str(tmp_path_factory.getbasetemp() / "mypy")  # what is installed is the same for all
    result = run("python", "-m", "mypy", cwd=projects(task), MYPY_CACHE_DIR=cache)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_projects_own_tests_pass(projects, task: str):
    """All of them for the first task; for the others what differs by task, most of it when it is their turn."""
    project = projects(task)
    options = {} if task == TASKS[0] else {"PYTEST_ADDOPTS": " ".join(f"--ignore={one}" for one in ALIKE)}
    if task not in (TASKS[0], TASKS[1:][turn(len(TASKS) - 1)]):
        found = [list((project / "tests").rglob(f"{name}.py")) for name in (*OWN, f"test_{task}")]
        assert all(found)
        options = {"PYTEST_ADDOPTS": " ".join(str(path) for paths in found for path in paths)}
    target = "test" if task == TASKS[0] else "test-fast"
    result = run("make", target, f"PYTHON={sys.executable}", cwd=project, timeout=3000, **options)
    assert result.returncode == 0, result.stdout[-6000:]
    assert re.search(r"\d{3} passed", result.stdout)
    if task != TASKS[0]:
        result = run("python", "-m", "pytest", "-m", "slow", f"tests/test_{task}.py", cwd=project, timeout=1200)
        nothing_slow = result.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
        assert result.returncode == 0 or nothing_slow, result.stdout[-6000:]


def test_the_contract_tests_pass_within_a_minute(projects):
    started = time.monotonic()
    result = run("python", "-m", "pytest", "-q", "tests/test_contract.py", cwd=projects(TASKS[0]))
    assert result.returncode == 0, result.stdout[-4000:]
    seconds = float(re.search(r"passed.* in ([\d.]+)s", result.stdout)[1])
    assert seconds < 60, f"{seconds} s of {time.monotonic() - started:.0f} s"


@pytest.mark.slow
def test_make_demo_leads_from_nothing_to_a_tested_and_exported_model(tmp_path: Path):
    clone = tmp_path / "template"
    assert run("git", "clone", "--quiet", TEMPLATE, clone, cwd=tmp_path).returncode == 0
    result = run("make", "demo", f"PYTHON={sys.executable}", cwd=clone, HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr[-4000:]
    latest = clone / "demo/digit-reader/runs/latest"
    accuracy = json.loads((latest / "test_metrics.json").read_text())["test/accuracy"]
    assert accuracy >= 0.97
    assert (latest / "model.onnx").stat().st_size > 10_000
    assert "Next: cd demo/digit-reader" in result.stdout


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


@pytest.mark.parametrize("task", TASKS)
def test_each_room_stays_as_small_as_its_reader_has_time(projects, task: str):
    package = projects(task) / "src/digit_reader"
    assert lines(package / task) <= 450
    assert lines(package / "practices") <= 1200
    assert lines(package / "workbench") <= 2200
    for path in package.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path


def test_a_project_works_without_its_workbench_and_its_techniques(render):
    project = render(logger="csv")
    for room in ("workbench", "techniques"):
        shutil.rmtree(project / "src/digit_reader" / room)
    environment = {"PYTHONPATH": str(project / "src")}
    result = run("python", "-m", "digit_reader", "fit", "--config", "configs/debug.yaml", cwd=project, **environment)
    assert result.returncode == 0, result.stderr[-2000:]
    listed = run("python", "-m", "digit_reader", "--help", cwd=project, **environment).stdout
    assert "fit" in listed
    assert "todo" not in listed


def test_rooms_import_one_way(projects):
    """cli and training import all; the workbench the rest; the task only practices; practices nothing of these."""
    for task in TASKS:
        package = projects(task) / "src/digit_reader"
        forbidden = {"practices": [task, "workbench", "training", "cli"], task: ["workbench", "training", "cli"]}
        for room, names in forbidden.items():
            for path in (package / room).rglob("*.py"):
                for name in names:
                    assert not re.search(rf"from \.+{name}\b", path.read_text(encoding="utf-8")), (path, name)


def test_a_project_runs_from_its_source_tree_without_installation(projects, tmp_path: Path):
    project = projects(TASKS[0])
    clean = {"PYTHONPATH": str(project / "src"), "HOME": str(tmp_path)}
    assert run("python", "-m", "digit_reader", "--help", cwd=project, **clean).returncode == 0
    assert "digit_reader" not in run("python", "-m", "pip", "list", cwd=project).stdout
    assert os.environ.get("PYTHONPATH", "") == "" or "digit" not in os.environ["PYTHONPATH"]


def test_listing_commands_and_todos_takes_less_than_half_a_second(projects):
    project = projects(TASKS[0])
    for words in (["todo"], ["--help"], ["todo", "--help"]):
        times = []
        for _ in range(5):
            started = time.perf_counter()
            assert run("python", "-m", "digit_reader", *words, cwd=project, PYTHONPATH="src").returncode == 0
            times.append(time.perf_counter() - started)
        assert sorted(times)[0] < 0.5, times


@pytest.mark.slow
def test_make_update_brings_a_project_to_the_newest_tag_without_installing_by_hand(tmp_path: Path):
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    template, folder = tmp_path / "template", tmp_path / "made" / "digit-reader"

    def must(*words: str | Path, cwd: Path = tmp_path, code: int = 0) -> str:
        result = run(*words, cwd=cwd, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert result.returncode == code, f"{words}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        return result.stdout + result.stderr

    must("git", "clone", "--quiet", TEMPLATE, template)
    for old in must("git", "-C", template, "tag").split():
        must("git", "-C", template, "tag", "-d", old)
    must("git", "-C", template, "remote", "remove", "origin")
    must("git", "-C", template, "tag", "100.0.0")
    must("python", "-m", "cookiecutter", template, "--no-input", "--output-dir", tmp_path / "made")
    must(*git, "init", "--quiet", cwd=folder)
    must(*git, "add", "--all", cwd=folder)
    must(*git, "commit", "--quiet", "--message", "Start", cwd=folder)
    must("make", "update-check", cwd=folder)
    ignored = template / "{{cookiecutter.__folder}}" / ".gitignore"
    ignored.write_text(ignored.read_text() + "*.tmp\n")
    must(*git, "-C", template, "commit", "--quiet", "--all", "--message", "Ignore temporary files")
    must("git", "-C", template, "tag", "100.1.0")
    assert "100.1.0" in must("make", "update-check", cwd=folder, code=2)
    must("make", "update", cwd=folder)
    assert (folder / ".gitignore").read_text().endswith("*.tmp\n")
    assert json.loads((folder / ".cruft.json").read_text())["tag"] == "100.1.0"
