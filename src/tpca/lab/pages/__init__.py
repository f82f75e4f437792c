"""Pages and figures about experiments."""
