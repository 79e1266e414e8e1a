"""Where the project is published. Model cards, errors about missing packages, links and project URLs name this address.

A release sets `URL` to its public address, here and in the two pyproject.toml. Until then it is a reserved name that
nobody can register. No text says a bare `pip install equipoise`: on a package index a stranger could have that name.
"""

URL = "https://equipoise.invalid/equipoise"


def install(extra: str = "", *, laboratory: bool = False) -> str:
    """The command that installs the library with an extra, or with the laboratory.

    >>> install("tagger")
    "pip install 'equipoise[tagger] @ git+https://equipoise.invalid/equipoise'"
    """
    library = f"pip install 'equipoise{f'[{extra}]' if extra else ''} @ git+{URL}'"
    return f"{library} 'equipoise-lab @ git+{URL}#subdirectory=lab'" if laboratory else library
