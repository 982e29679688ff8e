"""Sort jobs as a service on a Dask scheduler."""
