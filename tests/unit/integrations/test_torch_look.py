"""`lr="auto"`: steps that are short enough for games, settings that are kept, and losses that cannot be looked at."""

import itertools
import warnings

import pytest

import dualanchor as da

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from dualanchor.integrations.torch import DualAnchor, ExtraGradient, RegularisedDualAnchor  # noqa: E402

AssumptionWarning = da.errors.AssumptionWarning
STEPS = 400


def game(curvature, kind=DualAnchor, **options):
    """The optimiser and the loss of a game with these curvatures in each coordinate of both players and rotation 1."""
    c = torch.as_tensor(curvature)
    u, v = torch.ones(len(c), requires_grad=True), torch.ones(len(c), requires_grad=True)

    def loss(batch):
        return c @ (u * u) / 2 + u @ v - c @ (v * v) / 2

    groups = [{"params": [u]}, {"params": [v], "maximize": True}]
    return kind(groups, lr="auto", look=(loss, [0]), total_steps=STEPS, **options), loss


def end_of(optimizer, loss):
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(0).backward()
        optimizer.step()
    return torch.cat([p.detach() for group in optimizer.param_groups for p in group["params"]]).norm().item()


@pytest.mark.no_cover
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("c", [1.0, 0.5, 0.3, 0.2, 0.1])
def test_steps_are_one_over_L_of_a_game_that_turns(c, averaged):
    """G = (c + i) x is 1/L-cocoercive with L = c + 1/c. Steps of 1/M diverge from c = 0.5 on."""
    optimizer, loss = game([c] * 3, averaged=averaged)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([c / (1 + c**2)] * 2, rel=0.01)
    assert end_of(optimizer, loss) < (0.02 if averaged else 0.08)  # at the start 2.4


@pytest.mark.parametrize("weak", [0.3, 0.1, 0.06])
def test_weak_curvature_is_found_beside_strong_curvature(weak):
    """The field is steepest where c = 1 and cocoercive steps are shortest where c is weak: there L is weak + 1/weak."""
    optimizer, loss = game([1.0, weak])
    assert optimizer.param_groups[0]["lr"] <= 2 * weak / (1 + weak**2)
    assert end_of(optimizer, loss) < 0.1  # at the start 2


@pytest.mark.parametrize("curvature", [[0.0] * 3, [0.01] * 3, [1.0, 0.01]])
def test_a_game_without_a_usable_step_is_said(curvature):
    with pytest.warns(AssumptionWarning, match=r"must not only turn, .* Got a field whose .* Give each player") as seen:
        optimizer, loss = game(curvature)
    assert seen[0].filename == __file__
    assert end_of(optimizer, loss) < 2


def test_negative_curvature_does_not_shorten_steps():
    """The field of a nonconvex loss does not turn: its steps are 1/M."""
    p = torch.ones(3, requires_grad=True)
    hessian = torch.tensor([1.0, -0.7, -0.2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = DualAnchor([p], lr="auto", look=(lambda batch: hessian @ (p * p) / 2, [0]), total_steps=9)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("delta", [0.02, 0.1])
@pytest.mark.parametrize("c", [0.0, 0.5])
def test_regularised_steps_are_half_of_the_longest_of_the_theorem(c, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer, loss = game([c] * 3, RegularisedDualAnchor, delta=delta)
    expected = delta / (1 + c**2 + delta**2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([expected] * 2, rel=0.01)
    assert end_of(optimizer, loss) < 2  # at the start 2.4


def test_an_own_lr_of_a_group_is_kept():
    u, v, w = (torch.ones(3, requires_grad=True) for _ in range(3))

    def loss(batch):
        return 50 * u @ u + u @ v - 25 * v @ v + w @ w / 2

    groups = [{"params": [u]}, {"params": [v], "maximize": True, "lr": 1.0}, {"params": [w], "lr": 0.5}]
    optimizer = DualAnchor(groups, lr="auto", look=(loss, [0]), total_steps=10, averaged=True)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 1.0, 0.5], rel=0.01)
    assert [group["tail_lr"] for group in optimizer.param_groups] == [0.125, 1.0, 1.0]
    optimizer.add_param_group({"params": [torch.ones(1, requires_grad=True)]})
    assert optimizer.param_groups[3]["lr"] == optimizer.param_groups[0]["lr"]


def test_a_look_at_a_shuffling_loader_leaves_the_generator_as_it_was():
    model, data = torch.nn.Linear(4, 1), TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    before = torch.random.get_rng_state()
    look = (lambda batch: (model(batch[0]) - batch[1]).square().mean(), DataLoader(data, 16, shuffle=True))
    DualAnchor(model.parameters(), lr="auto", look=look, total_steps=9)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda loss: loss, r"Got shape \(8, 1\)\. Take the mean over the batch"),
        (lambda loss: loss.mean().item(), r"Got float\. Return the loss that backward\(\) is called on"),
        (lambda loss: loss.mean().backward(), r"Got NoneType\. Return the loss"),
        (lambda loss: loss.mean().detach(), r"Got a tensor without a graph\. Return the loss"),
    ],
)
def test_a_loss_that_cannot_be_differentiated_is_said(made, message):
    model, x = torch.nn.Linear(3, 1), torch.ones(8, 3)
    before = model.weight.detach().clone()
    with pytest.raises(TypeError, match=rf"DualAnchor: look: loss\(batch\) must return one number .*\. {message}"):
        DualAnchor(model.parameters(), lr="auto", look=(lambda batch: made(model(x).square()), [0]), total_steps=9)
    assert torch.equal(model.weight, before)


def test_a_sparse_gradient_is_refused_as_in_steps():
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    look = (lambda rows: embedding(rows).square().mean(), [torch.tensor([0, 3])])
    with pytest.raises(TypeError, match=r"DualAnchor: look: gradients must be dense\. .* Use sparse=False"):
        DualAnchor(embedding.parameters(), lr="auto", look=look, total_steps=9)


def test_a_loss_that_calls_backward_is_said_and_leaves_gradients_as_they_were():
    model, x = torch.nn.Linear(3, 1), torch.ones(8, 3)
    model.weight.grad = torch.full((1, 3), 7.0)

    def closure(batch):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with pytest.raises(
        ValueError, match=r"DualAnchor: look: loss\(batch\) must return its loss without .* Leave backw"
    ):
        DualAnchor(model.parameters(), lr="auto", look=(closure, [0]), total_steps=9)
    assert model.weight.grad.tolist() == [[7.0] * 3]
    assert model.bias.grad is None


@pytest.mark.parametrize("batches", [[], iter(())])
def test_a_look_without_batches_is_said(batches):
    p = torch.ones(2, requires_grad=True)
    with pytest.raises(
        ValueError, match=r"look must have at least one batch\. Got none\. .* a generator has none left"
    ):
        DualAnchor([p], lr="auto", look=(lambda batch: p @ p, batches), total_steps=9)


def test_an_endless_look_ends():
    p, seen = torch.ones(2, requires_grad=True), set()

    def loss(batch):
        seen.add(batch)
        return p @ p

    DualAnchor([p], lr="auto", look=(loss, itertools.count()), total_steps=9)
    assert seen == set(range(64))


@pytest.mark.parametrize("named", [False, True])
def test_a_decrease_is_said_once_with_its_groups_and_what_it_may_mean(named):
    """Two tensors of one shape in one group, and one in a group that ascends, along which the loss is convex."""
    a, b, c, d = (torch.ones(2, requires_grad=True) for _ in range(4))

    def loss(batch):
        return 5 * a @ a - b @ b - c @ c + d @ d

    first, second = [("a", a), ("b", b), ("c", c)], [("d", d)]
    if not named:
        first, second = [p for _, p in first], [p for _, p in second]
    with pytest.warns(AssumptionWarning) as seen:
        DualAnchor(first, lr="auto", look=(loss, [0]), total_steps=9)
    assert len(seen) == 1
    which = "b, c" if named else ", ".join(["a parameter of shape (2,)"] * 2)
    text = str(seen[0].message)
    assert f"Got one that curves downwards in group 0, which descends, for {which}." in text
    assert "the loss is not convex there, as in GANs, and this lr cannot be trusted: pass lr as a number" in text
    groups = [{"params": first[:1]}, {"params": second, "maximize": True}]
    with pytest.warns(AssumptionWarning) as seen:
        DualAnchor(groups, lr="auto", look=(loss, [0]), total_steps=9)
    which = "d" if named else "a parameter of shape (2,)"
    assert f"Got one that curves upwards in group 1, which ascends, for {which}." in str(seen[0].message)
    assert len(seen) == 1


def test_where_auto_is_no_learning_rate_the_message_says_where_it_is():
    p, message = (
        torch.ones(2, requires_grad=True),
        r"lr must be a number\. Got 'auto'\. .*lr=\"auto\", with look, is for Dual",
    )
    with pytest.raises(TypeError, match=f"ExtraGradient: {message}"):
        ExtraGradient([p], lr="auto")
    with pytest.raises(TypeError, match=f"DualAnchor: {message}"):
        DualAnchor([{"params": [p], "lr": "auto"}], lr=0.1, total_steps=9)
