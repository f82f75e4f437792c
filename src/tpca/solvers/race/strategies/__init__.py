"""Racers: search strategies that propose vectors."""
