"""Start a script under torchrun on this machine, and end all of its processes."""
