"""Build the sdist and the wheel, check what they contain, install the wheel elsewhere and use it. Needs no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IN_WHEEL = ("dualanchor/__init__.py", "dualanchor/py.typed")
IN_SDIST = (
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    "recipe/meta.yaml",
    "src/dualanchor/__init__.py",
    "tests/",
    "docs/index.md",
)
GENERATED = ("docs/_build/", "docs/_generated/", "docs/gallery/")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command; where it fails, stop and show what it said."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"build-check: {' '.join(map(str, command))} failed\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def require(condition: bool, what: str) -> None:
    """Say that a property holds, or stop because it does not."""
    if not condition:
        sys.exit(f"build-check: failed: {what}")
    print(f"  ok  {what}")


def build(kind: str, source: Path, target: Path) -> Path:
    """Build one distribution with the tools already installed; the path of the file."""
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", target, source, cwd=source)
    (built,) = target.iterdir()
    return built


def wheel_names(wheel: Path) -> set[str]:
    """Files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def unpack(sdist: Path, target: Path) -> Path:
    """Unpack an sdist; its only folder."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(target, filter="data")
        else:  # Python 3.11 before 3.11.4
            archive.extractall(target)
    (folder,) = target.iterdir()
    return folder


def check(scratch: Path) -> None:
    sdist = build("sdist", ROOT, scratch / "sdist")
    wheel = build("wheel", ROOT, scratch / "wheel")

    said = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", sdist, wheel, cwd=ROOT)
    require(said.count("PASSED") == 2, "twine check --strict passes both")
    run(sys.executable, "-m", "check_wheel_contents", "--no-config", wheel, cwd=ROOT)
    require(True, "check-wheel-contents finds nothing")

    names = wheel_names(wheel)
    for name in IN_WHEEL:
        require(name in names, f"{wheel.name} contains {name}")
    require(any(name.endswith("/licenses/LICENSE") for name in names), f"{wheel.name} contains the licence")

    folder = unpack(sdist, scratch / "unpacked")
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in IN_SDIST:
        require(any(file.startswith(name) for file in files), f"{sdist.name} contains {name}")
    require(not any(file.startswith(GENERATED) for file in files), f"{sdist.name} contains no built docs")
    again = build("wheel", folder, scratch / "wheel-from-sdist")
    require(wheel_names(again) == names, "the sdist builds the same wheel by itself")

    site, elsewhere = scratch / "site", scratch / "elsewhere"
    elsewhere.mkdir()
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target")
    run(*pip, site, wheel, cwd=elsewhere)

    def python(*arguments: str) -> str:
        return run(sys.executable, *arguments, cwd=elsewhere, PYTHONPATH=str(site))

    found = python("-c", "import dualanchor; print(dualanchor.__file__)")
    require(Path(found).is_relative_to(site), "the installed wheel is what `import dualanchor` finds")
    version = wheel.name.split("-")[1]
    require(python("-c", "import dualanchor; print(dualanchor.__version__)") == version, f"version {version}")
    said = python("-m", "dualanchor", "--version")
    require(version in said.split(), f"`python -m dualanchor --version` says {said!r}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dualanchor-") as directory:
        check(Path(directory).resolve())
