"""A CRF on any encoder of Hugging Face transformers, for its `Trainer`, its pipelines and its files.

Importing this package registers the model with `AutoConfig` and `AutoModelForTokenClassification`.
"""

from transformers import AutoConfig, AutoModelForTokenClassification

from .callback import BalanceCallback
from .configuration import CRFConfig
from .documents import predict_document
from .metrics import compute_metrics
from .model import CRFForTokenClassification
from .output import CRFOutput
from .pipeline import SpanPipeline
from .spans import predict_spans
from .start import StartFromLabels
from .words import DataCollatorForWords, tokenize_words

AutoConfig.register(CRFConfig.model_type, CRFConfig)
AutoModelForTokenClassification.register(CRFConfig, CRFForTokenClassification)

__all__ = [
    "BalanceCallback",
    "CRFConfig",
    "CRFForTokenClassification",
    "CRFOutput",
    "DataCollatorForWords",
    "SpanPipeline",
    "StartFromLabels",
    "compute_metrics",
    "predict_document",
    "predict_spans",
    "tokenize_words",
]
