"""Captured functions: what counts as an input, what comes out, what is refused.

The seed test file holds the ordinary cases; here are their edges.
"""

import dataclasses
import threading

import numpy as np
import pytest

from tinyfn import GlobalCounters, Tensor, Variable, function
from tinyfn.errors import (
    CaptureError,
    FunctionResultError,
    GradientError,
    ImplicitInputError,
    ShapeError,
)
from tinyfn.function import _function
from tinyfn.uop.ops import Ops

RNG = np.random.default_rng(11)


def stored(*shape):
    return Tensor(RNG.normal(size=shape).astype(np.float32)).realize()


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


def call_of(result):
    """The call node that a result of a function stands after."""
    assert result.uop.op is Ops.AFTER
    assert result.uop.src[1].op is Ops.CALL
    return result.uop.src[1]


@dataclasses.dataclass
class Pair:
    left: Tensor
    right: Tensor


# how a pair of tensors is passed, and how the function takes it apart
PASSED = {
    "list": (lambda a, b: [a, b], lambda v: v),
    "nested tuple": (lambda a, b: (a, (b, 3)), lambda v: (v[0], v[1][0])),
    "dict": (lambda a, b: {"x": a, "y": [None, b]}, lambda v: (v["x"], v["y"][1])),
    "object": (Pair, lambda v: (v.left, v.right)),
    "object in a dict": (lambda a, b: {"p": Pair(a, b)}, lambda v: (v["p"].left, v["p"].right)),
}


@pytest.mark.parametrize("how", PASSED)
@pytest.mark.parametrize("by_name", [False, True])
def test_tensors_are_found_in_arguments(how, by_name):
    pack, unpack = PASSED[how]

    @function
    def subtract(value):
        left, right = unpack(value)
        return left - right * 2

    a, b = stored(4), stored(4)
    result = subtract(value=pack(a, b)) if by_name else subtract(pack(a, b))
    assert call_of(result).src[1:] == (a.uop, b.uop)
    result.sum().backward()
    close(result, a.numpy() - b.numpy() * 2)
    close(a.grad, np.ones(4))
    close(b.grad, -2 * np.ones(4))


def test_a_tensor_passed_twice_is_one_argument():
    a = stored(3)
    result = function(lambda x, y: x * y)(a, a)
    assert len(call_of(result).src) == 2
    (gradient,) = result.sum().gradient(a)
    close(gradient, 2 * a.numpy())


def test_methods_static_methods_and_class_methods():
    class Scale:
        def __init__(self):
            self.factor = stored(3)

        @function
        def apply(self, x):
            return x * self.factor

        @staticmethod
        @function
        def more(x):
            return x + 1

        @classmethod
        @function
        def less(cls, x):
            return x - 1

    scale, x = Scale(), stored(3)
    close(scale.apply(x), x.numpy() * scale.factor.numpy())
    assert set(call_of(scale.apply(x)).src[1:]) == {scale.factor.uop, x.uop}
    close(scale.more(x), x.numpy() + 1)
    close(Scale.less(x), x.numpy() - 1)


def test_the_name_is_that_of_the_function():
    @function
    def doubled(x):
        return x * 2

    assert call_of(doubled(stored(2))).arg.name.endswith("doubled")
    assert doubled.__name__ == "doubled"


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (7,), (33,)])
def test_shapes_that_fill_no_vector(shape):
    x = stored(*shape)
    close(function(lambda x: x * 2 + 1)(x), x.numpy() * 2 + 1)


def test_inputs_may_be_views_and_unrealised():
    x = stored(2, 3)
    close(function(lambda x: x + 1)(x.transpose()), x.numpy().T + 1)
    close(function(lambda x: x + 1)(x * 2), x.numpy() * 2 + 1)


def test_results_may_be_inputs_constants_and_each_other():
    x = stored(3)
    same, one, first, second = function(lambda x: (x, Tensor.ones(2), x.exp(), x.exp()))(x)
    close(same, x.numpy())
    close(one, np.ones(2))
    close(first, np.exp(x.numpy()))
    close(second, np.exp(x.numpy()))


def test_no_tensors_among_the_arguments():
    assert function(lambda: Tensor.ones(2) * 3)().tolist() == [3, 3]
    assert function(lambda n: Tensor.ones(n) * 3)(2).tolist() == [3, 3]


def test_the_same_function_for_several_shapes_and_arguments():
    @function(precompile=True)
    def scaled(x, factor):
        return x * factor

    for count, factor in [(3, 2), (5, 2), (3, 4), (3, 2)]:
        x = stored(count)
        close(scaled(x, factor), x.numpy() * factor)


def test_captured_twice_is_one_node():
    x = stored(4)
    twice = function(lambda x: (x * 2).contiguous().exp())
    assert call_of(twice(x)) is call_of(twice(x))


@pytest.mark.parametrize("made", [lambda: Tensor([1.0, 2.0]), lambda: Tensor(np.ones(2))])
def test_data_made_inside_is_no_implicit_input(made):
    x = stored(2)
    close(function(lambda x: x + made())(x), x.numpy() + made().numpy())


def test_random_numbers_made_inside_differ_from_call_to_call():
    noise = function(lambda x: x * 0 + Tensor.rand(8))
    x = stored(8)
    assert noise(x).tolist() != noise(x).tolist()


def test_implicit_inputs_are_listed():
    x, hidden = stored(3), stored(5)
    add = function(lambda x: x + hidden.sum())
    with pytest.raises(ImplicitInputError, match=r"implicit buffers(.|\n)*\(5,\)(.|\n)*allow_im"):
        add(x)
    allowed = function(lambda x: x + hidden.sum(), allow_implicit=True)(x)
    (gradient,) = allowed.sum().gradient(hidden)
    close(allowed, x.numpy() + hidden.numpy().sum())
    close(gradient, np.full(5, 3))


def test_an_empty_tensor_that_is_read_is_an_implicit_input():
    with pytest.raises(ImplicitInputError):
        function(lambda x: x + Tensor.empty(3))(stored(3))


@pytest.mark.parametrize(
    ("result", "named"),
    [
        (lambda x: [x], "list"),
        (lambda x: {"x": x}, "dict"),
        (lambda x: (x, (x,)), "tuple"),
        (lambda x: None, "NoneType"),
        (lambda x: 3, "int"),
        (lambda x: (), "an empty tuple"),
    ],
)
def test_results_of_other_kinds_are_refused(result, named):
    with pytest.raises(FunctionResultError, match=f"Tensor or a tuple of Tensors, got {named}"):
        function(result)(stored(2))
    assert _function.depth == 0


@pytest.mark.parametrize("read", ["realize", "numpy", "item", "tolist", "data"])
def test_values_cannot_be_read_inside(read):
    @function
    def reader(x):
        getattr(x.sum(), read)()
        return x

    with pytest.raises(CaptureError, match="inside the captured function .*reader") as caught:
        reader(stored(2))
    assert any("reader" in note for note in caught.value.__notes__)
    assert _function.depth == 0


def test_the_truth_value_of_a_tensor_is_refused():
    with pytest.raises(TypeError, match="truth value of a tensor"):
        function(lambda x: x if x.sum() > 0 else -x)(stored(2))


def test_errors_inside_name_every_function_on_the_way():
    @function
    def inner(x):
        return x + Tensor.ones(5)

    @function
    def outer(x):
        return inner(x)

    with pytest.raises(ShapeError) as caught:
        outer(stored(3))
    assert [n.rsplit(".", 1)[-1] for n in caught.value.__notes__] == ["inner", "outer"]
    assert _function.depth == 0
    close(function(lambda x: x + 1)(Tensor.zeros(2)), np.ones(2))


def test_depth_counts_nested_functions_of_this_thread():
    seen = []

    def note(x):
        seen.append(_function.depth)
        return x + 1

    def elsewhere(x):
        thread = threading.Thread(target=lambda: seen.append(_function.depth))
        thread.start()
        thread.join()
        return function(note)(note(x))

    function(elsewhere)(stored(2))
    assert seen == [0, 1, 2]


def test_nested_calls_share_one_body():
    double = function(lambda x: x * 2)

    @function
    def often(x):
        return double(double(x)) + double(x)

    x = stored(3)
    close(often(x), x.numpy() * 6)
    (gradient,) = often(x).sum().gradient(x)
    close(gradient, np.full(3, 6))


def test_a_variable_is_an_argument():
    count = Variable("count", 1, 6)
    x = Tensor.arange(6).float().realize()
    first = function(lambda x, n: x[:n].sum())
    assert [first(x, count.bind(n)).item() for n in (1, 4, 6)] == [0, 6, 15]


@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("precompile_backward", [False, True])
def test_gradients_of_gradients(precompile, precompile_backward):
    options = {"precompile": precompile, "precompile_backward": precompile_backward}
    x = stored(5)
    cube = function(lambda x: (x * x * x).sum(), **options)
    (first,) = cube(x).gradient(x)
    (second,) = first.sum().gradient(x)
    close(first, 3 * x.numpy() ** 2)
    close(second, 6 * x.numpy())


def test_gradients_inside_a_function():
    x = stored(3)
    close(function(lambda x: x.square().sum().gradient(x)[0])(x), 2 * x.numpy())


def test_ints_among_the_arguments_get_no_gradient():
    x, n = stored(3), Tensor([1, 2, 3]).realize()
    function(lambda x, n: x * n)(x, n).sum().backward()
    close(x.grad, [1, 2, 3])
    assert n.grad is None


def test_outputs_that_nobody_uses_cost_nothing():
    x = stored(64)
    used, _unused = function(lambda x: (x + 1, (x @ x.reshape(64, 1)).contiguous()))(x)
    GlobalCounters.reset()
    used.realize()
    assert GlobalCounters.kernel_count == 1
    assert GlobalCounters.global_ops == 64


def test_grad_fxn_takes_the_gradients_of_used_outputs_only():
    given = []

    def gradient(*gradients, call):
        given.append((len(gradients), len(call.src) - 1))
        return (gradients[0] * 10,)

    x = stored(3)
    first, _second = function(lambda x: (x * 2, x * 3), grad_fxn=gradient)(x)
    first.sum().backward()
    close(x.grad, np.full(3, 10))
    assert given == [(1, 1)]


def test_grad_fxn_has_to_return_one_gradient_an_argument():
    wrong = function(lambda x: x * 2, grad_fxn=lambda g, call: (g, g))
    x = stored(3)
    with pytest.raises(GradientError, match="each of the 1 arguments, got 2"):
        wrong(x).sum().gradient(x)


def test_grad_fxn_may_cut_an_argument():
    x, y = stored(3), stored(3)
    cut = function(lambda x, y: x * y, grad_fxn=lambda g, call: (None, g))
    cut(x, y).sum().backward()
    close(y.grad, np.ones(3))
    assert x.grad is None or not x.grad.numpy().any()


def test_grad_fxn_has_to_return_gradients_of_the_shape_of_the_arguments():
    wrong = function(lambda x: x * 2, grad_fxn=lambda g, call: (g.sum(),))
    x = stored(3)
    with pytest.raises(GradientError, match=r"\(3,\)"):
        wrong(x).sum().gradient(x)


@pytest.mark.parametrize("move", [lambda b: b.min(0), lambda b: b.reshape(1, 3).permute(1, 0)])
def test_movement_in_the_body_leaves_inputs_whole(move):
    """Reshapes and permutes of an input are not merged with those that made it."""
    b = Tensor([-1.0, 2.0, 3.0])

    def body(x, y):
        return x * y.reshape(1, *y.shape) + (y.permute(1, 0) if y.ndim == 2 else y)

    x, y = Tensor([[1.0, 2.0, 3.0]]), move(b)
    expected = body(x, y).numpy()
    np.testing.assert_array_equal(function(body)(x, move(b)).numpy(), expected)
