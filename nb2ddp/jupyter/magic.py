"""%run_ddp and %%run_ddp: DDP from inside a notebook; the session's cells, its GPU memory, and the run."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any, cast

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, magics_class
from IPython.display import display
from IPython.utils._process_common import arg_split

from nb2ddp.conversion import report
from nb2ddp.conversion.pipeline import Conversion, convert, convert_notebook
from nb2ddp.ddp_folder import LOGS, REPORT, SCRIPT, SUPPORT, edited_since, write
from nb2ddp.errors import PLEASE_REPORT, Nb2ddpError
from nb2ddp.jupyter import history, kernel_gpu
from nb2ddp.jupyter import html as pictures
from nb2ddp.jupyter.arguments import FOLDER, check, help_text, with_arguments
from nb2ddp.jupyter.environment import INITIAL_ENVIRONMENT, ranks_environment
from nb2ddp.jupyter.history import Ran
from nb2ddp.jupyter.live import Live
from nb2ddp.jupyter.result import Places, Result, failure
from nb2ddp.jupyter.run_process import Training
from nb2ddp.launch.outputs import Outputs, files_written
from nb2ddp.monitor import nvml
from nb2ddp.monitor.closing import closing_facts
from nb2ddp.monitor.progress import Progress
from nb2ddp.options import file_defaults, given
from nb2ddp.secrets import masker
from nb2ddp.source.notebook import Cell, Notebook

_SAVES = "save_pretrained save_model save_lora torch.save save_file push_to_hub save_strategy".split()


class RunFailedError(Exception):
    """The training failed; shown as the traceback of the rank that failed first."""

    def __init__(self, sentence: str, trace: list[str]) -> None:
        super().__init__(sentence)
        self._trace = trace

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [*self._trace, "", f"nb2ddp: {self}"]


class RunInterruptedError(KeyboardInterrupt):
    """The training was stopped by an interrupt of the kernel; all its processes have ended."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


@magics_class
class DDPMagics(Magics):
    """The magic, and the session's history that it draws on."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.shell: InteractiveShell = shell
        self._history: dict[int, Ran] = _history_before(shell)
        self._now: Any = None
        self._collected = False

    # ---- the session's history -----------------------------------------------------------------------------

    def watch(self) -> None:
        self.shell.events.register("pre_run_cell", self._before_cell)
        self.shell.events.register("post_run_cell", self._after_cell)

    def unwatch(self) -> None:
        self.shell.events.unregister("pre_run_cell", self._before_cell)
        self.shell.events.unregister("post_run_cell", self._after_cell)

    def _before_cell(self, info: Any) -> None:
        self._now, self._collected = info, False

    def _after_cell(self, result: Any) -> None:
        info = getattr(result, "info", None)
        if info is None or info.silent or not info.store_history or result.execution_count is None:
            return
        ran = Ran(result.execution_count, info.raw_cell, result.success, getattr(info, "cell_id", None))
        if self._collected and result.success:
            ran = history.collected(ran)
        self._history[ran.count] = ran

    def _this_cell(self, body: str) -> Ran:
        """Return the cell that runs now, without its first line."""
        manager = self.shell.history_manager
        typed = list(manager.input_hist_raw) if manager is not None else []
        raw = getattr(self._now, "raw_cell", "")
        if raw.rstrip().endswith(body.rstrip()) and raw.lstrip().startswith("%%run_ddp"):
            source = history.without_first_line(raw)
        else:  # called by other code
            source = f"\n{body}"
        stored = bool(typed) and typed[-1] == raw.rstrip("\n")
        count = len(typed) - 1 if stored else self.shell.execution_count
        return Ran(count, source, True, getattr(self._now, "cell_id", None))

    # ---- the magic -----------------------------------------------------------------------------------------

    @with_arguments
    def run_ddp(self, line: str, cell: str | None = None) -> Result | None:
        """Train on several GPUs, in processes of their own: the same run, its work divided.

        The cells that ran in this session, as they were when they last succeeded, become a DDP script,
        which torchrun runs. What trains is a copy: no variable of this kernel changes. Save the result in the
        cell, and load it from there.

        Examples
        --------
        The cells so far, then this one::

            %%run_ddp --nproc 2
            trainer.train()
            model.save_pretrained("lora")

        Do not load the model here, only in the script::

            %%run_ddp --collect
            model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B")

        Everything that ran, or a notebook file; a look at the script first::

            %run_ddp
            %run_ddp finetune.ipynb --nproc 2
            %run_ddp --show

        Afterwards ``_ddp`` holds the result: ``_ddp.ok``, ``_ddp.losses``, ``_ddp.log_history``,
        ``_ddp.plot()``, ``_ddp.output_files``, ``_ddp.how_to_load``.
        """
        try:
            options = cast(Any, self.run_ddp).parser.parse_args(arg_split(line, posix=True))
        except ValueError as error:  # a quote without its end
            raise UsageError(f"{str(error).lower()} in: {line}") from None
        if options.help:
            print(help_text(self.run_ddp))
            return None
        check(options, cell)
        if options.collect:
            self._collected = True
            print("This cell goes into the script of the next %run_ddp; it did not run here.")
            return None
        if options.button:
            display(pictures.button(f"%run_ddp {line.replace('--button', '')}".strip()), raw=True)
            return None
        chosen = self._chosen(options, cell)
        conversion = self._converted(options, chosen)
        if options.show:
            _show(conversion, chosen)
            return None
        self._check_gpu_memory(options)
        cwd = Path.cwd() if options.only or options.notebook else self._start
        folder = Path(options.keep).expanduser().absolute() if options.keep else cwd / FOLDER
        _write(folder, conversion, kept=bool(options.keep))
        for sentence in _remarks(conversion, chosen, cell):
            print(f"nb2ddp: {sentence}", file=sys.stderr)
        return self._train(options, conversion, folder, cwd)

    def _chosen(self, options: Any, cell: str | None) -> history.Chosen:
        this = [self._this_cell(cell)] if cell is not None and cell.strip() else []
        if options.notebook or options.only:
            return history.Chosen(tuple(this), ())
        ids = {ran.cell_id for ran in this if ran.cell_id}
        before = history.choose(ran for ran in self._history.values() if ran.cell_id not in ids)
        return history.Chosen((*before.cells, *this), before.left_out)

    def _converted(self, options: Any, chosen: history.Chosen) -> Conversion:
        """Convert the cells or the notebook. Raises UsageError when that cannot be done."""
        try:
            chosen_options = given(vars(options), file_defaults(self._start))
            options.strategy = chosen_options.strategy
            if options.notebook:
                conversion = convert(Path(options.notebook).expanduser(), options=chosen_options)
            elif not chosen.cells:
                raise UsageError(
                    "no cell has run yet that could be trained from: run the notebook's cells, "
                    "or name a notebook (%run_ddp notebook.ipynb)."
                )
            else:
                cells = tuple(Cell("code", ran.source, ran.count) for ran in chosen.cells)
                notebook = Notebook(self._notebook_path(), cells, "python")
                conversion = convert_notebook(
                    notebook, options=chosen_options.with_(title=chosen_options.title or "run_ddp")
                )
        except Nb2ddpError as error:
            raise UsageError(str(error)) from None
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"INTERNAL ERROR, {type(error).__name__}: {error}. {PLEASE_REPORT}") from error
        if conversion.status != "converted":
            why = [line for line in report.lines(conversion) if ": declined: " in line]
            if not options.notebook:  # by the numbers that Jupyter shows
                why = [re.sub(r"^.*?: declined: cell (\d+)", r"Cell In[\1]", line) for line in why]
            raise UsageError("\n".join(["this cannot be converted:", *why]))
        return conversion

    def _notebook_path(self) -> Path:
        """Return the notebook's file where the front end tells it: Jupyter's server and VS Code do."""
        told = self.shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or ""
        path = Path(str(told))
        return path if path.suffix == ".ipynb" else Path("notebook.ipynb")

    @property
    def _start(self) -> Path:
        """Where the kernel started: the notebook's folder. The cells' own ``%cd`` is part of the script."""
        visited = self.shell.user_ns.get("_dh") or [Path.cwd()]
        return Path(str(visited[0]))

    # ---- GPU memory ----------------------------------------------------------------------------------------

    def _check_gpu_memory(self, options: Any) -> None:
        """Print what the kernel holds on the GPUs; with --free, free it first.

        Raises UsageError when the ranks cannot find room beside it.
        """
        if options.cpu:
            return
        before = sum(held.reserved for held in kernel_gpu.held())
        if options.free:
            self._forget_errors()
            gone = kernel_gpu.free(self.shell.user_ns)
            freed = before - sum(held.reserved for held in kernel_gpu.held())
            names = f" (dropped: {', '.join(gone)})" if gone else ""
            print(f"Freed {freed / nvml.GIB:.2f} GiB of GPU memory{names}.")
        for held in kernel_gpu.held():
            sizes = kernel_gpu.holders(self.shell.user_ns)
            names = ", ".join(f"{name} {size / nvml.GIB:.2f}" for name, size in list(sizes.items())[:5])
            sentence = (
                f"this kernel holds {held.reserved / nvml.GIB:.2f} GiB on GPU {held.device}"
                f"{f' ({names})' if names else ''}, and {held.free / nvml.GIB:.2f} GiB are free there"
            )
            advice = (
                "--free drops these objects first; %%run_ddp --collect on the cell that loads the model "
                "puts it into the script without loading it here"
            )
            # the script loads the same again, on every GPU
            if not options.notebook and not options.only and held.allocated > held.free:
                raise UsageError(
                    f"{sentence}: the script, which loads the same, would run out of memory. {advice}."
                )
            print(f"nb2ddp: {sentence}; {advice}.", file=sys.stderr)

    def _forget_errors(self) -> None:
        """Drop the last tracebacks: they keep what the failed calls have had in their variables."""
        self.shell.InteractiveTB.tb = None
        last = self.shell.last_execution_result
        for error in (last.error_in_exec, last.error_before_exec) if last is not None else ():
            if error is not None:
                error.__traceback__ = None

    # ---- the run -------------------------------------------------------------------------------------------

    def _train(self, options: Any, conversion: Conversion, folder: Path, cwd: Path) -> Result:
        """Run the script in ``folder``, show how it goes, and bind the result.

        Raises RunFailedError and RunInterruptedError, once the result is bound and all processes have ended.
        """
        assert conversion.script is not None
        in_session = not options.only and not options.notebook
        environment = ranks_environment(os.environ, INITIAL_ENVIRONMENT, session=in_session)
        notebook = conversion.notebook.name if options.notebook else None
        places = Places(folder / SCRIPT, conversion.script.places, notebook)
        progress = Progress()
        since = time.time()
        training = Training(
            folder / SCRIPT,
            nproc=1 if options.strategy == "balanced" else options.nproc,
            cpu=options.cpu,
            logs=folder / LOGS,
            cwd=cwd,
            environment=environment,
        )
        rich = hasattr(self.shell, "kernel")
        monitor = nvml.Watch("" if options.cpu else environment.get("CUDA_VISIBLE_DEVICES"))
        live = Live(progress, training, folder / LOGS, self._start, monitor, show=display if rich else None)
        try:
            interrupts = live.follow()
        finally:
            training.close()
            monitor.close()
        sentence, trace = (None, [""]) if training.exit_code == 0 else failure(progress.transcript, places)
        own = self._start / self._notebook_path()  # which JupyterLab saves now and then
        files = files_written(cwd, since, without=[folder, own])
        outputs = Outputs(files, conversion.script.text)
        result = Result(
            files,
            conversion.script.text,
            exit_code=training.exit_code,
            seconds=training.seconds,
            folder=folder,
            records=progress.records,
            error="interrupted" if interrupts else sentence,
            facts=closing_facts(progress, training.seconds, outputs, logs=folder / "logs"),
        )
        self.shell.user_ns[history.RESULT_NAME] = result
        live.end("done" if result.ok else "stopped" if interrupts else "failed")
        if interrupts and not result.ok:
            left = f"; the last checkpoint is {result.checkpoint}" if result.checkpoint else ""
            raise RunInterruptedError(f"the training was stopped, and no process of it is left{left}.")
        if not result.ok:
            raise RunFailedError(sentence or "", trace)
        return result


def _write(folder: Path, conversion: Conversion, *, kept: bool) -> None:
    """Put the script and the report into the run's folder; a kept one gets all files of the conversion.

    Raises UsageError when the folder holds something else, or cannot be written.
    """
    if kept and (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is a file; name a folder with --keep.")
    if kept and folder.exists() and any(folder.iterdir()) and not (folder / REPORT).exists():
        raise UsageError(f"{folder} holds other files; name a new folder with --keep.")
    if kept and (edited := edited_since(folder)):
        raise UsageError(f"{folder}: {', '.join(edited)} was edited; name another folder with --keep.")
    files = conversion.files
    if not kept:
        files = {name: files[name] for name in (SCRIPT, SUPPORT) if name in files}
    try:
        write(folder, files, report.as_json(conversion), force=True)
    except Nb2ddpError as error:
        raise UsageError(f"{error} Name another folder with --keep.") from None
    (folder / LOGS).mkdir(exist_ok=True)
    (folder / LOGS / "output.log").unlink(missing_ok=True)


def _remarks(conversion: Conversion, chosen: history.Chosen, cell: str | None) -> list[str]:
    """Return what the user should know before a long run."""
    notes = [line.partition(": ")[2] for line in report.lines(conversion) if ": note: " in line]
    assert conversion.script is not None
    cells = "\n".join(line.text for line in conversion.script.lines if line.cell)
    saves_by_itself = conversion.task not in ("loop", "accelerate")  # as Trainers do
    if not (saves_by_itself or any(word in cells for word in _SAVES)):
        way = 'model.save_pretrained("lora") or torch.save(model.state_dict(), "model.pt")'
        notes.append(f"nothing is saved, so the result will be lost: add {way} to the cell")
    trained = [ran.count for ran in chosen.cells if ran.trains]
    if len(trained) > 1:
        places = ", ".join(f"[{count}]" for count in trained)
        notes.append(f"the cells {places} all train, and so will the script, one after the other")
    return notes


def _show(conversion: Conversion, chosen: history.Chosen) -> None:
    """Display the script that would run, without secrets, with what was changed."""
    script, source = conversion.script, conversion.source
    assert script is not None
    assert source is not None
    mask = masker([cell.source for cell in source.cells])
    changes = [mask(line.partition(": ")[2]) for line in report.lines(conversion)]
    html = pictures.script_html(script, changes, chosen.left_out, mask)
    remarks = [*changes, *(f"left out: {why}" for why in chosen.left_out)]
    text = "\n".join([*(f"# {remark}" for remark in remarks), "", mask(script.text)])
    display({"text/plain": text, "text/html": html}, raw=True)


def _history_before(shell: InteractiveShell) -> dict[int, Ran]:
    """Return the cells that ran before the extension was loaded; of these no ids are known.

    IPython before version 9 does not say which of them failed: they all count as succeeded.
    """
    manager = shell.history_manager
    if manager is None:
        return {}
    failed = getattr(manager, "exceptions", {})
    typed = list(manager.input_hist_raw)[:-1]  # the last one runs now
    return {n: Ran(n, source, n not in failed) for n, source in enumerate(typed) if n and source}


def load(shell: InteractiveShell) -> None:
    """Register the magic; once only."""
    if shell.magics_manager.registry.get(DDPMagics.__name__) is None:
        magics = DDPMagics(shell)
        shell.register_magics(magics)
        magics.watch()


def unload(shell: InteractiveShell) -> None:
    magics = shell.magics_manager.registry.pop(DDPMagics.__name__, None)
    if isinstance(magics, DDPMagics):
        magics.unwatch()
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("run_ddp", None)
