"""Machine code made by LLVM while the program runs.

A function is written down with numbers and arrays that stand for those it will be given::

    f = Function("axpy", NUMBERS, NUMBERS, COUNT)
    x, y, n = f.given
    with f.loop(0, n) as i:
        y[i] = y[i] + 2.0 * x[i]
    where = f.address()
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import llvmlite
from llvmlite import binding, ir

from dualanchor._version import __version__
from dualanchor.fast import kept

COUNT = ir.IntType(64)
"""A whole number; a truth value is one that is 0 or 1."""
_DOUBLE = ir.DoubleType()
NUMBERS, SINGLES, COUNTS = (kind.as_pointer() for kind in (_DOUBLE, ir.FloatType(), COUNT))
"""Arrays in double and in single precision, and of whole numbers. None that a function is given overlaps another."""
TRUTHS = ir.IntType(8).as_pointer()
"""NumPy's truth values."""


class Number:
    """A number that the function will compute with; arithmetic with it is written down."""

    def __init__(self, function: Function, value: Any) -> None:
        self.function, self.value = function, value

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return isinstance(self.value.type, ir.IntType)

    def __add__(self, other: Any) -> Number:
        return self._with(other, "add", "fadd")

    def __sub__(self, other: Any) -> Number:
        return self._with(other, "sub", "fsub")

    def __mul__(self, other: Any) -> Number:
        return self._with(other, "mul", "fmul")

    def __rmul__(self, other: Any) -> Number:
        return self.function.number(other, self.value.type) * self

    def __rsub__(self, other: Any) -> Number:
        return self.function.number(other, self.value.type) - self

    def __truediv__(self, other: Any) -> Number:
        return self._with(other, "sdiv", "fdiv")

    def __rtruediv__(self, other: Any) -> Number:
        return self.function.number(other, self.value.type) / self

    def __neg__(self) -> Number:
        return Number(self.function, self.function.builder.fneg(self.value))

    def __lt__(self, other: Any) -> Number:
        return self._compared("<", other)

    def __gt__(self, other: Any) -> Number:
        return self._compared(">", other)

    def plus_in_any_order(self, other: Number) -> Number:
        """A sum that may be taken in parts, which is quicker."""
        return Number(self.function, self.function.builder.fadd(self.value, other.value, flags=("reassoc",)))

    def _with(self, other: Any, whole: str, real: str) -> Number:
        other = self.function.number(other, self.value.type)
        return Number(
            self.function, getattr(self.function.builder, whole if self.whole else real)(self.value, other.value)
        )

    def _compared(self, how: str, other: Any) -> Number:
        builder, other = self.function.builder, self.function.number(other, self.value.type)
        compare = builder.icmp_signed if self.whole else builder.fcmp_ordered
        return Number(self.function, compare(how, self.value, other.value))


class Array:
    """An array that the function is given; `array + n` begins n entries later."""

    def __init__(self, function: Function, pointer: Any) -> None:
        self.function, self.value = function, pointer

    def __add__(self, offset: Any) -> Array:
        return Array(self.function, self._at(offset))

    def __getitem__(self, index: Any) -> Number:
        return Number(self.function, self.function.builder.load(self._at(index)))

    def __setitem__(self, index: Any, number: Any) -> None:
        number = self.function.number(number, self.value.type.pointee)
        self.function.builder.store(number.value, self._at(index))

    def _at(self, index: Any) -> Any:
        return self.function.builder.gep(self.value, [self.function.number(index, COUNT).value])


class Function:
    """A function that returns nothing, with what it is given by kind."""

    def __init__(self, name: str, *kinds: Any) -> None:
        self._name = name
        self._module = ir.Module(self._name)
        self._function = ir.Function(self._module, ir.FunctionType(ir.VoidType(), kinds), self._name)
        self.builder = ir.IRBuilder(self._function.append_basic_block())
        self.given: list[Any] = []
        for argument in self._function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
            self.given.append((Array if isinstance(argument.type, ir.PointerType) else Number)(self, argument))
        self._ends: list[Any] = []

    def number(self, value: Any, kind: Any = _DOUBLE) -> Number:
        """A number of this kind: itself, or a constant."""
        return value if isinstance(value, Number) else Number(self, ir.Constant(kind, value))

    def real(self, whole: Number) -> Number:
        """A whole number as a real one."""
        return Number(self, self.builder.sitofp(whole.value, _DOUBLE))

    def single(self, number: Number) -> Number:
        """A number in single precision."""
        return Number(self, self.builder.fptrunc(number.value, ir.FloatType()))

    def either(self, condition: Number, one: Number, other: Number) -> Number:
        """One of two numbers."""
        return Number(self, self.builder.select(condition.value, one.value, other.value))

    def variables(self, kind: Any, *starts: Any) -> Array:
        """Room for numbers that change on the way."""
        with self.builder.goto_entry_block():
            room = Array(self, self.builder.alloca(kind, size=max(1, len(starts))))
        for i, start in enumerate(starts):
            room[i] = self.number(start, kind)
        return room

    def array(self, address: Number, kind: Any) -> Array:
        """The array that begins there."""
        return Array(self, self.builder.inttoptr(address.value, kind))

    def call(self, address: Number, *given: Any) -> None:
        """Call the function that stands there."""
        values = [one.value for one in given]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        self.builder.call(self.builder.inttoptr(address.value, kind.as_pointer()), values)

    @contextmanager
    def loop(self, start: Any, stop: Any) -> Iterator[Number]:
        """What follows, for every whole number from start to stop - 1."""
        start, stop = self.number(start, COUNT), self.number(stop, COUNT)
        before = self.builder.block
        body, end = (self._function.append_basic_block() for _ in range(2))
        self.builder.cbranch((start < stop).value, body, end)
        self.builder.position_at_end(body)
        i = self.builder.phi(COUNT)
        i.add_incoming(start.value, before)
        self._ends.append(end)
        yield Number(self, i)
        following = Number(self, self.builder.add(i, COUNT(1), flags=("nsw",)))
        i.add_incoming(following.value, self.builder.block)
        self.builder.cbranch((following < stop).value, body, self._ends.pop())
        self.builder.position_at_end(end)

    def leave(self) -> None:
        """End the innermost loop here; for the end of `when` or `unless`."""
        self.builder.branch(self._ends[-1])

    @contextmanager
    def when(self, condition: Number) -> Iterator[None]:
        """What follows, if the condition holds."""
        with self.builder.if_then(condition.value):
            yield

    @contextmanager
    def unless(self, condition: Number) -> Iterator[None]:
        """What follows, if the condition does not hold, be it because a number is none."""
        with self.builder.if_then(self.builder.not_(condition.value)):
            yield

    def branches(self, condition: Number) -> Any:
        """Two contexts: what is done if the condition holds, and what if not."""
        return self.builder.if_else(condition.value)

    def address(self) -> int:
        """Compile it, and say where it stands."""
        self.builder.ret_void()
        return _MACHINE.address(self._name, str(self._module))


class _Machine:
    """LLVM for this processor. What it has compiled stays for good, and is kept for other processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: Any = None
        self._known: set[str] = set()

    def address(self, name: str, text: str) -> int:
        """Where the function of this name in a module's text stands."""
        with self._lock:
            if self._engine is None:
                self._start()
            unique = f"{name}-{sha256(f'{self._processor} {text}'.encode()).hexdigest()}"
            if unique not in self._known:
                code = kept.read(unique)
                if code is None:
                    code = self._compiled(text.replace(f'@"{name}"', f'@"{unique}"'))
                    kept.write(unique, code)
                self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
                self._engine.finalize_object()
                self._known.add(unique)
            return self._engine.get_function_address(unique)

    def _compiled(self, text: str) -> bytes:
        module = binding.parse_assembly(text)
        options = binding.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        passes = binding.create_pass_builder(self._target, options)
        passes.getModulePassManager().run(module, passes)
        return self._target.emit_object(module)

    def _start(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        processor, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
        self._processor = f"{__version__} {llvmlite.__version__} {binding.get_default_triple()} {processor} {features}"
        self._target = binding.Target.from_default_triple().create_target_machine(processor, features, opt=2, jit=True)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), self._target)


_MACHINE = _Machine()
