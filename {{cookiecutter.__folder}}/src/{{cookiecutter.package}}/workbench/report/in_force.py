"""Which practices a run was trained with, as resolved, and the file that holds each; practices.csv lists them."""

import csv
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

from .page import Table


def lookup(config: Any, key: str) -> tuple[bool, Any]:
    """Return whether `config` has dotted `key`, and its value; init_args need not be named."""
    for name in key.split("."):
        config = config.get("init_args", config) if isinstance(config, dict) else {}
        if name not in config:
            return False, None
        config = config[name]
    return True, config


def table(record: dict[str, Any]) -> Table:
    """Return practice, value, reason and file of all in force; what the configuration has no key for is left out."""
    rows: list[list[Any]] = []
    config = record["config"]
    with Path(__file__).with_name("practices.csv").open(newline="", encoding="utf-8") as file:
        for one in csv.DictReader(file):
            known, value = (True, True) if one["key"] == "ALWAYS" else lookup(config, one["key"])
            place = one["held in"].replace("TASK", config["model"]["class_path"].split(".")[1] + "/")
            rows += [[one["practice"], "off" if value is None else value, one["why"], place]] if known else []
    if "device" in record:
        found = f"{record['devices']} x {record['device']}, {record['workers']} loader workers"
        rows.append(["devices", found, "what the machine has", "practices/hardware.py"])
    rows += [callback(one) for one in config["trainer"].get("callbacks") or []]
    return Table(["practice", "here", "why", "held in"], rows, prose=True)


def callback(one: dict[str, Any]) -> list[str]:
    """Return the row of a configured callback: what its own documentation says of it."""
    module, name = one["class_path"].rsplit(".", 1)
    about = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    values = (one.get("init_args") or {}).items()
    given = ", ".join(f"{key} {json.dumps(value)}" for key, value in values if value is not None)
    own = module.startswith(f"{(__package__ or '').split('.')[0]}.")
    return [name, given or "on", about.split("\n")[0], "/".join(module.split(".")[1:]) + ".py" if own else module]
