"""Credentials for Kaggle: sign in with what this machine has, or say what is missing.

``import kaggle`` signs in, prints help and may end the process; so it is imported here, as late as can be.
"""

from __future__ import annotations

import contextlib
import os
import warnings
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
    api = api_of_client()
    try:
        with contextlib.suppress(CaughtRequest, SystemExit), caught():
            api_of_client().authenticate()  # what fails here are the files of this machine
        with call("signing in"):
            api.authenticate()
    except KaggleError:
        raise
    except SystemExit:
        raise CredentialsError(_NO_CREDENTIALS) from None
    except OSError as error:
        raise _unreadable(error) from None
    except Exception as error:
        raise _unusable(error) from None
    return api


def user_known_here() -> str | None:
    """Return the user name in the environment or in kaggle.json; nothing is asked of Kaggle.

    Raises CredentialsError where the client cannot be imported.
    """
    api = _api_offline()
    name = api.config_values.get("username")
    return name if isinstance(name, str) else None


def credentials_known_here() -> str | None:
    """Return where the credentials stand that the client would use first; nothing is asked of Kaggle.

    Raises CredentialsError where the client cannot be imported.
    """
    api = _api_offline()
    with caught():
        from kagglesdk.kaggle_creds import KaggleCredentials
        from kagglesdk.kaggle_env import get_access_token_from_env

        try:
            token, source = get_access_token_from_env()
        except OSError as error:
            raise _unreadable(error) from None
        except ValueError as error:
            raise _unusable(error) from None
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
    try:
        with quiet(), time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from kaggle.api.kaggle_api_extended import KaggleApi

            return KaggleApi()
    except ModuleNotFoundError as error:
        why = "" if error.name in ("kaggle", "requests") else f" completely (there is no {error.name})"
        raise CredentialsError(_NO_CLIENT.format(why=why)) from None
    except OSError as error:
        raise _unreadable(error) from None
    except Exception as error:  # it reads its files on import
        raise _unusable(error) from None


def _api_offline() -> Any:
    try:
        with caught():
            api = api_of_client()
            with contextlib.suppress(Exception, SystemExit):
                api.authenticate()
    except ImportError:
        raise CredentialsError(_NO_CLIENT.format(why="")) from None
    return api


def _config_folder() -> Path:
    return Path(os.environ.get("KAGGLE_CONFIG_DIR") or "~/.kaggle").expanduser()


def _unusable(error: Exception) -> CredentialsError:
    """Return the error for files that do not hold what the client expects; it does not check them."""
    return CredentialsError(
        f"the Kaggle client cannot start ({type(error).__name__}): look whether kaggle.json, access_token "
        f"and credentials.json in {_config_folder()} hold what Kaggle gave you."
    )


def _unreadable(error: OSError) -> CredentialsError:
    where = shown(str(error.filename)) if error.filename else f"a file in {_config_folder()}"
    return CredentialsError(
        f"the Kaggle client cannot use {where} ({error.strerror or error}): put the file that Kaggle gave you there, "
        "or let KAGGLE_API_TOKEN or KAGGLE_CONFIG_DIR name another place."
    )
