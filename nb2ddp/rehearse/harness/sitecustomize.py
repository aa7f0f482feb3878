"""Python imports this file when it starts with this folder on PYTHONPATH (see `warden`)."""

import os
import sys

if os.environ.get("NB2DDP_REHEARSAL"):
    _root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    sys.path.insert(0, _root)  # the Python of the training need not have nb2ddp installed
    from nb2ddp.rehearse.harness import begin

    begin()
    # our modules are loaded by now; the script shall find what it would find without us
    sys.path[:] = [path for path in sys.path if path not in (_root, os.path.dirname(__file__))]
