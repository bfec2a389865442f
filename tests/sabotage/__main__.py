"""`make sabotage`, or `python -m sabotage [ROW ...]`: run the table, or some of its rows, and print how each ended."""

import sys
import tempfile
import time
from pathlib import Path

from cookiecutter.main import cookiecutter

from . import harness, ledger

TEMPLATE = Path(__file__).parents[2]


def main(names: list[str]) -> int:
    """Return 0 if every entry was noticed."""
    started = time.monotonic()
    chosen = [entry for entry in harness.entries() if not names or entry.row in names]
    with tempfile.TemporaryDirectory(prefix="sabotage-") as name:
        folder = Path(name)
        config = folder / "cookiecutter.yaml"
        config.write_text(f"cookiecutters_dir: {folder}/templates\nreplay_dir: {folder}/replay\n")

        def render(task: str, **answers: str) -> Path:
            options = {"config_file": str(config), "output_dir": str(folder / "render" / task), "no_input": True}
            return Path(cookiecutter(str(TEMPLATE), extra_context={"task": task} | answers, **options))

        results = harness.run(chosen, render, folder, lambda line: print(line, flush=True))
    if not names:
        for row in ledger.read():
            if row.waits_for:
                print(f"{row.level:<6}{row.name:<30}     open  {row.waits_for}")
    print(f"{len(results)} sabotages in {time.monotonic() - started:.0f} s")
    print(harness.summary(results))
    return int(any(result.fault for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
