"""The data sets of the paper's tasks (§6.1), WNUT-17 and BC5CDR: find, download, verify and read them.

The OCR letters are inside the package (`ocr.load`). All other data is in a data folder: `folder.require` finds files in
it, `obtain.obtain` downloads them from the publishers, and `folder.verify` checks them.
"""

from .errors import DataError, MalformedLineError, MissingFileError
from .folder import data_folder, require, verify
from .registry import DATASETS

__all__ = ["DATASETS", "DataError", "MalformedLineError", "MissingFileError", "data_folder", "require", "verify"]
