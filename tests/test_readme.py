"""Both READMEs hold: every command in them runs, every path in them exists."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from rendering import CHOICES, TEMPLATE, run, turn

# Commands that install, or that are this very suite: their parts are tested elsewhere.
NOT_RUN = ("make setup", "make test", "make test-fast", "make fix", "uv ", "git clone", ". .venv")


def commands(text: str) -> list[str]:
    """Return the lines of all shell blocks, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    found = [re.sub(r"\s+# .*", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line for line in found if line and not line.startswith("#")]


def paths(text: str) -> set[str]:
    """Return what is written like a path in code spans."""
    return {word for word in re.findall(r"`([\w.{}/<>-]+)`", text) if "/" in word or word.endswith((".md", ".toml"))}


@pytest.mark.slow
def test_every_command_of_the_generated_readme_runs(render):
    """For one of the two tasks that train in seconds; the commands of the others are the same."""
    task = ("image_classification", "tabular_regression")[turn(2)]
    project = render(task=task)
    text = (project / "README.md").read_text(encoding="utf-8")
    found = commands(text)
    assert len(found) >= 10
    for command in found:
        if command.startswith(NOT_RUN):
            continue
        words = shlex.split(command)
        if words[0] == "make":
            words.append(f"PYTHON={sys.executable}")
        result = run(*words, cwd=project, PYTHONPATH=str(project / "src"))
        assert result.returncode == 0, f"{command}\n{result.stdout[-1500:]}\n{result.stderr[-1500:]}"
    missing = [path for path in paths(text) if not is_there(path, project)]
    assert not missing


@pytest.mark.parametrize("task", CHOICES["task"])
def test_every_path_of_the_generated_pages_exists(render, task: str):
    project = render(task=task)
    for page in ("README.md", "TODO.md"):
        text = (project / page).read_text(encoding="utf-8")
        made = ("runs/", "config.yaml", "record.json", "metrics.csv", "model.onnx", "checkpoints/", "data.csv")
        made += ("data/", "val/", "MODEL_CARD.md")
        missing = [path for path in paths(text) if not path.startswith(made) and not is_there(path, project)]
        assert not missing, page


def is_there(path: str, folder: Path) -> bool:
    """Return whether `path`, which may have <placeholders>, exists under `folder`."""
    if path.startswith(("my/", "http")):
        return True  # the reader's own
    pattern = re.sub(r"<[^>]+>|\{[^}]+\}", "*", path).rstrip("/")
    return any(any(base.glob(pattern)) for base in (folder, *folder.glob("src/*"), *folder.glob("runs/*")))


def test_every_path_of_the_templates_pages_exists(render):
    project = render()
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (TEMPLATE / page).read_text(encoding="utf-8")
        for path in paths(text):
            assert is_there(path, TEMPLATE) or is_there(path, project) or path.startswith(("demo/", "runs/")), (
                page,
                path,
            )
    assert len((TEMPLATE / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_target_named_in_the_templates_pages_exists(render):
    makefiles = [(folder / "Makefile").read_text(encoding="utf-8") for folder in (TEMPLATE, render())]
    for page in ("README.md", "CONTRIBUTING.md"):
        for names in re.findall(r"`make ([a-z -]+)", (TEMPLATE / page).read_text(encoding="utf-8")):
            target = names.split()[0]
            assert any(re.search(rf"^{target}:", makefile, re.MULTILINE) for makefile in makefiles), (page, target)
