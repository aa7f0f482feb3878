"""Keep torchmetrics from adding up over the ranks what each rank has counted whole."""

import sys
from typing import Any

from nb2ddp.runtime.run_state import _run


def _count_metrics_once() -> None:
    """Let torchmetrics compute from what this rank has counted, from now on: it is what one process counts.

    Once there is a process group, `Metric.compute()` joins the ranks' counts (`Metric.sync` in torchmetrics/metric.py).
    """
    if _run.meets and (kind := _metric_class()):
        kind.sync = _joins_nothing


def _metric_class() -> Any:
    """Return torchmetrics' base class; None where it is not imported."""
    return getattr(sys.modules.get("torchmetrics.metric"), "Metric", None)


def _is_metric(value: Any) -> bool:
    """Return whether a value is a metric of torchmetrics, which counts what it is given."""
    kind = _metric_class()
    return kind is not None and isinstance(value, kind)


def _joins_nothing(metric: Any, *args: Any, **options: Any) -> None:
    """Stand for `Metric.sync`, which one process leaves at once too."""
