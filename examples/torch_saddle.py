"""A convex-concave problem in PyTorch, seen through noise: one optimiser for both players, then a certificate."""

import torch

import dualanchor as da
from dualanchor.integrations.torch import DualAnchor, saddle_oracle

rng = torch.Generator().manual_seed(0)
d, horizon, batch = 20, 400, 256
B = torch.randn(d, d, generator=rng) / d**0.5
B /= torch.linalg.matrix_norm(B, 2)
b, c = torch.randn(d, generator=rng), torch.randn(d, generator=rng)
saddle = torch.linalg.solve(torch.eye(d) + B @ B.T, b - B @ c)  # u + B v = b and v - B^T u = c


def phi(u, v, n, rng):  # the mean over n samples in which b and c are seen with noise
    noise = torch.randn(n, 2, d, generator=rng).mean(0)
    return u @ u / 2 + u @ B @ v - v @ v / 2 - u @ (b + noise[0]) + v @ (c + noise[1])


u, v = torch.zeros(d, requires_grad=True), torch.zeros(d, requires_grad=True)
optimizer = DualAnchor([{"params": u}, {"params": v, "maximize": True}], lr=1.0, horizon=horizon)  # L = 2
for _ in range(horizon - 1):
    optimizer.zero_grad()
    phi(u, v, batch, rng).backward()
    optimizer.step()

oracle = saddle_oracle(phi, u, v)
certificate = da.certify(oracle, oracle.x0, samples=20_000)
print(f"distance of u from the saddle point: {(u - saddle).norm():.3f}, at the start {saddle.norm():.3f}")
print(f"gradient of both players: at most {certificate.upper:.3f} with confidence 95 %")
