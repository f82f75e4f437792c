"""Moments of views, never built."""
