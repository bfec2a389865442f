"""L0: what can be seen without rendering."""

import json
import subprocess

from rendering import CHOICES, CONTEXT, QUESTIONS, TEMPLATE

CACHES = {"__pycache__", ".ruff_cache", ".mypy_cache", ".pytest_cache"}
FOLDER = TEMPLATE / "{{cookiecutter.__folder}}"


def text_of_template() -> str:
    paths = [path for path in FOLDER.rglob("*") if path.is_file() and not CACHES & set(path.parts)]
    names = "\n".join(str(path.relative_to(TEMPLATE)) for path in paths)
    hooks = [path.read_text(encoding="utf-8") for path in (TEMPLATE / "hooks").glob("*.py")]
    return "\n".join([names, *hooks, *(path.read_text(encoding="utf-8") for path in paths)])


def test_there_are_eight_questions_each_with_a_sentence():
    assert QUESTIONS == ["project", "package", "description", "author", "task", "logger", "ci", "license"]
    assert set(CONTEXT["__prompts__"]) == set(QUESTIONS)


def test_every_answer_is_used():
    text = text_of_template()
    for name in QUESTIONS:
        assert f"cookiecutter.{name}" in text or f'answers["{name}"]' in text or f'"{name}": {{' in text, name


def test_python_under_src_holds_no_jinja():
    for path in (FOLDER / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "{{ cookiecutter" not in text and "{{cookiecutter" not in text and "{%" not in text, path


def test_every_pattern_of_files_meets_a_file_of_every_task(render):
    for task in CHOICES["task"]:
        project = render(task=task)
        package = json.loads((project / ".cruft.json").read_text())["context"]["cookiecutter"]["package"]
        for pattern in CONTEXT["_once"]:
            pattern = pattern.replace("{{ cookiecutter.package }}", package).replace("{{ cookiecutter.task }}", task)
            assert any(path.is_file() for path in project.glob(pattern.replace("/**", "/**/*"))), pattern


def test_every_source_file_is_tracked():
    """A bare `data/` in an ignore file hides a package folder of that name, and a clone lacks it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=TEMPLATE, capture_output=True, text=True
    )
    known = set(listed.stdout.splitlines())
    for path in FOLDER.rglob("*"):
        if path.is_file() and not CACHES & set(path.parts):
            assert str(path.relative_to(TEMPLATE)) in known or '"' in listed.stdout, path


def test_the_rendered_projects_own_ignore_file_hides_no_source(render):
    project = render(package="data_models")
    (project / "src/data_models/data").mkdir()
    (project / "src/data_models/data/loader.py").write_text("")
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"], cwd=project, capture_output=True, text=True, check=True
    )
    assert "src/data_models/data/loader.py" in listed.stdout.splitlines()
    for path in project.glob("src/**/*.py"):
        assert str(path.relative_to(project)) in listed.stdout.splitlines()


def test_no_line_names_a_machine():
    listed = subprocess.run(
        ["git", "grep", "-nIE", r"/(root|home)/[a-z]"], cwd=TEMPLATE, capture_output=True, text=True
    )
    hits = [line for line in listed.stdout.splitlines() if not line.startswith("tests/")]
    assert not hits
