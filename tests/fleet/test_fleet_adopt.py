"""A project without a state file finds its version; cruft reads the state files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_helpers import Make, Project, Run, Template, git, lines


@pytest.fixture
def versions(template: Template) -> Template:
    """Return a template with three versions that differ in lines and in a question."""
    page = "# {{ cookiecutter.project }}\n\n{{ cookiecutter.description }}, by {{ cookiecutter.author }}.\n"
    files = {"README.md": page, "src/{{cookiecutter.package}}/a.py": lines(), "task.txt": "{{ cookiecutter.task }}\n"}
    template.version("v0.1.0", files, description="A project", author="Someone")
    template.version("v0.2.0", {"src/{{cookiecutter.package}}/a.py": lines(l3="three")})
    template.version("v0.3.0", {"src/{{cookiecutter.package}}/a.py": lines(l3="three", l9="nine")}, logger=["a", "b"])
    return template


@pytest.mark.slow
def test_adopt_finds_the_version_and_the_answers(versions: Template, make: Make, fleet: Run) -> None:
    given = {"project": "digit-reader", "description": "Reads (all) digits", "author": "Zoë Ó", "task": "text"}
    project = make(versions, "v0.2.0", **given)
    made = project.state
    project.commit({".cruft.json": None, "src/digit_reader/a.py": lines(l3="three", l20="mine"), "own.py": "own\n"})
    assert fleet("update", project.folder).code == 2
    said = fleet("adopt", project.folder, "--template", versions.top)
    assert said.code == 0 and "closest to v0.2.0" in said.text, said.text
    assert project.state == made and project.status() == "?? .cruft.json"
    assert "digit-reader" in said.text and "commit it" in said.text
    project.commit()
    assert fleet("update", project.folder, "--commit").code == 0
    assert project.read("src/digit_reader/a.py") == lines(l3="three", l9="nine", l20="mine")
    assert fleet("adopt", project.folder, "--template", versions.top).code == 2


def test_adopt_refuses_a_project_of_another_template(versions: Template, tmp_path: Path, fleet: Run) -> None:
    other = Project(tmp_path / "other")
    other.folder.mkdir()
    git(other.folder, "init", "-q")
    other.commit({"README.md": "# Something else\n"})
    said = fleet("adopt", other.folder, "--template", versions.top)
    assert said.code == 2 and "shares only" in said.text and not other.has(".cruft.json")


def test_adopt_mends_a_state_file_without_a_version(versions: Template, make: Make, fleet: Run) -> None:
    project = make(versions, "v0.1.0", author="Me")
    made = project.state
    project.commit({".cruft.json": json.dumps({**made, "commit": None, "tag": None})})
    assert fleet("adopt", project.folder, "--template", versions.top, "--set", "author=Me").code == 0
    assert project.state == made


@pytest.mark.slow
def test_cruft_accepts_the_state_file_before_and_after_an_update(versions: Template, make: Make, fleet: Run) -> None:
    project = make(versions, "v0.1.0")

    def cruft(command: str) -> int:
        call = [sys.executable, "-m", "cruft", command, "--project-dir", str(project.folder)]
        done = subprocess.run(call, cwd=project.folder, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done.returncode

    assert cruft("check") == 1 and cruft("diff") == 0
    assert fleet("update", project.folder, "--commit").code == 0
    assert cruft("check") == 0 and cruft("diff") == 0
