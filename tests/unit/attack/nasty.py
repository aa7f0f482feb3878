"""Texts from outside that try to be more than text."""

from __future__ import annotations

import re

TEXTS = [
    'ends """ the docstring',
    "ends ''' another",
    'ends with "',
    "back\\slash",
    "C:\\Users\\N{x}\\u12",
    "ends with \\",
    '\\"""',
    "line\nbreak",
    'first"""\nimport os\nos.system("touch owned")\n"""',
    "carriage\rreturn",
    "\u2028separators\u2029\x85\x0b\x0c\x1c",
    "\x1b[31mred\x1b]0;owned\x07",
    "\x7f\x9b31m",
    "\u202egnp.exe\u2066",
    "half \udcff and \ud83d",
    "$(touch owned)`touch owned`",
    "'; touch owned; '",
    "{{ 7 * 7 }}{% raw %}{#",
    "</title></pre><script>alert(1)</script>",
    "\" onload='alert(1)",
    "&lt;b&gt; ]]> <!--",
    "# -*- coding: utf-7 -*-",
    "-rf",
    "torchrun %s {0} %(x)d",
    "a" * 200,
    "é 中文 🙂",
]
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What is never shown raw: control characters, bidirectional marks, line separators, surrogates."""


def label(text: str) -> str:
    """A name for a test."""
    return ascii(text)[1:25]
