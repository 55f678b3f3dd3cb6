"""BibTeX entries by key, from `citations.bib`."""

from importlib.resources import files


def _read() -> dict[str, str]:
    """The entries by the comment above each, which is its key."""
    _, *entries = files("dualanchor.core").joinpath("citations.bib").read_text(encoding="utf-8").split("\n\n% ")
    return {key: entry.rstrip("\n") for key, entry in (text.split("\n", 1) for text in entries)}


CITATIONS = _read()
