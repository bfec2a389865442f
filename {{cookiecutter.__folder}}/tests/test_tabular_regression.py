"""Tables: what is learnt from which split, gaps and new categories, losses, intervals, mistakes."""

import csv
import json
import random
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.mistakes import explain
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.reading.tables import read_split, read_table
from {{ cookiecutter.package }}.tabular_regression.data import TableData
from {{ cookiecutter.package }}.tabular_regression.module import TabularRegressor, regression_loss
from {{ cookiecutter.package }}.tabular_regression.networks import MLP

from conftest import PLAIN, SHORT

LATEST = Path("runs/latest")


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def houses(count: int, seed: int = 0) -> list[dict]:
    """Return rows with a gap now and then; the price hangs on both columns, and on nothing being known."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        area, town = draw.uniform(20, 200), draw.choice(["Aa", "Öl", ""])
        price = 1000 * area + {"Aa": 0, "Öl": 50_000, "": 9_000}[town] + draw.gauss(0, 5000)
        known = f"{area:.1f}" if draw.random() > 0.1 else "NA"
        rows.append({"id": f"h{seed}-{number}", "area m2, net": known, "town": town, "price": f"{price:.0f}"})
    return rows


@pytest.fixture
def houses_root(tmp_path: Path) -> Path:
    for seed, (split, count) in enumerate({"train": 200, "val": 60, "test": 60}.items()):
        write(tmp_path / f"houses/{split}.csv", houses(count, seed))
    return tmp_path / "houses"


def data(root: Path, **arguments) -> TableData:
    return TableData(**{"root": str(root), "target": "price", "categorical": ["town"], "id_column": "id"} | arguments)


def flags(root: Path) -> list[str]:
    columns = ["--data.target=price", "--data.categorical=[town]", "--data.id_column=id", "--data.ignored=[]"]
    return [f"--data.root={root}", *columns]


def module(**arguments) -> TabularRegressor:
    facts = {"numbers": {"x": [5.0, 1.0, 2.0, 0.1]}, "categories": {}, "target_statistics": [100.0, 10.0]}
    return TabularRegressor(**{"network": MLP} | facts | arguments).eval()


def test_statistics_and_categories_are_learnt_from_the_training_split_alone(houses_root: Path):
    rows = houses(200, 0)
    areas = [float(row["area m2, net"]) for row in rows if row["area m2, net"] != "NA"]
    before = data(houses_root)
    median, mean, deviation, missing = before.numbers["area m2, net"]
    assert (median, mean, deviation) == pytest.approx((np.median(areas), np.mean(areas), np.std(areas)))
    assert missing == pytest.approx(1 - len(areas) / 200)
    assert before.categories == {"town": ["", "Aa", "Öl"]}
    for split in ("val", "test"):
        write(houses_root / f"{split}.csv", [{"id": "new", "area m2, net": "9e9", "town": "Zz", "price": "-9e9"}])
    after = data(houses_root)
    names = ("numbers", "categories", "target_statistics")
    assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]
    assert after.make_dataset("val")[0]["categories"].tolist() == [0], "a value unseen in training is unknown"


def test_a_checkpoint_predicts_without_the_data_it_was_trained_on(houses_root: Path, tmp_path: Path):
    main(["fit", *SHORT, *flags(houses_root)])
    for path in houses_root.glob("*.csv"):
        path.unlink()
    cells = [("a", "Öl", "50"), ("b", "?", ""), ("c", "Zz", "1e3")]
    new = write(tmp_path / "new.csv", [{"id": i, "town": town, "area m2, net": area} for i, town, area in cells])
    main(["predict", f"--data.predict_file={new}"])
    rows = list(csv.DictReader((LATEST / "predictions.csv").open(newline="")))
    assert [row["row"] for row in rows] == ["a", "b", "c"]
    assert all(float(row["lower"]) < float(row["prediction"]) < float(row["upper"]) for row in rows)
    # Whoever has the ONNX file alone gets the same from the table's own units, as its metadata say.
    session = onnxruntime.InferenceSession(LATEST / "model.onnx", providers=["CPUExecutionProvider"])
    facts = json.loads(session.get_modelmeta().custom_metadata_map["hyper_parameters"])
    assert list(facts["numbers"]) == ["area m2, net"]
    places = {value: place for place, value in enumerate(facts["categories"]["town"], start=1)}
    inputs = {
        "numbers": np.array([[50], [0], [1000]], np.float32),
        "missing": np.array([[False], [True], [False]]),
        "categories": np.array([[places["Öl"]], [places[""]], [0]]),
    }
    (outputs,) = session.run(["prediction_lower_upper"], inputs)
    expected = [[float(row[name]) for name in ("prediction", "lower", "upper")] for row in rows]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4)


def test_a_missing_number_is_the_median_and_told_apart_only_if_training_has_seen_one_missing():
    for share, told_apart in ((0.1, True), (0.0, False)):
        model = module(numbers={"x": [5.0, 1.0, 2.0, share]})
        numbers, missing = torch.tensor([[5.0], [0.0], [7e30]]), torch.tensor([[False], [True], [True]])
        with torch.no_grad():
            given, gap, other_gap = model(numbers, missing)
        assert torch.equal(gap, other_gap), "what stands in a gap must not count"
        assert torch.equal(given, gap) is not told_apart


def test_an_unknown_category_is_the_middle_of_the_known_ones():
    model = module(numbers={}, categories={"town": ["Aa", "Öl"]})
    embedding = model.network.embeddings[0]
    assert embedding.weight.shape[0] == 3
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model.outputs(categories=torch.tensor([[0], [1], [2]])).sum().backward()
        optimizer.step()
    assert embedding.weight[0].eq(0).all()
    assert embedding.weight[1:].ne(0).all()


def test_numbers_or_categories_alone_train_and_export(tmp_path: Path):
    for keep, categorical in (("area m2, net", "[]"), ("town", "[town]")):
        root = tmp_path / keep[:4]
        rows = [{"id": row["id"], keep: row[keep], "price": row["price"]} for row in houses(300)]
        write(root / "data.csv", rows)
        main(["fit", *SHORT, *flags(root), f"--data.categorical={categorical}"])
        assert (LATEST / "model.onnx").is_file()


def test_losses_agree_with_their_definitions():
    torch.manual_seed(0)
    outputs, target = torch.randn(50, 1) * 3, torch.randn(50)
    error = target.numpy() - outputs[:, 0].numpy()
    huber = np.where(abs(error) <= 1, error**2 / 2, abs(error) - 0.5)
    for kind, expected in (("mse", error**2), ("mae", abs(error)), ("huber", huber)):
        assert float(regression_loss(kind, outputs, target, torch.ones(3))) == pytest.approx(expected.mean(), rel=1e-5)
    levels = torch.tensor([0.05, 0.5, 0.95])
    quantiles = torch.randn(50, 3)
    errors = target.numpy()[:, None] - quantiles.numpy()
    pinball = np.where(errors >= 0, levels.numpy() * errors, (levels.numpy() - 1) * errors)
    assert float(regression_loss("quantile", quantiles, target, levels)) == pytest.approx(pinball.mean(), rel=1e-5)


@pytest.mark.parametrize("kind", ["mse", "mae", "huber", "quantile"])
def test_shapes_that_would_broadcast_are_refused(kind: str):
    levels, columns = torch.tensor([0.05, 0.5, 0.95]), 3 if kind == "quantile" else 1
    regression_loss(kind, torch.zeros(4, columns), torch.zeros(4), levels)
    for outputs, target in ((torch.zeros(4, columns), torch.zeros(4, 1)), (torch.zeros(4), torch.zeros(4))):
        with pytest.raises(ValueError, match=r"outputs must have shape \(4, [13]\) and target \(4,\), but are"):
            regression_loss(kind, outputs, target, levels)


@pytest.mark.parametrize("loss", ["mse", "quantile"])
def test_intervals_hold_the_share_they_promise(loss: str):
    """The margin is the conformal quantile of validation errors, whatever the network: here an untrained one."""
    torch.manual_seed(0)
    model = module(loss=loss, interval_coverage=0.8)
    model.log_dict = lambda *_, **__: None

    def batch(size: int) -> dict:
        numbers, missing = torch.randn(size, 1), torch.zeros(size, 1, dtype=torch.bool)
        target = 100 + 10 * numbers[:, 0] + 30 * torch.randn(size)
        return {"numbers": numbers, "missing": missing, "categories": torch.zeros(size, 0), "target": target}

    with torch.inference_mode():
        validation = [batch(100), batch(99)]
        for part in validation:
            model.validation_step(part, 0)
        model.on_validation_epoch_end()
    whole = {name: torch.cat([part[name] for part in validation]) for name in validation[0]}
    with torch.no_grad():
        _, lower, upper = model(whole["numbers"], whole["missing"]).unbind(1)
        inside = int(((lower <= whole["target"] + 1e-3) & (whole["target"] - 1e-3 <= upper)).sum())
        assert inside == 160, "(199 + 1) rows x 0.8"
        new = batch(20_000)
        _, lower, upper = model(new["numbers"], new["missing"]).unbind(1)
        share = ((lower <= new["target"]) & (new["target"] <= upper)).float().mean()
        assert float(share) == pytest.approx(0.8, abs=0.08)
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})


def test_the_quantile_loss_gives_intervals_as_wide_as_the_row_needs(houses_root: Path):
    main(["fit", *SHORT, *flags(houses_root), "--model.loss=quantile"])
    main(["predict"])
    rows = list(csv.DictReader((LATEST / "predictions.csv").open(newline="")))
    assert len({round(float(row["upper"]) - float(row["lower"]), 2) for row in rows}) > 1
    assert all(float(row["lower"]) <= float(row["prediction"]) <= float(row["upper"]) for row in rows)


def test_one_file_is_split_for_ever(tmp_path: Path):
    rows = [{"x": str(number // 2), "price": "1"} for number in range(400)]  # every row twice
    path = write(tmp_path / "data.csv", rows)
    splits = ("train", "val", "test")
    before = {split: read_split(tmp_path, split) for split in splits}
    assert sum(len(table.rows) for table in before.values()) == 400
    values = [{row["x"] for row in table.rows} for table in before.values()]
    assert not values[0] & values[1] and not values[0] & values[2] and not values[1] & values[2], "equal rows part"
    assert [len(table.rows) for table in before.values()] == pytest.approx([280, 60, 60], abs=30)
    write(path, [{"x": "new", "price": "2"}, *reversed(rows)])
    for split in splits:
        assert set(before[split].ids) <= set(read_split(tmp_path, split).ids)
    path.rename(tmp_path / "train.csv")
    write(tmp_path / "test.csv", [{"x": "900", "price": "3"}])
    assert read_split(tmp_path, "test").rows == [{"x": "900", "price": "3"}]
    assert len(read_split(tmp_path, "train").rows) + len(read_split(tmp_path, "val").rows) == 401


def test_json_lines_and_parquet_say_the_same_as_csv(tmp_path: Path):
    rows = [{"a": 1.5, "b": 'Öl, "x"\ny'}, {"a": None, "b": "z"}]
    write(tmp_path / "t.csv", rows)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    expected = [{"a": "1.5", "b": 'Öl, "x"\ny'}, {"a": "", "b": "z"}]
    assert read_table(tmp_path / "t.csv").rows == read_table(tmp_path / "t.jsonl").rows == expected
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").rows == expected


GOOD = "id,x,price\n" + "".join(f"r{number},{number},{number}\n" for number in range(40))


@pytest.mark.parametrize(
    ("name", "content", "arguments", "words"),
    [
        ("other.csv", GOOD, {}, ["data.root", "train.csv or data.csv", "neither"]),
        ("train.csv", "", {}, ["train.csv", "holds no row"]),
        ("train.csv", "id,x,price\n", {}, ["train.csv", "holds no row"]),
        ("train.csv", GOOD, {"target": "cost"}, ["data.target", "'cost'", "id, x, price"]),
        ("train.csv", GOOD, {"categorical": ["y"]}, ["data.categorical", "'y'", "id, x, price"]),
        ("train.csv", GOOD, {"id_column": "key"}, ["data.id_column", "'key'"]),
        ("train.csv", GOOD + "r,tall,5\n", {}, ["x in row 41", "number or empty", "'tall'", "data.categorical"]),
        ("train.csv", GOOD + "r,inf,5\n", {}, ["x in row 41", "'inf'"]),
        ("train.csv", GOOD + "r,5,\n", {}, ["price is missing in row 41"]),
        ("train.csv", GOOD + "r,5\n", {}, ["row 41", "2 cells", "header 3"]),
        ("train.csv", GOOD + 'r,"5,4\n', {}, ["train.csv is no CSV"]),
        ("train.csv", GOOD.replace("id,x", "x,x", 1), {"id_column": None}, ["column 'x' twice"]),
        ("train.csv", "x,price\n,1\n,2\n", {"id_column": None}, ["column x of the training split is empty"]),
        ("train.csv", GOOD.encode() + b"\xff,1,1\n", {}, ["train.csv must be UTF-8", "byte"]),
        ("train.jsonl", '{"x": 1}\n[2]\n', {}, ["line 2 of", "one JSON object"]),
        ("train.jsonl", '{"x": [1]}\n', {}, ["line 1 of", "plain values"]),
    ],
)  # fmt: skip
def test_mistakes_are_named_in_one_sentence(tmp_path: Path, name: str, content, arguments: dict, words: list[str]):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        made = data(tmp_path, **{"categorical": []} | arguments)
        for split in ("train", "val", "test"):
            made.make_dataset(split)
        _ = made.target_statistics
    sentence = explain(error.value)
    assert "\n" not in sentence and sentence.endswith(".")
    for word in words:
        assert word in sentence


def test_more_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.csv").write_text(GOOD)
    with pytest.raises(UserError, match=r"no\.csv does not exist"):
        data(tmp_path, categorical=[], predict_file="no.csv").predict_dataloader()
    (tmp_path / "train.parquet").write_text("")
    with pytest.raises(UserError, match=r"both train.csv and train.parquet"):
        read_split(tmp_path, "train")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        read_table(tmp_path / "train.parquet")
    with pytest.raises(SystemExit):
        main(["fit", *PLAIN, "--data.target=cost"])
