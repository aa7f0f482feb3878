"""Collect what rules find in untouched trees, and apply it."""
