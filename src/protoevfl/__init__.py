"""Vertical federated learning when few rows are shared."""

__version__ = "0.1.0"
