"""What can go wrong, each as one sentence that the user can act on.

The command line prints the sentence and ends with ``exit_code``; no traceback is shown.
"""


class Nb2ddpError(Exception):
    """A sentence for the user: what, where, and what to do."""

    exit_code = 1


class NotebookError(Nb2ddpError):
    """The input is no notebook that can be read."""


class BundleError(Nb2ddpError):
    """A Kaggle bundle cannot be made with these values."""


class LaunchError(Nb2ddpError):
    """A training run cannot be started."""


class OutputError(Nb2ddpError):
    """A file cannot be written, or was edited since it was generated."""
