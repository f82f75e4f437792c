"""Search strategies: each looks for the signal in its own way, and proposes vectors."""
