"""Show the libraries one process: this rank's own GPU, and no variables of torchrun's."""

import os
import sys

import torch

from nb2ddp.runtime.run_state import _run
from nb2ddp.runtime.store import _store

# What torchrun, `accelerate launch`, MPI and SLURM tell a rank, and the libraries read.
_LAUNCH_VARIABLES = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME GROUP_RANK GROUP_WORLD_SIZE "
    "ACCELERATE_USE_CPU ACCELERATE_USE_FSDP ACCELERATE_USE_DEEPSPEED PMI_RANK PMI_SIZE OMPI_COMM_WORLD_RANK "
    "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK MV2_COMM_WORLD_RANK MV2_COMM_WORLD_SIZE SLURM_PROCID "
    "SLURM_LOCALID SLURM_NTASKS"
).split()


def _hide_ranks() -> None:
    """Take torchrun's variables out of the environment; rank 0's store is reached first.

    This rank's GPU becomes the only one that it sees, as GPU 0. NCCL exchanges with GPUs that a process does not see
    too (P2P with CUDA 10.1 or newer: https://github.com/NVIDIA/nccl/blob/master/src/transport/p2p.cc).

    Raises:
        SystemExit: there are fewer GPUs than ranks on this machine.
    """
    _store()
    _run.is_hidden = True
    _hide_launcher()
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.backends.cuda.is_built() or seen == "":
        return
    if torch.cuda.is_initialized():  # too late to choose what is seen
        torch.cuda.set_device(_run.local_rank)
        return
    gpus = [str(gpu) for gpu in range(_run.local_rank + 1)] if seen is None else seen.split(",")
    if _run.local_rank >= len(gpus):
        why = f"CUDA_VISIBLE_DEVICES={seen} shows {len(gpus)}. Start fewer processes (--nproc_per_node), or show more"
        sys.exit(f"Rank {_run.rank} has no GPU: {why} GPUs.")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[_run.local_rank]
    _run.gpu = 0 if torch.cuda.is_available() else _run.local_rank


def _hide_launcher() -> None:
    """Let libraries find no launcher: told of one, Accelerate wraps a model with DDP for a single process too."""
    for name in _LAUNCH_VARIABLES if "RANK" in os.environ else ():
        os.environ.pop(name, None)
