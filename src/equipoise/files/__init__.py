"""Files of users: read with errors of one line, written completely or not at all, and printed safely."""

from .errors import DataError, MalformedLineError, printable
from .escaping import escaped, on_one_line, to_json
from .text import lines, name_of, placed_lines
from .writing import WritingError, remove_leftovers, write_whole

__all__ = [
    "DataError",
    "MalformedLineError",
    "WritingError",
    "escaped",
    "lines",
    "name_of",
    "on_one_line",
    "placed_lines",
    "printable",
    "remove_leftovers",
    "to_json",
    "write_whole",
]
