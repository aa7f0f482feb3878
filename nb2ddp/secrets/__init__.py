"""Find tokens, keys and passwords in notebooks and scripts. Imports nothing of ours, and nothing heavy."""

from nb2ddp.secrets.masking import masker
from nb2ddp.secrets.notebook import secrets_in_file, secrets_in_notebook, secrets_in_text
from nb2ddp.secrets.scan import Secret, Text, scan

__all__ = ["Secret", "Text", "masker", "scan", "secrets_in_file", "secrets_in_notebook", "secrets_in_text"]
