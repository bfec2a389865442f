"""What the tests share: the template's own facts, and running commands in what came out."""

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

TEMPLATE = Path(__file__).parents[1]
CONTEXT = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))
CHOICES = {name: values for name, values in CONTEXT.items() if isinstance(values, list) and name[0] != "_"}
QUESTIONS = [name for name in CONTEXT if name[0] != "_"]


def run(*words: str | Path, cwd: Path, timeout: int = 600, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the interpreter of the tests first on the path, and return what it printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env=variables, timeout=timeout, capture_output=True, text=True
    )


def turn(of: int) -> int:
    """Return whose turn it is among `of`: it moves on with every commit and every week, and stays while one works."""
    count = run("git", "rev-list", "--count", "HEAD", cwd=TEMPLATE).stdout.strip()
    return (int(count or 0) + date.today().isocalendar().week) % of


def files(folder: Path) -> set[str]:
    """Return the paths of all files under `folder`, as they are committed."""
    skipped = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "data", "runs"}
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if not skipped & set(path.parts) or "src" in path.parts[:1]}
