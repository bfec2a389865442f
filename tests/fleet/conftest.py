"""Each test has a home, a cache and a git configuration of its own."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from fleet.cli import main
from fleet_helpers import Project, Run, Said, Template, project_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests apart from the user's settings, and from each other."""
    folder = tmp_path / "home"
    folder.mkdir()
    config = "[user]\n\tname = Someone\n\temail = someone@example.org\n[init]\n\tdefaultBranch = main\n"
    (folder / "gitconfig").write_text(config)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(folder / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "COOKIECUTTER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def fleet(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def run(*arguments: object) -> Said:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out + err)

    return run


@pytest.fixture
def template(tmp_path: Path) -> Template:
    """Return a template repository without a version yet."""
    return Template(tmp_path / "template")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Project]:
    """Generate a committed project from a version of a template."""

    def build(template: Template, tag: str = "v0.1.0", **answers: str) -> Project:
        return project_of(template, tmp_path / "out", tag, **answers)

    return build
