"""Write src/dualanchor/fast/steps.py: the methods' own steps as loops that numba compiles.

A method's `step` is run once on symbols. What it does to its state between two evaluations of F is elementwise, so
the expressions that come out are the bodies of loops over coordinates. What depends on k and the hyper-parameters
alone is computed outside of these loops, by NumPy, with the method's own formulas.

    python tools/compiled_steps.py           write the file
    python tools/compiled_steps.py --check   exit with 1 if it is not what the methods say now
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import dualanchor as da
from dualanchor.core.method import Method, State
from dualanchor.methods import registry

FILE = Path(__file__).parents[1] / "src" / "dualanchor" / "fast" / "steps.py"
SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/"}
COUNTS = ("batch_size", "big_batch", "small_batch")  # they set how much is drawn, not what is computed with it


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """An operation on other nodes, numbers and named leaves; `array` if it has one value per coordinate."""

    op: str
    parts: tuple[Any, ...]
    array: bool


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array or a number: arithmetic with it is written down."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        value = Traced(record(ufunc.__name__, inputs))
        if out is not None:  # augmented assignment
            out[0].node = value.node
            return out[0]
        return value

    def __setitem__(self, where: Any, value: Traced) -> None:
        if where is not Ellipsis:
            raise TypeError("only whole rows are assigned")
        self.node = value.node

    def copy(self) -> Traced:
        """The same value under another name."""
        return Traced(self.node)

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(asarray=lambda x, copy: x.copy())


def record(op: str, parts: tuple[Any, ...]) -> Node:
    """The node of an operation."""
    nodes = tuple(part.node if isinstance(part, Traced) else part for part in parts)
    return Node(op, nodes, any(isinstance(node, Node) and node.array for node in nodes))


def leaf(name: str, array: bool) -> Traced:
    """A state variable, a value of F, or a hyper-parameter."""
    return Traced(Node("leaf", (name,), array))


class TracedSession:
    """Stands for F: notes at which points which batches are evaluated."""

    def __init__(self) -> None:
        self.draws = 0
        self.calls: list[tuple[Node, int]] = []

    def draw(self, size: Any) -> int:
        """The number of the batch."""
        self.draws += 1
        return self.draws - 1

    def __call__(self, x: Traced, batch: int) -> Traced:
        self.calls.append((x.node, batch))
        return leaf(f"G{len(self.calls) - 1}", True)


@dataclasses.dataclass
class Program:
    """What one step does: evaluate F at x, perhaps at a second point, then change the state."""

    fields: list[str]
    state: dict[str, Node]
    calls: list[tuple[Node, int]]


def trace(cls: type[Method], coin: bool | None) -> Program:
    """Run the step of a method on symbols."""
    method: Any = object.__new__(cls)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        default = field.default
        symbol = field.name not in COUNTS and (default is dataclasses.MISSING or isinstance(default, float))
        object.__setattr__(method, field.name, leaf(field.name, False) if symbol else default)
    for name in COUNTS:
        if hasattr(method, name):
            object.__setattr__(method, name, 1)
    start = cls.init(method, np.ones((1, 2)))
    if any(value.shape != (1, 2) for value in vars(start).values()):
        raise TypeError("keeps other things than vectors")
    s = State(**{name: leaf(name, True) for name in vars(start)})
    k, F, tossed = leaf("k", False), TracedSession(), None if coin is None else np.array([coin])
    if cls.step is Method.step:
        cls.update(method, k, s, method.estimator_in_use.estimate(0, s, F, None, tossed))
    else:
        object.__setattr__(method, "steps", None)
        cls.step(method, k, s, F, tossed)
    return Program(list(vars(start)), {name: value.node for name, value in vars(s).items()}, F.calls)


class Writer:
    """Turns nodes into Python text; numbers outside of the loop become coefficients c[0], c[1], .."""

    def __init__(self) -> None:
        self.coefficients: list[str] = []

    def expression(self, node: Any, names: dict[Node, str], inside: bool) -> str:
        """The text of a node, in the loop or outside of it."""
        if not isinstance(node, Node):
            return repr(node)
        if inside and not node.array:
            text = self.expression(node, {}, False)
            if text not in self.coefficients:
                self.coefficients.append(text)
            return f"c{self.coefficients.index(text)}"
        if node in names:
            return names[node]
        if node.op == "leaf":
            return f"{node.parts[0]}[i]" if node.array else node.parts[0]
        parts = [self.expression(part, names, inside) for part in node.parts]
        if node.op in SYMBOLS:
            return f"({parts[0]} {SYMBOLS[node.op]} {parts[1]})"
        if node.op == "negative":
            return f"(-{parts[0]})"
        if inside:
            raise TypeError(f"no loop for {node.op}")
        return f"np.{node.op}({', '.join(parts)})"

    def loop(self, targets: list[tuple[str, Node]]) -> list[str]:
        """The loop that computes nodes into arrays; what is used twice is computed once."""
        uses: dict[Node, int] = {}
        order: list[Node] = []

        def visit(node: Any) -> None:
            if not isinstance(node, Node) or not node.array:
                return
            uses[node] = uses.get(node, 0) + 1
            if uses[node] == 1:
                for part in node.parts:
                    visit(part)
                order.append(node)

        for _, node in targets:
            visit(node)
        assigned = {name for name, _ in targets}
        names: dict[Node, str] = {}
        lines = []
        for node in order:
            twice = uses[node] > 1 and node.op != "leaf"
            if twice or (node.op == "leaf" and node.parts[0] in assigned):
                name = node.parts[0] if node.op == "leaf" else f"t{len(names)}"
                text = self.expression(node, names, True)
                names[node] = f"{name}_i" if node.op == "leaf" else name
                lines.append(f"        {names[node]} = {text}")
        for name, node in targets:
            lines.append(f"        {name}[i] = {strip(self.expression(node, names, True))}")
        return ["    for i in range(x.size):", *lines]


def strip(text: str) -> str:
    """Without parentheses around the whole."""
    depth = 0
    if not text.startswith("("):
        return text
    for i, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text


def arrays(text: list[str], names: list[str]) -> list[str]:
    """Those of the names that occur in a text as arrays."""
    return [name for name in names if any(f"{name}[i]" in line for line in text)]


def functions(name: str, cls: type[Method]) -> tuple[str, list[str]]:
    """The text of a method's functions, and its entry in the table."""
    tossed = needs_coin(cls)
    programs = [trace(cls, True), trace(cls, False)] if tossed else [trace(cls, None)]
    writer, blocks, entries = Writer(), [], {"one": "nothing", "look": "no_point", "two": "nothing"}
    fields, shared = programs[0].fields, False
    for program in programs:
        values = [f"G{j}" for j in range(len(program.calls))]
        first = program.calls[0][0]
        if len(values) > 2 or first.op != "leaf" or first.parts != ("x",):
            raise TypeError("evaluates F elsewhere first, or more than twice")
        if len(values) == 2:
            point, shared = program.calls[1][0], program.calls[1][1] == program.calls[0][1]
            body = writer.loop([("point", point)])
            blocks.append((f"{name}_look", body, [*fields, "G0"], "point"))
            entries["look"] = f"{name}_look"
        changed = [
            (field, node) for field, node in program.state.items() if node.op != "leaf" or node.parts[0] != field
        ]
        kind = "two" if len(values) == 2 else "one"
        suffix = f"_{kind}" if tossed else ""
        blocks.append((f"{name}{suffix}", writer.loop(changed), [*fields, *values], None))
        entries[kind] = f"{name}{suffix}"
    parameters = sorted(
        {word for text in writer.coefficients for field in dataclasses.fields(cls) if (word := field.name) in text},
        key=[field.name for field in dataclasses.fields(cls)].index,
    )
    text = [f"# {cls.__name__}", "", ""]
    text += [f"def {name}_coefficients({', '.join(['k', *parameters])}):"]
    text += [f'    """Numbers of step k: {len(writer.coefficients)} for each row."""']
    text += [f"    return ({''.join(strip(one) + ', ' for one in writer.coefficients).rstrip()})", "", ""]
    for function, body, candidates, out in blocks:
        used = [one for one in candidates if one == "x" or one in arrays(body, candidates)]
        cs = [j for j in range(len(writer.coefficients)) if any(f"c{j}" in line for line in body)]
        constants = [f"    c{j} = x.dtype.type(c[{j}])" for j in cs]
        signature = ", ".join(["c", *used, *([out] if out else [])])
        text += [f"@njit(cache=True)\ndef {function}({signature}):", *constants, *body, "", ""]
        rows = [f"s[{fields.index(one)}]" if one in fields else f"G[{one[1:]}]" for one in used]
        taken = [one for one in used if one in fields]
        wrapped = ", ".join(["c", *rows, *([out] if out else [])])
        header = "c, s, G, point" if out else "c, s, G"
        text += [f"@njit(cache=True)\ndef _{function}({header}):", f"    {function}({wrapped})", "", ""]
    alone = entries["two"] == "nothing"
    entry = (
        f"    {cls.id!r}: Steps({fields}, {parameters}, {name}_coefficients, {len(writer.coefficients)}, {alone}, "
        + ", ".join(f"_{entries[one]}" for one in ("one", "look", "two"))
        + f", {shared}, {name if alone else None}, {taken}),"
    )
    return "\n".join(text), entry.replace("'", '"')


def needs_coin(cls: type[Method]) -> bool:
    """Whether the run tosses a coin before each step."""
    method = cls.for_problem(da.problems.affine(mu=0.1), budget=10)
    return method.probability(0) is not None


HEADER = '''"""The methods' steps as loops over coordinates, one row at a time.

Written by tools/compiled_steps.py from the methods themselves: change those, not this.
"""

# ruff: noqa
# fmt: off
# mypy: ignore-errors

import numpy as np
from numba import njit

from dualanchor.fast.kinds import Steps


@njit(cache=True)
def _nothing(c, s, G):
    pass


@njit(cache=True)
def _no_point(c, s, G, point):
    pass


'''


def module() -> tuple[str, list[str]]:
    """The text of the file, and the methods that are not in it with the reason."""
    texts, entries, left_out = [], [], []
    for name, cls in registry.all().items():
        try:
            text, entry = functions(name.replace("-", "_"), cls)
        except Exception as error:
            left_out.append(f"{name}: {error}")
            continue
        texts.append(text)
        entries.append(entry)
    table = ["STEPS = {", *entries, "}", ""]
    return HEADER + "\n".join(texts) + "\n" + "\n".join(table), left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text, left_out = module()
    if arguments.check:
        if FILE.read_text(encoding="utf-8") != text:
            sys.exit(f"{FILE.name} is not what the methods say now: run python tools/compiled_steps.py")
        return
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}: {text.count('_coefficients(k')} methods")
    for line in left_out:
        print("  not compiled:", line)


if __name__ == "__main__":
    main()
