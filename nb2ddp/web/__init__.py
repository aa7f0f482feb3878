"""Serve a page on which a notebook is converted: nothing of it is executed, nor kept on the disk."""
