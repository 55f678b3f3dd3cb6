"""HTML without a template language: elements from functions, and text that is escaped unless it is markup already."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *content: object, **attributes: object) -> Markup:
    """An element; what is not markup is escaped.

    Parameters
    ----------
    name : str
        The tag.
    content : object
        Children, in order.
    attributes : object
        By name, with `_` for `-` and without an underscore at the end; True is an attribute without a value, and
        those that are None or False are left out.
    """
    given = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    return Markup(f"<{name}{given}>{joined(content)}</{name}>")


def empty_element(name: str, **attributes: object) -> Markup:
    """An element that has no content and no end tag."""
    return Markup(element(name, **attributes).removesuffix(f"</{name}>"))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after another."""
    return Markup(between.join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))


def table(caption: str, heads: Sequence[object], rows: Iterable[Markup], **attributes: object) -> Markup:
    """A table in a box of its own, which scrolls where the page is too narrow for it."""
    columns = joined(head if isinstance(head, Markup) else element("th", head, scope="col") for head in heads)
    body = element("tbody", *rows)
    content = (element("caption", element("span", caption)), element("thead", element("tr", columns)), body)
    box = element("table", *content, **attributes)
    return element("div", box, class_="scroll", role="region", aria_label=caption, tabindex="0")


def row(head: object, *cells: object, **attributes: object) -> Markup:
    """A row of a table, whose first cell names it."""
    rest = (cell if isinstance(cell, Markup) and cell.startswith("<td") else element("td", cell) for cell in cells)
    return element("tr", element("th", head, scope="row"), *rest, **attributes)


def number_cell(*content: object, **attributes: object) -> Markup:
    """A cell with a number, aligned to the right."""
    return element("td", *content, **{"class_": "number", **attributes})


def embedded_json(value: Any) -> Markup:
    """JSON that is safe inside of a script element: nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
