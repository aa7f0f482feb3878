"""Start the harness in a rehearsed process. Python imports this file at start (see `warden`).

The harness is imported from its files: the folder above the package never enters ``sys.path``. In an
installation that folder is site-packages, which must stay; in a checkout it would offer the script modules
that it does not have otherwise; and the Python of the training need not have nb2ddp at all.
"""

import importlib.machinery
import importlib.util
import os
import sys
import types

_HERE = os.path.dirname(__file__)
_PACKAGE = os.path.abspath(os.path.join(_HERE, "..", "..", ".."))


def _start_harness() -> None:
    """Import `nb2ddp.rehearse.harness` below empty parent packages, and begin.

    Afterwards the parents are as before, so that ``import nb2ddp`` gives the script what it would get
    without us; the harness's own modules stay in ``sys.modules`` under their full names.
    """
    parents = {"nb2ddp": _PACKAGE, "nb2ddp.rehearse": os.path.join(_PACKAGE, "rehearse")}
    before = {name: sys.modules.get(name) for name in parents}
    for name, folder in parents.items():
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
    try:
        from nb2ddp.rehearse.harness import begin

        begin()
    except Exception as error:  # without the harness nothing would be replaced: models would be downloaded
        reason = f"{type(error).__name__}: {error}"
        print(f"nb2ddp: the harness of the rehearsal does not start: {reason}", file=sys.stderr, flush=True)
        os._exit(1)
    for name, module in before.items():
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module


def _run_next_sitecustomize() -> None:
    """Run the sitecustomize that Python would have found without this one."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [path for path in sys.path if path != _HERE]
if os.environ.get("NB2DDP_REHEARSAL"):
    _start_harness()
_run_next_sitecustomize()
