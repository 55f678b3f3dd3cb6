"""Pages made from the library itself, so that a new method, problem, name or command documents itself.

Before the sources are read this writes, under `_generated/`:

- `methods/<id>.rst` and `problems/<id>.rst` for every registered entry, and an index of each;
- `api/<name>.rst` for every other name in `dualanchor.__all__`, and an index;
- `cli.rst`, the help texts of the command line.

They are reST because docstrings are: within a Markdown page, references like [1]_ are not resolved.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import dualanchor

Pages = Iterator[tuple[str, str]]


def registry_pages(kind: str, intro: str, entries: Iterable[Any]) -> Pages:
    """One page per registered entry and their index."""
    rows = []
    for entry in entries:
        obj = target(entry)
        yield f"{kind}/{entry.id}", page(entry.title, f"Id: `{entry.id}`", directive(obj, public_name(obj)))
        rows.append((entry.id, entry.title))
    yield f"{kind}/index", index(kind.capitalize(), intro, rows)


def api_pages(registered: set[str]) -> Pages:
    """One page per public name that has no page as a method or problem, and their index."""
    rows = []
    for name in dualanchor.__all__:
        full, obj = f"dualanchor.{name}", getattr(dualanchor, name)
        if name.startswith("_") or full in registered:
            continue
        if isinstance(obj, ModuleType):
            members = [(member, value) for member, value in contents(obj) if public_name(value) not in registered]
            parts = [directive(value, f"{full}.{member}") for member, value in members]
            if not parts:
                continue
        else:
            parts = [directive(obj, full, "members")]
        intro = [inspect.getdoc(obj) or ""] if isinstance(obj, ModuleType) else []
        yield f"api/{name}", page(name, *intro, *parts)
        rows.append((name, summary(obj)))
    yield "api/index", index("Public names", "What `import dualanchor as da` offers beside them.", rows)


def cli_page() -> str:
    """Help texts of the command line and of each command."""
    main = importlib.import_module("dualanchor.cli.app").app
    parts = ["What `dualanchor COMMAND --help` prints."]
    if isinstance(main, click.Group):
        context = click.Context(main, info_name="dualanchor", max_content_width=100)
        for name in main.list_commands(context):
            command = main.get_command(context, name)
            if command is not None and not command.hidden:
                text = click.unstyle(command.get_help(click.Context(command, context, name)))
                parts += [heading(name, "-"), ".. code-block:: text\n\n" + textwrap.indent(text, "   ")]
    return page("Commands", *parts)


def target(entry: Any) -> Any:
    """The class of a method, the class or function of a problem."""
    return entry.cls if hasattr(entry, "cls") else entry.factory


def public_name(obj: Any) -> str:
    """The name a user would import: `dualanchor.X` where the package exports it."""
    if getattr(dualanchor, obj.__name__, None) is obj:
        return f"dualanchor.{obj.__name__}"
    return f"{obj.__module__}.{obj.__qualname__}"


def contents(module: ModuleType) -> list[tuple[str, Any]]:
    """Public functions and classes of a public submodule: those it exports, or else its own."""
    exported = getattr(module, "__all__", None)
    names = exported or [name for name in vars(module) if not name.startswith("_")]
    found = [(name, getattr(module, name)) for name in names]
    found = [(name, value) for name, value in found if inspect.isfunction(value) or inspect.isclass(value)]
    return [(name, v) for name, v in found if exported or inspect.getmodule(v) is module]


def summary(obj: Any) -> str:
    """First paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(obj) or "").split("\n\n")[0].split())


def heading(title: str, line: str) -> str:
    """A reST heading; the line is long enough for wide characters."""
    return f"{title}\n{line * 2 * len(title)}"


def page(title: str, *parts: str) -> str:
    """A reST page."""
    return "\n\n".join([heading(title, "="), *parts]) + "\n"


def directive(obj: Any, name: str, *options: str) -> str:
    """The autodoc directive for an object; the options apply to classes."""
    kind = "class" if inspect.isclass(obj) else "function" if callable(obj) else "data"
    return "\n".join([f".. auto{kind}:: {name}", *(f"   :{option}:" for option in options if kind == "class")])


def index(title: str, intro: str, rows: list[tuple[str, str]]) -> str:
    """A page with a table of (page, summary) and the table of contents behind it."""
    cells = "\n".join(f"   * - :doc:`{name} <{name}>`\n     - {text}" for name, text in rows)
    names = "\n".join(f"   {name}" for name, _ in rows)
    listed = [f".. list-table::\n   :widths: 25 75\n\n{cells}"] if rows else []
    return page(title, intro, *listed, f".. toctree::\n   :hidden:\n\n{names}")


def generate(app: Sphinx) -> None:
    """Write the pages, touch none that did not change, remove those that are gone."""
    methods, problems = list(dualanchor.list_methods()), list(dualanchor.list_problems())
    registered = {public_name(target(entry)) for entry in (*methods, *problems)}
    pages = {
        **dict(registry_pages("methods", "Every method, by the id it is called with.", methods)),
        **dict(registry_pages("problems", "Every named problem, by the id it is called with.", problems)),
        **dict(api_pages(registered)),
        "cli": cli_page(),
    }
    root = Path(app.srcdir) / "_generated"
    wanted = {root / f"{name}.rst": text for name, text in pages.items()}
    for path in set(root.rglob("*.*")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def unique_footnotes(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let every docstring have its own reference [1], also where several share a page."""
    for i, line in enumerate(lines):
        line = re.sub(r"^(\s*\.\. )\[(\d+)\]", rf"\1[#{name}-\2]", line)
        lines[i] = re.sub(r"\[(\d+)\]_", rf"[#{name}-\1]_", line)


def resolve_public(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement
) -> nodes.reference | None:
    """Lead `dualanchor.core.result.Result`, as annotations spell it, to the page of `dualanchor.Result`."""
    spelled = node.get("reftarget", "")
    public = f"dualanchor.{spelled.rpartition('.')[2]}"
    if node.get("refdomain") != "py" or not spelled.startswith("dualanchor.") or spelled == public:
        return None
    domain = env.domains["py"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], public, node, contnode)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    app.connect("autodoc-process-docstring", unique_footnotes, priority=900)  # after napoleon
    app.connect("missing-reference", resolve_public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
