"""Figures and the HTML report; everything here reads records and nothing else."""
