"""The vocabulary: what is sampled, what is iterated, what comes out. Imports nothing else of the library."""
