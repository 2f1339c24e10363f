"""Finding values inside nested arguments and objects."""

import dataclasses
import functools
import math
from collections import OrderedDict, namedtuple

from tinyfn import tree


class Leaf:
    def __init__(self, name=""):
        self.name = name


class Slotted:
    __slots__ = ("first", "second", "unset")

    def __init__(self, first, second):
        self.first, self.second = first, second


class Below(Slotted):
    __slots__ = ("third",)


@dataclasses.dataclass
class Record:
    left: object
    right: object


Pair = namedtuple("Pair", "one two")


class Model:
    shared = Leaf("of the class")

    def __init__(self, *leaves):
        self.layers = [leaves[0], (leaves[1], {"deep": leaves[2]})]
        self.size = 3
        self.step = self.method
        self.act = math.tanh

    def method(self):
        pass


A, B, C, D = (Leaf(n) for n in "abcd")


def test_values_themselves():
    assert tree.find(A, Leaf) == [A]
    assert tree.find(None, Leaf) == []
    assert tree.find(3, int) == [3]
    assert tree.find_named(A, Leaf) == {"": A}


def test_containers_in_order():
    assert tree.find([A, (B, [C]), {"x": D}], Leaf) == [A, B, C, D]
    assert tree.find(OrderedDict(z=A, a=B), Leaf) == [A, B]
    assert tree.find((((A, [B], 1, "text", None), {"k": C})), Leaf) == [A, B, C]
    assert tree.find(Pair(A, Record(B, [C])), Leaf) == [A, B, C]
    assert set(tree.find({A, B}, Leaf)) == {A, B}
    assert tree.find({"a": {1: A}, 2: B}, Leaf) == [A, B]


def test_objects_by_attribute():
    assert tree.find(Model(A, B, C), Leaf) == [A, B, C]
    assert tree.find(Below(A, [B]), Leaf) == [A, B]


def test_names():
    assert tree.find_named(Model(A, B, C), Leaf) == {
        "layers.0": A,
        "layers.1.0": B,
        "layers.1.1.deep": C,
    }
    assert tree.find_named(Pair(A, Slotted(B, {"k": C})), Leaf, "p.") == {
        "p.one": A,
        "p.two.first": B,
        "p.two.second.k": C,
    }


def test_each_once():
    assert tree.find([A, [A, B], {"again": A}], Leaf) == [A, B]
    # a value that is shared has all its names, a container that is shared its first
    assert tree.find_named({"x": A, "y": A}, Leaf) == {"x": A, "y": A}
    shared = [A]
    assert tree.find_named({"x": shared, "y": shared}, Leaf) == {"x.0": A}


def test_cycles():
    loop = [A]
    loop.append(loop)
    assert tree.find(loop, Leaf) == [A]
    first, second = Record(None, A), Record(None, B)
    first.left, second.left = second, first
    assert tree.find(first, Leaf) == [B, A]


def test_deep_nesting():
    nested = A
    for _ in range(50_000):
        nested = [nested]
    assert tree.find(nested, Leaf) == [A]
    while nested is not A:  # take it apart by hand: freeing it at once recurses
        nested = nested[0]


def test_what_is_not_searched():
    def function():
        return A

    function.kept = A
    assert tree.find([function, Model, math, print, Model(A, B, C).method, "text"], Leaf) == []


def test_partials():
    assert tree.find(functools.partial(print, A, end=B), Leaf) == [A, B]
