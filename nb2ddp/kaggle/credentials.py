"""Credentials for Kaggle: sign in with what this machine has, or say what is missing.

``import kaggle`` signs in, prints help and may end the process; so it is imported here, as late as can be.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nb2ddp.errors import CredentialsError, KaggleError, install_command
from nb2ddp.kaggle.calls import CaughtRequest, call, caught, quiet, time_limit
from nb2ddp.kaggle.untrusted import shown

_NO_CLIENT = f"the Kaggle client is not installed{{why}}; install it with `{install_command('kaggle')}`."
_NO_CREDENTIALS = """no Kaggle credentials that work are on this machine. Any one of these will do:
  - a token: make one at https://www.kaggle.com/settings/api ("Generate New Token"), and put it into
    ~/.kaggle/access_token or the environment variable KAGGLE_API_TOKEN
  - an older API key: the downloaded kaggle.json in ~/.kaggle, or KAGGLE_USERNAME and KAGGLE_KEY
  - a login in the browser: `kaggle auth login`, which writes ~/.kaggle/credentials.json
If you have one of them, it has expired or was revoked: make a new one."""


def signed_in() -> Any:
    """Return the client, signed in with whatever credentials this machine has.

    Raises CredentialsError when there are none that work, or no client.
    """
    with _explained():
        api = api_of_client()
        with contextlib.suppress(CaughtRequest, SystemExit), caught():
            api_of_client().authenticate()  # what fails here are the files of this machine
        with call("signing in"):
            api.authenticate()
    return api


def user_known_here() -> str | None:
    """Return the user name in the environment or in kaggle.json; nothing is asked of Kaggle.

    Raises CredentialsError where the client cannot be imported.
    """
    with _explained():
        name = _api_offline().config_values.get("username")
    return name if isinstance(name, str) else None


def credentials_known_here() -> str | None:
    """Return where the credentials stand that the client would use first; nothing is asked of Kaggle.

    Raises CredentialsError where the client cannot be imported.
    """
    with _explained(), caught():
        api = _api_offline()
        from kagglesdk.kaggle_creds import KaggleCredentials
        from kagglesdk.kaggle_env import get_access_token_from_env

        token, source = get_access_token_from_env()
        if token:
            return "~/.kaggle/access_token" if source == "access_token" else f"the variable {source}"
        if {"username", "key"} <= api.config_values.keys():
            in_variables = {"KAGGLE_USERNAME", "KAGGLE_KEY"} <= os.environ.keys()
            return "the variables KAGGLE_USERNAME and KAGGLE_KEY" if in_variables else str(api.config)
        login = str(KaggleCredentials.DEFAULT_CREDENTIALS_FILE)
        return login if Path(login).expanduser().is_file() else None


def api_of_client() -> Any:
    """Return a client that has not signed in.

    Raises CredentialsError where it cannot be imported.
    """
    with _explained(), quiet(), time_limit(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kaggle.api.kaggle_api_extended import KaggleApi

        return KaggleApi()


def _api_offline() -> Any:
    with caught():
        api = api_of_client()
        with contextlib.suppress(Exception, SystemExit):
            api.authenticate()
    return api


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise CredentialsError for whatever the client raises: it reads its files on import, and does not check them."""
    folder = Path(os.environ.get("KAGGLE_CONFIG_DIR") or "~/.kaggle").expanduser()
    try:
        yield
    except KaggleError:
        raise
    except SystemExit:
        raise CredentialsError(_NO_CREDENTIALS) from None
    except ModuleNotFoundError as error:
        why = "" if error.name in ("kaggle", "requests") else f" completely (there is no {error.name})"
        raise CredentialsError(_NO_CLIENT.format(why=why)) from None
    except OSError as error:
        where = shown(str(error.filename)) if error.filename else f"a file in {folder}"
        raise CredentialsError(
            f"the Kaggle client cannot use {where} ({error.strerror or error}): put the file that Kaggle gave you "
            "there, or let KAGGLE_API_TOKEN or KAGGLE_CONFIG_DIR name another place."
        ) from None
    except Exception as error:
        raise CredentialsError(
            f"the Kaggle client cannot start ({type(error).__name__}): look whether kaggle.json, access_token "
            f"and credentials.json in {folder} hold what Kaggle gave you."
        ) from None
