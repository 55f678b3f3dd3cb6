"""What to cite, by key."""

from __future__ import annotations

CITATIONS = {
    "dualanchor": """@software{dualanchor,
  title  = {dualanchor: stochastic root-finding with a guarantee},
  author = {{The dualanchor developers}},
  year   = {2026}
}""",
    "yoon-loizou": """@article{yoon_loizou_dual_anchor,
  title  = {Direct Acceleration of Stochastic Root-Finding Without Variance Reduction and Regularization},
  author = {Yoon, TaeHo and Loizou, Nicolas},
  year   = {2026}
}""",
    "halpern": """@article{lieder2021convergence,
  title   = {On the convergence rate of the Halpern-iteration},
  author  = {Lieder, Felix},
  journal = {Optimization Letters},
  year    = {2021}
}""",
    "halpern-page": """@inproceedings{cai2022stochastic,
  title     = {Stochastic Halpern Iteration with Variance Reduction for Stochastic Monotone Inclusions},
  author    = {Cai, Xufeng and Song, Chaobing and Guzm{\\'a}n, Crist{\\'o}bal and Diakonikolas, Jelena},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2022}
}""",
    "halpern-vr-finite": """@inproceedings{cai2024variance,
  title     = {Variance Reduced Halpern Iteration for Finite-Sum Monotone Inclusions},
  author    = {Cai, Xufeng and Alacaoglu, Ahmet and Diakonikolas, Jelena},
  booktitle = {International Conference on Learning Representations},
  year      = {2024}
}""",
    "rain": """@article{chen2024near,
  title   = {Near-optimal algorithms for making the gradient small in stochastic minimax optimization},
  author  = {Chen, Lesi and Luo, Luo},
  journal = {Journal of Machine Learning Research},
  year    = {2024}
}""",
    "gorbunov": """@inproceedings{gorbunov2022stochastic,
  title     = {Stochastic Extragradient: General Analysis and Improved Rates},
  author    = {Gorbunov, Eduard and Berard, Hugo and Gidel, Gauthier and Loizou, Nicolas},
  booktitle = {International Conference on Artificial Intelligence and Statistics},
  year      = {2022}
}""",
    "polyak-juditsky": """@article{polyak1992acceleration,
  title   = {Acceleration of stochastic approximation by averaging},
  author  = {Polyak, Boris T. and Juditsky, Anatoli B.},
  journal = {SIAM Journal on Control and Optimization},
  year    = {1992}
}""",
    "eag": """@inproceedings{yoon2021accelerated,
  title     = {Accelerated Algorithms for Smooth Convex-Concave Minimax Problems with {$O(1/k^2)$} Rate
               on Squared Gradient Norm},
  author    = {Yoon, TaeHo and Ryu, Ernest K.},
  booktitle = {International Conference on Machine Learning},
  year      = {2021}
}""",
    "feg": """@inproceedings{lee2021fast,
  title     = {Fast Extra Gradient Methods for Smooth Structured Nonconvex-Nonconcave Minimax Problems},
  author    = {Lee, Sucheol and Kim, Donghwan},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2021}
}""",
    "h-duality": """@article{yoon2024optimal,
  title   = {Optimal Acceleration for Minimax and Fixed-Point Problems is Not Unique},
  author  = {Yoon, TaeHo and Kim, Jaeyeon and Suh, Jaewook J. and Ryu, Ernest K.},
  journal = {arXiv preprint arXiv:2404.13228},
  year    = {2024}
}""",
    "oc-halpern": """@inproceedings{park2022exact,
  title     = {Exact Optimal Accelerated Complexity for Fixed-Point Iterations},
  author    = {Park, Jisun and Ryu, Ernest K.},
  booktitle = {International Conference on Machine Learning},
  year      = {2022}
}""",
}
