"""Moments of views, and of the rows of one table (``symmetric*``), never built."""
