"""Refuse to push files that contain a token or password."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nb2ddp.errors import SecretError
from nb2ddp.kaggle.untrusted import shown
from nb2ddp.secrets import Secret


def refuse_secrets(found: Iterable[Secret], allowed: Collection[str] = ()) -> None:
    """Raise SecretError, naming every place, when there is a secret whose fingerprint is not allowed.

    A value that is allowed in one place is allowed in all: the script repeats what the notebook holds.
    """
    places = [f"  {shown(str(secret), 500)}" for secret in found if secret.fingerprint not in allowed]
    if not places:
        return
    rest = [f"  and {len(places) - 20} more"] if len(places) > 20 else []
    raise SecretError(
        "nothing was sent, because a token or password is in what you would share:\n"
        + "\n".join([*dict.fromkeys(places[:20]), *rest])
        + "\nTake it out (outputs too) and revoke it. On Kaggle, put it into a private dataset as a file "
        "with the name of its variable (such as HF_TOKEN) and attach that with --token-dataset OWNER/SLUG. "
        "If it is not a secret, `--allow-secret` with the fingerprint in brackets lets it pass."
    )
