"""A backend by operators of torch, for calls without values: in a trace, a dispatch mode or a vmap.

An operator is one node of the traced program. Its kernel runs when the program does. `operators` registers them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .reference import Messages

OPERATORS = torch.ops.equipoise


@dataclass
class Traced:
    """The functions of `backends.Backend`, with the arguments of those of `reference`, by position."""

    name: str
    """Of the backend that was chosen, which decides what is saved for derivatives."""
    READS_MESSAGES: bool = False  # an operator computes them if it needs them

    def forward(self, *given: Any) -> Any:
        return OPERATORS.chain_forward(*given[:3], *(given[3:] or (None,)), self.name)

    def marginals(self, *given: Any) -> Any:
        return OPERATORS.chain_marginals(*given[:5], *(given[5:] or (None,)), self.name)

    def messages(self, *given: Any) -> Messages:
        return Messages(*OPERATORS.chain_messages(*given, self.name))

    def transport(self, *given: Any) -> Any:
        *scores, messages = given
        return OPERATORS.chain_transport(*scores, *messages, self.name)

    def cross_entropy(self, *given: Any) -> tuple[Tensor, Messages]:
        loss, *messages = OPERATORS.chain_cross_entropy(*given, self.name)
        return loss, Messages(*messages)

    def cross_entropy_gradient(self, *given: Any) -> Any:
        *scores, messages = given
        return OPERATORS.chain_cross_entropy_gradient(*scores, *messages, self.name)

    def entropy(self, *given: Any) -> Any:
        return OPERATORS.chain_entropy(*given, self.name)

    def edge_marginals(self, *given: Any) -> Any:
        return OPERATORS.chain_edge_marginals(*given)

    def decode(self, *given: Any) -> Any:
        return OPERATORS.chain_decode(*given)

    def top_k(self, *given: Any) -> Any:
        return OPERATORS.chain_top_k(*given)

    def sample(self, *given: Any) -> Any:
        return OPERATORS.chain_sample(*given[:-1])  # without a generator, which no operator can have
