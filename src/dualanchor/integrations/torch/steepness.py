"""How steep a field of gradients is, from a few batches: what `lr="auto"` is made of."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from math import inf, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from dualanchor.core.errors import ArgumentError, ArgumentTypeError, AssumptionWarning, explain, warn_caller
from dualanchor.integrations.torch.field import Group, require_dense

_POWER_ITERATIONS = 8  # each takes one gradient on each batch
_RELATIVE_DISTANCE = 1e-3  # between the two points of a difference of gradients, relative to 1 + |x|
_FLAT = 0.01  # times the largest steepness of a group: groups below get that of the steepest one
_DECREASING = -0.9  # cosine of a move and the change of the field, below which the field decreases along the move
_LEAST_COSINE = 0.05  # of the angle by which a field turns; L is at most M over this
_MAX_BATCHES = 64  # of a look; what follows is not read
_MAX_TENSORS = 8  # a single group with at most this many tensors is checked tensor by tensor for a decrease


class _Slopes(NamedTuple):
    """What power iterations have shown along some directions, on all batches."""

    M: float  # the largest slope |G(x + d) - G(x)| / |d|
    L: float  # the largest of M over the cosine of the angle by which the field turns: steps of 1/L are short enough
    cosine: float  # of a move and the change of the field in the last iteration, the largest one of all batches
    turn: float  # the cosine of the angle by which the field turns, the largest one of all batches

    @property
    def decreases(self) -> bool:
        """Whether the field decreases along its steepest direction."""
        return self.M > 0 and self.cosine < _DECREASING


class Steepness:
    """The steepness of the field of gradients at the present parameters, on a few batches.

    A batch counts as a whole, and is less steep than its rows: batches must have the size that they have in the loop.
    Parameters, their gradients, buffers of modules and PyTorch's generator are left as they were.
    """

    def __init__(self, groups: list[Group], look: Any, owner: str) -> None:
        if not (isinstance(look, tuple) and len(look) == 2 and callable(look[0]) and isinstance(look[1], Iterable)):
            rule, received = f"{owner} must be a pair: a function and a few batches", type(look).__name__
            remedy = "Pass look=(loss, batches): loss(batch) is what is differentiated"
            raise ArgumentTypeError(rule, received, remedy)
        self._generator_state = torch.random.get_rng_state()  # before a DataLoader draws its order from it
        self._loss, self._batches, self._owner = look[0], list(islice(look[1], _MAX_BATCHES)), owner
        if not self._batches:
            remedy = "Pass a few batches in a list; a generator has none left once it was read"
            raise ArgumentError(f"{owner} must have at least one batch", "none", remedy)
        players = [(i, p) for i, group in enumerate(groups) for p in group["params"] if p.requires_grad]
        self._groups = len(groups)
        self._group_of = [i for i, _ in players]  # the number of the group of each parameter
        self._params = [p for _, p in players]
        self._labels = [label for group in groups for label in _labels(group)]
        self._signs = [-1.0 if groups[i]["maximize"] else 1.0 for i in self._group_of]
        self._x = torch.cat([p.detach().reshape(-1) for p in self._params])
        self._weight_decay = self._spread(float(groups[i]["weight_decay"]) for i in self._group_of)

    def of_groups(self) -> list[float]:
        """L for each group: steps of at most 1/L are short enough for the fields of all batches.

        M = |G(x + d) - G(x)| / |d| along power iterations, the largest over the batches: first for each group alone,
        then for all of them together in units in which they are equally steep. There L is M over the cosine of the
        angle by which the field turns, as for the field (c + i) x, which is 1/L-cocoercive with L = |c + i| / cos.
        """
        with self._restoring():
            parts = self._of_parts()
            alone = [slopes.M for _, slopes in parts] if self._groups > 1 else [1.0]
            steepest = max(alone)
            alone = [M if _FLAT * steepest < M else steepest or 1.0 for M in alone]
            units = self._spread(alone[i] ** -0.5 for i in self._group_of)
            joint = self._slopes(units)
            self._warn_of_decrease(parts, joint)
            self._require_slope(joint.L)
            joint = self._stable(units, joint)
        if joint.turn < _LEAST_COSINE:
            rule = f"{self._owner}: the field must not only turn, or no step is short enough for DualAnchor"
            received = f"a field whose changes are at right angles to moves, with a cosine of {joint.turn:.2g} at most"
            remedy = "Give each player a penalty such as weight_decay, or use RegularisedDualAnchor or ExtraGradient"
            warn_caller(explain(rule, received, remedy), AssumptionWarning)
        return [joint.L * M for M in alone]

    def of_all(self) -> float:
        """M for all parameters together."""
        with self._restoring():
            joint = self._slopes(torch.ones_like(self._x))
            self._warn_of_decrease(self._of_parts(), joint)
        self._require_slope(joint.M)
        return joint.M

    def _of_parts(self) -> list[tuple[list[int], _Slopes]]:
        """Parameters and slopes of each group alone, or of each tensor of a single group of a few."""
        everything = range(len(self._params))
        parts = [[i] for i in everything] if 1 < len(everything) <= _MAX_TENSORS else []
        if self._groups > 1:
            parts = [[i for i in everything if self._group_of[i] == group] for group in range(self._groups)]
        return [(part, self._slopes(self._spread(float(i in part) for i in everything))) for part in parts]

    def _require_slope(self, slope: float) -> None:
        if not 0 < slope < inf:
            rule = f"{self._owner} must show how fast gradients change"
            remedy = "Check that loss(batch) depends on the parameters and is finite, or pass lr as a number"
            raise ArgumentError(rule, f"a largest slope of {slope}", remedy)

    def _warn_of_decrease(self, parts: list[tuple[list[int], _Slopes]], joint: _Slopes) -> None:
        """Warn if the field decreases along the steepest direction of some parts or, of a single group, along all."""
        decreasing = [i for part, slopes in parts if slopes.decreases for i in part]
        if self._groups == 1 and joint.decreases:
            decreasing = decreasing or list(range(len(self._params)))
        if not decreasing:
            return
        rule = (
            f"{self._owner}: along its steepest direction the loss must curve upwards for parameters that descend, and "
            "downwards for those that ascend"
        )
        phrases = []
        for group in dict.fromkeys(self._group_of[i] for i in decreasing):
            own = [i for i in decreasing if self._group_of[i] == group]
            ascends = self._signs[own[0]] < 0
            more = "" if len(own) <= 3 else f" and {len(own) - 3} more"
            names = ", ".join(self._labels[i] for i in own[:3])
            how, player = ("upwards", "ascends") if ascends else ("downwards", "descends")
            phrases.append(f"one that curves {how} in group {group}, which {player}, for {names}{more}")
        remedy = (
            'Put parameters that are to ascend into a group with "maximize": True, others out of it. If all are where '
            "they belong, the loss is not convex there, as in GANs, and this lr cannot be trusted: pass lr as a number"
        )
        warn_caller(explain(rule, " and ".join(phrases), remedy), AssumptionWarning)

    def _slopes(self, units: Tensor) -> _Slopes:
        """The slopes with coordinates in these units, (d,), 0 for those that stay."""
        M, L, cosines, turns = 0.0, 0.0, list[float](), list[float]()
        for batch in self._batches:
            here, direction = self._field(self._x, batch), self._first_direction(units)
            before, previous = direction, 0.0
            largest, twice, squares = 0.0, 0.0, 0.0
            for _ in range(_POWER_ITERATIONS):
                change = self._change(units, direction, batch, here)
                slope = float(change.norm())
                cosine = float(change @ direction) / (slope or 1.0)
                largest = max(largest, slope)
                if not 0 < slope < inf:
                    break
                # For a field Ax with symmetric part S and antisymmetric part J, <AAd, d> = |Sd|^2 - |Jd|^2.
                twice, squares = twice + previous * float(change @ before), squares + previous**2
                before, direction, previous = direction, change / slope, slope
            turn = sqrt(min(1.0, max(0.0, 0.5 + 0.5 * twice / squares))) if squares else 1.0
            M, L = max(M, largest), max(L, largest / max(turn, _LEAST_COSINE))
            cosines.append(cosine)
            turns.append(turn)
        return _Slopes(M, L, max(cosines, default=0.0), max(turns, default=1.0))

    def _stable(self, units: Tensor, slopes: _Slopes) -> _Slopes:
        """The slopes, with a larger L if steps of 1/L along the mean field lead away in a direction where it increases.

        The direction is that of power iterations of x - G(x)/L. They also find weak curvature beside strong rotation,
        which is not where the field is steepest.
        """
        direction, fields = self._first_direction(units), [self._field(self._x, batch) for batch in self._batches]
        for _ in range(_POWER_ITERATIONS):
            last = direction
            each = zip(self._batches, fields, strict=True)
            changes = torch.stack([self._change(units, last, batch, here) for batch, here in each])
            mean = changes.mean(0)
            following = last - mean / slopes.L
            if not 0 < (norm := float(following.norm())) < inf:
                break
            direction = following / norm
        inner, square = float(mean @ last), float(changes.square().sum(1).mean())  # cocoercive in expectation
        if not 0 < inner < square / (2 * slopes.L):
            return slopes
        turn = inner / sqrt(square)
        return slopes._replace(L=min(square / inner, slopes.M / _LEAST_COSINE), turn=min(slopes.turn, turn))

    def _first_direction(self, units: Tensor) -> Tensor:
        direction = torch.randn(self._x.shape, generator=torch.Generator().manual_seed(0)).to(self._x)
        direction = torch.where(units > 0, direction, 0.0)
        return direction / direction.norm()

    def _change(self, units: Tensor, direction: Tensor, batch: Any, here: Tensor) -> Tensor:
        """The change of the field per unit of a move in this direction, of norm 1, in these units."""
        move = units * direction
        step = _RELATIVE_DISTANCE * (1 + float(self._x.norm())) / float(move.norm())
        return units * (self._field(self._x + step * move, batch) - here) / step

    def _field(self, x: Tensor, batch: Any) -> Tensor:
        torch.random.set_rng_state(self._generator_state)  # the same dropout at all points
        _assign(self._params, x)
        with torch.enable_grad():
            loss = self._loss(batch)
            self._require_loss(loss)
            try:
                gradients = torch.autograd.grad(loss, self._params, allow_unused=True)
            except RuntimeError as error:
                if "second time" not in str(error):
                    raise
                rule = f"{self._owner}: loss(batch) must return its loss without calling backward()"
                remedy = "Leave backward() to the loop; here the loss is differentiated by the library"
                raise ArgumentError(rule, "a loss whose graph has been freed", remedy) from error
        for gradient in gradients:
            if gradient is not None:
                require_dense(gradient, self._owner)
        if x is self._x and not torch.isfinite(loss).all():
            remedy = "Check loss(batch) at the parameters as they are, or pass lr as a number"
            raise ArgumentError(f"{self._owner}: the loss must be finite", f"a loss of {loss.detach()}", remedy)
        each = zip(self._params, self._signs, gradients, strict=True)
        parts = [torch.zeros_like(p) if g is None else sign * g for p, sign, g in each]
        return torch.cat([part.reshape(-1) for part in parts]) + self._weight_decay * x

    def _require_loss(self, loss: Any) -> None:
        if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
            return
        remedy = "Return the loss that backward() is called on in the loop"
        received = type(loss).__name__
        if isinstance(loss, Tensor):
            received = "a tensor without a graph"
            if loss.numel() != 1:
                received, remedy = f"shape {tuple(loss.shape)}", "Take the mean over the batch"
        raise ArgumentTypeError(f"{self._owner}: loss(batch) must return one number with a graph", received, remedy)

    def _spread(self, values: Iterable[float]) -> Tensor:
        """A vector like x, from one number for each parameter."""
        each = zip(self._params, values, strict=True)
        return torch.cat([torch.full((p.numel(),), value) for p, value in each]).to(self._x)

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore at the end what the loss may change: parameters and their gradients, the generator, buffers."""
        buffers: dict[tuple[int, str], Any] = {}

        def save(module: torch.nn.Module, inputs: Any) -> None:
            for name, buffer in module.named_buffers(recurse=False):
                if (id(module), name) not in buffers:
                    buffers[id(module), name] = module, buffer, buffer.detach().clone()

        gradients = [p.grad for p in self._params]
        for p in self._params:
            p.grad = None  # a loss that calls backward() would add to it in place
        handle = register_module_forward_pre_hook(save)
        try:
            yield
        finally:
            handle.remove()
            _assign(self._params, self._x)
            for p, gradient in zip(self._params, gradients, strict=True):
                p.grad = gradient
            torch.random.set_rng_state(self._generator_state)
            for (_, name), (module, buffer, value) in buffers.items():
                buffer.copy_(value)
                module._buffers[name] = buffer


def _labels(group: Group) -> list[str]:
    """What messages call the parameters of a group that require gradients: their names, where they are known."""
    names = group.get("param_names") or [None] * len(group["params"])
    pairs = zip(names, group["params"], strict=True)
    return [f"a parameter of shape {tuple(p.shape)}" if name is None else name for name, p in pairs if p.requires_grad]


def _assign(params: list[Tensor], x: Tensor) -> None:
    with torch.no_grad():
        for p, values in zip(params, x.split([p.numel() for p in params]), strict=True):
            p.copy_(values.reshape(p.shape))
