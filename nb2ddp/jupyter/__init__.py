"""Train from inside a live notebook: the magics, their display and their result."""
