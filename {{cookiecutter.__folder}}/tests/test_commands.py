"""The commands as they are typed: what they leave behind, and what they say of mistakes."""

import csv
import json
import re
import runpy
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
import yaml

from {{ cookiecutter.package }}.cli import main

from conftest import PACKAGE, SHORT

LATEST = Path("runs/latest")


@pytest.fixture
def trained(capsys) -> Path:
    """Return the folder of a short run."""
    main(["fit", *SHORT])
    return LATEST.resolve()


def refused(capsys, *arguments: str) -> str:
    """Run a command that must fail, and return its one sentence."""
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    captured = capsys.readouterr()
    assert exit_info.value.code not in (0, None)
    message = captured.err.strip().splitlines()[-1] if captured.err.strip() else str(exit_info.value.code)
    assert "Traceback" not in captured.err
    assert message.startswith("error: ")
    return message


def test_fit_leaves_the_whole_run_folder_and_nothing_else(trained: Path, workspace: Path):
    files = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    assert {"config.yaml", "metrics.csv", "model.onnx", "checkpoints/best.ckpt", "checkpoints/last.ckpt"} <= files
    assert {path.name for path in workspace.iterdir() if not path.is_symlink()} == {"runs"}
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert config["trainer"]["precision"] == "32-true", "what was decided must be in the record"
    assert config["seed_everything"] == 42


def test_a_logger_without_key_or_network_never_stops_training(command):
    """W&B must not ask, hang or fail: neither without a key, nor with one and no network."""
    for environment in ({"HOME": "/nonexistent"}, {"WANDB_API_KEY": 40 * "0", "WANDB_BASE_URL": "http://127.0.0.1:9"}):
        result = command("fit", *SHORT, "--export_onnx=false", **environment)
        assert result.returncode == 0, result.stderr[-2000:]
    assert "wandb sync" in result.stderr or not list(LATEST.glob("wandb"))


def test_a_second_run_has_a_folder_of_its_own_and_leaves_the_first_alone(trained: Path):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*") if path.is_file()}
    main(["fit", *SHORT])
    assert LATEST.resolve() != trained
    assert {path: path.stat().st_mtime_ns for path in before} == before
    names = [path.name for path in LATEST.resolve().glob("checkpoints/*")]
    assert sorted(names) == ["best.ckpt", "last.ckpt"], "a -v1 beside an older last.ckpt would be picked up stale"


def test_metrics_csv_has_every_step_and_the_means_of_each_epoch(trained: Path):
    with (trained / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    validation = [row for row in rows if row["val/loss"]]
    assert len(validation) == 1
    assert float(validation[0]["val/loss"]) > 0
    assert any(row["train/loss"] for row in rows)


def test_evaluation_measures_the_best_checkpoint_of_the_newest_run(trained: Path):
    for command, file in (("test", "test_metrics.json"), ("validate", "validate_metrics.json")):
        main([command])
        metrics = json.loads((trained / file).read_text())
        assert metrics[f"{'val' if command == 'validate' else command}/loss"] > 0
    newer = trained
    main(["fit", *SHORT, "--trainer.limit_train_batches=1"])
    main(["test", "--run", str(newer)])
    assert not (LATEST / "test_metrics.json").exists(), "--run must choose the run"


def test_predict_writes_a_row_a_sample_and_overwrites_nothing(trained: Path):
    main(["predict"])
    main(["predict"])
    first, second = trained / "predictions.csv", trained / "predictions-2.csv"
    assert first.read_text() == second.read_text()
    assert len(first.read_text().splitlines()) > 2


def test_the_exported_file_says_how_to_feed_it(trained: Path):
    model = onnx.load(trained / "model.onnx")
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert {"inputs", "class_names", "hyper_parameters", "torch", "lightning", "git_commit"} <= set(facts)
    session = onnxruntime.InferenceSession(trained / "model.onnx")
    assert all(entry.shape[0] == "batch" for entry in session.get_inputs())
    assert "Dropout" not in {node.op_type for node in model.graph.node}
    (trained / "model.onnx").unlink()
    main(["export", "--run", "latest"])
    assert (trained / "model.onnx").exists()


def test_a_failed_export_check_keeps_the_training_and_names_the_difference(trained: Path, capsys, monkeypatch):
    monkeypatch.setattr("{{ cookiecutter.package }}.practices.export.TOLERANCE", -1.0)
    (trained / "model.onnx").unlink()
    message = refused(capsys, "export")
    assert re.search(r"differs from the model by \d\.\de", message)
    assert not list(trained.glob("model*"))
    assert (trained / "checkpoints/best.ckpt").exists()


def test_resuming_for_more_epochs_follows_the_longer_schedule(trained: Path):
    main(["fit", "--resume", "latest", "--trainer.max_epochs=2"])
    with (trained / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted({row["epoch"] for row in rows if row["epoch"]}) == ["0", "1"]
    assert torch.load(trained / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 6
    assert LATEST.resolve() == trained


@pytest.mark.parametrize("order", [0, 1])
def test_a_flag_wins_over_a_config_file_wherever_it_stands(build, order: int, tmp_path: Path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("trainer:\n  max_epochs: 7\n  limit_val_batches: 3\n")
    words = [["--trainer.max_epochs=1", "--trainer.limit_train_batches=1"], ["--config", str(overlay)]]
    main(["fit", *words[order], *words[1 - order], *SHORT[:4]])
    config = yaml.safe_load((LATEST / "config.yaml").read_text())["trainer"]
    assert (config["max_epochs"], config["limit_val_batches"]) == (1, 3)


def test_an_overlay_with_callbacks_keeps_the_standard_ones(tmp_path: Path):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("trainer:\n  callbacks:\n    - class_path: lightning.pytorch.callbacks.ModelSummary\n")
    main(["fit", "--config", str(overlay), *SHORT])
    assert (LATEST / "checkpoints/best.ckpt").exists()
    assert (LATEST / "checkpoints/last.ckpt").exists()


def test_every_checkpoint_loads_without_unpickling_code(trained: Path):
    for path in trained.glob("checkpoints/*.ckpt"):
        content = torch.load(path, weights_only=True)
        assert content["hyper_parameters"]
        assert all("_orig_mod" not in key for key in content["state_dict"])


def test_debug_runs_one_batch_and_keeps_nothing(workspace: Path):
    main(["fit", "--config", "configs/debug.yaml"])
    assert not Path("runs").exists()


def test_a_checkpoint_of_another_network_is_refused_by_name(trained: Path, capsys):
    network = yaml.safe_load((trained / "config.yaml").read_text())["model"]["init_args"]["network"]
    widths = [name for name, value in network["init_args"].items() if isinstance(value, int) and value > 1]
    if not widths:
        pytest.skip("the network has no size to change")
    message = refused(capsys, "test", f"--model.network.{widths[0]}={2 * network['init_args'][widths[0]]}")
    assert "another network" in message
    assert "network." in message


def test_help_and_todo_start_without_torch(command):
    for arguments in (["--help"], ["todo"], ["todo", "--help"]):
        result = command(*arguments, PYTHONPROFILEIMPORTTIME="1")
        assert result.returncode == 0
        assert not re.search(r"\| +(torch|lightning)\b", result.stderr), "these must start at once"
        assert result.stdout


def test_a_worker_that_runs_the_main_module_anew_starts_no_command(capsys):
    """As multiprocessing does where workers are spawned."""
    runpy.run_module(f"{PACKAGE}.__main__", run_name="__mp_main__")
    assert capsys.readouterr().out == ""


RANK_REPORT = """
import json
from lightning.pytorch import Callback

class RankReport(Callback):
    def on_train_end(self, trainer, module):
        weights = {name: p.double().sum().item() for name, p in module.named_parameters()}
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if "step" not in name}
        with open(f"rank-{trainer.global_rank}.json", "w") as file:
            json.dump({"weights": weights, "metrics": metrics}, file)
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_processes_train_as_one(command, workspace: Path, launcher: str):
    (workspace / "rank_report.py").write_text(RANK_REPORT)
    arguments = ["fit", "--config", "configs/ddp.yaml", "--trainer.accelerator=cpu", "--trainer.devices=2"]
    arguments += ["--data.num_workers=0", "--trainer.max_epochs=1", "--trainer.limit_train_batches=4"]
    arguments += ["--trainer.callbacks+=rank_report.RankReport"]
    prefix = ["-m", "torch.distributed.run", "--nproc-per-node=2"] if launcher == "torchrun" else []
    result = command(*arguments, prefix=prefix, timeout=600, PYTHONPATH=str(workspace))
    assert result.returncode == 0, result.stderr[-2000:]
    first, second = (json.loads(Path(f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["weights"] == second["weights"], "both ranks must hold the same model"
    assert first["metrics"] == second["metrics"], "metrics must be synchronised, as checkpoints are chosen by them"
    assert len([path for path in Path("runs").iterdir() if not path.is_symlink()]) == 1, "one run, one folder"
    assert sorted(path.name for path in LATEST.glob("checkpoints/*")) == ["best.ckpt", "last.ckpt"]
    for devices in ("1", "2"):
        strategy = "auto" if devices == "1" else "ddp"
        measured = command("test", f"--trainer.devices={devices}", f"--trainer.strategy={strategy}", timeout=600)
        assert measured.returncode == 0, measured.stderr[-2000:]
        Path(f"test-{devices}.json").write_text((LATEST / "test_metrics.json").read_text())
    alone, together = (json.loads(Path(f"test-{devices}.json").read_text()) for devices in ("1", "2"))
    assert together == pytest.approx(alone, rel=1e-5), "no sample may be counted twice to fill a rank"
