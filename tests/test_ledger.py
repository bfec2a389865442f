"""The ledger, docs/practices.md: complete, true to the generated project, a sabotage for each held row."""

import ast
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from rendering import CHOICES
from sabotage import harness, ledger

# What the catalogue asks of each practice, in its order: c for code, g for guard, d for doc. A row may be held more
# strictly, never less.
CATALOGUE = """
eager-first:c torch-compile-when-bottleneck:c compile-40pct:d python-control-flow-ok:d no-python-control-flow:d
hook-intermediate:g print-shapes-debug:c openxla:d keepdim:g squeeze-silent:g implicit-device-copy:g
device-mismatch-error:c device-variable:c dtype-float64-input:c cast-on-entry:c view-contiguous:g noncontig-table:d
expand-inplace:g broadcast-silent:g tensor-vs-Tensor:g einsum:d manual-conv-unfold:d inplace-ops-memory:d
empty-cache:d numpy-bridge:d leaf-grad:g detach-boundary:g frozen-result-needs-no-grad:g grad-accumulates:c
set-to-none:d no-grad-eval:c item-detach-loss:c custom-function-ste:c autograd-grad-penalty:d detect-anomaly:c
isnan-check:c grad-norm-monitor:c nan-clip-silent:c freeze-params:c freeze-bn-buffers:c finetuning-callback-bn:c
transfer-head-only:c transfer-partial:c pretrained-true:c imagenet-normalize:c strict-false:c filter-num-batches:c
clip-global-norm:c unscale-before-clip:c grad-accumulation:c bn-vs-accumulation:c syncbn-fixes-accumulation:c
grad-checkpointing:c oom-order:g memory-summary:g fragmentation-fixed-size:g closure-leak:g three-layers:c
deterministic-getitem:c dict-samples:c num-workers-rule-a:c num-workers-rule-b:c num-workers-not-more:c
worker-memory-copy:c main-guard:c pin-memory:c pin-3-5x:d numpy-worker-seed:c constant-worker-init:c collate-varlen:c
collate-no-numpy:g weighted-sampler:c per-rank-sampler-seed:c set-epoch:c sampler-partition:c serialize-pt-h5:c
memmap:c shared-memory-mp:d dask-blocks:d cpu-preprocess-bottleneck:c register-submodules:c modulelist-vs-sequential:d
shared-weights:g functional-dropout:g train-eval-mode:c module-vs-functional:g lego-config-swap:c deformable-conv:c
focal-loss:c knowledge-distillation:c train-loss-vs-metric:c amp-initialize:c cuda-amp-api:d scaler-with-autocast:c
scaler-order:g amp-bn-float32:g loss-in-fp32:c amp-after-baseline:c amp-custom-op:d amp-1.8x:d warmup-cosine:c
plateau-after-val:c scheduler-not-in-batch:c full-checkpoint:c rng-only-torch:c state-dict-not-whole:c
state-dict-holds-structure:d record-model-class:c seed-all:c multi-gpu-seed:c experiment-record:c curves-per-epoch:c
reproduce-tradeoff:g ddp-not-dp:c ddp-rank:c ddp-allreduce-mean:c ddp-bigger-batch:c elastic-launch:c syncbn:c
barrier-debug:c fused-optim-comm:d autograd-profiler:c tb-histograms:c torchviz:d inference-format:c torchscript:c
trace-misses-branches:g jit-ignore-fallback:d onnx-dynamic-axes:c onnx-unsupported-ops:c onnx-simplifier:d
static-shape-faster:c pre-post-consistency:c ptq-then-qat:c int8-quarter-size:c calibration-data:c nn-quantized-conv:d
tensorrt-17x:d libtorch-cpp:c torchserve:c async-pipeline:c bundled-inputs:c jit-export-forward:d mobile:d
eval-before-export:c
"""
LEVELS = {"c": "code", "g": "guard", "d": "doc"}
REASONS = ("task family", "deployment formats", "scale", "exact resume", "doctor", "fine-tuning", "example modules")
ROWS = ledger.read()
HELD = {row.name: row for row in ROWS if row.held}
ENTRIES = harness.entries()


@pytest.fixture(scope="module")
def projects(render) -> Callable[[str], Path]:
    """Return the rendered project of a task, once."""
    return cache(lambda task: render(task=task, package="digit_reader", logger="csv"))


def test_every_row_of_the_catalogue_is_there_once_in_its_order_and_at_its_level_at_least():
    asked = [entry.split(":") for entry in CATALOGUE.split()]
    assert len(asked) == 145
    assert [(row.number, row.name) for row in ROWS] == [(i, name) for i, (name, _) in enumerate(asked, start=1)]
    lower = [
        row.name
        for row, (_, letter) in zip(ROWS, asked, strict=True)
        if ledger.LEVELS.index(row.level) < ledger.LEVELS.index(LEVELS[letter])
    ]
    assert not lower, f"{lower} are held at a lower level than the catalogue asks for"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_is_true_and_where_it_is_held_or_what_it_waits_for(row: ledger.Row):
    assert re.match(r"\*\*[A-Z][^*]+\*\*", row.practice), "a row begins with a verdict"
    assert row.practice.endswith(".")
    if row.waits_for:
        assert row.level != "doc"
        assert row.waits_for.startswith(REASONS), f"{row.waits_for} is none of {REASONS}"
        assert not row.tests
    elif row.level != "doc":
        assert row.places and row.tests


def locate(projects: Callable[[str], Path], file: str) -> Path:
    """Return where `file` of the ledger lies, in the project of the first task that has it."""
    for task in CHOICES["task"]:
        for folder in ("", "src/digit_reader", "tests"):
            path = projects(task) / folder / file
            if path.is_file():
                return path
    pytest.fail(f"no task's project has {file}")


def names(path: Path) -> set[str]:
    """Return the names that a Python file defines, as Class.method, or a YAML file sets, as trainer.key."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yaml", ".yml"):
        return keys(yaml.safe_load(text))
    found: set[str] = set()
    for node in ast.parse(text).body:
        found |= defined(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for child in node.body for name in defined(child)}
    return found


def defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def keys(values: object) -> set[str]:
    """Return every key of nested `values`, joined by dots; init_args is left out, as on the command line."""
    if not isinstance(values, dict):
        return set()
    found = set()
    for name, value in values.items():
        inner = keys(value)
        found |= inner if name == "init_args" else {name} | {f"{name}.{key}" for key in inner}
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if row.places], ids=lambda row: row.name)
def test_every_file_and_name_of_the_ledger_exists(projects, row: ledger.Row):
    for place in row.places:
        file, _, name = place.partition("::")
        path = locate(projects, file)
        assert not name or name in names(path), f"{file} has no {name}"


@pytest.mark.parametrize("row", [row for row in ROWS if row.tests], ids=lambda row: row.name)
def test_every_test_of_the_ledger_exists(projects, row: ledger.Row):
    for test in row.tests:
        file, name = test.split("::")
        assert name in names(locate(projects, file)), f"{file} has no {name}"


def test_every_held_row_has_a_sabotage_and_every_sabotage_a_held_row():
    assert {entry.row for entry in ENTRIES} == set(HELD)
    assert max(Counter(entry.row for entry in ENTRIES).values()) == 1
    for entry in ENTRIES:
        row = HELD[entry.row]
        assert entry.level == row.level
        test = re.sub(r"\[.*", "", entry.test.removeprefix("tests/"))
        assert test in row.tests, f"{entry.row} is proved by {row.tests}, not by {test}"


def test_no_code_row_is_proved_by_reading_the_source():
    """Rules about source are for what users may write; what is held is shown by running it."""
    assert [entry.row for entry in ENTRIES if entry.level == "code" and "test_code_rules" in entry.test] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.row)
def test_a_sabotage_fits_the_project_as_it_is(projects, entry: harness.Entry):
    text, fault = harness.edited(entry, projects(entry.task))
    assert not fault
    if entry.file.endswith(".py"):
        ast.parse(text)
    assert re.sub(r"\[.*", "", entry.test).split("::")[1] in names(projects(entry.task) / entry.test.split("::")[0])


def test_links_of_a_generated_readme_lead_somewhere(projects):
    """Those into the ledger too: its headings are what a README may point at."""
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"(?m)^## (.+)$", page())}
    for task in CHOICES["task"]:
        readme = projects(task) / "README.md"
        for target in re.findall(r"\]\(([^)\s]+)\)", readme.read_text(encoding="utf-8")):
            if "docs/practices.md#" in target:
                assert target.partition("#")[2] in anchors, target
            elif not re.match(r"\w+:|#", target):
                assert (readme.parent / target.partition("#")[0]).exists(), target


def page() -> str:
    return ledger.PAGE.read_text(encoding="utf-8")


def test_the_page_says_how_much_is_held():
    words = []
    for level in ("code", "guard"):
        rows = [row for row in ROWS if row.level == level]
        words.append(f"{sum(row.held for row in rows)} of {len(rows)} `{level}` rows")
    assert f"Held now: {' and '.join(words)}." in page()


def test_the_page_names_no_tracker():
    assert not re.search(r"#\d+|issues?/\d+", page())
