"""``jupyter nbconvert --to ddp notebook.ipynb``: the same script, for users of nbconvert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbconvert.exporters import Exporter
from nbformat import NotebookNode

from nb2ddp.conversion.pipeline import convert_notebook
from nb2ddp.conversion.report import lines
from nb2ddp.ddp_folder import SCRIPT, SUPPORT
from nb2ddp.errors import NotebookError
from nb2ddp.source.notebook import notebook_of


class DDPExporter(Exporter):
    """Gives the script that ``nb2ddp convert`` writes as ``train_ddp.py``.

    Raises:
        NotebookError: the notebook cannot be converted; the message says why.
    """

    export_from_notebook = "DDP training script"
    output_mimetype = "text/x-python"

    def _file_extension_default(self) -> str:
        return ".py"

    def from_notebook_node(
        self, nb: NotebookNode, resources: Any = None, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        copy, resources = super().from_notebook_node(nb, resources, **kwargs)
        metadata = resources.get("metadata", {})
        path = Path(metadata.get("path") or "", f"{metadata.get('name') or 'notebook'}.ipynb")
        conversion = convert_notebook(notebook_of(path, copy))
        if conversion.status != "converted":
            raise NotebookError("\n".join(lines(conversion)))
        beside = resources.setdefault("outputs", {})
        beside[f"./{SUPPORT}"] = conversion.files[SUPPORT].encode()
        return conversion.files[SCRIPT], resources
