"""What the tests share. They follow the configuration, so they hold for your data and module too."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from {{ cookiecutter.package }}.cli import workbench
from {{ cookiecutter.package }}.training import DEFAULT, TrainingCLI

PROJECT = Path(__file__).parents[1]
PACKAGE = "{{ cookiecutter.package }}"
# On the CPU and in one process: the same on every machine, and errors show where they happen.
PLAIN = ("--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.precision=32-true", "--data.num_workers=0")
SHORT = (*PLAIN, "--trainer.max_epochs=1", "--trainer.limit_train_batches=3", "--trainer.limit_val_batches=2")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder that shows the project's files but has runs of its own."""
    (PROJECT / "data").mkdir(exist_ok=True)
    folder = tmp_path / "workspace"
    folder.mkdir()
    for path in PROJECT.iterdir():
        if path.name not in ("runs", ".git"):
            (folder / path.name).symlink_to(path)
    monkeypatch.chdir(folder)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "PL_GLOBAL_SEED", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", os.devnull)
    random_state = torch.get_rng_state()
    yield folder
    torch.set_rng_state(random_state)


@pytest.fixture(autouse=True)
def quick_ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no report of the many short runs; its own tests, in tests/workbench, look at it."""
    for event, places in workbench().AFTER.items() if workbench() and request.path.parent.name != "workbench" else ():
        monkeypatch.setitem(workbench().AFTER, event, [place for place in places if ".report:" not in place])


@pytest.fixture
def build() -> Callable[..., TrainingCLI]:
    """Build data module, module and trainer from the default configuration and more arguments."""
    return lambda *arguments: TrainingCLI([*PLAIN, *arguments], DEFAULT)


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command as a user does, in a process of its own."""

    def run(
        *arguments: str, prefix: Sequence[str] = (), timeout: int = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(PROJECT / "src"), environment.pop("PYTHONPATH", "")]))
        variables = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment
        words = [sys.executable, *prefix, "-m", PACKAGE, *arguments]
        return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=timeout, check=False)

    return run
