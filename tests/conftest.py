"""Import nbformat as nb2ddp does, before a test imports it: it saves each run of pytest a second and a half."""

from nb2ddp.source.notebook import without_iri_grammars

with without_iri_grammars():
    import nbformat  # noqa: F401
