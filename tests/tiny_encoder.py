"""A tiny random BERT with a WordPiece tokenizer, saved as transformers saves pretrained encoders."""

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

LABELS = ("O", "B-X", "I-X", "B-Y", "I-Y")
WORDS = ("anna", "went", "to", "new", "york", "city", "with", "bob", "smith", "today")


def tokenizer(max_length: int = 64) -> PreTrainedTokenizerFast:
    """Knows half of WORDS; other words become single letters."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = [*special, *WORDS[:5], *string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase), "."]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=max_length, **names)


def config(max_length: int = 64) -> BertConfig:
    return BertConfig(
        vocab_size=128,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=max_length,
    )


def save(folder: Path, seed: int = 0) -> str:
    """Write encoder and tokenizer, and return the folder."""
    torch.manual_seed(seed)
    BertModel(config()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)
