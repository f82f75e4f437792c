"""Pictures and reports, drawn from results."""
