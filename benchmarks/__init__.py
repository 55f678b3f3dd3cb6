"""What things cost, always beside something else: run one by `python -m benchmarks.NAME`, all by `make bench`."""
