"""Where a converted script can run: each module makes the files that one place needs."""
