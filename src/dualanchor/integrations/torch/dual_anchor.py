"""S-Dual-OHM as an optimiser of PyTorch."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, OracleError
from dualanchor.integrations.torch.field import FieldOptimizer, Group, MethodAndState, TensorList, tensors_of, times_lr
from dualanchor.integrations.torch.horizon import (
    RunMonitor,
    averaged_points,
    horizon_from,
    is_averaging,
    stage,
    steps_of,
    warn_of_other_settings,
)
from dualanchor.integrations.torch.steepness import Steepness
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.prox import Resolvent

_AVERAGED_LR = 0.125  # lr="auto" takes this fraction of 1/L where points are averaged: long steps bias means
_PROJECTION_STEP = 1e-8  # times lr: the prox with a step this short is nearly the projection onto its set


class DualAnchor(FieldOptimizer):
    r"""S-Dual-OHM as an optimiser: accelerated, one gradient per step, with a guarantee for the last iterate.

    Update and guarantee are those of `dualanchor.DualOHM` with :math:`\alpha` = `lr` and N = `total_steps` + 1, along
    the field G: the gradient, or minus the gradient where `maximize` is set. The guarantee is for the point after the
    last step, for a field that is 1/L-cocoercive in expectation and one :math:`\alpha \le 2/L` in all groups and steps.
    There is none for other fields, such as those of neural networks, and none when a scheduler changes `lr`.

    Parameters
    ----------
    params : iterable, parameters, or groups of them with settings of their own: `{"params": ..., "maximize": True}`
    lr : float, tensor or "auto"
        :math:`\alpha`, read at every step. "auto" takes 1/L for each group from the few batches of `look`, and an
        eighth of it for the steps whose points are averaged. L is M, how fast gradients change along the steepest
        direction at the start, over the cosine of the angle by which the field turns there; it is measured in units
        in which all groups are equally steep. Groups with an `lr` of their own keep it in all steps.
    horizon : int, N = `total_steps` + 1; one of the two is needed
    maximize : bool, whether these parameters ascend
    total_steps : int
        How often `step` will be called, as for schedulers: `epochs * len(loader)`, divided by the batches of an
        accumulated gradient. A further step warns once and moves nothing. Where groups differ, the shortest ends the
        run; averaged groups must be as short.
    averaged : bool or float
        Whether the last step puts the mean of the points of the last half of the steps, or of this part of them, into
        the parameters. `averaged_model` has the mean at any time.
    weight_decay : float, adds weight_decay * x to the field, as in `torch.optim.SGD`
    prox : callable
        `prox(x, step)` of a tensor, or one of `dualanchor.prox`: a constraint or penalty of these parameters, which are
        moved into the set at once and stay there. The field is that of the inclusion (see `dualanchor.inclusion`).
    look : pair (loss, batches), for `lr="auto"`: `loss(batch)` is what is differentiated, for each of a few batches;
        of more than 64 the first 64 are read
    foreach : bool, whether operations take a list of tensors at once; None: where the tensors are plain ones

    Notes
    -----
    The state is z, one vector, and one more each for `averaged` and `prox`. All parameters share one k, also those
    whose `grad` is None in some round, which stay as they are then, and those of a group that is added later; the
    theorem is about one field from the first step on. A step that `torch.amp.GradScaler` skips counts as such a round.

    Examples
    --------
    >>> import torch
    >>> u, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> optimizer = DualAnchor([{"params": u}, {"params": v, "maximize": True}], lr=0.5, total_steps=99)
    >>> for _ in range(99):
    ...     optimizer.zero_grad()
    ...     (u @ u / 2 + u @ v - v @ v / 2).backward()
    ...     optimizer.step()
    >>> bool(u.norm() < 0.01), optimizer.remaining
    (True, 0)
    """

    _buffer_names: tuple[str, ...] = ("z", "average", "before_prox")
    _step_supports_amp_scaling = True  # GradScaler also calls `step` when gradients are infinite, and sets found_inf

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any,
        horizon: int | None = None,
        maximize: bool = False,
        *,
        total_steps: int | None = None,
        averaged: bool | float = False,
        weight_decay: float = 0.0,
        prox: Callable[..., Any] | None = None,
        look: tuple[Callable[[Any], Any], Iterable[Any]] | None = None,
        foreach: bool | None = None,
    ) -> None:
        name = type(self).__name__
        auto = isinstance(lr, str) and lr == "auto"
        if auto is (look is None):
            received = "no look" if auto else f"lr={lr} and a look"
            remedy = 'Pass lr="auto", look=(loss, batches): loss(batch) is what is differentiated, for a few batches'
            raise ArgumentError(f'{name}: lr="auto" and look go together', received, remedy)
        self._extra_defaults = {
            **self._extra_defaults,
            "horizon": horizon_from(name, horizon, total_steps),
            "k": 0,
            "prox": prox,
            "averaged": averaged,
            "tail_lr": _AVERAGED_LR if auto else 1.0,
        }
        undecided = torch.tensor(1.0)  # the lr of groups without one of their own, until it is measured
        super().__init__(params, undecided if auto else lr, maximize, weight_decay=weight_decay, foreach=foreach)
        self._watch()
        if look is not None:
            rates = self._rates(Steepness(self.param_groups, look, f"{name}: look"))
            for settings, rate in zip((self.defaults, *self.param_groups), (min(rates), *rates), strict=True):
                settings["lr"] = rate if settings["lr"] is undecided else settings["lr"]

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with settings of their own; in mid-run they join where the others are."""
        group = dict(param_group)
        if "lr" in group:
            group.setdefault("tail_lr", 1.0)
        if "total_steps" in group:
            group["horizon"] = horizon_from(type(self).__name__, group.pop("horizon", None), group.pop("total_steps"))
        super().add_param_group(group)
        self._require_means()
        added = self.param_groups[-1]
        if added["prox"] is not None:
            with torch.no_grad():
                for p in added["params"]:
                    p.copy_(_apply_prox(added["prox"], p.detach(), _PROJECTION_STEP * float(added["lr"])))
        if averaged_points(added):  # of parameters that were here all the time
            self._buffers("average", tensors_of(added, added["params"]), lambda p: p.detach().clone())

    def _require_means(self) -> None:
        """Refuse the last group if the run would end before an averaged group has its mean."""
        shortest = min(map(steps_of, self.param_groups))
        for group in self.param_groups:
            if group["averaged"] and steps_of(group) > shortest:
                self.param_groups.pop()
                rule = f"{type(self).__name__}: a group with averaged must end with the run, so with its shortest group"
                received = f"total_steps of {steps_of(group)} and of {shortest}"
                raise ArgumentError(rule, received, "Give all groups the same total_steps, or set averaged=False")

    @property
    def remaining(self) -> int:
        """Steps that are left: 0 at the point that the guarantee is for."""
        return max(0, min(steps_of(group) - group["k"] for group in self.param_groups))

    def restart(self, horizon: int | None = None, *, total_steps: int | None = None) -> None:
        """Begin again from where the parameters are, with as many steps as before or another number for all groups."""
        changes: Group = {"k": 0}
        if horizon is not None or total_steps is not None:
            changes["horizon"] = horizon_from(type(self).__name__, horizon, total_steps)
        for settings in (self.defaults, *self.param_groups):  # the defaults are for groups that are added later
            settings.update(changes)
        self.state.clear()
        self._monitor.warned.clear()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step along the gradients; a closure that computes them is called first, its value returned.

        After the last step parameters stay where they are.
        """
        loss = None if closure is None else self._evaluate(closure)
        if self.remaining == 0:
            self._warn_past_the_end()
        elif self._gradients_are_finite():
            self._apply(self._update)
        else:
            with torch.no_grad():
                for group in self.param_groups:
                    self._begin_step(group)
                    self._end_step(group)
        return loss

    def averaged_model(self, model: torch.nn.Module) -> AveragedModel:
        """A copy of the model with the mean of the points so far, of those that `averaged` takes, as in `swa_utils`."""
        points = max(map(averaged_points, self.param_groups))
        if not points:
            rule = f"{type(self).__name__}: averaged_model needs points to average"
            remedy = "Use averaged=True, and call it in the last half of the steps"
            raise ArgumentError(rule, f"none after {self.param_groups[0]['k']} steps", remedy)
        copy = AveragedModel(model)
        copy.n_averaged.fill_(points)
        with torch.no_grad():
            for p, mean in zip(model.parameters(), copy.module.parameters(), strict=True):
                mean.copy_(self.state[p]["average"] if "average" in self.state.get(p, {}) else p)
        return copy

    def state_dict(self) -> dict[str, Any]:
        """The state, for `load_state_dict`, with whether groups have a prox; in mid-run a warning says what is left."""
        saved = super().state_dict()
        for group in saved["param_groups"]:
            group["prox"] = group["prox"] is not None
        self._monitor.saved_k = self.param_groups[0]["k"]
        if self._monitor.saved_k and self.remaining:
            rule = "the point of a run is the one after its last step"
            remedy = "That is right for a checkpoint, which load_state_dict continues; use the model after its end"
            self._monitor.warn_once("saved", rule, "a state saved in mid-run", remedy)
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state that an optimiser of the same kind saved; the prox of a group is that it has here.

        A warning says if total_steps, averaged or the prox were others when it was saved.
        """
        before = [dict(group) for group in self.param_groups]
        super().load_state_dict(state_dict)
        warn_of_other_settings(type(self).__name__, before, self.param_groups)
        for group, own in zip(self.param_groups, before, strict=True):
            group["prox"] = own["prox"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._watch()

    def _settings(self, group: Group) -> Group:
        name = type(self).__name__
        horizon = check.count(group["horizon"], f"{name}: horizon", remedy="Use one more than the number of steps")
        averaged = group["averaged"]
        if isinstance(averaged, bool):
            averaged = 0.5 * averaged
        else:
            remedy = "Use True, or a part of the steps, such as 0.5"
            averaged = check.number(averaged, f"{name}: averaged", remedy=remedy)
            if averaged > 1:
                raise ArgumentError(f"{name}: averaged must be at most 1, a part of the steps", averaged, remedy)
        if group["prox"] is not None:
            check.function(group["prox"], f"{name}: prox", "prox(x, step)", 2)
        unchecked = {setting: group[setting] for setting in ("tail_lr", "prox")}
        return {**super()._settings(group), "horizon": horizon, "averaged": averaged, **unchecked}

    def _update(self, group: Group, x: TensorList, G: TensorList) -> None:
        self._begin_step(group)
        begin, N = stage(group)
        k = group["k"] - begin
        factor = group["tail_lr"] if is_averaging(group) else 1.0
        z = self._buffers("z", x, torch.zeros_like)
        step = times_lr(group, factor * self._field(group, x, G))
        if group["prox"] is None:
            _take_step(N, k, x, z, step)
        else:  # as in `oracles.composite.Composite`: the steps move w, and the parameters are its prox
            w = self._buffers("before_prox", x, torch.clone)
            _take_step(N, k, w, z, w - x + step)
            x.copy_(TensorList([_apply_prox(group["prox"], p, factor * group["lr"]) for p in w.tensors], x.foreach))
        self._end_step(group)

    def _begin_step(self, group: Group) -> None:
        """Begin a new stage where there is one, also for parameters without a gradient now."""
        begin, _ = stage(group)
        if group["averaged"] and 0 < group["k"] == begin:
            x = tensors_of(group, [p for p in group["params"] if p in self.state])
            z = self._buffers("z", x, torch.zeros_like)
            z *= 0.0
            if group["prox"] is not None and is_averaging(group):  # w - x is proportional to the step
                self._buffers("before_prox", x, torch.clone).lerp_(x, 1 - group["tail_lr"])

    def _end_step(self, group: Group) -> None:
        """Count a step, taken or skipped, and add its point to the mean; after the last one, return that."""
        group["k"] += 1
        if points := averaged_points(group):
            iterate = tensors_of(group, group["params"])
            mean = self._buffers("average", iterate, torch.clone)
            mean.lerp_(iterate, 1 / points)
            if group["k"] == steps_of(group):
                iterate.copy_(mean)

    def _rates(self, steepness: Steepness) -> list[float]:
        """The lr of each group for `lr="auto"`."""
        return [1 / L for L in steepness.of_groups()]

    def _field(self, group: Group, x: TensorList, G: TensorList) -> TensorList:
        """What the method takes for F at x, from the gradients there."""
        return G

    def _gradients_are_finite(self) -> bool:
        """Unscale gradients where a GradScaler asks for it; False if it has found infinite ones."""
        found_inf, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if found_inf is not None and float(found_inf):  # the int 0 where no parameter has a gradient
            rule, received = "gradients must be finite", "a step that GradScaler skips"
            self._monitor.warn_once("skipped", rule, received, "It counts as a step")
            return False
        if scale is not None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.div_(scale.to(p.grad.device))
        return True

    @torch._disable_dynamo  # type: ignore[untyped-decorator]
    def _warn_past_the_end(self) -> None:
        rule = "parameters stay where they are after the last step"
        remedy = "Count with total_steps as for a scheduler, or call restart() to go on"
        self._monitor.warn_once("end", rule, "a further step", remedy)

    def _watch(self) -> None:
        """Have a warning given if the optimiser is deleted in mid-run."""
        if not hasattr(self, "_monitor"):
            self._monitor = RunMonitor(type(self).__name__)
            weakref.finalize(self, self._monitor.warn_if_unfinished)
        self._monitor.groups = self.param_groups


def _take_step(N: int, k: int, x: TensorList, z: TensorList, step: TensorList) -> None:
    """Update x and z in place by `DualOHM.update`, without the checks of a method: a scheduler may set any lr."""
    both: Any = MethodAndState(x, horizon=N, z=z)
    DualOHM.update(both, k, both, step)  # type: ignore[arg-type]


def _apply_prox(prox: Callable[..., Any], x: Tensor, step: Any) -> Tensor:
    """The prox of a tensor; one of `dualanchor.prox` takes all its numbers as one NumPy vector."""
    if isinstance(prox, Resolvent):
        value = prox(x.detach().reshape(-1).cpu().numpy(), float(step))
        return torch.from_numpy(value).reshape(x.shape).to(x)
    value = prox(x, step)
    if not isinstance(value, Tensor) or value.shape != x.shape:
        received = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        rule = f"prox must return a tensor of shape {tuple(x.shape)}, that of its point"
        raise OracleError(rule, received, "Return the point that the prox gives")
    return value
