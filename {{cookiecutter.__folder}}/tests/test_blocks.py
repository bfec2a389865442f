"""Networks composed in YAML: blocks, an operation with a gradient of its own, and what a wrong name is told."""

import re

import pytest
import torch
import yaml
from torch import nn
from torch.autograd import gradcheck

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.export import export_onnx
from {{ cookiecutter.package }}.techniques.blocks import passed_through
from {{ cookiecutter.package }}.techniques.straight_through import Binarize, StraightThroughSign

from conftest import DEFAULT, PACKAGE, PROJECT, SHORT

BLOCKS = DEFAULT.parent / "network/blocks.yaml"
CONFIG = yaml.safe_load((PROJECT / DEFAULT).read_text(encoding="utf-8"))
NETWORKS = CONFIG["model"]["init_args"]["network"]["class_path"].rsplit(".", 1)[0]


@pytest.fixture
def composed(build):
    """Build with a network of blocks that a function may change first."""

    def make(*arguments, change=lambda blocks: None):
        network = yaml.safe_load((PROJECT / BLOCKS).read_text(encoding="utf-8"))
        change(network["init_args"]["blocks"])
        return build(f"--model.network={yaml.safe_dump(network)}", *arguments)

    return make


def test_blocks_named_in_yaml_are_the_network_in_their_order(composed):
    network = composed().model.network
    named = yaml.safe_load((PROJECT / BLOCKS).read_text(encoding="utf-8"))["init_args"]["blocks"]
    assert [type(block).__name__ for block in network.blocks] == [one["class_path"].split(".")[-1] for one in named]


def test_a_network_of_blocks_learns_is_loaded_again_and_exported(composed, tmp_path):
    cli = composed("--trainer.overfit_batches=2", "--trainer.max_epochs=1")
    trainer, losses = cli.trainer, []
    for epochs in (1, 15):
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(cli.model, datamodule=cli.datamodule)
        losses.append(float(trainer.callback_metrics["train/loss"]))
    assert losses[1] < 0.9 * losses[0]
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = type(cli.model).load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    difference = export_onnx(loaded, dict(cli.model.hparams), cli.datamodule.sample_batch(), tmp_path / "model.onnx")
    assert difference < 1e-4


def test_finding_the_sizes_changes_nothing():
    blocks = [nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)]
    drawn = torch.get_rng_state()
    assert passed_through(blocks, torch.ones(2, 8)).shape == (2, 8)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not blocks[1].running_mean.any(), "zeros of the probe are no data"
    assert all(block.training for block in blocks)


def test_a_block_that_does_not_fit_is_named_with_what_came_to_it(composed):
    wrong = {"class_path": "torch.nn.Linear", "init_args": {"in_features": 999, "out_features": 9}}
    with pytest.raises(Exception, match=r"blocks\[\d\], Linear, does not take what comes to it, a tensor of \(2, "):
        composed(change=lambda blocks: blocks.append(wrong))


class Sulks(nn.Module):
    """Gives what its maker did not think of, or does not take what comes."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, values: torch.Tensor) -> object:
        if self.how == "asserts":
            raise AssertionError
        return (values,) if self.how == "tuple" else values[0, 0, 0, 99]


@pytest.mark.parametrize("how", ["asserts", "tuple", "index"])
def test_a_block_that_gives_no_tensor_or_asserts_is_named(how: str):
    with pytest.raises(UserError, match=r"blocks\[1\], Sulks, does not take what comes to it"):
        passed_through([nn.Identity(), Sulks(how)], torch.zeros(2, 3, 4, 4))


def test_blocks_that_flatten_are_made_for_the_size_of_the_data():
    module = pytest.importorskip("{{ cookiecutter.package }}.techniques.image_classification_blocks")
    blocks = [nn.Flatten(), nn.Linear(3 * 28 * 28, 8)]
    network = module.BlockNetwork(5, blocks, image_size=28)
    assert network(torch.zeros(2, 3, 28, 28)).shape == (2, 5)


def test_a_size_that_the_network_asserts_is_refused_in_one_sentence(build, monkeypatch):
    """As torchvision's vision transformer does, and others without a word."""
    model = build().model

    def forward(**inputs: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    monkeypatch.setattr(model, "forward", forward)
    with pytest.raises(UserError, match=r"cannot take the data's .*: AssertionError; choose sizes"):
        model.try_on({"inputs": torch.zeros(2, 3)})


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (f"{NETWORKS}.Nonesuch", f"{NETWORKS} has no Nonesuch; it has [A-Z]"),
        ("torch.nn.Linaer", "torch.nn has no Linaer; it has Linear,"),
        ("configs/network/block.yaml", "neither a file .there are configs/network/blocks.yaml"),
        (f"{PACKAGE}.techniqes.deformable.X", f"{PACKAGE} has no techniqes; it has techniques,"),
    ],
)
def test_a_wrong_name_lists_the_right_ones(network: str, told: str, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["fit", *SHORT, f"--model.network={network}"])
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert stopped.value.code == 2
    assert re.search(told, said), said


def test_a_wrong_block_lists_the_right_ones(tmp_path, capsys):
    network = yaml.safe_load((PROJECT / BLOCKS).read_text(encoding="utf-8"))
    network["init_args"]["blocks"].append({"class_path": "torch.nn.Rellu"})
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(network))
    with pytest.raises(SystemExit):
        main(["fit", *SHORT, f"--model.network={tmp_path / 'mine.yaml'}"])
    assert "torch.nn has no Rellu; it has " in capsys.readouterr().err


def test_the_sign_passes_the_gradient_of_hardtanh_and_no_more():
    values = torch.tensor([-3.0, -0.9, -0.2, 0.3, 0.8, 2.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(nn.functional.hardtanh, values)  # so its derivative is what the next lines compare with
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    (expected,) = torch.autograd.grad((nn.functional.hardtanh(values) * weights).sum(), values)
    (actual,) = torch.autograd.grad((StraightThroughSign.apply(values) * weights).sum(), values)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    # It is no true gradient, and gradcheck finds that out: use it on an operation whose gradient is meant to be exact.
    assert not gradcheck(StraightThroughSign.apply, values, raise_exception=False)


def test_the_sign_is_one_bit_in_every_dtype_and_learns():
    for dtype in (torch.float32, torch.bfloat16):
        bits = Binarize()(torch.tensor([-0.5, 0.0, 0.5], dtype=dtype))
        assert bits.tolist() == [-1, 1, 1]
        assert bits.dtype is dtype
    assert Binarize()(torch.tensor([float("nan")])).isnan().all(), "a number that is none must be noticed"
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 32), Binarize(), nn.Linear(32, 1))
    inputs = torch.randn(64, 4)
    targets = inputs[:, :1] * inputs[:, 1:2]
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    before = network[0].weight.clone()
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(network(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert not torch.equal(network[0].weight, before), "no gradient comes through the sign"
    assert losses[-1] < 0.5 * losses[0]
