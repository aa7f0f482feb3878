"""Tell which names of runs and folders contain the time or a random id, so that all ranks have to take rank 0's."""

from __future__ import annotations

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding

_CLOCKS = frozenset(
    "datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today "
    "pandas.Timestamp.now time.time time.time_ns time.localtime time.gmtime".split()
)
_IDS = frozenset(
    "time.strftime time.ctime uuid.uuid1 uuid.uuid4 secrets.token_hex secrets.token_urlsafe "
    "tempfile.mkdtemp os.getpid".split()
)
# Other calls in such a name: they return the same on every rank, without the other ranks.
_PLAIN = frozenset(
    "str int round os.path.join os.path.basename os.environ.get os.getenv pathlib.Path "
    "pytz.timezone zoneinfo.ZoneInfo".split()
)
_TO_TEXT = frozenset("strftime isoformat format replace lower upper join timestamp split strip".split())


def is_drawn_name(facts: Facts, value: cst.BaseExpression) -> bool:
    """Return whether ``value`` is text with a time or an id in it; a time alone is used to measure something."""
    calls = list(facts.calls_in(value))
    names = [facts.qualified(call.func) for call in calls]
    drawn = [name for name in names if name in _CLOCKS | _IDS]
    others = [
        call
        for call, name in zip(calls, names, strict=True)
        if name not in _CLOCKS | _IDS | _PLAIN and facts.method(call) not in _TO_TEXT
    ]
    if not drawn or others:
        return False
    is_text = any(name in _IDS for name in names) or any(facts.method(call) in _TO_TEXT for call in calls)
    return is_text or "str" in names or cst_nodes.holds_text(value)


def is_shared(facts: Facts, binding: Binding) -> bool:
    """Return whether all ranks have rank 0's value of a name: ``folder = tempfile.mkdtemp()`` in a cell."""
    node = binding.node
    if not isinstance(node, cst.Assign) or binding.value is None or binding.index is not None:
        return False
    return facts.parent(node) in facts.top_statements and is_drawn_name(facts, binding.value)
