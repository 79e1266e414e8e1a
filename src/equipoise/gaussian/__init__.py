"""Gaussian CRF (§4.2): the Potts operator, its solvers and their gradients, and what makes the system definite."""

from .conjugate import Solution, cg
from .definite import bounded, check, sigma_max, spectral_bound
from .norms import mean_abs
from .operator import potts
from .sampling import Estimate, sampled_mean_abs
from .solving import solve

__all__ = [
    "Estimate",
    "Solution",
    "bounded",
    "cg",
    "check",
    "mean_abs",
    "potts",
    "sampled_mean_abs",
    "sigma_max",
    "solve",
    "spectral_bound",
]
