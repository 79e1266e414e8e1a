"""Commands on a small part of the handwriting data."""

from collections.abc import Callable

import pytest
from lab.cli.few_words import use_few_words


@pytest.fixture
def call(command: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`command` with few words."""
    use_few_words(monkeypatch)
    return command
