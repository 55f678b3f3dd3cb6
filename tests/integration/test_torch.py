"""PyTorch as its users meet it: two processes, the examples, the page, the benchmark, and no torch at all."""

import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da

torch = pytest.importorskip("torch")

from dualanchor.integrations.torch import DualAnchor, ExtraGradient  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ROUNDS, BATCH, D = 20, 8, 6


class Game(torch.nn.Module):
    """The loss of a small saddle problem on a batch of data: u minimises, v maximises."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.u = torch.nn.Linear(D, 4, dtype=torch.float64)
        self.v = torch.nn.Linear(D, 4, dtype=torch.float64)

    def forward(self, data):
        u, v = self.u(data), self.v(data)
        return ((u**2) / 2 + u * v.roll(1, -1) - (v - 1) ** 2 / 2).mean()


def play(kind, module, game, pick):
    """Some rounds on a fixed sequence of batches, of which `pick` takes a part; the parameters at the end."""
    groups = [{"params": game.u.parameters()}, {"params": game.v.parameters(), "maximize": True}]
    optimizer = DualAnchor(groups, lr=0.2, horizon=ROUNDS + 1) if kind == "DualAnchor" else ExtraGradient(groups, 0.2)
    rng = torch.Generator().manual_seed(4)

    def closure():
        optimizer.zero_grad()
        loss = module(pick(torch.randn(BATCH, D, generator=rng, dtype=torch.float64)))
        loss.backward()
        return loss

    for _ in range(ROUNDS):
        optimizer.step(closure)
    return torch.cat([p.detach().reshape(-1) for p in game.parameters()])


def worker(rank, folder):
    """One of two processes: it sees every second row of each batch."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for kind in ("DualAnchor", "ExtraGradient"):
        game = Game()
        if rank:  # the start must come from process 0
            with torch.no_grad():
                game.u.weight.zero_()
        module = torch.nn.parallel.DistributedDataParallel(game)
        torch.save(play(kind, module, game, lambda data: data[rank::2]), f"{folder}/{kind}-{rank}.pt")
    distributed.destroy_process_group()
    # A thread of gloo may still hold tensors. It aborts the process if it drops them while the interpreter shuts down.
    os._exit(0)


@pytest.mark.slow
def test_two_processes_end_where_one_does(tmp_path):
    torch.multiprocessing.spawn(worker, args=(str(tmp_path),), nprocs=2)
    for kind in ("DualAnchor", "ExtraGradient"):
        game = Game()
        start = torch.cat([p.detach().reshape(-1) for p in game.parameters()])
        alone = play(kind, game, game, lambda data: data)
        first, second = (torch.load(tmp_path / f"{kind}-{rank}.pt", weights_only=True) for rank in (0, 1))
        assert torch.equal(first, second)
        torch.testing.assert_close(first, alone, rtol=1e-12, atol=1e-12)  # two half means against one mean
        assert (alone - start).norm() > 0.1


def printed(example, capsys):
    runpy.run_path(str(ROOT / "examples" / example))
    return capsys.readouterr().out


def test_saddle_example_comes_close_to_the_known_point(capsys):
    """The error bound: E|F|^2 <= 4 D^2/(alpha N)^2 + 6 sigma^2/B with D = 5.5, N = 400, sigma^2 = 40, B = 256 is 0.94;
    F is 1-strongly monotone, so the distance is smaller still. Seeds are fixed.
    """
    numbers = [float(number) for number in re.findall(r"\d+\.\d+", printed("torch_saddle.py", capsys))]
    distance, start, upper = numbers
    assert start > 3
    assert distance < 0.3
    assert distance < upper < 0.97


@pytest.mark.slow
def test_adversarial_example_serves_the_worst_group_better(capsys):
    lines = printed("torch_adversarial.py", capsys).splitlines()
    ordinary, adversarial = ([float(number) for number in re.findall(r"\d+\.\d+", line)] for line in lines)
    assert max(adversarial) < 0.6 * max(ordinary)
    assert min(adversarial) > min(ordinary)


def test_histories_of_tensors_are_those_of_numpy(tmp_path):
    """Residuals along the way, from the run's own samples; also in callbacks, and after a checkpoint."""
    seen, stopped = [], []

    def sample(x, n, rng):
        noise = rng.normal(size=x.shape) / n**0.5
        return x - 1 + (torch.as_tensor(noise) if isinstance(x, torch.Tensor) else noise)

    def look(intermediate_result):
        seen.append(intermediate_result.history.residual.tolist())
        if intermediate_result.nit == 700 and not stopped:
            stopped.append(True)
            raise StopIteration

    expected = da.root(sample, np.zeros(5), budget=2000, L=1.0).history
    for options in ({}, {"callback": look, "checkpoint": tmp_path / "run.npz"}, {"checkpoint": tmp_path / "run.npz"}):
        result = da.root(sample, torch.zeros(5, dtype=torch.float64), budget=2000, L=1.0, **options)
        if stopped == [True]:
            stopped.append(True)
            continue
        assert len(result.history.residual) > 20
        for name in ("k", "draws", "residual", "samples", "rounds"):
            np.testing.assert_allclose(getattr(result.history, name), getattr(expected, name), rtol=1e-12)
    assert len(seen) == 700
    assert len(seen[-1]) > 10


@pytest.mark.slow
def test_python_on_the_page_runs():
    space = {}
    page = ROOT / "docs/torch.md"
    blocks = re.findall(r"^ *```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    torch.manual_seed(0)
    for number, block in enumerate(blocks):
        exec(compile(textwrap.dedent(block), f"{page}, block {number}", "exec"), space)
    assert sum(space["sizes"]) == space["plan"].samples
    assert space["certificate"].upper < 0.2
    shift = space["model"].weight.detach() - torch.tensor([[1.0, -2.0, 0.5]])
    assert shift.norm() < 0.3


@pytest.mark.slow
def test_benchmark_has_the_rows_that_a_table_needs():
    benchmark = runpy.run_path(str(ROOT / "benchmarks/optimizers_torch.py"))
    table = benchmark["rows"](quick=True)
    assert sum("DualAnchor" in row["name"] for row in table) == 2
    for row in table:
        assert set(row) == {"name", "measured", "against", "ratio", "target", "met"}
        assert row["ratio"] == row["measured"] / row["against"] > 0
        assert row["met"] == (row["ratio"] <= row["target"])


def test_without_torch_the_error_names_the_extra():
    """In a process of its own, in which torch cannot be found."""
    script = "import sys; sys.modules['torch'] = None; import dualanchor.integrations.torch"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "MissingExtraError" in run.stderr
    assert "pip install 'dualanchor[torch]'" in run.stderr


def test_the_library_itself_does_not_import_torch():
    script = (
        "import sys, dualanchor as da, dualanchor.integrations; da.DualOHM, da.root; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
