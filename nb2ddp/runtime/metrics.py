"""Know the metrics of torchmetrics."""

import sys
from typing import Any


def _is_metric(value: Any) -> bool:
    """Return whether a value is a metric of torchmetrics, which counts what it is given."""
    kind = getattr(sys.modules.get("torchmetrics.metric"), "Metric", None)
    return kind is not None and isinstance(value, kind)
