"""Answer the rules' questions about a notebook's code: the one object that they ask.

The answers come from six parts, each built on those before it: `tree` (where a node stands), `names` (what a name is
bound to), `flow` (where values come from), `kinds` (what a value is), `calls` (which function a call runs), and
`execution` (what runs, and when).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from nb2ddp.analysis.execution import Execution
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import CodeCell

Answer = TypeVar("Answer")


class Facts(Execution):
    """Answer questions about a sequence of cells. Nodes in questions are nodes of the cells' own trees."""

    method = staticmethod(cst_nodes.method_of)
    keyword = staticmethod(cst_nodes.keyword_of)

    def __init__(self, cells: Sequence[CodeCell], *, folders: Sequence[Path] = (), **how: bool) -> None:
        """Read the cells. ``folders``: where modules are looked for; ``sharded``: a Trainer shards its model."""
        super().__init__(cells, **how)
        self.folders = folders
        self.modules: dict[Path, Facts] = {}
        self.written: dict[str, str] = {}  # files, by path, of the notebook that imports this module
        self._answers: dict[object, Any] = {}

    def once(self, question: Callable[[Facts], Answer]) -> Answer:
        """Return ``question(self)``, worked out the first time: for questions about the whole notebook."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: Answer = self._answers[question]
        return answer

    @classmethod
    def that_train(cls, cells: Sequence[CodeCell], folders: Sequence[Path] = (), *, sharded: bool) -> Facts:
        """Return the facts of cells, read loosely where that finds more training."""
        strict = cls(cells, folders=folders, sharded=sharded)
        if strict.last_collective is not None and not strict.may_train_more:
            return strict
        loose = cls(cells, folders=folders, sharded=sharded, is_loose=True)
        return loose if len(loose.collective_statements) > len(strict.collective_statements) else strict

    def sharded(self) -> Facts:
        """Return the facts of the same cells for a model that the Trainer shards."""
        return self if self._sharded else Facts.that_train(self.cells, self.folders, sharded=True)


def asked_once(question: Callable[[Facts], Answer]) -> Callable[[Facts], Answer]:
    """Keep the answer to a question about the whole notebook."""
    return wraps(question)(lambda facts: facts.once(question))
