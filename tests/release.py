"""Install the wheel of dist/ into an empty environment, and run the fifteen lines of the README there.

python tests/release.py dist        called by `make release`
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from equipoise.repository import URL

ROOT = Path(__file__).parent.parent


def fifteen_lines() -> str:
    """The example of the README that trains."""
    return re.findall(r"```python\n(import torch.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def main(folder: Path) -> None:
    (wheel,) = folder.glob("equipoise-*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch, "Scripts" if sys.platform == "win32" else "bin", "python")
        pins = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins, str(wheel.resolve())], check=True)
        example = Path(scratch, "example.py")
        example.write_text(f"{fifteen_lines()}\nimport equipoise\nprint(equipoise.__file__)\n")
        done = subprocess.run([python, "-I", example], cwd=scratch, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="")
    if done.returncode or scratch not in done.stdout:
        sys.exit(f"the fifteen lines of the README do not run with {wheel.name} in an empty environment")
    print(f"the fifteen lines of the README run with {wheel.name} in an empty environment")
    if ".invalid/" in URL:
        print("not for an upload: set the address in src/equipoise/repository.py and in both pyproject.toml first")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
