"""The engine on the workers of a Dask cluster."""
