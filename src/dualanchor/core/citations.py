"""What to cite, by key: the entries of `citations.bib`."""

from importlib.resources import files


def _read() -> dict[str, str]:
    """Entries by the comment that stands above each."""
    _, *entries = files("dualanchor.core").joinpath("citations.bib").read_text(encoding="utf-8").split("\n\n% ")
    return {key: entry.rstrip("\n") for key, entry in (one.split("\n", 1) for one in entries)}


CITATIONS = _read()
