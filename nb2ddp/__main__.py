"""``python -m nb2ddp``."""

from nb2ddp.cli import main

main()
