"""Commands beside training. Nothing else imports this folder: deleting it only removes them."""

# Name, what it does, where it is. A line here is a command.
COMMANDS = {
    "lock": ("write requirements.lock, this environment with hashes", ".workbench.lock:main"),
    "compare": ("show what differs between runs: results, data, versions, configuration", ".workbench.compare:main"),
    "report": ("write a run's report: a page with its curves, errors and record", ".workbench.report:main"),
    "doctor": ("look for what would spoil a long run, in a minute", ".workbench.doctor:main"),
    "todo": ("list what is still to be made yours, in order", ".workbench.todo:main"),
}

# What commands do at their end besides, called with the configured run: name of the command, where it is.
AFTER: dict[str, list[str]] = {
    "fit": [".workbench.report:write_report"],
    "validate": [],
    "test": [".workbench.card:after_test", ".workbench.report:write_report"],
    "predict": [".workbench.card:after_predict"],
    "export": [".workbench.card:after_export"],
}
