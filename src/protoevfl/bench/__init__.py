"""Methods compared on data sets: cells, seeds, records, and the search behind the presets.

May import federation, methods, rows and settings. Open run.py first.
"""
