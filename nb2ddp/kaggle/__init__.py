"""Kaggle, end to end: push a bundle, watch it, fetch its output.

Everything that touches the network or credentials is in here, and ``client`` is the only module that
imports ``kaggle``. Nothing of this is imported by a conversion.
"""
