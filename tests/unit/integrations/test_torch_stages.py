"""Runs of `DualAnchor` with averages: stages begin where they should, whatever the gradients and the compiler do."""

import math

import pytest

torch = pytest.importorskip("torch")

from dualanchor.integrations.torch import DualAnchor  # noqa: E402

TARGET = torch.tensor([3.0, 0.5, -2.0], dtype=torch.float64)
TOTAL, LR, TAIL_LR = 40, 0.3, 0.125
STAGES = {0: 5, 5: 5, 10: 10, 20: 20}  # first step of each stage, and its length


def soft_threshold(x, step):
    return torch.sign(x) * (x.abs() - step).clamp(min=0)


def mean_of_literal_loop(skipped, prox):
    x = w = z = torch.zeros(3, dtype=torch.float64)
    points = []
    for k in range(TOTAL):
        if k in STAGES:
            begin, N, z = k, STAGES[k] + 1, torch.zeros_like(z)
            factor = TAIL_LR if k == 20 else 1.0
            w = x + factor * (w - x)
        if k != skipped:
            step = w - x + factor * LR * (x - TARGET)
            z = ((N - k + begin - 1) * z - step) / (N - k + begin)
            w = w - step - z
            x = prox(w, factor * LR) if prox else w
        points += [x] * (k >= 20)
    return torch.stack(points).mean(0)


@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.HorizonWarning")
@pytest.mark.parametrize("prox", [None, soft_threshold], ids=["plain", "prox"])
@pytest.mark.parametrize("by_scaler", [False, True], ids=["missing", "infinite"])
@pytest.mark.parametrize("skipped", [None, 4, 5, 6, 10, 20, 21, 39])
def test_a_stage_begins_also_in_a_step_without_gradients(skipped, by_scaler, prox):
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    group = {"params": [p], "tail_lr": TAIL_LR, "prox": prox}
    optimizer = DualAnchor([group], lr=LR, total_steps=TOTAL, averaged=True)
    scaler = torch.amp.GradScaler("cpu", enabled=by_scaler, init_scale=1.0, growth_interval=100)
    for k in range(TOTAL):
        optimizer.zero_grad()
        if k != skipped or by_scaler:
            scaler.scale((p - TARGET).square().sum() / 2 * (math.inf if k == skipped else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update(1.0)
    torch.testing.assert_close(p.detach(), mean_of_literal_loop(skipped, prox), rtol=1e-12, atol=1e-13)


def test_a_step_that_is_refused_does_not_begin_a_stage_twice():
    """A sparse gradient raises before anything has changed, so that the step can be taken again."""
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    group = {"params": [p], "tail_lr": TAIL_LR, "prox": soft_threshold}
    optimizer = DualAnchor([group], lr=LR, total_steps=TOTAL, averaged=True)
    for k in range(TOTAL):
        p.grad = p.detach() - TARGET
        if k == 20:
            dense, p.grad = p.grad, None
            p.grad = dense.to_sparse()
            with pytest.raises(TypeError, match="gradients must be dense"):
                optimizer.step()
            p.grad = dense
        optimizer.step()
    torch.testing.assert_close(p.detach(), mean_of_literal_loop(None, soft_threshold), rtol=1e-12, atol=1e-13)


def test_a_step_by_grad_scaler_without_any_gradient_counts():
    p = torch.ones(3, requires_grad=True)
    optimizer, scaler = DualAnchor([p], lr=LR, total_steps=1), torch.amp.GradScaler("cpu")
    scaler.scale(p.sum())  # makes the scaler's state
    scaler.step(optimizer)
    assert optimizer.remaining == 0


def test_every_averaged_group_must_end_with_the_run():
    u, v = (torch.ones(2, requires_grad=True) for _ in range(2))
    groups = [{"params": [u], "total_steps": 20}, {"params": [v], "total_steps": 40}]
    rule = r"a group with averaged must end with the run, .* Got total_steps of 40 and of 20\. Give all groups the same"
    with pytest.raises(ValueError, match=f"DualAnchor: {rule}"):
        DualAnchor(groups, lr=0.1, total_steps=30, averaged=True)
    DualAnchor([groups[0], {**groups[1], "averaged": False}], lr=0.1, total_steps=30, averaged=True)
    optimizer = DualAnchor([v], lr=0.1, total_steps=40, averaged=True)
    with pytest.raises(ValueError, match=f"DualAnchor: {rule}"):
        optimizer.add_param_group(groups[0])
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("added", [3, 4, 6])
def test_a_group_added_on_the_way_has_the_mean_of_parameters_that_were_there(added):
    def ends(late):
        p, q = (torch.full((2,), value, dtype=torch.float64, requires_grad=True) for value in (1.0, 2.0))
        optimizer = DualAnchor([p] if late else [{"params": p}, {"params": q}], lr=LR, total_steps=8, averaged=True)
        for k in range(8):
            if late and k == added:
                optimizer.add_param_group({"params": q})
            p.grad, q.grad = p.detach().clone(), q.detach().clone() if k >= added else None
            optimizer.step()
        return torch.cat([p, q]).tolist()

    assert ends(late=True) == ends(late=False)


@pytest.mark.slow
@pytest.mark.parametrize("total", [40, 400])
def test_compiled_steps_of_an_averaged_run(total):
    """Six compilations, below the compiler's limit of eight: with fullgraph=True one more than that would raise."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, ends = CompileCounterWithBackend("eager"), []
    for compiled in (False, True):
        p = torch.ones(3, dtype=torch.float64, requires_grad=True)
        optimizer = DualAnchor([p], lr=0.2, total_steps=total, averaged=True)
        step = torch.compile(optimizer.step, backend=counter, fullgraph=True) if compiled else optimizer.step
        for _ in range(total):
            optimizer.zero_grad()
            ((p - TARGET).square().sum() / 2).backward()
            step()
        assert optimizer.remaining == 0
        ends.append(p.detach())
    torch.testing.assert_close(*ends)
    assert counter.frame_count == 6
