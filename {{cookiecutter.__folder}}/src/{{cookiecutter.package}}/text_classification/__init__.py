"""YOURS: the data, the module and the networks of the task. Updates of the template leave this folder alone."""

from .data import TextData
from .module import TextClassifier

__all__ = ["TextClassifier", "TextData"]
