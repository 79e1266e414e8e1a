"""The data sets of the paper's tasks (§6.1): where they come from, where they lie, and whether they are right.

The letters of the OCR task are inside the package (`ocr.load`). Everything else lies in a data folder, which
`folder.require` looks into, `obtain.obtain` fills from the publishers' addresses and `folder.verify` checks.
"""

from .errors import DataError, MalformedLineError, MissingFileError
from .folder import data_folder, require, verify
from .registry import DATASETS

__all__ = ["DATASETS", "DataError", "MalformedLineError", "MissingFileError", "data_folder", "require", "verify"]
