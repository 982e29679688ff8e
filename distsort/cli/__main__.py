"""``python -m distsort.cli``."""

from __future__ import annotations

from distsort.cli import main

if __name__ == "__main__":
    main()
