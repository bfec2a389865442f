"""Mistakes that run without an error and give wrong results, found by reading the code in src.

Each finding says where, what is wrong, and what to write instead. A line that is meant as it stands
ends in `# allowed: REASON`. Delete this file if your team wants no such rules; nothing else needs it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import PROJECT

SOURCES = sorted(PROJECT.glob("src/**/*.py"))

# What must not be called, as it is after following the imports.
CALLS = {
    r"torch\.(\w+)?Tensor": "torch.Tensor(n) is n random numbers; write torch.tensor(value) or torch.empty(size)",
    r"torch\.nn\.(parallel\.)?DataParallel": "DataParallel is slow and copies per step; use --config configs/ddp.yaml",
    r"torch\.jit\.(trace|script)": "a trace keeps one branch and drops the others; use the export command",
    r"(torch(\.cuda)?\.amp|apex\.amp)\.\w+": "precision is the trainer's: trainer.precision scales, unscales and skips",
    r"torch\.cuda\.(memory\w*|max_memory\w*|reset_\w+)": "this fails without a GPU; use --config configs/profile.yaml",
    r"torch\.cuda\.empty_cache": "it frees nothing that is in use and slows every step; remove it",
}
# What must not be called on a tensor or module, by name and how.
METHODS = {
    "cuda": "Lightning moves modules and batches; make new tensors with device=self.device",
    "half": "half() takes range and statistics from every layer; use trainer.precision",
    "view": "view fails on transposed tensors; write reshape or flatten",
    "unscale_": "a second unscaling is an error; set trainer.gradient_clip_val",
}
IN_STEPS = {
    "cpu": "it waits for the device at every step; log tensors as they are, and convert in predict_step at the end",
    "item": "it waits for the device at every step; give self.log the tensor",
}
HOOKS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook")
REDUCTIONS = r"sum|mean|std|var|norm|(arg)?max|(arg)?min|a(max|min)|median|logsumexp|prod"
SWITCHES = r"torch\.backends\.cudnn\.(benchmark|deterministic)"


def findings(code: str, file: str = "code.py") -> list[str]:
    """Return `file:line: what is wrong; what to write` for everything in `code` that breaks a rule."""
    tree, lines = ast.parse(code), code.splitlines()
    names = _imports(tree)
    found = {(node.lineno, text) for node, text in _look(tree, names)}
    return [f"{file}:{line}: {text}" for line, text in sorted(found) if "# allowed: " not in lines[line - 1]]


def _imports(tree: ast.AST) -> dict[str, str]:
    """Return what each imported name stands for: F for torch.nn.functional."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    """Return the full name of `node`, or "" if it is none."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""


def _look(tree: ast.AST, names: dict[str, str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    modules = _module_classes(tree, names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from ((node, text) for text in _call(node, names))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if _attribute(node.value) in HOOKS:
                yield node, "the hook can never be removed; keep what register returns and call its remove()"
        elif isinstance(node, ast.Assign):
            yield from _assignment(node, names, modules)
        elif isinstance(node, ast.BinOp) and (_reduces(node.left, node.right) or _reduces(node.right, node.left)):
            yield node, "without keepdim=True the result is broadcast along another dimension; add it"
        elif isinstance(node, ast.FunctionDef):
            yield from _expanded(node)
            if re.fullmatch(r"forward|_?(training|validation|test|shared|common)?_step", node.name):
                yield from _step(node, names)
            if "collate" in node.name:
                yield from (
                    (call, "samples become NumPy and tensors again; stack the tensors: torch.stack, pad_sequence")
                    for call in ast.walk(node)
                    if isinstance(call, ast.Call)
                    and (_attribute(call) == "numpy" or _dotted(call.func, names).startswith("numpy."))
                )


def _reduces(whole: ast.expr, part: ast.expr) -> bool:
    """Return whether `part` is `whole` reduced over a dimension that it then lacks: x - x.mean(1)."""
    while isinstance(part, ast.Attribute | ast.Subscript):
        part = part.value  # x.max(1).values, x.max(1)[0]
    if not isinstance(part, ast.Call) or not re.fullmatch(REDUCTIONS, _attribute(part)):
        return False
    keywords = {keyword.arg: keyword.value for keyword in part.keywords}
    dimension = keywords.get("dim", part.args[0] if part.args else None)
    first = isinstance(dimension, ast.Constant) and dimension.value == 0  # broadcasts as it was meant
    same = ast.unparse(part.func.value) == ast.unparse(whole)
    return same and dimension is not None and not first and "keepdim" not in keywords


def _attribute(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[str]:
    name, method = _dotted(node.func, names), _attribute(node)
    keywords = {keyword.arg for keyword in node.keywords}
    for pattern, text in CALLS.items():
        if re.fullmatch(pattern, name):
            yield text
    if method in METHODS and not name.startswith(("torch.", "numpy.")):
        yield METHODS[method]
    if re.fullmatch(r"torch\.nn\.functional\.\w*dropout\w*", name) and "training" not in keywords:
        yield "it drops in evaluation too; pass training=self.training, or use nn.Dropout"
    if method == "squeeze" and not keywords and len(node.args) == (name == "torch.squeeze"):
        yield "squeeze() also drops a batch of one; name the dimension: squeeze(1)"
    if "worker_init_fn" in keywords:
        yield "a constant seed gives every epoch the same augmentation; samples are seeded in practices/loaders.py"
    if "pretrained" in keywords:
        yield "pretrained= is gone from torchvision; use TorchvisionNetwork with weights"
    constants = [a.value for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
    if any(isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) for value in constants):
        yield "a fixed device fails where there is none; use self.device, and trainer.accelerator for the choice"


def _module_classes(tree: ast.AST, names: dict[str, str]) -> set[str]:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {c.name for c in classes if any(_dotted(base, names).endswith("Module") for base in c.bases)}


def _assignment(
    node: ast.Assign, names: dict[str, str], modules: set[str]
) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for target in node.targets:
        if re.fullmatch(SWITCHES, _dotted(target, names)):
            yield node, "speed against repeatability is chosen by trainer.deterministic and trainer.benchmark"
        if isinstance(target, ast.Attribute) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict | ast.ListComp):
            parts = [_dotted(call.func, names) for call in ast.walk(node.value) if isinstance(call, ast.Call)]
            if any(_is_layer(part) or part in modules for part in parts):
                yield node, "layers in a plain list are not trained, moved or saved; use nn.ModuleList or ModuleDict"


def _is_layer(name: str) -> bool:
    return bool(re.fullmatch(r"torch\.nn\.[A-Z]\w+|torchmetrics\.(\w+\.)*[A-Z]\w+", name)) and "Parameter" not in name


def _step(function: ast.FunctionDef, names: dict[str, str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if _attribute(node) in IN_STEPS and not node.args:
            yield node, IN_STEPS[_attribute(node)]
        if _is_layer(_dotted(node.func, names)) and not _dotted(node.func, names).endswith("Loss"):
            yield node, "a layer made here is new, and untrained, at every call; make it in __init__, or use F"


def _expanded(function: ast.FunctionDef) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Find names that are an expand() and are written to, which writes to all copies at once."""
    text = "what expand() returns is one memory under many indices; write .expand(...).clone() before changing it"
    expanded = set()
    for node in ast.walk(function):
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and _attribute(value) in ("expand", "expand_as", "broadcast_to"):
            expanded |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            base = target.value if isinstance(target, ast.Subscript) else None
            if isinstance(base, ast.Name) and base.id in expanded:
                yield target, text
        in_place = isinstance(node, ast.Call) and re.fullmatch(r"[a-z]\w*[a-z]_", _attribute(node))
        if in_place and isinstance(node.func.value, ast.Name) and node.func.value.id in expanded:
            yield node, text


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_code_keeps_the_rules(path: Path):
    found = findings(path.read_text(encoding="utf-8"), str(path.relative_to(PROJECT)))
    assert not found, "\n" + "\n".join(found)


HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
FAULTS = {
    "x = torch.Tensor(3)": "torch.tensor(value)",
    "x = torch.FloatTensor([1])": "torch.tensor(value)",
    "m = nn.DataParallel(m)": "configs/ddp.yaml",
    "m = torch.jit.trace(m, x)": "export command",
    "s = torch.amp.GradScaler('cpu')": "trainer.precision",
    "s.unscale_(optimizer)": "gradient_clip_val",
    "print(torch.cuda.memory_summary())": "configs/profile.yaml",
    "torch.cuda.empty_cache()": "remove it",
    "x = x.cuda()": "self.device",
    "x = x.to('cuda:0')": "self.device",
    "m = m.half()": "trainer.precision",
    "y = x.transpose(0, 1).view(4, 3)": "reshape",
    "y = x - x.max(1).values": "keepdim=True",
    "y = x / x.norm(dim=-1)": "keepdim=True",
    "y = F.dropout(x, 0.5)": "training=self.training",
    "y = x.squeeze()": "squeeze(1)",
    "y = torch.squeeze(x)": "squeeze(1)",
    "d = DataLoader(x, worker_init_fn=seed)": "practices/loaders.py",
    "m = resnet18(pretrained=True)": "weights",
    "torch.backends.cudnn.benchmark = True": "trainer.benchmark",
    "layer.register_forward_hook(look)": "remove()",
    "def my_collate(b):\n    return torch.tensor([x.numpy() for x in b])": "torch.stack",
    "def f(x):\n    y = x.expand(4, 3)\n    y[0] = 1": "clone()",
    "def f(x):\n    y = x.expand(4, 3)\n    y.add_(1)": "clone()",
    "def forward(self, x):\n    return nn.Linear(3, 3)(x)": "__init__",
    "def training_step(self, batch):\n    self.log('loss', loss.item())": "self.log the tensor",
    "def forward(self, x):\n    return x.cpu()": "waits for the device",
    "class A(nn.Module):\n    def __init__(self):\n        self.a = [nn.Linear(3, 3) for _ in x]": "nn.ModuleList",
    "class B(nn.Module): pass\nclass A(nn.Module):\n    def __init__(self):\n        self.a = {'b': B()}": "ModuleDict",
}
GOOD = """
class A(nn.Module):
    def __init__(self):
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.handle = self.layers[0].register_forward_hook(look)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.expand(4, 3).clone()
        y[0] = torch.tensor(1.0)
        y = (y - y.mean(0)) / y.std(1, keepdim=True) * y.sum()
        x = F.dropout(x, training=self.training).squeeze(1).reshape(3, 4)
        return x.view(4)  # allowed: contiguous by construction
"""


@pytest.mark.parametrize("code", FAULTS)
def test_a_mistake_is_found_with_what_to_write_instead(code: str):
    (finding,) = findings(HEAD + code)
    assert FAULTS[code] in finding
    assert re.match(r"code\.py:\d+: ", finding)


def test_right_code_is_left_alone():
    assert findings(HEAD + GOOD) == []
