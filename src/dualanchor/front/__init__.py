"""The front doors: from a function that samples F, and a target, to a point with an error bar.

How a call becomes a result:

1. `doors` has the signatures. `layout`, `tree`, `autograd` and `constraints` turn the user's function, start and
   constraints into an oracle, a flat vector and one prox; `request` validates all other keywords.
2. `composite` states a problem with a prox as a root-finding problem in another variable.
3. `route` chooses the method and how many samples are spent on what. Routes of their own are `certified` (stages until
   eps is certified: `stages`, and `corrected` where samples can be evaluated twice) and `passes` (finite sums);
   `default` is the method where no theorem is wanted.
4. `evidence` calibrates before the run and certifies x0 and x; `before` is about Ctrl-C and checkpoints until the run.
5. `judge` decides on success, on what may be claimed, and whether x0 is the better point.
"""

from dualanchor.front.doors import fixed_point, inclusion, root, saddle

__all__ = ["fixed_point", "inclusion", "root", "saddle"]
