"""Add the records of one file to another.

    python studies/append.py results/runs.jsonl OUT/protocol.jsonl

Every record is checked. Runs that the file has already are left out.
"""

import argparse
from pathlib import Path

from equipoise_lab.run.store import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="the file that grows")
    parser.add_argument("added", type=Path, nargs="+", help="files of records")
    options = parser.parse_args()
    store = Store(options.store)
    for path in options.added:
        if not path.is_file():
            parser.error(f"there is no file {path}")
        records = Store(path).records()
        missing = set(store.missing(kept.recipe for kept in records))
        new = [kept for kept in records if kept.recipe in missing]
        store.append(new)
        print(f"{path}: {len(new)} of {len(records)} records added to {options.store}")


if __name__ == "__main__":
    main()
