"""Read a notebook: its cells, their IPython syntax as Python, and their LibCST trees."""
