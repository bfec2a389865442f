"""Kill real trainings with SIGKILL at random moments, resume them, and compare with runs that never stopped.

    python bench/kill.py --kills 200

Every variant trains once without a break; then runs are started, killed at a random number of logged
rows plus a random delay, perhaps several times over, and resumed with `fit --resume`. Survived: the
resumed run ended. Bit-equal: all of both checkpoints and metrics.csv equal the unbroken run's.
The commands are those that a user types.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from cookiecutter.main import cookiecutter

TEMPLATE = Path(__file__).parents[1]
STEPS = "--checkpoint.every_n_train_steps=1"
EMA = '[{"class_path":"lightning.pytorch.callbacks.EMAWeightAveraging","init_args":{"decay":0.5}}]'
VARIANTS = {
    "epochs": [],
    "steps": [STEPS],
    "every third step": ["--checkpoint.every_n_train_steps=3"],
    "two workers": [STEPS, "--data.num_workers=2"],
    "accumulation": [STEPS, "--trainer.accumulate_grad_batches=2"],
    "average of weights": [STEPS, f"--trainer.callbacks={EMA}"],
    "bfloat16": [STEPS, "--trainer.precision=bf16-mixed"],
    "weighted sampler": [STEPS, "--data.weighted_sampling=true"],
    "validation inside an epoch": [STEPS, "--trainer.val_check_interval=3"],
    "two processes": [STEPS, "--trainer.devices=2", "--trainer.strategy=ddp"],
}
TINY = [
    "--trainer.accelerator=cpu",
    "--trainer.devices=1",
    "--trainer.max_epochs=3",
    "--trainer.limit_train_batches=7",
    "--trainer.limit_val_batches=2",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.logger=false",
    "--model.network.width=4",
    "--data.batch_size=8",
    "--data.num_workers=0",
    "--export_onnx=false",
]
# Of ModelCheckpoint: where the run lies, and a number that Lightning never reads back.
PATHS = {"dirpath", "best_model_path", "best_k_models", "kth_best_model_path", "current_score"}


def render(folder: Path) -> Path:
    """Return a project rendered into `folder`."""
    return Path(cookiecutter(str(TEMPLATE), no_input=True, output_dir=folder, extra_context={"logger": "csv"}))


def start(project: Path, workspace: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start fit in `workspace`, a folder with runs of its own that shows the project's files."""
    if not workspace.exists():
        workspace.mkdir(parents=True)
        for path in project.iterdir():
            if path.name != "runs":
                (workspace / path.name).symlink_to(path)
    environment = os.environ | {"PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
    package = next(path.name for path in (project / "src").iterdir() if (path / "cli.py").is_file())
    with (workspace / "output.txt").open("ab") as output:
        words = [sys.executable, "-m", package, "fit", *arguments]
        # A group of its own, so that the processes of all ranks and workers are killed together.
        return subprocess.Popen(
            words, cwd=workspace, env=environment, stdout=output, stderr=output, start_new_session=True
        )


def rows(workspace: Path) -> int:
    """Return how many rows the run in `workspace` has logged so far; -1 before there is a run."""
    files = list(workspace.glob("runs/2*/metrics.csv"))
    if files:
        return files[0].read_bytes().count(b"\n")
    return 0 if list(workspace.glob("runs/2*/config.yaml")) else -1


def kill(process: subprocess.Popen[bytes], workspace: Path, after: int, delay: float) -> bool:
    """Kill once `after` rows are logged and `delay` seconds have passed; return whether it was still running."""
    deadline = time.monotonic() + 300
    while process.poll() is None and rows(workspace) < after and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return running


def result(workspace: Path) -> dict[str, object]:
    """Return all that must be equal of the one run in `workspace`."""
    (run,) = workspace.glob("runs/2*")
    loaded = {n: torch.load(run / "checkpoints" / f"{n}.ckpt", weights_only=True) for n in ("last", "best")}
    return {**loaded, "rows": (run / "metrics.csv").read_text(encoding="utf-8")}


def equal(a: object, b: object) -> bool:
    """Return whether two nested results are equal to the bit; where the runs lie may differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a.keys() - PATHS)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return a == b


def trial(project: Path, workspace: Path, variant: str, expected: dict[str, object], seed: int) -> tuple[int, int, int]:
    """Kill and resume one run until it ends; return (kills, survived, bit-equal)."""
    chance, kills = random.Random(seed), 0
    last = str(expected["rows"]).count("\n")
    process, reached = start(project, workspace, [*TINY, *VARIANTS[variant]]), 0
    for _ in range(chance.choice([1, 1, 2])):
        reached = chance.randint(reached, last)
        # Past the last row the end is killed: the last checkpoint, the record.
        if not kill(process, workspace, reached, chance.choice([0.0, 0.01, 0.05])):
            break
        kills += 1
        if rows(workspace) < 0:  # killed before there was a run
            shutil.rmtree(workspace / "runs", ignore_errors=True)
            process = start(project, workspace, [*TINY, *VARIANTS[variant]])
        else:
            process = start(project, workspace, ["--resume=latest"])
    survived = process.wait() == 0
    same = survived and equal(expected, result(workspace))
    return kills, kills * survived, kills * same


def measure(project: Path, folder: Path, kills: int, seed: int) -> dict[str, tuple[int, int, int]]:
    """Return (kills, survived, bit-equal) for every variant, at least `kills` kills in all."""

    def reference(variant: str) -> dict[str, object]:
        workspace = folder / variant.replace(" ", "-")
        if code := start(project, workspace, [*TINY, *VARIANTS[variant]]).wait():
            raise SystemExit(f"{variant} ended with {code}: {(workspace / 'output.txt').read_text()[-2000:]}")
        return result(workspace)

    first = reference("epochs")  # writes the demo's data, which the others then share
    others = [variant for variant in VARIANTS if variant != "epochs"]
    counts = {variant: [0, 0, 0] for variant in VARIANTS}
    with ThreadPoolExecutor(2) as pool:
        expected = {"epochs": first, **dict(zip(others, pool.map(reference, others), strict=True))}
        number = 0
        while sum(count[0] for count in counts.values()) < kills:
            missing = kills - sum(count[0] for count in counts.values())
            batch = [(list(VARIANTS)[i % len(VARIANTS)], i) for i in range(number, number + max(2, missing * 2 // 3))]
            number += len(batch)

            def one(item: tuple[str, int]) -> tuple[int, int, int]:
                return trial(project, folder / f"trial-{item[1]}", item[0], expected[item[0]], seed + item[1])

            for (variant, _), found in zip(batch, pool.map(one, batch), strict=True):
                counts[variant] = [a + b for a, b in zip(counts[variant], found, strict=True)]
    return {variant: (count[0], count[1], count[2]) for variant, count in counts.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = measure(render(folder / "project"), folder / "work", options.kills, options.seed)
    print(f"{'variant':<28}{'kills':>8}{'survived':>10}{'bit-equal':>11}")
    for variant, found in [*counts.items(), ("all", tuple(map(sum, zip(*counts.values(), strict=True))))]:
        print(f"{variant:<28}{found[0]:>8}{found[1]:>10}{found[2]:>11}")


if __name__ == "__main__":
    main()
