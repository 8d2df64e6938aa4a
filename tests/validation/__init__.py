"""Evidence that verdicts can be trusted. klat.compare.verdicts judges simulated kernels whose true
ratio is known. `make validate` prints the tables, which are in docs/validation.md."""
