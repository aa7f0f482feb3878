"""How long a test waits for what must come."""

LONG = 300.0  # seconds, many times what it takes where nothing else runs: who has waited so long has found a hang
