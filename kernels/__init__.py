"""CUDA C++ sources of the sort and merge kernels, their launch policy and their loader."""
