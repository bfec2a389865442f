"""L1: every option, alone and in the pairs that touch each other; hostile answers; refusals."""

import ast
import hashlib
import itertools
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from rendering import CHOICES, TEMPLATE, files, run

SINGLES = [{name: value} for name, values in CHOICES.items() for value in values]
PAIRS = [{"task": t, "logger": g} for t, g in itertools.product(CHOICES["task"], CHOICES["logger"])]

COMMON = {
    ".cruft.json", ".env.example", ".gitignore", "LICENSE", "Makefile", "README.md", "TODO.md", "pyproject.toml",
    "ruff.toml", "configs/default.yaml", "configs/debug.yaml", "configs/gpu.yaml", "configs/ddp.yaml",
    "src/digit_reader/__init__.py", "src/digit_reader/__main__.py", "src/digit_reader/cli.py",
    "src/digit_reader/training.py", "src/digit_reader/runs.py",
    "src/digit_reader/practices/__init__.py", "src/digit_reader/workbench/__init__.py",
    "tests/conftest.py", "tests/test_contract.py", "tests/test_commands.py",
}  # fmt: skip
OF_CI = {"github": {".github/workflows/checks.yml"}, "gitlab": {".gitlab-ci.yml"}, "none": set()}


def check_every_file_parses(project: Path) -> None:
    """Assert that nothing of Jinja is left and that each file is valid in its language."""
    for name in files(project):
        path = project / name
        text = path.read_text(encoding="utf-8")
        leftovers = re.findall(r"(?<!\$)\{\{ ?cookiecutter|\{%", text)
        assert not leftovers or path.suffix == ".html", name  # the report's page is a template of the project itself
        assert text.endswith("\n") or not text, f"{name} must end its last line"
        assert path.suffix == ".py" or "\n\n\n" not in text, f"{name} has a hole where an option was"
        if path.suffix == ".py":
            ast.parse(text)
        elif path.suffix == ".toml":
            tomllib.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            yaml.safe_load(text)
        elif path.suffix == ".json":
            json.loads(text)


@pytest.mark.parametrize("answers", SINGLES + PAIRS, ids=lambda a: "-".join(a.values()))
def test_every_choice_renders_whole(render, answers: dict[str, str]):
    project = render(**answers)
    check_every_file_parses(project)
    names = files(project)
    assert names >= COMMON
    chosen_ci = answers.get("ci", "github")
    assert {n for n in names if n.startswith((".github", ".gitlab"))} >= OF_CI[chosen_ci]
    if chosen_ci != "github":
        assert not any(n.startswith(".github") for n in names)
    task = answers.get("task", CHOICES["task"][0])
    for other in CHOICES["task"]:
        assert any(other in n for n in names) == (other == task), "nothing of one task belongs in another's project"
    logger = yaml.safe_load((project / "configs/default.yaml").read_text())["trainer"]["logger"]
    expected = {"wandb": "WandbLogger", "tensorboard": "TensorBoardLogger", "csv": None}
    kind = expected[answers.get("logger", "wandb")]
    assert (logger is False) if kind is None else logger["class_path"].endswith(kind)
    licence = answers.get("license", "MIT").split("-")[0].lower()
    words = {
        "mit": "MIT License",
        "apache": "Apache License",
        "bsd": "BSD 3-Clause",
        "proprietary": "All rights reserved",
    }
    assert words[licence] in (project / "LICENSE").read_text()


def digest(project: Path) -> dict[str, str]:
    return {name: hashlib.sha256((project / name).read_bytes()).hexdigest() for name in files(project)}


def test_two_renders_of_the_same_answers_are_equal_to_the_byte(render):
    assert digest(render()) == digest(render())


HOSTILE = [
    {"author": 'Dan O\'Hui "Elf"'},
    {"author": "Søren Ångström 雪"},
    {"author": "back\\slash\\n"},
    {"author": "ends with \\"},
    {"author": 'ends with "'},
    {"author": '"""'},
    {"author": "'''"},
    {"description": 'say "hi" and don\'t'},
    {"description": "two\nlines\tand a tab"},
    {"description": "# not a heading: [x](y) <b> & `code` $HOME $(x)"},
    {"description": 'r"""raw"""'},
    {"description": "100 % done, a: b, - c"},
]


@pytest.mark.parametrize("answers", HOSTILE, ids=lambda a: repr(next(iter(a.values())))[:20])
def test_any_text_comes_through_everywhere(render, answers: dict[str, str]):
    project = render(**answers)
    metadata = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, text = next(iter(answers.items()))
    one_line = " ".join(text.split())
    assert one_line == (metadata["authors"][0]["name"] if name == "author" else metadata["description"])
    readable = (project / ("LICENSE" if name == "author" else "README.md")).read_text(encoding="utf-8")
    assert one_line in readable
    state = json.loads((project / ".cruft.json").read_text(encoding="utf-8"))
    assert state["context"]["cookiecutter"][name] == text
    for path in project.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"))


REFUSED = [
    ({"project": "class", "package": "class"}, "package"),
    ({"package": "match"}, "package"),
    ({"package": "torch"}, "package"),
    ({"package": "json"}, "package"),
    ({"package": "lightning"}, "package"),
    ({"package": "tests"}, "package"),
    ({"package": "3d_net"}, "package"),
    ({"project": "3D Net"}, "project"),
    ({"project": "C++ Demo!"}, "project"),
    ({"project": "a/b/c"}, "project"),
    ({"project": "a\\b"}, "project"),
    ({"project": ".."}, "project"),
    ({"project": "../escape"}, "project"),
    ({"project": "/tmp/absolute"}, "project"),
    ({"project": ""}, "project"),
    ({"project": "   "}, "project"),
    ({"project": "x" * 41}, "project"),
    ({"project": "numérique"}, "project"),
    ({"project": "雪"}, "project"),
    ({"project": "-dash"}, "project"),
    ({"project": "con"}, "project"),
    ({"package": "UpperCase"}, "package"),
    ({"package": "über"}, "package"),
    ({"package": "with-dash"}, "package"),
    ({"package": ""}, "package"),
    ({"package": "x" * 33}, "package"),
    ({"description": ""}, "description"),
    ({"description": " \n "}, "description"),
    ({"description": "x" * 201}, "description"),
    ({"author": ""}, "author"),
    ({"author": "bell\x07"}, "author"),
    ({"author": "zero\u200bwidth"}, "author"),
]


@pytest.mark.parametrize(
    ("answers", "question"), REFUSED, ids=lambda v: repr(next(iter(v.values())))[:20] if isinstance(v, dict) else v
)
def test_what_cannot_work_is_refused_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, no_user_config: Path, answers: dict[str, str], question: str
):
    output = tmp_path / "inside" / "output"
    output.mkdir(parents=True)
    words = [f"{name}={value}" for name, value in answers.items()]
    result = run(
        "python", "-m", "cookiecutter", TEMPLATE, "--no-input", "--config-file", no_user_config,
        "--output-dir", output, *words, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode != 0
    sentence = next(line for line in result.stderr.splitlines() if line.startswith(question))
    assert "type" in sentence
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["inside", "output"]


@pytest.mark.parametrize(("question", "value"), [("task", "poetry"), ("license", "GPL")])
def test_an_unknown_choice_is_refused(tmp_path: Path, no_user_config: Path, question: str, value: str):
    result = run(
        "python", "-m", "cookiecutter", TEMPLATE, "--no-input", "--config-file", no_user_config,
        "--output-dir", tmp_path, f"{question}={value}", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode != 0
    assert value in result.stderr
    assert not list(tmp_path.iterdir())


def test_generation_needs_neither_network_nor_git_identity_nor_a_home(tmp_path: Path, no_user_config: Path):
    isolate = ["unshare", "--net"] if shutil.which("unshare") else []
    if isolate and run(*isolate, "true", cwd=tmp_path).returncode:
        isolate = []  # not allowed here
    result = run(
        *isolate, "python", "-m", "cookiecutter", TEMPLATE, "--no-input", "--config-file", no_user_config,
        "--output-dir", tmp_path, cwd=tmp_path, HOME="/nonexistent", GIT_CONFIG_GLOBAL="/nonexistent",
        http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "digit-reader" / ".cruft.json").is_file()


def test_the_state_file_says_where_a_project_came_from(tmp_path: Path, no_user_config: Path):
    """From a clone with a remote and a tag, also when the path is typed relative to where one stands."""
    clone = tmp_path / "clone"
    for words in (
        ["git", "clone", "--quiet", TEMPLATE, clone],
        ["git", "-C", clone, "remote", "set-url", "origin", "https://user:secret@example.org/team/template.git"],
        ["git", "-C", clone, "tag", "9.9.9"],
    ):
        assert run(*words, cwd=tmp_path).returncode == 0
    commit = run("git", "-C", clone, "rev-parse", "HEAD", cwd=tmp_path).stdout.strip()
    for template in ("clone", str(clone)):
        out = tmp_path / f"out-{len(template)}"
        result = run(
            "python", "-m", "cookiecutter", template, "--no-input", "--config-file", no_user_config,
            "--output-dir", out, cwd=tmp_path, PWD=str(tmp_path),
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        state = json.loads((out / "digit-reader" / ".cruft.json").read_text())
        assert state["template"] == "https://example.org/team/template.git"
        assert (state["commit"], state["tag"], state["dirty"]) == (commit, "9.9.9", False)
    (clone / "README.md").write_text("changed")
    run(
        "python", "-m", "cookiecutter", clone, "--no-input", "--config-file", no_user_config,
        "--output-dir", tmp_path / "dirty", cwd=tmp_path,
    )  # fmt: skip
    assert json.loads((tmp_path / "dirty/digit-reader/.cruft.json").read_text())["dirty"] is True
