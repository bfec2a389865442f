"""YOURS: the data, the module and the networks of the task. Updates of the template leave this folder alone."""

from .data import TableData
from .module import TabularRegressor

__all__ = ["TableData", "TabularRegressor"]
