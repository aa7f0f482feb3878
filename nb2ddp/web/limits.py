"""What one conversion on the page may take: other users of the machine wait for it."""

from __future__ import annotations

MOST_BYTES = 20_000_000
"""The largest notebook."""

MOST_REQUEST = 100_000
"""Bytes of a request that is no upload: options, and a link."""

MOST_UPLOAD = MOST_BYTES + MOST_REQUEST
"""Bytes of a request that uploads files."""

SECONDS = 60.0
"""For a conversion with its download; and for a request to come in."""

MEMORY = 2 * 2**30
"""Bytes of address space of the process that converts."""

AT_ONCE = 2
"""Conversions side by side; others wait in the queue."""

WAITING = 20
"""Conversions in the queue; further ones are refused."""

KEEP_SECONDS = 600.0
"""How long a notebook that was dropped can be converted again with other options."""

MOST_KEPT = 20 * MOST_BYTES
"""Bytes of the notebooks that are kept for that, of all users: the oldest go first."""

UPLOAD_SECONDS = 60.0
"""How long an upload stays on the disk that no page has taken."""

SWEEP_SECONDS = 10.0
"""Between two looks for what has expired."""
