"""One attack per file; each is a function (View, Known) -> {variant: Guess} unless its docstring says
otherwise."""
