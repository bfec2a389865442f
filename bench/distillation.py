"""A small student with and without a teacher: accuracy on the demo's test split, the same five seeds for both.

The teacher is the default network, trained as the default configuration says; the student has a quarter of its width
and 8 epochs, at a higher rate. It prints whichever way it comes out.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from common import rendered

SEEDS = 5

# Run in the project, in one process: prints the teacher's accuracy and the students' as its last line.
TRAIN = """
import json, sys
from pathlib import Path
from digit_reader.cli import main

def train(*words):
    main(["fit", "--monitor.patience=null", "--trainer.accelerator=cpu", "--data.num_workers=0",
        "--trainer.logger=false", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false",
        "--export_onnx=false", "--trainer.check_val_every_n_epoch=4", *words])
    run = Path("runs", Path("runs/latest").readlink())
    main(["test", f"--run={run}"])
    return run, json.loads((run / "test_metrics.json").read_text())["test/accuracy"]
teacher, known = train()
alone, taught = [], []
for seed in range(int(sys.argv[1])):
    words = ["--model.network.init_args.width=8", "--model.learning_rate=0.01", "--trainer.max_epochs=8"]
    words += [f"--seed_everything={seed}"]
    alone.append(train(*words)[1])
    taught.append(train(*words, "--config=configs/distill.yaml", f"--trainer.callbacks.teacher={teacher}")[1])
print(json.dumps([known, alone, taught]))
"""


def main() -> None:
    """Print mean and spread of both, and what the teacher has."""
    started = time.perf_counter()
    with rendered(logger="csv") as project:
        environment = os.environ | {"PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-c", TRAIN, str(SEEDS)]
        done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    known, alone, taught = json.loads(done.stdout.splitlines()[-1])
    print(f"{'teacher':<16}{known:.3f}")
    for name, values in (("student alone", alone), ("student taught", taught)):
        each = " ".join(f"{value:.3f}" for value in values)
        print(f"{name:<16}{statistics.mean(values):.3f}  {statistics.stdev(values):.3f}  ({each})")
    gains = [b - a for a, b in zip(alone, taught, strict=True)]
    sentence = "the teacher helps" if statistics.mean(gains) > 0 else "the teacher does not help"
    print(
        f"{sentence}: {statistics.mean(gains):+.3f} in the mean of {SEEDS} seeds, {sum(g > 0 for g in gains)} of them"
    )
    print(f"in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
