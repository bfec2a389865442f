"""YOURS: the data, the module and the networks of the task. Updates of the template leave this folder alone."""

from .data import ImageFolderData
from .module import ImageClassifier

__all__ = ["ImageClassifier", "ImageFolderData"]
