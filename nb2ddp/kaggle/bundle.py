"""Find the folder to push, and make the bundle for Kaggle from its files and the options of this push."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nb2ddp.ddp_folder import (
    KAGGLE,
    PUSHED,
    REPORT,
    SCRIPT,
    SETUP,
    ConvertedFolder,
    edited_since,
    read,
    refuse_edits,
    text_in,
    write,
)
from nb2ddp.errors import BundleError, OptionError, SecretError
from nb2ddp.kaggle.datasets import files_of
from nb2ddp.kaggle.untrusted import shown
from nb2ddp.regular_files import bytes_of, json_object
from nb2ddp.secrets import Secret, secrets_in_file, secrets_in_text
from nb2ddp.targets.job import has_trainer
from nb2ddp.targets.kaggle import (
    DEFAULT_ACCELERATOR,
    METADATA_FILE,
    SOURCES,
    UNKNOWN_OWNER,
    accelerator_of,
    kaggle_bundle,
    kernel_title,
    oversize,
    slugify,
)
from nb2ddp.targets.local_files import LocalFiles, local_files

_MOST_SEARCHED = 1_000_000  # bytes of a data file that is searched for tokens

SESSION_HOURS = 12  # after which Kaggle ends a session with GPUs

_REF = r"[A-Za-z0-9_-]+/[A-Za-z0-9_-]+"


@dataclass(frozen=True)
class Wishes:
    """The options of a push; those that are not given are as in the folder.

    timeout: seconds. resume_from: a kernel, or ``datasets/owner/slug``. accelerator: one of ``ACCELERATORS``.
    local: a dataset that was made of this machine's files, and the paths of those in it.
    """

    owner: str | None = None
    title: str | None = None
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout: int | None = None
    image: str | None = None
    public: bool = False
    resume_from: str | None = None
    accelerator: str | None = None
    local: tuple[str, Sequence[str]] | None = None


@dataclass(frozen=True)
class Bundle:
    """The files to send, the secrets found in them and in the notebook, notes, and what it reads of this machine."""

    metadata: Mapping[str, Any]
    code: str
    secrets: list[Secret]
    notes: list[str]
    local: LocalFiles

    @property
    def ref(self) -> str:
        return str(self.metadata["id"])

    @property
    def is_unowned(self) -> bool:
        """Whether no owner is known, so that the address is only a form to fill in."""
        return self.ref.startswith(f"{UNKNOWN_OWNER}/")

    @property
    def is_public(self) -> bool:
        return not self.metadata["is_private"]

    def check(self, folder: Path) -> None:
        """Raise OutputError where `write` would replace what is edited or somebody else's."""
        names = METADATA_FILE, str(self.metadata["code_file"])
        refuse_edits(folder, names, "nothing was sent or changed: move that away and try again")

    def refuse_secrets(self, allowed: Collection[str]) -> None:
        """Raise SecretError, naming every place, when there is a secret whose fingerprint is not allowed.

        A value that is allowed in one place is allowed in all: the script repeats what the notebook holds.
        """
        places = [
            f"  {shown(str(secret), 500)}" for secret in self.secrets if secret.fingerprint not in allowed
        ]
        if not places:
            return
        rest = [f"  and {len(places) - 20} more"] if len(places) > 20 else []
        raise SecretError(
            "nothing was sent, because a token or password is in what you would share:\n"
            + "\n".join([*dict.fromkeys(places[:20]), *rest])
            + "\nTake it out (outputs too) and revoke it. On Kaggle, put it into a private dataset as a file "
            "with the name of its variable (such as HF_TOKEN) and attach that with --token-dataset OWNER/SLUG. "
            "If it is not a secret, `--allow-secret` with the fingerprint in brackets lets it pass."
        )

    def write(self, folder: Path, ref: str | None = None) -> None:
        """Write the files into a folder of our own; ref: the address that Kaggle gave the kernel.

        Raises OutputError.
        """
        metadata = json.dumps({**self.metadata, "id": ref or self.ref}, indent=2) + "\n"
        write(folder, {METADATA_FILE: metadata, self.metadata["code_file"]: self.code}, {}, force=False)


def seconds(duration: str) -> int:
    """Return the seconds in a duration such as ``11h``, ``1h30m``, ``90m`` or ``3600``.

    Raises OptionError for another form, and for more than Kaggle's 12 hours.
    """
    number = r"(\d+(?:\.\d*)?|\.\d+)"
    parts = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:(\d+)s?)?", duration.strip().lower())
    given = parts.groups("0") if parts else ("0", "0", "0")
    total = sum(float(n) * unit for n, unit in zip(given, (3600, 60, 1), strict=True))
    if not 60 <= total <= SESSION_HOURS * 3600:
        raise OptionError(
            f"{duration!r} is not a time limit: give one from 1m to {SESSION_HOURS}h, such as 11h or 90m."
        )
    return int(total)


# ---- the folder to push ------------------------------------------------------------------------------------


def converted_folder(target: Path | None) -> Path:
    """Return the folder to push; without a target, the only converted folder in the working folder.

    Raises BundleError if there is none, or more than one.
    """
    if target is not None:
        if not target.is_dir():
            what = "is no notebook" if target.is_file() else "does not exist"
            raise BundleError(f"{target} {what}; name a notebook or a folder that `nb2ddp convert` made.")
        if _metadata_of(target) is None:
            raise BundleError(
                f"{target} holds no Kaggle bundle; `nb2ddp convert NOTEBOOK` makes a folder that does."
            )
        return target
    folders = (Path(), *sorted(Path().iterdir()))
    here = [folder for folder in folders if folder.is_dir() and _metadata_of(folder)]
    if len(here) == 1:
        return here[0]
    several = f"there are several converted folders here: name one of {', '.join(map(str, here))}."
    none = "there is no converted folder here; name a notebook, or a folder that `nb2ddp convert` made."
    raise BundleError(several if here else none)


def kernel_ref(target: str | None) -> str:
    """Return the ``owner/slug`` of an address, a name or a folder; without one, of the only folder here.

    Raises BundleError if there is none, or more than one.
    """
    if target is not None and not Path(target).is_dir():
        name = re.sub(r"^https?://(www\.)?kaggle\.com/(code/)?", "", target).rstrip("/")
        if not re.fullmatch(_REF, name):
            raise BundleError(f"{target!r} is neither OWNER/SLUG nor a folder that was pushed.")
        return name
    folder = converted_folder(None if target is None else Path(target))
    ref = str((_metadata_of(folder, pushed=True) or {}).get("id"))
    if not re.fullmatch(_REF, ref) or ref.startswith(UNKNOWN_OWNER):
        raise BundleError(f"{folder} has not been pushed yet: `nb2ddp push --kaggle {folder}` does it.")
    return ref


def _metadata_of(folder: Path, *, pushed: bool = False) -> dict[str, Any] | None:
    for place in (*([PUSHED] if pushed else []), KAGGLE, "."):
        file = folder / place / METADATA_FILE
        if file.is_file():
            return json_object(file)
    return None


# ---- the files to send -------------------------------------------------------------------------------------


def bundle_of(folder: Path, wishes: Wishes, user: str | None) -> Bundle:
    """Return the bundle of a converted folder, with the options of this push.

    It is made again from train_ddp.py and setup_env.py, so that edits of those take effect. A code file that was
    edited itself is sent as it is. user: the owner if neither the folder nor the options name one.

    Raises BundleError for a bundle that Kaggle would refuse, and for edits that exclude each other.
    """
    metadata = _metadata_of(folder) or {}
    place = folder / KAGGLE if (folder / KAGGLE / METADATA_FILE).is_file() else folder
    code_file = place / Path(str(metadata.get("code_file"))).name  # nothing beyond the folder is sent
    if code_file.suffix != ".py" or not code_file.is_file():
        raise BundleError(
            f"{place / METADATA_FILE} is no JSON object that names a Python file beside it as code_file: convert the "
            "notebook again with --force."
        )
    code, by_hand = text_in(code_file), _is_edited(folder, code_file, wishes)
    converted = ConvertedFolder(folder, "", None, None, json_object(folder / REPORT))
    if not by_hand:
        converted = read(folder)
    script, notebook = converted.script, converted.notebook
    owner = wishes.owner or _owner(metadata) or user
    shape = str(metadata.get("machine_shape") or DEFAULT_ACCELERATOR)
    accelerator = wishes.accelerator or accelerator_of(shape)
    made = kaggle_bundle(
        script,
        support=converted.support,
        title=_title(str(metadata.get("title") or folder.name), owner, wishes),
        owner=owner,
        setup=converted.setup,
        notebook_name=notebook.name if notebook else code_file.name,
        enable_internet=metadata.get("enable_internet", True),
        nproc=_processes(code, wishes),
        accelerator=accelerator,
        timeout=wishes.timeout,
        resume_from=wishes.resume_from,
        local=wishes.local,
        **_sources(metadata, wishes),
    )
    is_private = not wishes.public and metadata.get("is_private") is not False
    metadata |= json.loads(made[METADATA_FILE]) | {"is_private": is_private}
    if wishes.image:
        is_pin = wishes.image in ("original", "latest")  # the client's words
        metadata["docker_image_pinning_type" if is_pin else "docker_image"] = wishes.image
    code = code if by_hand else made[metadata["code_file"]]
    if sentence := oversize({metadata["code_file"]: code}):
        raise BundleError(sentence)
    found = secrets_in_file(notebook) if notebook else []
    found += secrets_in_text(code, str(code_file))
    notes = []
    if wishes.timeout and not has_trainer(script):
        notes.append(
            "the script trains without a Trainer, so --timeout ends it without a checkpoint; what it has "
            "saved itself by then can be fetched"
        )
    local = local_files(script, (notebook or folder).absolute().parent)
    for name in local.names if wishes.local else ():
        for path in files_of(local.base / name):
            if path.suffix == ".ipynb":
                found += secrets_in_file(path)
            elif path.stat().st_size <= _MOST_SEARCHED:
                found += secrets_in_text(bytes_of(path).decode("utf-8", "replace"), str(path))
    return Bundle(metadata, code, found, notes, local)


def refuse_local(local: LocalFiles, upload: bool | None) -> None:
    """Raise BundleError for files of this machine that nothing brings to Kaggle; ``upload``: None is undecided."""
    if upload is False:
        return
    if local.absolute:
        raise BundleError(
            f"Kaggle has no files of this machine, and the script reads {', '.join(local.absolute[:5])}: name them "
            "relative to the notebook, so that --upload-data can send them; --no-upload-data pushes all the same."
        )
    if local.names and upload is None:
        raise BundleError(
            f"Kaggle has no files of this machine, and the script reads {', '.join(local.names[:10])}: --upload-data "
            "sends them as a private dataset; --no-upload-data pushes without them, if the script makes them itself."
        )


def _processes(code: str, wishes: Wishes) -> int | None:
    """Return how many processes the kernel starts; None: one per GPU of the accelerator that was asked for."""
    found = re.search(r"(?m)^NPROC = (\d)$", code)
    if found and (found[1] == "1" or not wishes.accelerator):  # one process spreads the model over all GPUs
        return int(found[1])
    return None


def _is_edited(folder: Path, code_file: Path, wishes: Wishes) -> bool:
    """Return whether the code file was edited, and so is sent as it is.

    Raises BundleError if other files were edited too, or an option would have to change it.
    """
    edited = edited_since(folder)
    if f"{KAGGLE}/{code_file.name}" not in edited and (folder / SCRIPT).is_file():
        return False
    if scripts := sorted({SCRIPT, SETUP} & set(edited)):
        raise BundleError(
            f"{', '.join(scripts)} and {code_file.name} in {folder} were both edited: make the changes in "
            "one of them, and convert again with --force for the other."
        )
    given = {
        "--timeout": wishes.timeout,
        "--resume-from": wishes.resume_from,
        "--accelerator": wishes.accelerator,
        "--upload-data": wishes.local,
    }
    if named := " and ".join(name for name, value in given.items() if value):
        raise BundleError(
            f"{code_file} was edited, so {named} cannot be built into it: make the changes in "
            f"{folder / SCRIPT} instead."
        )
    return True


def _title(title: str, owner: str | None, wishes: Wishes) -> str:
    """Return the kernel's title; a kernel that continues an earlier one needs another title."""
    if not wishes.resume_from:
        return wishes.title or title
    is_itself = f"{owner}/{slugify(wishes.title or title)}".lower() == wishes.resume_from.lower()
    if wishes.title and is_itself:
        raise BundleError("a kernel cannot continue from itself: choose another --title.")
    part = _part(title, wishes.resume_from)
    if not wishes.title and (is_itself or part):
        return numbered(title, int(part[1]) + 1 if part else 2)
    return wishes.title or title


def _sources(metadata: Mapping[str, Any], wishes: Wishes) -> dict[str, Any]:
    for kind in SOURCES:
        if not isinstance(metadata.get(kind) or [], list):
            raise BundleError(f"{kind} in {METADATA_FILE} is not a list of names.")
    sources = {kind: [*(metadata.get(kind) or ()), *wishes.sources.get(kind, ())] for kind in SOURCES}
    if wishes.resume_from:
        kind = "dataset_sources" if wishes.resume_from.startswith("datasets/") else "kernel_sources"
        sources[kind].append(wishes.resume_from.removeprefix("datasets/"))
    if wishes.local:
        sources["dataset_sources"].append(wishes.local[0].removeprefix("datasets/"))
    return sources


def _owner(metadata: Mapping[str, Any]) -> str | None:
    owner = str(metadata.get("id", "")).partition("/")[0]
    return owner if owner and owner != UNKNOWN_OWNER else None


def _part(title: str, ref: str) -> re.Match[str] | None:
    """Match the number in ``owner/<slug of title>-part-<number>``."""
    base = slugify(numbered(title, 1)).removesuffix("-part-1")
    return re.fullmatch(rf"[^/]+/{re.escape(base)}-part-(\d+)", ref.lower())


def numbered(title: str, number: int) -> str:
    """Return the title of the n-th kernel of a run, which has 50 characters at most."""
    return f"{kernel_title(title)[:42].rstrip(' -')} part {number}"
