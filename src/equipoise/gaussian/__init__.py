"""Gaussian CRF (§4.2): the Potts operator, its solvers and gradients, and bounds that make the system definite."""

from .conjugate import CG, cg
from .definite import bounded, check, sigma_max, spectral_bound
from .dense import Dense
from .direct import Direct
from .norms import mean_abs
from .operator import potts
from .sampling import Estimate, sampled_mean_abs
from .solution import Solution, Solver
from .solving import solve

__all__ = [
    "CG",
    "Dense",
    "Direct",
    "Estimate",
    "Solution",
    "Solver",
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
