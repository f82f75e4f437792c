"""``python -m tpca.cli``."""

from tpca.cli import main

main()
