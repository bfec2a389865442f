"""What the measurements share: a rendered project, and medians of several runs side by side."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPLATE = Path(__file__).parents[1]


@contextmanager
def rendered(**answers: str) -> Iterator[Path]:
    """Render the template into a temporary folder and yield the project's."""
    from cookiecutter.main import cookiecutter

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(f"cookiecutters_dir: {folder}/templates\nreplay_dir: {folder}/replay\n")
        made = cookiecutter(
            str(TEMPLATE), no_input=True, output_dir=folder, config_file=str(config), extra_context=answers
        )
        yield Path(made)


def command(project: Path, *words: str) -> float:
    """Run `python -m digit_reader` with `words` in `project` and return the seconds it took."""
    environment = os.environ | {"PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "digit_reader", *words], cwd=project, env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - started


def medians(candidates: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return each candidate's median over `rounds`, taken in turn so that the machine's moods hit all alike."""
    values: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, measure in candidates.items():
            values[name].append(measure())
    return {name: statistics.median(taken) for name, taken in values.items()}
