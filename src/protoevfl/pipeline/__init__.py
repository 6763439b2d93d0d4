"""Your own files: check, prepare, train, keep a run directory, predict, measure what each party is
worth."""
