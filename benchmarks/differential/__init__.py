"""Generate training notebooks, run each in one process and converted on several ranks, and compare the runs."""
