"""The one folder that a rehearsed process has on PYTHONPATH: it holds `sitecustomize` and nothing else."""
