"""Texts: what is learnt from which split, padding that changes nothing, buckets, networks, mistakes."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.mistakes import explain
from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.reading.sequences import BucketSampler, pad
from {{ cookiecutter.package }}.text_classification.data import Encoder, TextData
from {{ cookiecutter.package }}.text_classification.networks import GRUClassifier, Transformer

from conftest import SHORT

LATEST = Path("runs/latest")
NETWORKS = [GRUClassifier, lambda tokens, classes: GRUClassifier(tokens, classes, layers=2), Transformer]


def write(path: Path, texts: list[str], labels: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("said", "who"), *zip(texts, labels, strict=True)])
    return path


def sayings(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts of 1 to 30 letters and who said them; Öl says ö's."""
    draw = random.Random(seed)
    labels = [draw.choice(["Aa", "Öl"]) for _ in range(count)]
    letters = {"Aa": "abc d", "Öl": "öbc d"}
    return ["".join(draw.choices(letters[label], k=draw.randint(1, 30))) for label in labels], labels


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, (split, count) in enumerate({"train": 200, "val": 70, "test": 40}.items()):
        write(tmp_path / f"sayings/{split}.csv", *sayings(count, seed))
    return tmp_path / "sayings"


def data(root: Path, **arguments) -> TextData:
    return TextData(**{"root": str(root), "text_column": "said", "label_column": "who"} | arguments)


def flags(root: Path) -> list[str]:
    return [f"--data.root={root}", "--data.text_column=said", "--data.label_column=who"]


@pytest.mark.parametrize("network", NETWORKS, ids=["gru", "deep gru", "transformer"])
def test_padding_changes_no_logit_and_order_does(network):
    torch.manual_seed(0)
    model = network(20, 4).eval()
    tokens = torch.randint(1, 20, (6, 9))
    alone = torch.cat([model(row[None, : length + 1]) for length, row in enumerate(tokens)])
    padded = torch.zeros(6, 17, dtype=torch.int64)
    for length, row in enumerate(tokens):
        padded[length, : length + 1] = row[: length + 1]
    torch.testing.assert_close(model(padded), alone, rtol=0, atol=1e-6)
    assert (model(tokens.flip(1)) - model(tokens)).abs().min() > 1e-4, "a bag of letters cannot tell abba from baba"


@pytest.mark.parametrize("network", NETWORKS[1:], ids=["deep gru", "transformer"])
def test_the_exported_network_takes_any_number_of_texts_of_any_length(network, tmp_path: Path):
    torch.manual_seed(0)
    model, free = network(20, 4).eval(), {"tokens": {0: "batch", 1: "length"}}
    program = torch.onnx.export(model, kwargs={"tokens": torch.ones(5, 40, dtype=torch.int64)}, dynamic_shapes=free)
    program.save(tmp_path / "network.onnx", external_data=False)
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    for shape in ((5, 40), (2, 7), (1, 90), (3, 1)):
        tokens = torch.randint(1, 20, shape)
        tokens[0, 1:] = 0
        with torch.no_grad():
            np.testing.assert_allclose(session.run(None, {"tokens": tokens.numpy()})[0], model(tokens), atol=1e-5)


def test_the_vocabulary_is_learnt_from_the_training_split_alone(root: Path):
    before = data(root)
    assert before.vocabulary == [" ", "a", "b", "c", "d", "ö"]
    assert before.class_names == ["Aa", "Öl"]
    write(root / "test.csv", ["zzzz zzzz", "o\u0308b"], ["Aa", "Aa"])
    after = data(root)
    assert after.vocabulary == before.vocabulary
    first, second = (after.make_dataset("test")[i]["tokens"].tolist() for i in (0, 1))
    assert first == [1, 1, 1, 1, 2, 1, 1, 1, 1], "a character unseen in training is 1, unknown"
    assert second == [7, 4], "composed and decomposed characters are one"
    write(root / "train.csv", ["abab", "q"], ["Aa", "Öl"])
    assert data(root).vocabulary == ["a", "b"], "a character seen once stands for the unknown ones"


@pytest.mark.parametrize("tokenizer", ["characters", "bytes"])
def test_a_checkpoint_and_its_onnx_file_predict_without_the_training_data(root: Path, tmp_path: Path, tokenizer: str):
    main(["fit", *SHORT, *flags(root), f"--data.tokenizer={tokenizer}"])
    for path in root.glob("*.csv"):
        path.unlink()
    texts = ["öb c", "", "never Seen ☃ " * 30, 'a "quoted", one']
    new = tmp_path / "new.jsonl"
    new.write_text("".join(json.dumps({"said": text}) + "\n" for text in texts))
    main(["predict", f"--data.predict_file={new}"])
    rows = list(csv.DictReader((LATEST / "predictions.csv").open(newline="", encoding="utf-8")))
    assert [row["text"] for row in rows] == texts
    # Whoever has the ONNX file alone needs only what its metadata say.
    session = onnxruntime.InferenceSession(LATEST / "model.onnx", providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    hyper_parameters, classes = json.loads(facts["hyper_parameters"]), json.loads(facts["class_names"])
    assert json.loads(facts["inputs"]) == {"tokens": ["batch", "length"]}
    assert hyper_parameters["tokenizer"] == tokenizer
    encode = Encoder(hyper_parameters["vocabulary"], tokenizer, 256)
    encoded = [encode(text) for text in texts]
    tokens = np.zeros((len(texts), 256), np.int64)
    for row, indices in zip(tokens, encoded, strict=True):
        row[: len(indices)] = indices
    (logits,) = session.run(None, {"tokens": tokens})
    assert [classes[i] for i in logits.argmax(1)] == [row["prediction"] for row in rows]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(probabilities.max(1), [float(row["probability"]) for row in rows], atol=1e-4)


def test_bytes_need_no_vocabulary_and_a_text_is_cut_and_never_empty(root: Path):
    made = data(root, tokenizer="bytes", max_length=4)
    assert len(made.vocabulary) == 256
    encode = Encoder(made.vocabulary, "bytes", 4)
    assert encode("aö") == [ord("a") + 2, 0xC3 + 2, 0xB6 + 2]
    assert len(encode("long enough")) == 4
    assert encode("") == [1], "padding alone would leave nothing to average over"


def test_a_batch_is_padded_with_zeros_in_tensors():
    samples = [{"tokens": torch.arange(1, n + 1), "label": torch.tensor(n), "row": str(n)} for n in (2, 4, 1)]
    batch = pad(samples)
    assert batch["tokens"].dtype is torch.int64
    assert batch["tokens"].shape == (3, 8), "few sizes: a multiple of 8"
    assert batch["tokens"][:, :4].tolist() == [[1, 2, 0, 0], [1, 2, 3, 4], [1, 0, 0, 0]]
    assert batch["tokens"][:, 4:].sum() == 0
    assert batch["label"].tolist() == [2, 4, 1] and batch["row"] == ["2", "4", "1"]


def padding(lengths: torch.Tensor, order: list[int], size: int) -> float:
    batches = [lengths[order[i : i + size]] for i in range(0, len(order), size)]
    return 1 - float(lengths[order].sum()) / sum(len(batch) * int(batch.max()) for batch in batches)


def test_buckets_waste_less_on_padding_and_see_every_text_once_an_epoch():
    lengths = torch.randint(1, 100, (1003,), generator=torch.Generator().manual_seed(0))

    def order(epoch: int, seed: int = 0, **ranks) -> list[int]:
        sampler = BucketSampler(lengths, batch_size=16, train=True, seed=seed, **ranks)
        sampler.set_epoch(epoch)
        keys = list(sampler)
        assert len(keys) == len(sampler) and {key[0] for key in keys} == {epoch}
        return [index for _, index in keys]

    first = order(0)
    assert sorted(first) == list(range(1003))
    assert order(0) == first and order(1) != first and order(0, seed=1) != first, "a function of seed and epoch"
    shuffled = torch.randperm(1003).tolist()
    assert padding(lengths, first, 16) < 0.1 < 0.3 < padding(lengths, shuffled, 16)
    means = [float(lengths[first[i : i + 16]].float().mean()) for i in range(0, 992, 16)]
    assert means != sorted(means), "batches from short to long would be a curriculum"
    ranks = [order(3, rank=rank, world_size=2) for rank in range(2)]
    assert sorted({*ranks[0], *ranks[1]}) == list(range(1003))
    assert len(ranks[0]) == len(ranks[1]) == 502 and len(set(ranks[0]) & set(ranks[1])) <= 1
    for start in range(0, 496, 16):
        longest = [int(lengths[rank[start : start + 16]].max()) for rank in ranks]
        assert abs(longest[0] - longest[1]) <= 10, "a rank would wait for the other's longer batch"


def test_a_resumed_epoch_goes_on_with_the_batches_that_are_left():
    lengths = torch.randint(1, 100, (203,), generator=torch.Generator().manual_seed(0))
    whole = BucketSampler(lengths, batch_size=16, train=True, seed=0)
    rest = BucketSampler(lengths, batch_size=16, train=True, seed=0)
    for sampler in (whole, rest):
        sampler.set_epoch(2)
    rest.start = (2, 48)
    assert list(rest) == list(whole)[48:]


def test_bucketing_orders_training_alone(root: Path):
    seen = {}
    for bucketing in (True, False):
        made = data(root, bucketing=bucketing, batch_size=16)
        for split in ("train", "val", "test"):
            seen[bucketing, split] = [row for batch in made.loader(split) for row in batch["id"]]
    assert seen[True, "train"] != seen[False, "train"]
    assert sorted(seen[True, "train"]) == sorted(seen[False, "train"])
    for split in ("val", "test"):
        assert seen[True, split] == seen[False, split] == data(root).sample_ids(split)


def test_macro_f1_counts_rare_classes_as_much_as_common_ones(build):
    cli = build()
    metrics = cli.model.metrics["val_metrics"]
    classes = len(cli.model.class_names)
    draw = np.random.default_rng(0)
    labels, logits = draw.integers(0, classes, 300), draw.normal(size=(300, classes))
    logits[np.arange(300), labels] += 2
    metrics.update(torch.tensor(logits), torch.tensor(labels))
    predicted = logits.argmax(1)
    counts = [
        (2 * ((predicted == c) & (labels == c)).sum(), (predicted == c).sum() + (labels == c).sum())
        for c in range(classes)
    ]
    computed = metrics.compute()
    assert float(computed["val/macro_f1"]) == pytest.approx(np.mean([a / b for a, b in counts]), abs=1e-6)
    assert float(computed["val/accuracy"]) == pytest.approx((predicted == labels).mean(), abs=1e-6)


def test_equal_texts_stay_in_one_split(tmp_path: Path):
    write(tmp_path / "data.csv", [f"t{number // 2}" for number in range(200)], ["Aa", "Öl"] * 100)
    made = data(tmp_path)
    texts = [set(made.table(split).column("said", "")) for split in ("train", "val", "test")]
    assert sum(map(len, texts)) == 100


GOOD = "said,who\n" + "".join(f"text {number},{'Aa' if number % 2 else 'Öl'}\n" for number in range(40))


@pytest.mark.parametrize(
    ("files", "arguments", "words"),
    [
        ({}, {}, ["data.root", "train.csv or data.csv"]),
        ({"train": ""}, {}, ["train.csv", "holds no row"]),
        ({"train": GOOD}, {"text_column": "text"}, ["'text'", "said, who"]),
        ({"train": GOOD}, {"label_column": "label"}, ["data.label_column", "'label'", "said, who"]),
        ({"train": GOOD, "val": "said,who\nx,Uu\n"}, {}, ["label 'Uu' in row 1 of", "val.csv", "Aa, Öl"]),
        ({"train": GOOD, "test": "said,label\nx,Aa\n"}, {}, ["data.label_column", "test.csv has only said, label"]),
        ({"train": GOOD + "y,\n", "val": GOOD, "test": GOOD}, {}, ["who is missing in row 41"]),
        ({"train": "said,who\nx,Aa\ny,Aa\n", "val": GOOD, "test": GOOD}, {}, ["only the label 'Aa'"]),
    ],
)
def test_mistakes_are_named_in_one_sentence(tmp_path: Path, files: dict, arguments: dict, words: list[str]):
    for split, content in files.items():
        (tmp_path / f"{split}.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        made = data(tmp_path, **arguments)
        for split in ("train", "val", "test"):
            made.make_dataset(split)
    sentence = explain(error.value)
    assert "\n" not in sentence and sentence.endswith(".")
    for word in words:
        assert word in sentence


def test_classes_are_counted_as_fast_where_repeatable_kernels_are_asked_for(build):
    cli = build("--data.batch_size=4", "--trainer.deterministic=true")
    cli.model.log = cli.model.log_dict = lambda *arguments, **options: None
    batch = cli.datamodule.sample_batch()
    for step in (cli.model.training_step, cli.model.validation_step):
        with torch.profiler.profile() as profile:
            step(batch, 0)
        assert "aten::bincount" in {event.key for event in profile.key_averages()}
