"""Which method for which tensor: what each would need, and a recommendation."""
