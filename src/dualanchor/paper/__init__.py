"""The paper as a client of the library: its panels, claims, readings and statements."""
