"""Loading pretrained weights takes all but the head, says so, and refuses what does not fit by name."""

import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.pretrained import checkpoint_path, load_pretrained, read_weights


def network(classes: int, seed: int, width: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    layers = {"conv": nn.Conv2d(3, width, 3), "norm": nn.BatchNorm2d(width), "pool": nn.AdaptiveAvgPool2d(1)}
    model = nn.Sequential(OrderedDict(**layers, flat=nn.Flatten(), head=nn.Linear(width, classes)))
    model.norm.running_mean += seed
    return model


def test_another_head_is_reported_and_left_while_all_else_is_taken(capsys, caplog):
    model, pretrained = network(5, seed=1), network(1000, seed=2).state_dict()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level("INFO"):
        assert load_pretrained(model, pretrained) == ["head.weight", "head.bias"]
    for name, value in model.state_dict().items():
        expected = before if name.startswith("head") else pretrained
        assert torch.equal(value, expected[name]), name
    assert "7 of 9 tensors taken; new: head.weight, head.bias" in caplog.text + capsys.readouterr().err


def test_a_head_of_the_same_size_is_taken_too():
    assert load_pretrained(network(5, seed=1), network(5, seed=2).state_dict()) == []


class TwoHeads(nn.Module):
    """As LRASPP, whose result is the sum of both."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 1)
        self.low, self.high = nn.Conv2d(4, classes, 1), nn.Conv2d(8, classes, 1)


def test_a_head_of_two_layers_is_left_as_a_whole():
    new = load_pretrained(TwoHeads(5), TwoHeads(9).state_dict())
    assert new == ["low.weight", "low.bias", "high.weight", "high.bias"]


@pytest.mark.parametrize("place", ["runs/latest", "runs/latest/checkpoints/best.ckpt"])
def test_latest_is_no_place_of_weights(place: str):
    with pytest.raises(UserError, match="another run tomorrow"):
        checkpoint_path("weights", place)


def test_another_shape_elsewhere_is_refused_by_name_and_changes_nothing():
    model = network(5, seed=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match=r"conv.weight is \(8, 3, 3, 3\) there and \(4, 3, 3, 3\) here"):
        load_pretrained(model, network(5, seed=2, width=8).state_dict())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_misspelt_name_is_refused():
    weights = network(5, seed=2).state_dict()
    weights["convolution.weight"] = weights.pop("conv.weight")
    with pytest.raises(UserError, match=r"conv.weight is missing; convolution.weight is unknown here"):
        load_pretrained(network(5, seed=1), weights)


def test_an_unknown_name_alone_is_refused():
    weights = network(5, seed=2).state_dict() | {"extra.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"extra.weight is unknown here"):
        load_pretrained(network(5, seed=1), weights)


def test_older_files_without_the_batch_counter_are_taken():
    weights = {n: v for n, v in network(5, seed=2).state_dict().items() if not n.endswith("num_batches_tracked")}
    assert load_pretrained(network(5, seed=1), weights) == []


def test_parameters_alone_leave_the_running_statistics():
    model, pretrained = network(5, seed=1), network(5, seed=2)
    load_pretrained(model, pretrained.state_dict(), parameters_only=True)
    assert model.norm.running_mean.tolist() == [1.0] * 4
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), pretrained.parameters(), strict=True))


def test_a_file_is_read_without_running_code(tmp_path: Path):
    path = tmp_path / "weights.pt"
    weights = network(5, seed=2).state_dict()
    torch.save(weights, path)
    assert all(torch.equal(value, weights[name]) for name, value in read_weights(path).items())
    torch.save(network(5, seed=2), path)  # the whole module: code
    with pytest.raises(UserError, match="holds more than tensors"):
        read_weights(path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(UserError, match="is no state_dict"):
        read_weights(path)
    path.write_bytes(pickle.dumps("damaged")[:-2])
    with pytest.raises(UserError, match="damaged"):
        read_weights(path)
    with pytest.raises(UserError, match="do not exist"):
        read_weights(tmp_path / "none.pt")


def test_a_network_starts_from_a_file_of_ones_own(tmp_path: Path):
    networks = pytest.importorskip("{{ cookiecutter.package }}.image_classification.networks")
    path = tmp_path / "resnet.pt"
    first = networks.TorchvisionNetwork(7, "resnet18")
    torch.save(first.network.state_dict(), path)
    second = networks.TorchvisionNetwork(3, "resnet18", weights=str(path))
    assert torch.equal(first.network.layer4[1].conv2.weight, second.network.layer4[1].conv2.weight)
    assert second.network.fc.out_features == 3
