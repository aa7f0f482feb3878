"""Prove a converted script on the CPU of this machine, before it costs GPU time.

The script runs for a few steps in two processes, and the notebook's own code in one, with `harness` inside
each of them: it replaces the surroundings (models, data sets, uploads) and notes what happens. What it noted
is judged point by point.
"""
