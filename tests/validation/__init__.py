"""Proof that a verdict can be trusted: simulated kernels of which the truth is known, judged by
klat.compare.verdicts itself. `make validate` prints the tables; docs/validation.md holds them."""
