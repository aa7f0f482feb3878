"""What can go wrong, each as one sentence that the user can act on.

The command line prints the sentence and ends with ``exit_code``; no traceback is shown.
"""

REPOSITORY = "https://github.com/nb2ddp/nb2ddp"
"""The repository's address. A test finds each other place that names it, in pyproject.toml and the pages."""

PUBLISHED = False
"""Whether package indexes have nb2ddp. Until then it is installed from the repository: see `install_command`."""

ISSUES_URL = f"{REPOSITORY}/issues"
"""Where a fault of nb2ddp is reported."""

PLEASE_REPORT = f"Please report this notebook at {ISSUES_URL}"


def install_command(extra: str = "") -> str:
    """Return the command that installs nb2ddp today, with an extra if one is named.

    A test compares each `pip install` in the pages with it.
    """
    name = f"nb2ddp[{extra}]" if extra else "nb2ddp"
    return f'pip install "{name}"' if PUBLISHED else f'pip install "{name} @ git+{REPOSITORY}"'


class Nb2ddpError(Exception):
    """A sentence for the user: what, where, and what to do."""

    exit_code = 1


class OptionError(Nb2ddpError):
    """An option has a value that it cannot have."""

    exit_code = 2


class NotebookError(Nb2ddpError):
    """The input is no notebook that can be read."""


class BundleError(Nb2ddpError):
    """A Kaggle bundle cannot be made with these values."""


class EmitError(Nb2ddpError):
    """What starts the script on a cluster cannot be made with these values."""


class LaunchError(Nb2ddpError):
    """A training run cannot be started."""


class MonitorError(Nb2ddpError):
    """The load of this machine cannot be read."""


class RehearsalError(Nb2ddpError):
    """A notebook or a converted folder cannot be rehearsed."""

    exit_code = 3


class WebError(Nb2ddpError):
    """The page on which notebooks are converted cannot be served."""


class FolderError(Nb2ddpError):
    """A converted folder cannot be read."""


class OutputError(Nb2ddpError):
    """A file cannot be written, or was edited since it was generated."""


class KaggleError(Nb2ddpError):
    """Kaggle, or the way to it, failed; each kind ends with an exit code of its own."""

    exit_code = 10


class CredentialsError(KaggleError):
    """No credentials for Kaggle, or no kaggle client installed."""

    exit_code = 1


class RefusedError(KaggleError):
    """Kaggle refuses the kernel as it is (HTTP 400)."""


class SignInError(KaggleError):
    """Kaggle does not accept the credentials (HTTP 401)."""

    exit_code = 11


class ForbiddenError(KaggleError):
    """The credentials do not allow this: a wrong owner, or no phone number (HTTP 403)."""

    exit_code = 12


class NotFoundError(KaggleError):
    """There is no such kernel (HTTP 404)."""

    exit_code = 13


class TitleError(KaggleError):
    """The title is in use (HTTP 409)."""

    exit_code = 14


class TooManyRequestsError(KaggleError):
    """Too many requests in a short time (HTTP 429)."""

    exit_code = 15


class ServerError(KaggleError):
    """Kaggle fails, or does not answer as it should (HTTP 5xx)."""

    exit_code = 16


class UnreachableError(KaggleError):
    """Kaggle cannot be reached, or a time-out."""

    exit_code = 17


class SessionLimitError(KaggleError):
    """As many GPU sessions run as the account may have, and the wait was over."""

    exit_code = 18


class QuotaError(KaggleError):
    """The GPU hours of this week are used up."""

    exit_code = 19


class SourcesError(KaggleError):
    """A dataset, competition, kernel or model is not valid."""

    exit_code = 20


class RunningError(KaggleError):
    """The kernel runs already."""

    exit_code = 21


class SecretError(KaggleError):
    """The notebook, or a file that would be sent, contains a token or password."""

    exit_code = 22


class KernelError(KaggleError):
    """The kernel ended with a failure, or was cancelled."""

    exit_code = 23


class DownloadError(KaggleError):
    """A file of the output cannot be fetched."""

    exit_code = 24
