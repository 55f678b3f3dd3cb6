"""Regression against an adversary who gives more weight to the group of people that the model serves worst."""

import torch

from dualanchor.integrations.torch import DualAnchor

rng = torch.Generator().manual_seed(0)
people, steps, batch, price = 3000, 1500, 256, 2.0
group = torch.multinomial(torch.tensor([0.85, 0.10, 0.05]), people, replacement=True, generator=rng)
x = torch.randn(people, 2, generator=rng)
slopes = torch.tensor([[1.0, 0.5], [-0.5, 1.0], [-1.0, -1.0]])
y = (x * slopes[group]).sum(1) + 0.1 * torch.randn(people, generator=rng)
share = torch.bincount(group) / people


def losses(model, rows):  # of each group, the mean squared error over some of the people
    error = (model(x[rows]).squeeze(1) - y[rows]) ** 2
    return torch.zeros(3).index_add(0, group[rows], error) / (share * len(rows))


def train(adversarial):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    extra = torch.zeros(3, requires_grad=adversarial)  # weight beyond the share of a group
    players = [{"params": model.parameters()}, {"params": [extra], "maximize": True}]
    optimizer = DualAnchor(players if adversarial else players[:1], lr=0.1, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (share + extra) @ losses(model, torch.randint(people, (batch,), generator=rng)) - price * extra @ extra
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return losses(model, torch.arange(people))


print("error of each group, ordinary:   ", *(f"{loss:.2f}" for loss in train(adversarial=False)))
print("error of each group, adversarial:", *(f"{loss:.2f}" for loss in train(adversarial=True)))
