"""A model for transformers on a tiny encoder, and a batch for it."""

from typing import Any

import tiny_encoder
import torch

from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification

IDS = torch.tensor([[2, 9, 8, 7, 6, 5, 3], [2, 9, 9, 9, 3, 0, 0]])
ATTENDED = (IDS != 0).long()
LABELS = torch.tensor([[-100, 1, 2, -100, 0, 3, -100], [-100, 0, -100, 3, -100, -100, -100]])


def model(**kwargs: Any) -> CRFForTokenClassification:
    torch.manual_seed(0)
    arguments = {"encoder_config": tiny_encoder.config(), "id2label": dict(enumerate(tiny_encoder.LABELS)), **kwargs}
    made = CRFForTokenClassification(CRFConfig(**arguments)).eval()
    with torch.no_grad():
        made.classifier.weight.mul_(50)  # a random encoder has scores near 0
        made.crf.pairwise.normal_()
    return made
