"""Handwriting with few words, and a demo with few steps, so that the commands are fast."""

from dataclasses import replace

import pytest

from equipoise_lab import tasks
from equipoise_lab.demo import crf_alone
from equipoise_lab.tasks.ocr import OCR
from equipoise_lab.tasks.task import Split


class FewWords(OCR):
    def split(self, fold: int, seed: int) -> Split:
        train, valid, test = super().split(fold, seed)
        return Split(train[:120], valid[:60], test[:60])


def use_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the task `ocr`, and the cases of the demo."""
    monkeypatch.setattr(crf_alone, "CASES", {"few steps": crf_alone.Case(steps=5)})
    monkeypatch.setitem(tasks.TASKS, "ocr", FewWords)
    settings = replace(OCR.settings, base=replace(OCR.settings.base, subset=50, stop=3))
    monkeypatch.setattr(FewWords, "settings", settings)
