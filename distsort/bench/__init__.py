"""Benchmarks: `kernels` on one GPU, and sorts on clusters beside what else there is."""
