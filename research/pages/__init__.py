"""Figures about studies, drawn from what is stored."""
