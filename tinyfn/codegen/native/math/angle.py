"""Angles modulo pi/2: |x| = n pi/2 + r, |r| <= pi/4, r as a pair high + low.

Ordinary angles: Cody and Waite, pi/2 in three parts and fused multiply-adds, which make the first
subtraction exact. Any angle: Payne and Hanek. With |x| = M 2^k, M whole, only the digits of 2/pi
from weight 2^(1-k) on matter to x 2/pi modulo 4; a window of them, cut out of the constant by
selects and shifts, times M is a fixed-point number with two digits before the point (n modulo 4)
and enough behind it that what is left next to a multiple of pi/2 is still right to more than the
type's precision.
"""

from __future__ import annotations

from tinyfn.codegen.native.math.coefficients import SPLIT, TWO_OVER_PI, TWO_OVER_PI_BITS
from tinyfn.codegen.native.math.lanes import Lanes, Real, Whole
from tinyfn.codegen.native.math.pairs import fast_two_sum, product_error, two_product, two_sum

ORDINARY = {"f32": 1e5, "f64": 1e8}  # angles up to here need no long window
EIGHTH = 0.785  # a little below pi/4: such angles are their own r

Angle = tuple[Whole, Real, Real]


def reduce(lanes: Lanes, size: Real) -> Angle:
    """n (its low two bits count) and r as a pair, of |x|; NaN where it is not finite."""
    if lanes.fused and lanes.branches:
        usual = ordinary(lanes, size)
        far = ~(size <= ORDINARY[lanes.element])
        n, high, low = lanes.rarely(far, usual, lambda: any_angle(lanes, size))
        return n, high, low
    small = size < EIGHTH
    n, high, low = any_angle(lanes, size)
    return small.select(0, n), small.select(size, high), small.select(0.0, low)


def ordinary(lanes: Lanes, size: Real) -> Angle:
    """Cody and Waite."""
    rounder = lanes.format.rounder
    shifted = lanes.fma(size, SPLIT["two_over_pi"][lanes.element][0], rounder)
    n = shifted - rounder
    first, second, third = SPLIT["half_pi"][lanes.element]
    exact = lanes.fma(n, -first, size)
    product, error = two_product(lanes, n, -second)
    high, low = two_sum(exact, product)
    return shifted.bits(), high, lanes.fma(n, -third, low + error)


def any_angle(lanes: Lanes, size: Real) -> Angle:
    """Payne and Hanek, for angles from pi/4 up."""
    digits = (size.bits() & ((1 << lanes.format.mantissa) - 1)) | (1 << lanes.format.mantissa)
    n, high, low = (single if lanes.element == "f32" else double)(lanes, size, digits)
    nothing = size - size  # 0, or NaN where the angle is not finite
    return n, high + nothing, low


def window(lanes: Lanes, size: Real, count: int) -> list[Whole]:
    """`count` words of 2/pi, the first digit of which has weight 2 in |x| 2/pi."""
    width = lanes.format.bits
    power = (size.bits() >> lanes.format.mantissa) - (lanes.format.bias + lanes.format.mantissa)
    # One word of zeros in front, for angles whose window starts before the point.
    position = power + (width - 2)
    steps = (lanes.format.bias - lanes.format.mantissa + width) // width
    words = table(lanes, steps + count + 1)
    index = position >> (width.bit_length() - 1)
    step = 1 << (steps.bit_length() - 1)
    while step:
        moved = (index & step).equals(step)
        keep = count + step
        words = [
            moved.select(words[k + step], words[k]) if k + step < len(words) else words[k]
            for k in range(min(keep, len(words)))
        ]
        step //= 2
    shift = position & (width - 1)
    return [words[k].joined(words[k + 1], shift) for k in range(count)]


def table(lanes: Lanes, count: int) -> list[Whole]:
    """A word of zeros and the first digits of 2/pi."""
    width = lanes.format.bits
    words = [lanes.whole(0)]
    for k in range(1, count):
        words.append(lanes.whole(TWO_OVER_PI >> (TWO_OVER_PI_BITS - k * width)))
    return words


def single(lanes: Lanes, size: Real, digits: Whole) -> Angle:
    """float32: 24 digits times a window of 96 gives 62 digits behind the point."""
    wide = lanes.of("f64")
    upper, middle, lower = (word.to("f64") for word in window(lanes, size, 3))
    factor = digits.to("f64")
    product = (factor * upper << 32) + factor * middle + (factor * lower >> 32)
    n = (product + (1 << 61)) >> 62
    top, bottom = signed_halves(product << 2)
    angle = wide.fma(top, 2.0**-32, bottom * 2.0**-64) * SPLIT["half_pi"]["f64"][0]
    high = angle.to("f32")
    return n.to("f32"), high, (angle - high.to("f64")).to("f32")


def signed_halves(word: Whole) -> tuple[Real, Real]:
    """The upper half (signed) and the lower half of 64-bit words, as floats."""
    return word.signed_shift(32).number(), (word & 0xFFFFFFFF).number()


def long_product(a: Whole, b: Whole) -> tuple[Whole, Whole]:
    """The upper and lower 64 bits of the product of 64-bit words."""
    mask = 0xFFFFFFFF
    a_high, a_low, b_high, b_low = a >> 32, a & mask, b >> 32, b & mask
    low = a_low * b_low
    middle = a_high * b_low + (low >> 32)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> 32) + (other >> 32), (other << 32) | (low & mask)


def double(lanes: Lanes, size: Real, digits: Whole) -> Angle:
    """float64: 53 digits times a window of 192 gives 126 digits behind the point, in two words."""
    upper, middle, lower = window(lanes, size, 3)
    carried, _ = long_product(digits, lower)
    high_part, low_part = long_product(digits, middle)
    low = low_part + carried
    high = high_part + low.below(carried).pick_whole(1, 0) + digits * upper
    n = (high + (1 << 61)) >> 62
    top, second = signed_halves((high << 2) | (low >> 62))
    rest = low << 2
    third, fourth = (rest >> 32).number(), (rest & 0xFFFFFFFF).number()
    fraction = two_sum(top * 2.0**-32, second * 2.0**-64)
    small = third * 2.0**-96 + fourth * 2.0**-128
    turn, turn_low = fast_two_sum(fraction[0], fraction[1] + small)
    return n, *times_half_pi(lanes, turn, turn_low)


def times_half_pi(lanes: Lanes, turn: Real, turn_low: Real) -> tuple[Real, Real]:
    """(turn + turn_low) pi/2 as a pair."""
    first, second, _ = SPLIT["half_pi"][lanes.element]
    product = turn * first
    error = product_error(lanes, turn, lanes.real(first), product)
    return fast_two_sum(product, lanes.fma(turn, second, lanes.fma(turn_low, first, error)))
