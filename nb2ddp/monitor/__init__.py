"""Observe a running launch: memory and load of each rank, steps, losses, stragglers."""
