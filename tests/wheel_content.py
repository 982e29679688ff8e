"""Check that the installed package holds every source file of the tree; run it outside the tree."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path


def main(root: Path) -> None:
    shipped = {str(p) for p in importlib.metadata.files("distsort") or ()}
    wanted = {
        str(path.relative_to(root) if folder == "distsort" else Path("distsort") / path.relative_to(root))
        for folder in ("distsort", "kernels")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".yaml", ".html", ".cu", ".cuh", ".typed") and "__pycache__" not in path.parts
    }
    missing = sorted(wanted - shipped)
    if missing:
        sys.exit(f"the wheel lacks {', '.join(missing)}")
    print(f"the wheel holds all {len(wanted)} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
