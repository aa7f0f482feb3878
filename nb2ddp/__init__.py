"""Turn a single-GPU fine-tuning notebook into a DDP script that trains the same run on N GPUs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Conversion", "Options", "convert"]

if TYPE_CHECKING:
    from nb2ddp.conversion.pipeline import Conversion, convert
    from nb2ddp.options import Options


def __getattr__(name: str) -> Any:
    """Load the converter when it is first used: ``import nb2ddp`` alone stays light."""
    if name in __all__:
        import importlib

        room = "nb2ddp.options" if name == "Options" else "nb2ddp.conversion.pipeline"
        return getattr(importlib.import_module(room), name)
    raise AttributeError(f"module 'nb2ddp' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Give the notebook the magics ``%run_ddp`` and ``%%run_ddp``: IPython calls this for ``%load_ext nb2ddp``."""
    from nb2ddp.jupyter.magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics back: IPython calls this for ``%unload_ext nb2ddp``."""
    from nb2ddp.jupyter.magic import unload

    unload(shell)


if "IPython" in sys.modules and {"KAGGLE_KERNEL_RUN_TYPE", "COLAB_RELEASE_TAG"} & os.environ.keys():
    # A notebook on Kaggle or Colab: importing is enough there.
    _shell = sys.modules["IPython"].get_ipython()
    if _shell is not None:
        load_ipython_extension(_shell)
