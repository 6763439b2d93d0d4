"""Figures, Markdown pages and the HTML report of the experiments; everything here reads records and
nothing else.

Open document.py for the Markdown pages, page.py for the report.
"""
