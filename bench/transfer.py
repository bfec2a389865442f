"""Transfer learning on the demo's digits: trained on 0 to 4, then 5 to 9 with 10 images a class, beside from scratch.

python bench/transfer.py [EPOCHS [FIRST_SEED]]; 10 epochs by default, a multiple of 5. Five seeds, each with its own
images; all images of 5 to 9 that were not trained on, nor chose the checkpoint, are the test. From scratch the better
of two learning rates counts. The network keeps a grid of 4 x 4 to its head: of averages over the whole image, what
tells 0 to 4 apart says too little of 5 to 9 (a linear model on SmallCNN's features has 0.85, on its middle layer's
0.97).
"""

import json
import os
import statistics
import subprocess
import sys
import time

from common import rendered

SEEDS, IMAGES = 5, 10
NETWORK = """
class_path: digit_reader.techniques.image_classification_blocks.BlockNetwork
init_args:
  blocks:
    - {class_path: torchvision.ops.Conv2dNormActivation, init_args: {in_channels: 3, out_channels: 32, stride: 2}}
    - {class_path: torchvision.ops.Conv2dNormActivation, init_args: {in_channels: 32, out_channels: 64, stride: 2}}
    - {class_path: torch.nn.AdaptiveAvgPool2d, init_args: {output_size: 4}}
    - {class_path: torch.nn.Flatten}
"""

# Run in the project, in one process: prints {way: [accuracy on the test split, one a seed]} as its last line.
TRAIN = """
import json, random, shutil, sys
from pathlib import Path
from digit_reader.cli import main
from digit_reader.image_classification import ImageFolderData

ImageFolderData().prepare_data()
seeds, images, epochs, first_seed = map(int, sys.argv[1:])
def put(root, split, digit, files):
    folder = Path(root, split, str(digit))
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)
def files(split, digit):
    return sorted(Path("data/digits", split, str(digit)).iterdir())
for digit in range(5):
    for split in ("train", "val", "test"):
        put("data/low", split, digit, files(split, digit))
def train(*words):
    main(["fit", "--monitor.patience=null", "--trainer.accelerator=cpu", "--data.num_workers=0",
        "--trainer.logger=false", "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false",
        "--export_onnx=false", "--trainer.check_val_every_n_epoch=5", "--model.network=network.yaml", *words])
    return Path("runs", Path("runs/latest").readlink())
def accuracy(run):
    main(["test", f"--run={run}"])
    return json.loads((run / "test_metrics.json").read_text())["test/accuracy"]
found = {}
for seed in range(first_seed, first_seed + seeds):
    for digit in range(5, 10):
        all_of_it = files("train", digit)
        chosen = random.Random(10 * seed + digit).sample(all_of_it, images)
        put(f"data/high{seed}", "train", digit, chosen)
        put(f"data/high{seed}", "val", digit, files("val", digit))
        put(f"data/high{seed}", "test", digit, files("test", digit) + [f for f in all_of_it if f not in chosen])
    first = train("--data.root=data/low", "--trainer.max_epochs=25", f"--seed_everything={seed}")
    common = [f"--data.root=data/high{seed}", "--data.batch_size=16", f"--trainer.max_epochs={epochs}",
        f"--seed_everything={seed}"]
    faster, weights = "--model.learning_rate=0.01", f"--trainer.callbacks.weights={first}"
    for name, way in {
        "from scratch, rate 0.003": [],
        "from scratch, rate 0.01": [faster],
        "head alone": ["--config=configs/finetune_head.yaml", weights, faster],
        "unfrozen from the head": ["--config=configs/finetune_unfreeze.yaml", weights, faster],
    }.items():
        found.setdefault(name, []).append(accuracy(train(*common, *way)))
print(json.dumps(found))
"""


def main() -> None:
    """Print mean and spread of each way, and fail unless both beat training from scratch."""
    started = time.perf_counter()
    epochs, first_seed = [*sys.argv[1:], *["10", "0"][len(sys.argv) - 1 :]]
    with rendered(logger="csv") as project:
        (project / "network.yaml").write_text(NETWORK)
        environment = os.environ | {"PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-c", TRAIN, str(SEEDS), str(IMAGES), epochs, first_seed]
        done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    print(f"accuracy on digits 5 to 9, {IMAGES} images a class, {epochs} epochs; mean and deviation of {SEEDS} seeds")
    means = {name: statistics.mean(values) for name, values in found.items()}
    for name, values in found.items():
        each = " ".join(f"{value:.3f}" for value in values)
        print(f"{name:<26}{means[name]:.3f}  {statistics.stdev(values):.3f}  ({each})")
    print(f"in {time.perf_counter() - started:.0f} s")
    scratch = max(mean for name, mean in means.items() if "scratch" in name)
    sys.exit(min(means["head alone"], means["unfrozen from the head"]) <= scratch)


if __name__ == "__main__":
    main()
