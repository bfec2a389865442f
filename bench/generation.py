"""How long a generation takes beyond importing cookiecutter. Claim: at most 0.5 s."""

import subprocess
import sys
import tempfile
import time

from common import TEMPLATE, medians


def seconds(code: str) -> float:
    """Return how long Python takes for `code`, its start included."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return time.perf_counter() - started


def generate() -> float:
    """Return the seconds of one generation in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds(
            "from cookiecutter.main import cookiecutter;"
            f"cookiecutter({str(TEMPLATE)!r}, no_input=True, output_dir={folder!r})"
        )


if __name__ == "__main__":
    taken = medians({"import": lambda: seconds("import cookiecutter.main"), "generate": generate}, rounds=7)
    print(f"import {taken['import']:.2f} s, with generation {taken['generate']:.2f} s", end=": ")
    print(f"generation {taken['generate'] - taken['import']:.2f} s")
