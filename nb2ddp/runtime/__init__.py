"""The module that travels with every generated script. It imports nothing of nb2ddp's own."""
