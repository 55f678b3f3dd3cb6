"""The page "From your training loop" as it stands, and training with Lightning and accelerate."""

import os
import re
from pathlib import Path

import pytest

import dualanchor as da

torch = pytest.importorskip("torch")
pl = pytest.importorskip("pytorch_lightning")
accelerate = pytest.importorskip("accelerate")
pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from dualanchor.integrations.torch import DualAnchor  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    # What depends on the number of cores and on the length of an epoch.
    pytest.mark.filterwarnings(r"ignore:The '\w+' does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller:UserWarning"),
]

HorizonWarning = da.errors.HorizonWarning
PAGE = "docs/training_loop.md"
WEIGHT = torch.tensor([[1.0, -2.0, 0.5]])


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A folder of its own, and nothing left of what accelerate remembers in the process."""
    before = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    os.environ.clear()
    os.environ.update(before)


def loader():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(96, 3, generator=rng)
    return DataLoader(TensorDataset(x, x @ WEIGHT.T + 0.1 * torch.randn(96, 1, generator=rng)), batch_size=8)


def error(model):
    return (model.weight.detach() - WEIGHT).norm().item()  # about 2.4 at the start


def run_blocks(blocks, space):
    for number, block in blocks:
        exec(compile(block, f"{PAGE}, block {number}", "exec"), space)


def test_python_on_the_page_runs(tmp_path):
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    first, *others = enumerate(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    assert len(others) == 3
    space = {}
    run_blocks([first], space)
    assert space["optimizer"].remaining == 0
    assert error(space["model"]) < 0.1

    with pytest.warns(HorizonWarning, match="a state saved in mid-run, after 6 of 120 steps") as warned:  # by Lightning
        run_blocks(others, space)
    assert sum(issubclass(one.category, HorizonWarning) for one in warned) == 1
    assert space["trainer"].optimizers[0].remaining == 0
    assert error(space["module"].model) < 0.3
    assert space["optimizer"].optimizer.remaining == 0
    assert error(space["model"]) < 0.3

    result, events = space["result"], EventAccumulator(str(tmp_path / "runs"), {"scalars": 0}).Reload()
    samples, residuals = events.Scalars("samples"), events.Scalars("residual")
    assert [event.step for event in samples] == list(range(1, result.nit))  # the last step has the result itself
    # 5 ** 0.5 at the start; at the end little but the noise of a mean of dozens of samples.
    assert residuals[-1].value < 0.5 < 1.5 < max(event.value for event in residuals)
    assert events.Tags()["histograms"] == ["x"]


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.model = torch.nn.Linear(3, 1)

    def training_step(self, batch, index):
        x, y = batch
        return (self.model(x) - y).square().mean()

    def configure_optimizers(self):
        steps = self.trainer.estimated_stepping_batches
        optimizer = DualAnchor(self.parameters(), lr=0.3, total_steps=steps, averaged=True)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)]


class StopAfter(pl.Callback):
    def __init__(self, epochs):
        self.epochs = epochs

    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = trainer.current_epoch + 1 == self.epochs


@pytest.mark.parametrize("accumulated", [1, 5])
def test_lightning_resumes_a_run_and_takes_its_estimated_steps(accumulated, tmp_path):
    """12 batches in an epoch: with 5 accumulated there are 3 steps in it."""
    options = {"max_epochs": 8, "accumulate_grad_batches": accumulated, "logger": False, "enable_checkpointing": False}

    def trainer(*callbacks):
        return pl.Trainer(**options, enable_progress_bar=False, callbacks=list(callbacks))

    at_once, whole = trainer(), Regression()
    at_once.fit(whole, loader())
    assert at_once.global_step == at_once.estimated_stepping_batches == (96 if accumulated == 1 else 24)
    assert at_once.optimizers[0].remaining == 0
    assert error(whole.model) < 0.3

    first, second, resumed = trainer(StopAfter(3)), trainer(), Regression()
    first.fit(Regression(), loader())
    assert first.optimizers[0].remaining == 5 * at_once.global_step // 8
    with pytest.warns(HorizonWarning, match="saved in mid-run"):
        first.save_checkpoint(tmp_path / "run.ckpt")
    second.fit(resumed, loader(), ckpt_path=tmp_path / "run.ckpt", weights_only=True)
    assert second.optimizers[0].remaining == 0
    assert torch.equal(resumed.model.weight, whole.model.weight)


def test_accelerate_saves_and_loads_a_run(tmp_path):
    def made():
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        torch.manual_seed(1)
        accelerator, model = accelerate.Accelerator(cpu=True), torch.nn.Linear(3, 1)
        optimizer = DualAnchor(model.parameters(), lr=0.3, total_steps=8 * 12, averaged=True)
        return accelerator, *accelerator.prepare(model, optimizer, loader())

    def train(run, epochs):
        accelerator, model, optimizer, batches = run
        for _ in range(epochs):
            for x, y in batches:
                optimizer.zero_grad()
                accelerator.backward((model(x) - y).square().mean())
                optimizer.step()
        return model

    whole = train(made(), 8)
    assert error(whole) < 0.3
    run = made()
    train(run, 3)
    with pytest.warns(HorizonWarning, match="saved in mid-run, after 36 of 96 steps"):
        run[0].save_state(tmp_path / "state")
    run = made()
    run[0].load_state(tmp_path / "state")
    assert run[2].optimizer.remaining == 60
    assert torch.equal(train(run, 5).weight, whole.weight)
    assert run[2].optimizer.remaining == 0
