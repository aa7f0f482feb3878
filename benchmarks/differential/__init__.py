"""Generate training notebooks, run them in one process and on several ranks, compare the runs."""
