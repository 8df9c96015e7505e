"""The tests on GPUs. Each file with a `main` is one test; `run.py` runs them all without an engine."""
