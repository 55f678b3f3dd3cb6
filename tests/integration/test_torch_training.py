"""Training loops as people write them: each of these tests trains a model to the end."""

import gc
import io
import math
import warnings

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.method import State

torch = pytest.importorskip("torch")

from torch.optim.swa_utils import AveragedModel  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from dualanchor.integrations.torch import DualAnchor, RegularisedDualAnchor, tapered_batches  # noqa: E402

HorizonWarning = da.errors.HorizonWarning
WEIGHT = torch.tensor([[1.0, -2.0, 0.5]])


def data(rows=96):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=rng)
    return TensorDataset(x, x @ WEIGHT.T + 0.1 * torch.randn(rows, 1, generator=rng))


def regression():
    torch.manual_seed(1)
    return torch.nn.Linear(3, 1)


def loss_of(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def error(model):
    return (model.weight.detach() - WEIGHT).norm().item()


def train(model, optimizer, loader, epochs, after=lambda: None):
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            after()


def loader(batch_size=8, **options):
    return DataLoader(
        data(), batch_size=batch_size, shuffle=True, generator=torch.Generator().manual_seed(2), **options
    )


@pytest.mark.parametrize("averaged", [False, True])
def test_total_steps_are_epochs_times_batches(averaged):
    model, batches, epochs = regression(), loader(), 10
    optimizer = DualAnchor(model.parameters(), lr=0.3, total_steps=epochs * len(batches), averaged=averaged)
    train(model, optimizer, batches, epochs)  # every warning is an error here
    assert optimizer.remaining == 0
    assert error(model) < 0.15  # at the start 2.4


def test_accumulated_gradients_count_as_one_step():
    model, batches, epochs, every = regression(), loader(), 10, 5
    steps = epochs * math.ceil(len(batches) / every)  # the count that Lightning calls estimated_stepping_batches
    optimizer = DualAnchor(model.parameters(), lr=0.3, total_steps=steps)
    for _ in range(epochs):
        for i, batch in enumerate(batches):
            (loss_of(model, batch) / every).backward()
            if (i + 1) % every == 0 or i + 1 == len(batches):
                optimizer.step()
                optimizer.zero_grad()
    assert optimizer.remaining == 0
    assert error(model) < 0.3  # at the start 2.4


def drop(held):
    held.clear()
    gc.collect()


def test_a_run_dropped_before_its_end_is_said():
    model = regression()
    optimizer = DualAnchor(model.parameters(), lr=0.1, total_steps=1000)
    train(model, optimizer, loader(), 1)
    held = [optimizer]
    del optimizer
    with pytest.warns(HorizonWarning, match=r"dropped, after 12 of 1000 steps\. Make total_steps the number of steps"):
        drop(held)


def test_a_saved_or_finished_run_may_be_dropped():
    for steps, saved in ((1000, True), (12, False)):
        model = regression()
        optimizer = DualAnchor(model.parameters(), lr=0.3, total_steps=steps)
        train(model, optimizer, loader(), 1)
        if saved:
            with pytest.warns(HorizonWarning, match="a state saved in mid-run, after 12 of 1000 steps"):
                optimizer.state_dict()
            optimizer.state_dict()  # said once
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            del optimizer
            gc.collect()
        assert not seen


def test_steps_that_grad_scaler_skips_count():
    model, batches, epochs = regression(), loader(), 10
    optimizer = DualAnchor(model.parameters(), lr=0.3 / 1024, total_steps=epochs * len(batches))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=10_000)  # overflows at first

    def step(batch):
        optimizer.zero_grad()
        scaler.scale(1024 * loss_of(model, batch)).backward()
        before, scale = model.weight.detach().clone(), scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(model.weight, before) is (scaler.get_scale() < scale)
        return scaler.get_scale() < scale

    first = next(iter(batches))
    with pytest.warns(HorizonWarning, match="a step that GradScaler skips, after 0 of 120 steps"):
        assert step(first)
    skipped = 1 + sum(step(batch) for _ in range(epochs) for batch in list(batches)[_ == 0 :])
    assert 1 < skipped < 60
    assert optimizer.remaining == 0
    assert error(model) < 0.15  # at the start 2.4


@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.HorizonWarning")
@pytest.mark.parametrize("skipped", [4, 5])
def test_a_step_that_grad_scaler_skips_is_as_one_without_gradients(skipped):
    """Also in the mean, and after the last step, which writes it."""

    def end(scaled):
        p = torch.ones(1, requires_grad=True)
        optimizer = DualAnchor([p], lr=0.1, total_steps=6, averaged=True)
        scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=4.0)
        for k in range(6):
            optimizer.zero_grad()
            if k != skipped or scaled:
                scaler.scale(p @ p / 2 * (float("inf") if k == skipped else 1.0)).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        return p.detach()

    torch.testing.assert_close(end(True), end(False))


def test_grad_scaler_changes_nothing_where_nothing_overflows():
    ends = []
    for enabled in (False, True):
        model, batches = regression(), loader()
        optimizer = DualAnchor(model.parameters(), lr=0.1, total_steps=2 * len(batches))
        scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=1024.0)
        for i, batch in enumerate([*batches, *batches]):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, batch)).backward()
            if i % 2:  # as before clipping
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        ends.append(model.weight.detach())
    torch.testing.assert_close(*ends)


def test_a_run_resumed_in_mid_epoch_takes_the_same_steps():
    rows, steps, stop = data(), 40, 23

    def run(model, optimizer, start, end):
        sampler = tapered_batches(4 * len(rows), steps, rows=len(rows), least=4, start=start)
        for k, batch in enumerate(DataLoader(rows, batch_sampler=sampler), start):
            if k == end:
                break
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()

    def made():
        model = regression()
        return model, DualAnchor(model.parameters(), lr=0.1, total_steps=steps, averaged=True)

    whole = made()
    run(*whole, 0, steps)
    first, second = made(), made()
    run(*first, 0, stop)
    file = io.BytesIO()
    with pytest.warns(HorizonWarning, match="saved in mid-run"):
        torch.save({"model": first[0].state_dict(), "optimizer": first[1].state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second[0].load_state_dict(saved["model"])
    second[1].load_state_dict(saved["optimizer"])
    run(*second, stop, steps)
    assert torch.equal(second[0].weight, whole[0].weight)
    assert second[1].remaining == 0
    assert error(second[0]) < 0.3


def test_a_layer_that_is_unfrozen_later():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 1))
    batches, epochs = loader(), 20
    optimizer = DualAnchor(model[1].parameters(), lr=0.05, total_steps=epochs * len(batches))
    train(model, optimizer, batches, 5)
    halfway = loss_of(model, data().tensors).item()
    optimizer.add_param_group({"params": model[0].parameters()})
    train(model, optimizer, batches, epochs - 5)
    assert optimizer.remaining == 0
    assert loss_of(model, data().tensors).item() < 0.5 * halfway


@pytest.mark.slow
@pytest.mark.parametrize("lr", [0.3, torch.tensor(0.3)], ids=["float", "tensor"])
def test_compiled_steps_with_a_cosine_schedule(lr):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, steps, ends = CompileCounterWithBackend("eager"), 200, []
    for compiled in (False, True):
        model = regression()
        optimizer = DualAnchor(
            model.parameters(), lr=lr if not isinstance(lr, torch.Tensor) else lr.clone(), total_steps=steps
        )
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        step, batches = torch.compile(optimizer.step, backend=counter) if compiled else optimizer.step, loader(24)
        for _ in range(steps // len(batches)):
            for batch in batches:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                step()
                scheduler.step()
        assert optimizer.remaining == 0
        assert error(model) < 0.4  # at the start 2.4
        ends.append(model.weight.detach())
    torch.testing.assert_close(*ends)
    assert 1 <= counter.frame_count <= 3


@pytest.mark.parametrize("kind", ["OneCycleLR", "CyclicLR"])
def test_schedulers_that_cycle_momentum_by_default(kind):
    model, batches = regression(), loader()
    optimizer = DualAnchor(model.parameters(), lr=0.3, total_steps=8 * len(batches))
    options = {"total_steps": 8 * len(batches), "max_lr": 0.4}
    if kind == "CyclicLR":
        options = {"base_lr": 0.1, "max_lr": 0.4, "step_size_up": 20}
    scheduler = getattr(torch.optim.lr_scheduler, kind)(optimizer, **options)
    train(model, optimizer, batches, 8, scheduler.step)
    assert error(model) < 0.4  # at the start 2.4


def test_averages_are_those_of_averaged_model():
    model, batches, epochs = regression(), loader(), 6
    total = epochs * len(batches)
    optimizer = DualAnchor(model.parameters(), lr=0.1, total_steps=total, averaged=True)
    reference, taken = AveragedModel(model), []

    def look():
        taken.append(1)
        if total // 2 < len(taken) < total:
            reference.update_parameters(model)
            ours = optimizer.averaged_model(model)
            assert ours.n_averaged == reference.n_averaged
            torch.testing.assert_close(ours.module.weight, reference.module.weight)

    with pytest.raises(ValueError, match=r"averaged_model needs points to average\. Got none after 0 steps"):
        optimizer.averaged_model(model)
    train(model, optimizer, batches, epochs, look)
    mean = optimizer.averaged_model(model)
    assert torch.equal(mean.module.weight, model.weight)  # the last step has put it there
    assert mean.n_averaged == total // 2


@pytest.mark.slow
def test_a_player_on_the_simplex_stays_there_and_finds_the_solution():
    """Minimise over u, maximise over q in the simplex: q @ (u - c)^2 / 2 - |q|^2 / 2, by library and optimiser."""
    c = torch.tensor([0.0, 1.0, 4.0])

    def phi(u, q):
        return q @ (u - c).square() / 2 - q @ q / 2

    u, q = torch.zeros(1, requires_grad=True), torch.tensor([3.0, 1.0, 0.0], requires_grad=True)
    groups = [{"params": u}, {"params": q, "maximize": True, "prox": da.prox.simplex()}]
    optimizer = DualAnchor(groups, lr=0.05, total_steps=4000)
    assert q.tolist() == [1.0, 0.0, 0.0]
    for _ in range(4000):
        optimizer.zero_grad()
        phi(u, q).backward()
        optimizer.step()
        assert q.min() >= 0
        assert q.sum().item() == pytest.approx(1, abs=1e-5)
    optimizer.zero_grad()
    phi(u, q).backward()
    assert u.grad.abs().item() < 0.02
    best = da.prox.simplex()((q + q.grad).detach().numpy())  # q is the projection of a step from it
    np.testing.assert_allclose(best, q.detach(), atol=0.02)
    saved = optimizer.state_dict()
    assert [group["prox"] for group in saved["param_groups"]] == [False, True]
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[1]["prox"] is groups[1]["prox"]


def test_a_prox_of_tensors_keeps_a_penalty():
    """Soft thresholding: the solution of min (x - 3)^2/2 + |x| is 2, of (x - 0.5)^2/2 + |x| it is 0."""
    x = torch.zeros(2, requires_grad=True)
    target = torch.tensor([3.0, 0.5])
    soft = lambda z, step: z.sign() * (z.abs() - step).clamp(min=0)  # noqa: E731
    optimizer = DualAnchor([x], lr=0.5, total_steps=300, prox=soft)
    for _ in range(300):
        optimizer.zero_grad()
        ((x - target).square().sum() / 2).backward()
        optimizer.step()
    np.testing.assert_allclose(x.detach(), [2, 0], atol=0.02)
    bad = DualAnchor([torch.ones(2, requires_grad=True)], lr=0.5, total_steps=9)
    bad.param_groups[0]["prox"] = lambda z, step: z.sum()
    bad.param_groups[0]["params"][0].grad = torch.ones(2)
    with pytest.raises(da.errors.OracleError, match=r"prox must return a tensor of shape \(2,\).*Got shape \(\)"):
        bad.step()


def test_weight_decay_is_a_penalty_of_both_players():
    ends = []
    for decay in (0.0, 0.3):
        u, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        groups = [{"params": u}, {"params": v, "maximize": True}]
        optimizer = DualAnchor(groups, lr=0.2, total_steps=50, weight_decay=decay)
        for _ in range(50):
            optimizer.zero_grad()
            penalty = (0.3 - decay) * (u @ u - v @ v) / 2
            (u @ v + u.sum() + penalty).backward()
            optimizer.step()
        ends.append(torch.cat([u, v]).detach())
    torch.testing.assert_close(*ends)


def test_regularised_steps_are_those_of_the_method():
    method = da.RegularisedDualOHM(step_size=0.1, horizon=31, delta=0.2)
    start = torch.linspace(-1, 1, 6, dtype=torch.float64)
    s = State(x=start.clone(), z=torch.zeros_like(start), anchor=start.clone())
    p = start.clone().requires_grad_()
    optimizer = RegularisedDualAnchor([p], lr=0.1, delta=0.2, total_steps=30)
    for k in range(30):
        p.grad = p.detach().roll(3) + 1
        method.update(k, s, s.x.roll(3) + 1)
        optimizer.step()
    torch.testing.assert_close(p.detach(), s.x, rtol=1e-12, atol=0)


def test_a_learning_rate_from_a_look_at_batches():
    """The constant of a batch is far below that of its rows: here about 2 against up to 2 * max |x|^2."""
    model, batches, epochs = regression(), loader(32), 60
    before = [p.detach().clone() for p in model.parameters()]
    random = torch.random.get_rng_state()
    few = [batch for _, batch in zip(range(3), batches, strict=False)]
    look = (lambda batch: loss_of(model, batch), few)
    optimizer = DualAnchor(model.parameters(), lr="auto", total_steps=epochs * len(batches), look=look)
    hessians = [
        2 * torch.cat([x, torch.ones(len(x), 1)], 1).T @ torch.cat([x, torch.ones(len(x), 1)], 1) / len(x)
        for x, _ in few
    ]
    largest = max(torch.linalg.matrix_norm(one, 2).item() for one in hessians)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / largest, rel=0.1)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert torch.equal(torch.random.get_rng_state(), random)
    train(model, optimizer, batches, epochs)
    assert error(model) < 0.15  # at the start 2.4
    for options, received in (({"lr": "auto"}, "Got no look"), ({"lr": 0.1, "look": look}, "Got lr=0.1 and a look")):
        with pytest.raises(ValueError, match=rf"lr=\"auto\" and look go together\. {received}\. Pass lr=\"auto\""):
            DualAnchor(model.parameters(), total_steps=9, **options)
    with pytest.raises(ValueError, match=r"look must show how fast gradients change\. Got a largest slope of 0"):
        DualAnchor(model.parameters(), lr="auto", total_steps=9, look=(lambda batch: model.weight.sum(), few))
    with pytest.raises(ValueError, match=r"look: the loss must be finite\. Got a loss of nan\. Check loss\(batch\)"):
        DualAnchor(
            model.parameters(), lr="auto", total_steps=9, look=(lambda batch: model.weight.sum() * math.nan, few)
        )


def test_tapered_batches_spend_the_rows_at_the_end():
    sampler = tapered_batches(5000, 100, rows=300, least=15, most=900, seed=3)
    batches = list(sampler)
    assert tuple(map(len, batches)) == sampler.sizes
    assert 4990 <= sum(sampler.sizes) <= 5000
    assert min(sampler.sizes) == sampler.sizes[0] == 15
    assert sampler.sizes[-1] == max(sampler.sizes) <= 900
    assert list(sampler.sizes) == sorted(sampler.sizes)
    rows = [row for batch in batches for row in batch]
    assert sorted(rows[:300]) == sorted(rows[300:600]) == list(range(300))
    assert rows[:300] != rows[300:600]
    assert list(tapered_batches(5000, 100, rows=300, least=15, most=900, seed=3, start=40)) == batches[40:]
    assert list(tapered_batches(5000, 100, rows=300, least=15, most=900, seed=4)) != batches
    assert sorted(rows for batch in tapered_batches(30, 3, seed=2**62) for rows in batch) == list(range(30))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 20), r"20 batches of 1 to 10 rows must be able to have 10 rows in all\. Got 20 to 200\. Change steps"),
        ((0, 20), r"total must be at least 1\. Got 0"),
        ((10.5, 2), r"total must be an integer\. Got 10.5"),
    ],
)
def test_tapered_batches_that_cannot_be(arguments, message):
    with pytest.raises((ValueError, TypeError), match=f"tapered_batches: {message}"):
        tapered_batches(*arguments)


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ([[]], {}, "a group must have parameters. Got an empty group. Leave the group out"),
        (None, {"horizon": 5}, "exactly one of total_steps and horizon must be given. Got horizon=5 and total_steps=4"),
        (None, {"total_steps": None}, "exactly one of total_steps and horizon must be given. Got neither"),
        (None, {"total_steps": 0}, "total_steps must be at least 1. Got 0. Use epochs"),
        (None, {"averaged": 1.5}, "averaged must be at most 1, a part of the steps. Got 1.5. Use True"),
        (None, {"weight_decay": -1}, "weight_decay must be non-negative and finite. Got -1"),
        (None, {"prox": 3}, r"prox must be a function prox\(x, step\). Got 'int'"),
        (
            ["float16"],
            {},
            "parameters must be float32 or float64. Got one of torch.float16. Keep parameters in float32",
        ),
        (["frozen"], {}, "a group must have parameters that require gradients. Got a group whose 1 parameters are all"),
    ],
)
def test_what_cannot_be_trained_is_said_in_three_parts(params, options, message):
    made = {
        "float16": torch.ones(2, dtype=torch.float16, requires_grad=True),
        "frozen": torch.ones(2),
    }
    groups = [torch.ones(2, requires_grad=True)]
    if params is not None:
        groups = [{"params": [made[one]] if isinstance(one, str) else one} for one in params]
    with pytest.raises((ValueError, TypeError), match=f"DualAnchor: {message}"):
        DualAnchor(groups, lr=0.1, **{"total_steps": 4, **options})


def test_a_look_leaves_buffers_as_they_were():
    """BatchNorm's running statistics, and a buffer that a module replaces by another tensor."""

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls = self.calls + 1
            return x

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), Counting(), torch.nn.Linear(4, 1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held, look = model[2].calls, (lambda batch: loss_of(model, batch), list(loader(32)))
    DualAnchor(model.parameters(), lr="auto", total_steps=9, look=look)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[2].calls is held
    assert model[1].num_batches_tracked == 0


@pytest.mark.parametrize("look", [lambda batch: batch, (lambda batch: batch,), (1, []), (lambda batch: batch, 3), 5])
def test_a_look_that_is_no_pair_is_refused(look):
    with pytest.raises(TypeError, match=r"DualAnchor: look must be a pair: .* Got .*\. Pass look=\(loss, batches\)"):
        DualAnchor([torch.ones(2, requires_grad=True)], lr="auto", total_steps=9, look=look)


def test_an_adversary_that_descends_is_noticed():
    """Forgetting `maximize` makes the field decrease along this player; a correct one gives no warning."""
    u, v = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    look = (lambda batch: 5 * u @ u + u[0] * v[0] - v @ v, [0, 1])
    for params in ([{"params": u}, {"params": v}], [u, v]):
        with pytest.warns(da.errors.AssumptionWarning, match=r"descends, for a parameter of shape \(3,\)\. .*maximize"):
            DualAnchor(params, lr="auto", total_steps=9, look=look)
    with pytest.warns(da.errors.AssumptionWarning, match=r"shape \(2,\)"):
        DualAnchor([{"params": [u, v], "maximize": True}], lr="auto", total_steps=9, look=look)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DualAnchor([{"params": u}, {"params": v, "maximize": True}], lr="auto", total_steps=9, look=look)
        model, few = regression(), [batch for _, batch in zip(range(3), loader(32), strict=False)]
        DualAnchor(model.parameters(), lr="auto", total_steps=9, look=(lambda batch: loss_of(model, batch), few))


def test_each_group_has_steps_of_its_own_length():
    """A steep penalty of one player does not shorten the steps of the other."""
    u, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    look = (lambda batch: u @ u / 2 + u @ v - 50 * v @ v, [0])
    groups = [{"params": u}, {"params": v, "maximize": True}]
    optimizer = DualAnchor(groups, lr="auto", look=look, total_steps=200, averaged=True)
    first, second = (group["lr"] for group in optimizer.param_groups)
    assert first == pytest.approx(1.0, rel=0.1)
    assert second == pytest.approx(0.01, rel=0.1)
    for k in range(200):
        optimizer.zero_grad()
        (u @ u / 2 + u @ v - 50 * v @ v).backward()
        before = u.detach().clone()
        optimizer.step()
        if k in (0, 100):  # the first steps of the first and of the averaged stage, of 25 and 100 steps
            N, factor = (26, 1.0) if k == 0 else (101, 1 / 8)
            torch.testing.assert_close(before - u.detach(), factor * first * (1 - 1 / N) * u.grad, rtol=1e-4, atol=0)
    assert max(u.norm().item(), v.norm().item()) < 1e-3
    bilinear = (lambda batch: u @ v, [0])
    with torch.no_grad():
        u.fill_(1.0), v.fill_(1.0)
    with pytest.warns(da.errors.AssumptionWarning, match="the field must not only turn"):
        optimizer = DualAnchor(groups, lr="auto", look=bilinear, total_steps=200)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.05], rel=0.01)
