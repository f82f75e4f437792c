"""The alternatives: one file per published method, all with `run(stream) -> Recovery`."""
