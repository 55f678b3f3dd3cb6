"""Theory as functions: numbers in, numbers out."""
