"""TinyJit: what is recorded, what a replay changes and what it never overwrites."""

import numpy as np
import pytest

from tinyfn import Context, GlobalCounters, Tensor, TinyJit, Variable, function, nn
from tinyfn.errors import ArgumentError, CaptureError, JitError
from tinyfn.helpers import flatten
from tinyfn.runtime import execute

CALLS = 5  # the first runs, the second is recorded, the rest are replays


def stored(*values):
    return Tensor([float(v) for v in values]).realize()


def counted(function_of_tensors):
    """A function that counts how often Python runs it."""

    def run(*args, **kwargs):
        run.count += 1
        return function_of_tensors(*args, **kwargs)

    run.count = 0
    return run


def test_python_runs_twice():
    body = counted(lambda a, b: a + b)
    add = TinyJit(body)
    found = [add(stored(i, 1), stored(2, i)).tolist() for i in range(CALLS)]
    assert found == [[i + 2, i + 1] for i in range(CALLS)]
    assert body.count == 2


def test_arguments_in_any_nesting_and_results_in_any_nesting():
    @TinyJit
    def both(given, *, more):
        return {"double": given["a"] * 2, "list": [more[0] + 1, "text"], "pair": (more[0], None)}

    for i in range(CALLS):
        found = both({"a": stored(i)}, more=[stored(i * 10)])
        assert found["double"].tolist() == [i * 2]
        assert found["list"][0].tolist() == [i * 10 + 1]
        assert found["list"][1] == "text"
        assert found["pair"][0].tolist() == [i * 10]


def test_inputs_may_be_lazy_views_and_constants():
    add = TinyJit(lambda x: x + 1)
    whole = stored(*range(8))
    assert [add(whole[i : i + 2]).tolist() for i in range(CALLS)] == [
        [i + 1, i + 2] for i in range(CALLS)
    ]
    turned = TinyJit(lambda x: x.T + 1)
    for i in range(CALLS):
        x = np.arange(6, dtype=np.float32).reshape(2, 3) + i
        np.testing.assert_array_equal(turned(Tensor(x).T).numpy(), x + 1)
    constant = TinyJit(lambda x: x * 2)
    assert [constant(Tensor(float(i))).item() for i in range(CALLS)] == [0, 2, 4, 6, 8]


def test_two_views_of_one_tensor():
    add = TinyJit(lambda x, y: x + y)
    whole = stored(*range(8))
    found = [add(whole[i : i + 2], whole[:2]).tolist() for i in range(CALLS)]
    assert found == [[i, i + 2] for i in range(CALLS)]


def test_sharded_inputs_stay_sharded():
    parts = TinyJit(lambda x: (x.sum(), x + 1))
    for i in range(CALLS):
        x = Tensor([i, 2.0, 3.0, 4.0]).shard(("CPU:0", "CPU:1"), 0).realize()
        total, more = parts(x)
        assert total.item() == i + 9
        assert more.device == ("CPU", "CPU:1")
        assert more.tolist() == [i + 1, 3, 4, 5]


def test_variables_are_rebound():
    count = Variable("count", 1, 6)
    first = TinyJit(lambda x, n: x[:n].sum())
    x = stored(*range(6))
    assert [first(x, count.bind(n)).item() for n in range(1, 7)] == [0, 1, 3, 6, 10, 15]
    with pytest.raises(ArgumentError, match="count between 1 and 6, got 9"):
        first(x, count.bind(9))
    with pytest.raises(JitError, match="variables of the recorded call.*count"):
        first(x, 3)


def test_variables_in_the_shape_of_results():
    count = Variable("count", 1, 6)
    double = TinyJit(lambda x, n: x[:n] * 2)
    x = stored(*range(6))
    for n in (1, 2, 3, 5):
        assert double(x, count.bind(n)).tolist() == [2 * i for i in range(n)]


def test_state_advances_with_every_call():
    total = stored(0, 0)
    step = TinyJit(lambda x: total.assign(total + x).realize())
    for i in range(CALLS):
        step(stored(1, 2))
        assert total.tolist() == [i + 1, 2 * i + 2]


@pytest.mark.parametrize("start", [stored, Tensor.zeros, lambda n: Tensor.zeros(n) + stored(0)])
@pytest.mark.parametrize("change", ["assign", "in place", "item"])
def test_an_assignment_is_replayed_where_nobody_realises_it(start, change):
    total = start(1)

    def count(x):
        if change == "assign":
            total.assign(total + 1)
        elif change == "in place":
            total.__iadd__(1)
        else:
            total[:] = total + 1
        return x + 1

    first = total.tolist()[0]
    step = TinyJit(count)
    for i in range(CALLS):
        assert step(stored(4)).tolist() == [5]
        assert total.tolist() == [first + i + 1]


def test_an_assignment_from_before_the_call_is_not_replayed():
    total = stored(0.0)
    step = TinyJit(lambda x: x + total)
    for i in range(CALLS):
        total += 1
        assert step(stored(0.0)).tolist() == [i + 1.0]


def test_what_waits_to_read_sees_the_values_from_before_the_call():
    total = stored(0.0)
    step = TinyJit(lambda x: total.assign(total + x).realize())
    first, before, replaced = total - 1, [], [stored(7.0) + 0 for _ in range(CALLS)]
    for i in range(CALLS):
        before.append(total * 2)
        replaced[i].replace(total + 1)
        step(stored(1.0))
    assert first.item() == -1.0
    assert [b.item() for b in before] == [2.0 * i for i in range(CALLS)]
    assert [r.item() for r in replaced] == [i + 1.0 for i in range(CALLS)]


def test_what_waits_to_read_an_input_that_is_overwritten():
    step = TinyJit(lambda x: x.assign(x + 1).realize())
    places = [stored(10.0 * i) for i in range(CALLS)]
    before = [place + 0.5 for place in places]
    for place in places:
        step(place)
    assert [b.item() for b in before] == [10.0 * i + 0.5 for i in range(CALLS)]
    assert [p.item() for p in places] == [10.0 * i + 1 for i in range(CALLS)]


def test_random_numbers_are_new_in_every_call():
    noise = TinyJit(lambda x: x * 0 + Tensor.rand(4))
    found = {tuple(noise(stored(0, 0, 0, 0)).tolist()) for _ in range(CALLS)}
    assert len(found) == CALLS


def test_random_numbers_drawn_before_a_call_come_first():
    def numbers(noise):
        Tensor.manual_seed(3)
        found = []
        for _ in range(CALLS):
            before = Tensor.rand(2)
            found += [noise(stored(0, 0)).tolist(), before.tolist()]
        return found

    def draw(x):
        return x + Tensor.rand(2)

    assert numbers(TinyJit(draw)) == numbers(lambda x: draw(x).realize())


def test_random_numbers_are_those_without_recording():
    def noise(x):
        return x + Tensor.rand(4)

    recorded, plain = TinyJit(noise), noise
    streams = []
    for run in (recorded, plain):
        Tensor.manual_seed(3)
        streams.append([run(stored(0, 0, 0, 0)).tolist() for _ in range(CALLS)])
    assert streams[0] == streams[1]


class TestOutputs:
    """What was returned keeps its values, whatever is called later."""

    def test_held_results(self):
        add = TinyJit(lambda x: x + 1)
        held = [add(stored(i)) for i in range(2 * CALLS)]
        assert [t.item() for t in held] == [i + 1 for i in range(2 * CALLS)]

    @pytest.mark.parametrize("kept", [lambda t: t * 2 / 2, lambda t: t[:1], lambda t: t.detach()])
    def test_results_that_lazy_tensors_read(self, kept):
        add = TinyJit(lambda x: x + 1)
        held = [kept(add(stored(i, 0))) for i in range(2 * CALLS)]
        assert [t.tolist()[0] for t in held] == [i + 1 for i in range(2 * CALLS)]

    def test_numpy_copies(self):
        add = TinyJit(lambda x: x + 1)
        arrays = [add(stored(i)).numpy() for i in range(2 * CALLS)]
        assert [a.item() for a in arrays] == [i + 1 for i in range(2 * CALLS)]

    def test_results_as_inputs(self):
        add = TinyJit(lambda x: x + 1)
        x = stored(0)
        for i in range(2 * CALLS):
            x = add(x)
            assert x.item() == i + 1

    def test_memory_of_dropped_results_is_used_again(self):
        add = TinyJit(lambda x: x + 1)
        x = stored(*range(64))
        places = set()
        for _ in range(4 * CALLS):
            result = add(x)
            places.add(execute.memory_of(result.uop.base)[0].address)
            del result
        assert len(places) <= CALLS


def test_a_training_step_is_that_without_recording():
    def train(wrap):
        Tensor.manual_seed(1)
        model = [nn.Linear(3, 4), Tensor.tanh, nn.Linear(4, 1)]
        optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.1)

        @wrap
        @Tensor.train()
        def step(x):
            optimizer.zero_grad()
            loss = x.sequential(model).square().mean().backward()
            return loss.realize(*optimizer.schedule_step())

        x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
        return [step(Tensor(x + i)).item() for i in range(2 * CALLS)]

    recorded, plain = train(TinyJit), train(lambda f: f)
    assert recorded == plain
    assert recorded[-1] < recorded[0]


def test_counters_count_replays_as_runs():
    @TinyJit
    def two(x):
        return (x + 1).contiguous().sum(), x * 2

    counts = []
    for _ in range(CALLS):
        x = stored(*range(100))
        GlobalCounters.reset()
        two(x)
        counts.append((GlobalCounters.kernel_count, GlobalCounters.global_ops))
    assert len(set(counts)) == 1
    assert counts[0][0] > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: ((stored(1, 2, 3), stored(1)), {}), r"input 0 .*\(2,\).*got .*\(3,\)"),
        (lambda: ((Tensor([1, 2]), stored(1)), {}), r"input 0 .*float32.*got .*int32"),
        (lambda: ((stored(1, 2).to("CPU:1"), stored(1)), {}), "input 0 .*on CPU, got .*on CPU:1"),
        (lambda: ((stored(1, 2),), {}), r"inputs \['0', '1'\].*got \['0'\]"),
        (lambda: ((stored(1, 2),), {"y": stored(1)}), r"inputs \['0', '1'\].*got \['0', 'y'\]"),
    ],
    ids=["shape", "dtype", "device", "missing", "by name"],
)
def test_other_inputs_are_refused(given, said):
    add = TinyJit(lambda x, y: x + y)
    for i in range(3):
        add(stored(i, 1), stored(2))
    args, kwargs = given()
    with pytest.raises(JitError, match=said):
        add(*args, **kwargs)
    assert add(stored(4, 1), stored(2)).tolist() == [6, 3]  # still the recorded function


def test_a_tensor_passed_twice_is_refused():
    add = TinyJit(lambda x, y: x + y)
    x = stored(1)
    add(x, x)
    with pytest.raises(JitError, match=r"passed twice .*clone"):
        add(x, x)


def test_a_function_that_computes_nothing_is_refused():
    nothing = TinyJit(lambda x: None)
    nothing(stored(1))
    with pytest.raises(JitError, match="computed nothing"):
        nothing(stored(1))


def test_recording_inside_a_recording_is_refused():
    inner = TinyJit(lambda x: x + 1)
    outer = TinyJit(lambda x: inner(x) * 2)
    outer(stored(1))
    with pytest.raises(JitError, match="while another one records"):
        outer(stored(1))


def test_not_inside_of_a_captured_function():
    add = TinyJit(lambda x: x + 1)
    with pytest.raises(CaptureError, match="calling a TinyJit inside"):
        function(lambda x: add(x))(stored(1))


def test_reset_records_anew():
    body = counted(lambda x: x + 1)
    add = TinyJit(body)
    for i in range(CALLS):
        add(stored(i))
    add.reset()
    assert [add(stored(i, i)).tolist() for i in range(CALLS)] == [[i + 1] * 2 for i in range(CALLS)]
    assert body.count == 4


@pytest.mark.parametrize("failing", [1, 2])
def test_an_error_leaves_no_recording(failing):
    def body(x):
        body.count += 1
        if body.count == failing:
            raise KeyError("as planned")
        return x + 1

    body.count = 0
    add = TinyJit(body)
    found = []
    for i in range(CALLS):
        try:
            found.append(add(stored(i)).item())
        except KeyError:
            assert i + 1 == failing
    assert found == [i + 1 for i in range(CALLS) if i + 1 != failing]


def test_methods():
    class Scale:
        def __init__(self, factor):
            self.factor = stored(factor)

        @TinyJit
        def apply(self, x):
            return x * self.factor

    scale = Scale(3)
    assert [scale.apply(stored(i)).item() for i in range(CALLS)] == [3 * i for i in range(CALLS)]


def test_methods_of_several_instances():
    class Scale:
        def __init__(self, factor):
            self.factor = stored(factor)

        @TinyJit
        def apply(self, x):
            return x * self.factor

    scales = [Scale(3), Scale(5)]
    found = flatten([[s.apply(stored(i)).item() for i in range(CALLS)] for s in scales])
    assert found == [3 * i for i in range(CALLS)] + [5 * i for i in range(CALLS)]


def test_without_recording():
    body = counted(lambda x: x + 1)
    add = TinyJit(body)
    with Context(JIT=0):
        assert [add(stored(i)).item() for i in range(CALLS)] == [i + 1 for i in range(CALLS)]
    assert body.count == CALLS


def test_it_needs_a_function():
    with pytest.raises(JitError, match="needs a function"):
        TinyJit(None)


def test_memory_that_an_array_shows_is_not_used_again():
    double = TinyJit(lambda x: x * 2)
    shown = [double(stored(i, i + 1)).data() for i in range(8)]
    assert [view.tolist() for view in shown] == [[2 * i, 2 * i + 2] for i in range(8)]


@pytest.mark.parametrize(
    "see", [lambda r: r, lambda r: r.reshape(-1)[:5], lambda r: r.T, lambda r: r.numpy()]
)
def test_memory_that_a_view_of_a_result_shows_is_not_used_again(see):
    @TinyJit
    def product(x, w):
        return (x @ w).realize()

    w = Tensor.eye(4).contiguous().realize()
    seen, right = [], []
    for number in range(8):
        x = np.full((4, 4), float(number), np.float32)
        result = product(Tensor(x).realize(), w)
        seen.append(see(result))
        right.append(see(Tensor(x)))
        del result
    for found, wanted in zip(seen, right, strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_memory_of_views_that_nobody_sees_is_used_again():
    @TinyJit
    def product(x, w):
        return (x @ w).realize()

    x, w = Tensor.ones(4, 4).contiguous().realize(), Tensor.eye(4).contiguous().realize()
    addresses = {product(x, w).uop.base.buffer.address for _ in range(12)}
    assert len(addresses) <= 4


def test_an_input_seen_before_is_read_where_it_lies_now():
    step = TinyJit(lambda x, y: (x * 2 + y,))
    a, b, c = (Tensor([float(k), 1.0]).realize() for k in (1, 2, 3))
    for x, y in [(a, b), (a, b), (a, b), (a, c), (b, c), (a, b), (c[:], a), (a, b), (b, a)]:
        (found,) = step(x, y)
        np.testing.assert_array_equal(found.numpy(), x.numpy() * 2 + y.numpy())
    with pytest.raises(JitError, match="passed twice"):
        step(a, a)
    (found,) = step(a, b)
    np.testing.assert_array_equal(found.numpy(), a.numpy() * 2 + b.numpy())


@pytest.mark.parametrize("kind", [tuple, list])
def test_results_in_a_tuple_or_list_come_back_in_one(kind):
    step = TinyJit(lambda x: kind([x + 1, x * 2]))
    for k in range(4):
        found = step(Tensor([float(k)]).realize())
        assert type(found) is kind
        assert [t.item() for t in found] == [k + 1, k * 2]
