"""What people get wrong, fed to the real commands: each is answered in one sentence that says what to do."""

import errno
import os
import re
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
import torch

from {{ cookiecutter.package }}.cli import main

from conftest import PLAIN, SHORT

LATEST = Path("runs/latest")


@pytest.fixture
def refused(capsys):
    """Return what runs a command that must fail, and checks what every answer has in common."""

    def run(arguments: Sequence[str], *words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main(list(arguments))
        lines = [line for line in capsys.readouterr().err.splitlines() if line]
        assert exit_info.value.code == 2, lines
        (message,) = [line for line in lines if line.startswith("error: ")]
        assert message == lines[-1], "nothing comes after the sentence"
        assert not any("Traceback" in line for line in lines)
        assert message.endswith(".") and len(message) < 450, message
        for word in words:
            assert re.search(word, message), f"{message!r} lacks {word!r}"
        return message

    return run


@pytest.fixture
def trained() -> Path:
    """Return the folder of a short run."""
    main(["fit", *SHORT, "--export_onnx=false"])
    return LATEST.resolve()


@pytest.fixture
def files(workspace: Path) -> Path:
    """Return the workspace, with files that are wrong, each in its own way."""
    (workspace / "empty").mkdir()
    (workspace / "unfinished.yaml").write_text("trainer:\n  max_epochs: [3\n")
    (workspace / "list.yaml").write_text("- trainer\n")
    (workspace / "utf16.yaml").write_bytes("trainer: {}\n".encode("utf-16"))
    (workspace / "network.yaml").write_text("class_path: torch.nn.Linaer\n")
    return workspace


ADVICE = "--help lists what is accepted"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fti"], ["fti", "one of fit, "]),
        (["fit", "--trainer.max_epoch=3"], ["max_epoch=3", ADVICE]),
        (["fit", "--model.learning_rat=3"], ["learning_rat", ADVICE]),
        (["fit", "--trainer.max_epochs=many"], ["trainer.max_epochs: must be int, but is many", ADVICE]),
        (["fit", "--monitor.mode=big"], ["monitor.mode: must be one of 'min', 'max', but is big"]),
        (["fit", "--config"], ["--config: expected one argument"]),
        (["fit", "--config=configs/missing.yaml"], ["configs/missing.yaml is no file; there are .*debug.yaml"]),
        (["fit", "--config=configs"], ["configs is no file"]),
        (["fit", "--config=unfinished.yaml"], ["unfinished.yaml is no YAML: .* in line 3; mend"]),
        (["fit", "--config=list.yaml"], ["list.yaml must hold names and values.*a list"]),
        (["fit", "--config=utf16.yaml"], ["utf16.yaml must be UTF-8, but byte 0 is not; save it as UTF-8"]),
        (["fit", "--model.network=configs/network/missing.yaml"], ["missing.yaml is neither a file .there are "]),
        (["fit", "--model.network=network.yaml"], ["torch.nn has no Linaer; it has Linear, "]),
        (["fit", "--data.batch_size=0"], ["data.batch_size must be 1 or more.* 0 and "]),
        (["fit", "--data.num_workers=-1"], ["data.num_workers 0 or more.* and -1"]),
        (["fit", "--model.learning_rate=-1"], ["model.learning_rate must not be negative, but is -1.0"]),
        (["fit", "--trainer.accelerator=quantum"], ["accelerator='quantum'", "cpu", "mend trainer"]),
        (["fit", "--trainer.strategy=fast"], ["strategy='fast'", "ddp", "mend trainer"]),
        (["fit", *PLAIN[:1], "--trainer.devices=0"], ["devices='0'", "mend trainer"]),
        (["fit", "--monitor.metric=val/los", *SHORT], ["monitor.metric is 'val/los', but what is logged is .*loss"]),
        (["fit", "--data.root=nowhere", *SHORT], ["nowhere"]),
        (["fit", "--data.root=empty", *SHORT], ["empty"]),
        (["fit", "--resume"], ["--resume: expected one argument"]),
        (["fit", "--resume=latest"], ["runs/latest is no run; there is none yet, start with fit"]),
        (["test", "--run=runs/never"], ["runs/never is no run"]),
        (["predict", "--run=configs"], ["configs is no run"]),
        (["export"], ["runs/latest is no run"]),
        (["fit", "--repeat=often"], ["--repeat or --folds, with a whole number"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) and value else None,
)
def test_a_mistake_is_answered_before_anything_is_trained(refused, files: Path, arguments: list[str], words: list[str]):
    refused(arguments, *words)
    assert not list(Path("runs").glob("*/checkpoints/*")), "training had started"


def test_a_device_that_is_not_there_is_named(refused):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    refused(["fit", "--config=configs/gpu.yaml"], "gpu", "mend trainer")


def test_a_command_outside_of_the_project_says_where_to_start_it(refused, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(["fit"], "configs/default.yaml does not exist here; start the command in the project's folder")


def test_what_is_wrong_with_a_run_is_named(refused, trained: Path):
    best, last = trained / "checkpoints/best.ckpt", trained / "checkpoints/last.ckpt"
    whole = best.read_bytes()
    refused(["fit", "--resume=latest"], "has finished; give a larger --trainer.max_epochs")
    resume = ["fit", "--resume=latest", "--trainer.max_epochs=2"]
    refused([*resume, "--model.learning_rate=0.5"], "learning_rate", "start another run")
    refused(["predict", "--output=nowhere/x.csv"], "nowhere/x.csv does not exist; mend the path")
    refused(["predict", "--output=configs"], "configs is a folder; name a file")
    for content in (whole[: len(whole) // 2], b"hello", b""):  # a copy that broke off, another file, nothing
        best.write_bytes(content)
        refused(["test"], "best.ckpt is damaged or no checkpoint; copy it anew")
        refused(["export"], "best.ckpt is damaged")
    best.unlink()
    refused(["test"], "best.ckpt does not exist, as the run stopped before it was written")
    last.write_bytes(last.read_bytes()[:1000])
    refused(resume, "last.ckpt is damaged")
    (trained / "record.json").write_text("{")
    refused(resume, "record.json is damaged", "restore the file")
    (trained / "config.yaml").write_text("model: [")
    refused(resume, "config.yaml is no YAML: .* in line 1")


def test_a_full_disk_says_how_to_go_on(refused):
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch("torch.save", side_effect=full):
        refused(["fit", *SHORT], "the disk is full; free some space, then .* fit --resume latest")


def test_a_folder_that_may_not_be_written_is_named(refused, workspace: Path):
    denied = PermissionError(errno.EACCES, "Permission denied", "runs/20260101-000000")
    with mock.patch("pathlib.Path.mkdir", side_effect=denied):  # root, as in containers, may write everywhere
        refused(["fit", *SHORT], "runs/20260101-000000 may not be read or written; change its permissions")
    if os.geteuid():
        (workspace / "runs").mkdir(mode=0o500)
        refused(["fit", *SHORT], "runs/.* may not be read or written")


def test_a_port_in_use_is_said(refused):
    def listen(*arguments: object):
        torch.distributed.TCPStore("127.0.0.1", taken.getsockname()[1], 1, is_master=True)

    in_python = OSError(errno.EADDRINUSE, "in use")
    with socket.create_server(("", 0)) as taken:
        for how in (listen, in_python):  # torch has an error of its own
            with mock.patch("{{ cookiecutter.package }}.training.TrainingCLI", side_effect=how):
                refused(["fit"], "the port is in use; choose another")


def test_traceback_in_the_environment_shows_where(monkeypatch):
    monkeypatch.setenv("TRACEBACK", "1")
    with pytest.raises(Exception, match="batch_size must be 1 or more"):
        main(["fit", "--data.batch_size=0"])


@pytest.fixture
def own(build, workspace: Path) -> Path:
    """Return a copy of the data that is the workspace's own, to be broken; data.root must be given as its name."""
    data = build().datamodule
    if data.root != vars(sys.modules[type(data).__module__]).get("DEMO"):
        pytest.skip("how the demo's files lie is known; yours may lie otherwise")
    data.prepare_data()
    shutil.copytree(data.root, workspace / "own")
    return workspace / "own"


@pytest.fixture
def init(build) -> dict:
    """Return the data's arguments."""
    return build().config.data.init_args.as_dict()


def table(own: Path) -> Path:
    return next(path for path in own.glob("train.*") if path.suffix == ".csv")


def test_images_that_do_not_fit_are_named(refused, own: Path, init: dict, trained: Path):
    if "predict_root" not in init:
        pytest.skip("this task reads no images")
    Path("empty").mkdir()
    refused(["predict", "--data.predict_root=empty"], "data.predict_root", "empty holds none")
    Path("odd.yaml").write_text("class_path: torch.nn.Linear\ninit_args:\n  out_features: 3\n")
    message = refused(["fit", "--model.network=odd.yaml", *SHORT], "another network", "TRACEBACK=1")
    assert f"the network cannot take the data's image ({init['batch_size']}, 3, {init['image_size']}, " in message
    image = next(path for path in sorted(own.rglob("*.png")) if "train" in path.parts and "masks" not in path.parts)
    image.write_bytes(b"hello")
    refused(["fit", "--data.root=own", *SHORT], f"{image.name} cannot be read as an image; repair or remove it")


def test_other_classes_than_the_models_are_refused(refused, own: Path, init: dict, trained: Path):
    if "label_column" in init:
        text = table(own).read_text(encoding="utf-8").splitlines()
        column = text[0].split(",").index(init["label_column"])
        label = text[1].split(",")[column]
        for path in own.glob("*.csv"):
            path.write_text(path.read_text(encoding="utf-8").replace(f",{label}\n", ",Klingon\n"), encoding="utf-8")
    elif (own / "classes.txt").is_file():
        (own / "classes.txt").write_text((own / "classes.txt").read_text() + "another\n")
    elif "image_size" in init:
        for folder in [path for path in own.glob("*/*") if path.is_dir()][:1]:
            for split in own.iterdir():
                (split / folder.name).rename(split / "another")
    else:
        pytest.skip("this task has no classes")
    refused(["test", "--data.root=own"], "class_names", "the model was made for", "choose other data")


def test_tables_that_do_not_fit_are_named(refused, own: Path, init: dict):
    if "predict_file" not in init:
        pytest.skip("this task reads no tables")
    key = "target" if "target" in init else "text_column"
    refused(["fit", f"--data.{key}=missing", *SHORT], "^error: data.* names column 'missing', but ", "has only", "mend")
    path = table(own)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, "one cell"]) + "\n", encoding="utf-8")
    refused(["fit", "--data.root=own", *SHORT], f"row {len(lines)} of own/train.csv has 1 cells, but the header")
    if "target" in init:
        column = lines[0].split(",").index(init["target"])
        cells = lines[1].split(",")
        cells[column] = "high"
        path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n", encoding="utf-8")
        refused(["fit", "--data.root=own", *SHORT], "in row 1 of own/train.csv must be a number or empty.*'high'")
    path.write_text(lines[0] + "\n", encoding="utf-8")
    refused(["fit", "--data.root=own", *SHORT], "own/train.csv holds no row")
