"""Student's t distribution for a whole number of degrees of freedom, as a finite sum (Abramowitz and Stegun, 26.7.3-4).

P(|t| <= x) = A(theta), tan(theta) = x / sqrt(freedom)

odd:   A = 2/pi (theta + sin(theta) (cos(theta) + 2/3 cos³(theta) + 2·4/(3·5) cos⁵(theta) + …))
even:  A = sin(theta) (1 + 1/2 cos²(theta) + 1·3/(2·4) cos⁴(theta) + …)        up to the power freedom - 2
"""

import math
from functools import lru_cache


def two_sided(x: float, freedom: int) -> float:
    """P(|t| > x).

    >>> round(two_sided(2.364624, 7), 6), round(two_sided(4.302653, 2), 6)
    (0.05, 0.05)
    """
    return 1.0 - _inside(math.atan(abs(x) / math.sqrt(freedom)), freedom)


@lru_cache
def quantile(level: float, freedom: int) -> float:
    """The x with P(|t| > x) = level, by bisection of the angle theta.

    >>> round(quantile(0.05, 7), 6)
    2.364624
    """
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < 1.0 - level else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _inside(theta: float, freedom: int) -> float:
    odd = freedom % 2
    term, total = (math.cos(theta) if odd else 1.0), 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(theta) ** 2 * (power + 1) / (power + 2)
    total *= math.sin(theta)
    return (theta + total) * 2 / math.pi if odd else total
