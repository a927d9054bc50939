"""Numbers as Java's Float.toString and Double.toString write them.

The digits are the shortest that read back as the same number, but at least two: `1.0`, `1.0E10`.
A number with a magnitude from 10^-3 up to, not including, 10^7 is written plainly, any other one
with an exponent. This is what Java 19 and later write, digit for digit; older ones sometimes
write a digit more than needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

PLAIN_EXPONENTS = range(-3, 7)


def double_text(value: float) -> str:
    """Double.toString."""
    if not math.isfinite(value):
        return _not_finite(value)
    value = float(value)
    return _layout(value, repr(value), lambda text: float(text) == value)


def float_text(value: float) -> str:
    """Float.toString of a number that fits 32 bits."""
    single = np.float32(value)
    if not np.isfinite(single):
        return _not_finite(value)
    shortest = np.format_float_scientific(single, unique=True, trim="-")
    return _layout(float(single), shortest, lambda text: bool(np.float32(text) == single))


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _layout(value: float, shortest: str, same: Callable[[str], bool]) -> str:
    digits, exponent = _digits(shortest)
    if len(digits) == 1:
        # With one digit to spare Java takes the two that lie closest, such as 4.9E-324.
        two = f"{value:.1e}"
        digits, exponent = _digits(two if same(two) else shortest)
        digits = digits.ljust(2, "0")
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    if exponent not in PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:]}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits.rstrip('0')}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _digits(text: str) -> tuple[str, int]:
    """Significant digits without a point, and the exponent of the first one."""
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    found = digits.strip("0")
    return found or "0", int(exponent or 0) + len(whole) - 1 - leading
