"""The optimisers take the steps of the library's methods, keep their state, and refuse what they cannot do."""

import copy
import io
import linecache
import re
import warnings

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import State

torch = pytest.importorskip("torch")

from dualanchor.integrations.torch import (  # noqa: E402
    OHM,
    DualAnchor,
    ExtraGradient,
    OptimisticGradient,
    RegularisedDualAnchor,
)

pytestmark = pytest.mark.filterwarnings("ignore::dualanchor.core.errors.HorizonWarning")  # most runs are left early

HorizonWarning = da.errors.HorizonWarning
ROUNDS, LR = 60, 0.3
SHAPES = [(3, 2), (5,), ()]  # the second ascends
DTYPES = [pytest.param(torch.float32, 1e-6, id="float32"), pytest.param(torch.float64, 1e-12, id="float64")]
# Tolerances are relative to the norm of the iterate. Rounding alone was seen to make 1e-7 and 2e-16.
MAKERS = {
    "DualAnchor": lambda params, **options: DualAnchor(params, LR, ROUNDS + 1, **options),
    "OHM": lambda params, **options: OHM(params, LR, **options),
    "ExtraGradient": lambda params, **options: ExtraGradient(params, LR, **options),
    "OptimisticGradient": lambda params, **options: OptimisticGradient(params, LR, **options),
}


class Players:
    """Three tensors, of which the second ascends, and an affine monotone field with noise that is fixed per call."""

    def __init__(self, make, dtype=torch.float64, **options):
        rng = np.random.default_rng(5)
        self.sizes = [int(np.prod(shape)) for shape in SHAPES]
        d = sum(self.sizes)
        skew = rng.normal(size=(d, d)) / d
        self.matrix, self.offset = np.eye(d) + skew - skew.T, rng.normal(size=d)
        self.noise, self.calls = rng.normal(size=(2 * ROUNDS, d)), 0
        self.params = [torch.tensor(rng.normal(size=shape), dtype=dtype, requires_grad=True) for shape in SHAPES]
        self.start = self.point()
        groups = [{"params": [self.params[0], self.params[2]]}, {"params": [self.params[1]], "maximize": True}]
        self.optimizer = make(groups, **options)

    def point(self):
        return np.concatenate([p.detach().numpy().reshape(-1) for p in self.params])

    def field(self, x):
        """The field as NumPy sees it, in the type of x; the next call has other noise."""
        self.calls += 1
        return (self.matrix @ x + self.offset + self.noise[self.calls - 1]).astype(x.dtype)

    def backward(self):
        """The same field as gradients: those of the second tensor have the other sign."""
        G = torch.tensor(self.field(self.point())).split(self.sizes)
        for p, g, sign in zip(self.params, G, (1, -1, 1), strict=True):
            p.grad = sign * g.reshape(p.shape)

    def step(self):
        if isinstance(self.optimizer, ExtraGradient):
            self.backward()
            self.optimizer.extrapolate()
        self.backward()
        self.optimizer.step()


def run(make, dtype=torch.float64, **options):
    players = Players(make, dtype, **options)
    points = []
    for _ in range(ROUNDS):
        players.step()
        points.append(players.point())
    return np.array(points)


def by_update(method):
    """A method's own update, in a literal loop."""

    def loop(x, field):
        s = method.init(x)
        for k in range(ROUNDS):
            method.update(k, s, field(s.x))
            yield s.x.copy()

    return loop


def extragradient(x, field):
    for _ in range(ROUNDS):
        ahead = x - LR * field(x)
        x = x - LR * field(ahead)
        yield x


def optimistic(x, field):
    previous = None
    for _ in range(ROUNDS):
        G = field(x)
        x = x - 2 * LR * G + LR * (G if previous is None else previous)
        previous = G
        yield x


def past_extragradient(x, field):
    """Popov's form: x and the point ahead, y; gradients are taken at y only."""
    y, G = x, field(x)
    x = y + LR * G  # G_{-1} = G_0 makes y the point ahead of this one
    for _ in range(ROUNDS):
        x = x - LR * G
        y = x - LR * G
        yield y
        G = field(y)


LITERAL = {
    "DualAnchor": by_update(da.DualOHM(step_size=LR, horizon=ROUNDS + 1)),
    "OHM": by_update(da.OHM(step_size=LR)),
    "ExtraGradient": extragradient,
    "OptimisticGradient": optimistic,
}
WRONG = {
    "horizon off by one": ("DualAnchor", by_update(da.DualOHM(step_size=LR, horizon=ROUNDS + 2))),
    "anchor instead of dual anchor": ("DualAnchor", by_update(da.OHM(step_size=LR))),
    "plain steps": ("OptimisticGradient", by_update(da.SGDA(step_size=LR))),
}


def literal(loop, dtype=torch.float64):
    players = Players(MAKERS["OHM"], dtype)
    return np.array(list(loop(players.start, players.field)))


def difference(a, b):
    return np.max(np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1))


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("name", MAKERS)
def test_every_iterate_is_that_of_the_literal_loop(name, dtype, tolerance, foreach):
    assert difference(run(MAKERS[name], dtype, foreach=foreach), literal(LITERAL[name], dtype)) <= tolerance


def test_popovs_form_has_the_same_points():
    assert difference(run(MAKERS["OptimisticGradient"]), literal(past_extragradient)) <= 1e-12


def test_a_weight_decay_that_begins_in_mid_run_does_not_turn_the_last_field_of_a_player_that_ascends():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = OptimisticGradient([x], LR, maximize=True)
    values = []
    for decay in (0.0, 0.5):
        optimizer.param_groups[0]["weight_decay"] = decay
        x.grad = torch.full_like(x, 3.0)
        optimizer.step()
        values.append(x.item())
    first = 1 + LR * 3
    assert values == pytest.approx([first, first - 2 * LR * (0.5 * first - 3) + LR * -3], rel=1e-14)


@pytest.mark.parametrize(("name", "loop"), WRONG.values(), ids=WRONG)
def test_wrong_loops_are_told_apart(name, loop):
    assert difference(run(MAKERS[name]), literal(loop)) > 1e-3


@pytest.mark.parametrize("name", MAKERS)
def test_lists_of_tensors_take_the_same_steps_as_single_ones(name):
    np.testing.assert_allclose(run(MAKERS[name], foreach=True), run(MAKERS[name], foreach=False), rtol=1e-14)
    np.testing.assert_array_equal(run(MAKERS[name]), run(MAKERS[name], foreach=True))


@pytest.mark.parametrize("method", [da.DualOHM(step_size=LR, horizon=ROUNDS + 1), da.OHM(step_size=LR)])
def test_the_methods_own_update_runs_on_tensors(method):
    start = torch.linspace(-1, 1, 7, dtype=torch.float64)
    s = State(x=start.clone(), z=torch.zeros_like(start), anchor=start.clone())
    p = start.clone().requires_grad_()
    optimizer = MAKERS["DualAnchor" if isinstance(method, da.DualOHM) else "OHM"]([p])
    for k in range(ROUNDS):
        p.grad = torch.tanh(p.detach()) + 1
        method.update(k, s, torch.tanh(s.x) + 1)
        optimizer.step()
    torch.testing.assert_close(p.detach(), s.x, rtol=1e-12, atol=0)


def test_each_group_has_its_own_step_size():
    p, q = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = DualAnchor([{"params": p, "lr": 0.5}, {"params": q}], lr=0.25, horizon=2)
    (p.sum() + q.sum()).backward()
    optimizer.step()  # x - lr (G - G/2)
    assert (p.tolist(), q.tolist()) == ([0.75] * 2, [0.875] * 2)


@pytest.mark.parametrize("name", MAKERS)
def test_tensors_of_different_types_may_share_a_group(name):
    params = [torch.ones(2, dtype=dtype, requires_grad=True) for dtype in (torch.float32, torch.float64)]
    optimizer = MAKERS[name](params)

    def closure():
        optimizer.zero_grad()
        sum((p**2).sum() for p in params).backward()

    for _ in range(3):
        optimizer.step(closure)
    assert [p.dtype for p in params] == [torch.float32, torch.float64]
    torch.testing.assert_close(params[0].double(), params[1], rtol=1e-6, atol=0)
    assert params[1].max() < 0.9


@pytest.mark.parametrize("name", MAKERS)
def test_closure_computes_the_gradients(name):
    p = torch.ones(2, dtype=torch.float64, requires_grad=True)
    q = p.detach().clone().requires_grad_()
    with_closure, by_hand = MAKERS[name]([p]), MAKERS[name]([q])

    def closure():
        assert torch.is_grad_enabled()
        with_closure.zero_grad()
        loss = (p**4).sum()
        loss.backward()
        return loss

    def backward():
        by_hand.zero_grad()
        (q**4).sum().backward()

    for _ in range(3):
        before = (p.detach() ** 4).sum()
        with torch.no_grad():
            assert with_closure.step(closure) == before
        backward()
        if name == "ExtraGradient":
            by_hand.extrapolate()
            backward()
        assert by_hand.step() is None
    torch.testing.assert_close(p, q, rtol=0, atol=0)


@pytest.mark.parametrize("name", MAKERS)
def test_saved_state_goes_on_with_the_same_steps(name):
    whole = run(MAKERS[name])[-1]
    first, second = Players(MAKERS[name]), Players(MAKERS[name])
    for _ in range(ROUNDS // 2):
        first.step()
    file = io.BytesIO()
    torch.save({"params": first.params, "optimizer": first.optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    with torch.no_grad():
        for p, value in zip(second.params, saved["params"], strict=True):
            p.copy_(value)
    second.optimizer.load_state_dict(saved["optimizer"])
    second.calls = first.calls
    for _ in range(ROUNDS - ROUNDS // 2):
        second.step()
    np.testing.assert_array_equal(second.point(), whole)


@pytest.mark.parametrize("name", MAKERS)
def test_states_of_other_optimisers_are_refused_when_they_are_loaded(name):
    def parameters():
        return [torch.ones(2, requires_grad=True)]

    others = [MAKERS[other](parameters()) for other in MAKERS if other != name]
    others += [torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters()), torch.optim.LBFGS(parameters())]
    for other in others:
        optimizer = MAKERS[name](parameters())
        with pytest.raises(
            ValueError, match=rf"{name}: load_state_dict takes a state saved by {name}. Got groups with"
        ):
            optimizer.load_state_dict(other.state_dict())
        assert optimizer.param_groups[0]["lr"] == LR


def test_a_new_state_of_the_regularised_kind_is_refused():
    plain = DualAnchor([torch.ones(2, requires_grad=True)], lr=LR, total_steps=9)
    regularised = RegularisedDualAnchor([torch.ones(2, requires_grad=True)], lr=LR, total_steps=9, delta=0.1)
    for optimizer, other, evidence in ((plain, regularised, "with delta"), (regularised, plain, "without delta")):
        with pytest.raises(ValueError, match=rf"load_state_dict takes .* Got groups {evidence}, as of another"):
            optimizer.load_state_dict(other.state_dict())


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_is_loaded_again_and_again(name):
    """Also by an optimiser that has loaded one before, as in accelerate, and with a group added in between."""
    first, second = (MAKERS[name]([torch.ones(2, requires_grad=True)]) for _ in range(2))
    saved = first.state_dict()
    second.load_state_dict(saved)
    second.load_state_dict(saved)
    for optimizer in (first, second):
        optimizer.add_param_group({"params": torch.ones(3, requires_grad=True)})
    first.load_state_dict(second.state_dict())
    assert first.param_groups[1].keys() == first.param_groups[0].keys()


def test_a_buffer_of_an_earlier_version_is_refused():
    first, second = (DualAnchor([torch.ones(2, requires_grad=True)], lr=LR, horizon=9) for _ in range(2))
    saved = first.state_dict()
    saved["state"] = {0: {"mean": torch.zeros(2)}}
    with pytest.raises(ValueError, match=r"load_state_dict takes a state saved by DualAnchor. Got groups with mean"):
        second.load_state_dict(saved)


@pytest.mark.parametrize(
    ("saved", "here", "changes"),
    [
        ({}, {"total_steps": 100}, "total_steps of 60 in place of 100"),
        ({"averaged": True}, {}, "averaged=0.5 in place of 0"),
        ({"prox": torch.clamp_min}, {}, "a prox in place of none"),
        ({}, {"prox": torch.clamp_min, "averaged": 0.25}, "averaged=0 in place of 0.25, no prox in place of one"),
    ],
)
def test_a_state_with_other_settings_warns_when_it_is_loaded(saved, here, changes):
    first, second = (
        DualAnchor([torch.ones(2, requires_grad=True)], lr=LR, **{"total_steps": 60, **options})
        for options in (saved, here)
    )
    state = first.state_dict()
    message = rf"DualAnchor: load_state_dict takes .*\. Got a state with {changes}\. Make the optimiser as it was"
    with pytest.warns(da.errors.HorizonWarning, match=message) as seen:
        second.load_state_dict(state)
    assert seen[0].filename == __file__
    assert (second.param_groups[0]["prox"] is None) is ("prox" not in here)
    first.load_state_dict(state)
    for group in state["param_groups"]:  # as earlier versions saved it
        del group["prox"]
    first.load_state_dict(state)


def test_a_state_saved_beside_a_scheduler_is_its_own():
    first, second = (DualAnchor([torch.ones(2, requires_grad=True)], lr=LR, horizon=9) for _ in range(2))
    torch.optim.lr_scheduler.OneCycleLR(first, max_lr=1.0, total_steps=8, cycle_momentum=False)
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == first.param_groups[0]["lr"] != LR


@pytest.mark.parametrize("name", MAKERS)
def test_a_group_added_on_the_way_moves_as_if_it_had_been_there_without_gradients(name):
    def moved(late):
        p, q = (torch.full((2,), value, dtype=torch.float64, requires_grad=True) for value in (1.0, 2.0))
        optimizer = MAKERS[name]([p] if late else [{"params": p}, {"params": q}])

        def closure():
            p.grad = p.detach() + (q.detach() if round >= 5 else 0)
            q.grad = q.detach() - p.detach() if round >= 5 else None

        for round in range(10):
            if late and round == 5:
                optimizer.add_param_group({"params": q})
            optimizer.step(closure)
        return torch.cat([p, q]).tolist()

    assert moved(late=True) == moved(late=False)


def test_a_group_added_on_the_way_takes_the_steps_of_a_shorter_horizon():
    N, k = 12, 5
    late, alone = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    first = DualAnchor([torch.ones(1, requires_grad=True)], lr=LR, horizon=N)
    for _ in range(k):
        first.step()
    first.add_param_group({"params": late})
    assert [group["k"] for group in first.param_groups] == [k, k]
    second = DualAnchor([alone], lr=LR, horizon=N - k)
    for round in range(N - k - 1):
        late.grad, alone.grad = late.detach() + round, alone.detach() + round
        first.step()
        second.step()
    assert late.tolist() == alone.tolist()
    assert (first.remaining, second.remaining) == (0, 0)  # both end here


def test_a_group_added_after_a_restart_has_the_new_horizon():
    p, q = (torch.ones(1, requires_grad=True) for _ in range(2))
    optimizer = DualAnchor([p], lr=LR, horizon=3)
    optimizer.restart(horizon=20)
    optimizer.add_param_group({"params": q})
    assert [group["horizon"] for group in optimizer.param_groups] == [20, 20]


def test_settings_of_numpy_types_are_saved_as_plain_numbers():
    optimizer = DualAnchor(
        [torch.ones(1, requires_grad=True)], lr=np.float32(0.5), horizon=np.int64(9), maximize=np.True_
    )
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    (group,) = torch.load(file, weights_only=True)["param_groups"]
    assert (group["lr"], group["horizon"], group["maximize"]) == (0.5, 9, True)


def test_a_step_between_the_two_phases_can_be_saved():
    first, second = Players(MAKERS["ExtraGradient"]), Players(MAKERS["ExtraGradient"])
    first.backward()
    first.optimizer.extrapolate()
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    first.backward()
    for p, q in zip(first.params, second.params, strict=True):
        q.grad = p.grad.clone()
    first.optimizer.step()
    second.optimizer.step()
    np.testing.assert_array_equal(first.point(), second.point())


def test_parameters_stay_after_the_last_step():
    players = Players(MAKERS["DualAnchor"])
    for left in range(ROUNDS, 0, -1):
        assert players.optimizer.remaining == left
        players.step()
    end, calls = players.point(), []
    with pytest.warns(da.errors.HorizonWarning, match=rf"a further step, after {ROUNDS} of {ROUNDS} steps\. .*restart"):
        players.optimizer.step(lambda: calls.append(1))
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        players.optimizer.step(lambda: calls.append(1))
    np.testing.assert_array_equal(players.point(), end)
    assert len(calls) == 2  # a loop still sees its losses


def test_shortest_horizon_ends_the_run():
    p, q = (torch.ones(1, requires_grad=True) for _ in range(2))
    optimizer = DualAnchor([{"params": p, "total_steps": 1}, {"params": q}], lr=0.1, horizon=9)
    p.grad, q.grad = torch.ones(1), torch.ones(1)
    assert optimizer.remaining == 1
    optimizer.step()
    before = q.item()
    optimizer.step()
    assert q.item() == before


@pytest.mark.parametrize("name", ["DualAnchor", "OHM"])
def test_restart_begins_again_from_here(name):
    first, second = Players(MAKERS[name]), Players(MAKERS[name])
    for _ in range(7):
        first.step()
    first.optimizer.restart()
    with torch.no_grad():
        for p, q in zip(first.params, second.params, strict=True):
            q.copy_(p)
    second.calls = first.calls
    for _ in range(5):
        first.step()
        second.step()
        np.testing.assert_array_equal(first.point(), second.point())


def test_restart_with_another_horizon():
    p = torch.ones(1, requires_grad=True)
    optimizer = DualAnchor([p], lr=0.5, horizon=1)
    optimizer.restart(horizon=2)
    p.grad = torch.ones(1)
    optimizer.step()
    assert p.item() == 0.75
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        optimizer.restart(horizon=0)


@pytest.mark.parametrize("name", MAKERS)
def test_parameters_without_gradient_are_left_as_they_are(name):
    """The others go on as if they were alone, and the round counts for all."""
    alone, both = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    silent = torch.full((2,), 3.0, requires_grad=True)
    one, two = MAKERS[name]([alone]), MAKERS[name]([both, silent])
    for round in range(5):
        heard = round in (0, 3)
        before = silent.detach().clone()
        for _ in range(2 if name == "ExtraGradient" else 1):
            alone.grad, both.grad = alone.detach().clone(), both.detach().clone()
            silent.grad = torch.ones(2) if heard else None
            for optimizer in (one, two):
                if name == "ExtraGradient" and not optimizer.param_groups[0]["ahead"]:
                    optimizer.extrapolate()
                else:
                    optimizer.step()
        torch.testing.assert_close(alone, both, rtol=0, atol=0)
        assert torch.equal(silent, before) is not heard


def test_a_round_without_gradient_still_counts():
    p, q = (torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = DualAnchor([p, q], lr=1.0, horizon=3)
    for gradient in (None, torch.ones(1, dtype=torch.float64)):
        p.grad, q.grad = gradient, torch.zeros(1, dtype=torch.float64)
        optimizer.step()
    assert p.item() == pytest.approx(-0.5, abs=1e-15)  # k = 1: half of the gradient goes into the mean


def test_gradients_present_in_one_phase_only():
    p, q = (torch.ones(1, requires_grad=True) for _ in range(2))
    optimizer = ExtraGradient([p, q], lr=0.5)
    p.grad = torch.ones(1)
    optimizer.extrapolate()
    assert (p.item(), q.item()) == (0.5, 1.0)
    p.grad, q.grad = None, torch.ones(1)
    optimizer.step()
    assert (p.item(), q.item()) == (1.0, 0.5)


def test_an_extragradient_step_that_fails_changes_nothing():
    p = torch.ones(1, requires_grad=True)
    optimizer = ExtraGradient([p], lr=0.5)
    seen = []

    def closure():
        seen.append(p.item())
        if len(seen) == 2:
            raise RuntimeError("no second batch")
        p.grad = torch.ones(1)

    with pytest.raises(RuntimeError, match="no second batch"):
        optimizer.step(closure)
    assert seen == [1.0, 0.5]
    assert p.item() == 1.0
    optimizer.step(closure)
    assert seen[2:] == [1.0, 0.5]


def test_extragradient_insists_on_its_two_phases():
    p = torch.ones(1, requires_grad=True)
    optimizer = ExtraGradient([p], lr=0.5)
    p.grad = torch.ones(1)
    with pytest.raises(ValueError, match=r"extrapolate\(\) began"):
        optimizer.step()
    optimizer.extrapolate()
    for begin in (optimizer.extrapolate, lambda: optimizer.step(lambda: None)):
        with pytest.raises(ValueError, match="at the point ahead already"):
            begin()


@pytest.mark.parametrize("name", MAKERS)
def test_sparse_gradients_are_refused_before_anything_moves(name):
    p = torch.ones(3, requires_grad=True)
    embedding = torch.nn.Embedding(4, 3, sparse=True)
    optimizer = MAKERS[name]([{"params": [p]}, {"params": embedding.parameters()}])
    (embedding(torch.tensor([1])) @ p).sum().backward()
    step = optimizer.extrapolate if name == "ExtraGradient" else optimizer.step
    with pytest.raises(TypeError, match=rf"{name}: gradients must be dense. Got .*sparse_coo"):
        step()
    assert torch.equal(p.detach(), torch.ones(3))


@pytest.mark.parametrize("name", MAKERS)
def test_complex_parameters_are_refused_at_once(name):
    p, z = torch.ones(1, requires_grad=True), torch.ones(2, dtype=torch.complex64, requires_grad=True)
    with pytest.raises(TypeError, match=rf"{name}: parameters must be real. Got a complex one"):
        MAKERS[name]([p, z])
    optimizer = MAKERS[name]([p])
    with pytest.raises(TypeError, match="parameters must be real"):
        optimizer.add_param_group({"params": iter([z])})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("options", "error", "rule"),
    [
        ({"lr": 0.0}, ValueError, "DualAnchor: lr must be positive and finite. Got 0.0"),
        ({"lr": float("nan")}, ValueError, "lr must be positive and finite. Got nan"),
        ({"lr": "fast"}, TypeError, "DualAnchor: lr must be a number. Got 'fast'"),
        ({"lr": torch.tensor([0.1, 0.2])}, TypeError, "lr must be a number. Got tensor("),
        ({"horizon": 0}, ValueError, "DualAnchor: horizon must be at least 1. Got 0"),
        ({"horizon": 10.5}, TypeError, "DualAnchor: horizon must be an integer. Got 10.5"),
        ({"maximize": "yes"}, TypeError, "DualAnchor: maximize must be True or False. Got 'yes'"),
        ({"maximize": None}, TypeError, "DualAnchor: maximize must be True or False. Got None"),
    ],
)
def test_settings_are_checked_for_every_group(options, error, rule):
    p, q = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    with pytest.raises(error, match=re.escape(rule)):
        DualAnchor([p], **{"lr": 0.1, "horizon": 10, **options})
    optimizer = DualAnchor([p], lr=0.1, horizon=10)
    with pytest.raises(error, match=re.escape(rule)):
        optimizer.add_param_group({"params": q, **options})
    assert len(optimizer.param_groups) == 1


def test_a_scheduler_changes_the_step_of_the_gradients_to_come():
    """Each gradient enters x and z with the lr of its own step."""
    p = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = DualAnchor([p], lr=1.0, horizon=4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    z, x = 0.0, 0.0
    for k, g in enumerate([1.0, -2.0, 4.0]):
        p.grad = torch.full_like(p, g)
        optimizer.step()
        scheduler.step()
        z = ((4 - k - 1) * z - 0.5**k * g) / (4 - k)
        x -= 0.5**k * g + z
    assert p.item() == pytest.approx(x, abs=1e-14)


def test_a_scheduler_may_bring_lr_to_zero():
    p = torch.ones(1, requires_grad=True)
    optimizer = DualAnchor([p], lr=0.5, horizon=3)
    optimizer.param_groups[0]["lr"] = 0.0
    p.grad = torch.ones(1)
    optimizer.step()
    assert p.item() == 1.0


def test_subclasses_of_tensors_are_taken_one_by_one():
    class Named(torch.nn.Parameter):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            assert "_foreach" not in function.__name__
            return super().__torch_function__(function, types, args, kwargs or {})

    p = Named(torch.ones(2))
    p.grad = torch.ones(2)
    DualAnchor([p], lr=0.5, horizon=2).step()
    assert p.detach().tolist() == [0.75, 0.75]


@pytest.mark.parametrize("name", MAKERS)
def test_copies_and_hooks_work_as_in_any_optimizer(name):
    p = torch.ones(1, requires_grad=True)
    optimizer = MAKERS[name]([p])
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(p.item()))

    def closure():
        optimizer.zero_grad()
        p.sum().backward()

    optimizer.step(closure)
    assert seen == [p.item()]
    assert copy.deepcopy(optimizer).state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    assert name in repr(optimizer)


def test_settings_of_a_group_that_nothing_reads_are_turned_down():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"DualAnchor: setting of a group .*'maximise'. Did you mean maximize"):
        DualAnchor([{"params": x, "maximise": True}], lr=0.1, horizon=5)
    with pytest.raises(ValueError, match=r"'dampening'. Choose one of foreach, lr, maximize, weight_decay"):
        ExtraGradient([{"params": x, "dampening": 0.1}], lr=0.1)
    DualAnchor([{"params": [("x", x)], "name": "player", "initial_lr": 0.1}], lr=0.1, horizon=5)


def test_an_extragradient_step_whose_second_gradient_is_refused_has_changed_nothing():
    a, calls = torch.ones(3, requires_grad=True), []
    optimizer = ExtraGradient([a], lr=0.1)

    def closure():
        calls.append(1)
        a.grad = torch.ones(3) if len(calls) % 2 else torch.ones(3).to_sparse()
        return torch.tensor(1.0)

    for _ in range(2):
        with pytest.raises(da.errors.ArgumentTypeError, match="gradients must be dense"):
            optimizer.step(closure)
        assert a.tolist() == [1.0, 1.0, 1.0]
        assert not optimizer.param_groups[0]["ahead"]


@pytest.mark.parametrize("unscaled", [False, True])
def test_extragradient_refuses_steps_by_grad_scaler(unscaled):
    """GradScaler unscales the gradients of one backward pass per step; without it nothing has changed afterwards."""
    p = torch.ones(1, requires_grad=True)
    optimizer, scaler = ExtraGradient([p], lr=0.25), torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(p @ p / 2).backward()
    if unscaled:
        scaler.unscale_(optimizer)
    optimizer.extrapolate()
    scaler.scale(p @ p / 2).backward()
    with pytest.raises(
        ValueError, match=r"two gradients, and GradScaler unscales only .* Got a step by GradScaler\. Use"
    ):
        scaler.step(optimizer)
    assert p.item() == 1.0
    for _ in range(2):  # and it works on without the scaler
        optimizer.zero_grad()
        (p @ p / 2).backward()
        optimizer.step() if optimizer.param_groups[0]["ahead"] else optimizer.extrapolate()
    assert p.item() == 1 - 0.25 * 0.75


def test_warnings_about_the_horizon_point_to_the_line_of_the_caller():
    p = torch.ones(1, requires_grad=True)
    optimizer = DualAnchor([p], lr=LR, total_steps=2)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)  # wraps `step` once more
    scaler = torch.amp.GradScaler("cpu")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        scaler.scale((p * torch.inf).sum()).backward()
        scaler.step(optimizer)
        optimizer.state_dict()
        optimizer.step()
        optimizer.step()
        dropped = DualAnchor([p], lr=LR, total_steps=2)
        dropped.step()
        del dropped
    seen = [one for one in seen if issubclass(one.category, HorizonWarning)]
    lines = [linecache.getline(one.filename, one.lineno).strip() for one in seen]
    assert lines == ["scaler.step(optimizer)", "optimizer.state_dict()", "optimizer.step()", "del dropped"]
