"""A backend by operators of torch, for calls without values: in a trace, a dispatch mode or a vmap.

An operator is one node of the traced program. Its kernel runs when the program does. `operators` registers them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .reference import Messages

OPERATORS = torch.ops.equipoise


class Traced(NamedTuple):
    """The functions of `backends.Backend`."""

    name: str
    """Of the backend that was chosen, which decides what is saved for derivatives."""

    def forward(
        self, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = OPERATORS.chain_forward(unary, pairwise, lengths, labels, self.name)
        return result

    def marginals(
        self,
        weight: Tensor,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        alpha: Tensor,
        labels: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        gradient: tuple[Tensor, Tensor] = OPERATORS.chain_marginals(
            weight, unary, pairwise, lengths, alpha, labels, self.name
        )
        return gradient

    def messages(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
        return Messages(*OPERATORS.chain_messages(unary, pairwise, lengths, self.name))

    def transport(
        self,
        nodes: Tensor,
        edges: Tensor | None,
        weight: Tensor,
        unary: Tensor,
        pairwise: Tensor,
        lengths: Tensor,
        messages: Messages,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gradient: tuple[Tensor, Tensor, Tensor] = OPERATORS.chain_transport(
            nodes, edges, weight, unary, pairwise, lengths, *messages, self.name
        )
        return gradient

    def cross_entropy(
        self, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor
    ) -> tuple[Tensor, Messages]:
        loss, *messages = OPERATORS.chain_cross_entropy(unary, pairwise, lengths, labels, self.name)
        return loss, Messages(*messages)

    def cross_entropy_gradient(
        self, weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, messages: Messages
    ) -> tuple[Tensor, Tensor]:
        gradient: tuple[Tensor, Tensor] = OPERATORS.chain_cross_entropy_gradient(
            weight, unary, pairwise, lengths, labels, *messages, self.name
        )
        return gradient

    def entropy(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
        entropy: Tensor = OPERATORS.chain_entropy(unary, pairwise, lengths, self.name)
        return entropy

    def decode(self, unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        labels: tuple[Tensor, Tensor] = OPERATORS.chain_decode(unary, pairwise, lengths)
        return labels
