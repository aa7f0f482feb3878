"""What to do about each fault, for whoever wrote the script."""

from __future__ import annotations

from nb2ddp.rehearse.evidence import FaultKey

ADVICE: dict[FaultKey, str] = {
    "one-process": "Start one process for each GPU with torchrun, join a process group, and wrap the model in "
    "DistributedDataParallel.",
    "no-group": "Call torch.distributed.init_process_group() and wrap the model in DistributedDataParallel, or train "
    "with a library that does so under torchrun.",
    "shared-device": "Give each rank its own GPU: torch.cuda.set_device(local_rank) before anything is placed, and "
    'device_map={"": local_rank} where a model is loaded.',
    "rank-dependent-arguments": "Give all ranks the same arguments; a Trainer saves and logs on rank 0 by itself.",
    "early-exit": "Let every rank make the same number of steps: the same number of batches, and no exit on one alone.",
    "other-order": "Set the same seed on every rank before this line, or pass a generator with a fixed seed; what one "
    "rank shuffles, all have to shuffle.",
    "not-divided": "Divide each batch among the ranks: a DistributedSampler for the loader, or every world_size-th "
    "row of each batch.",
    "same-samples": "Give each rank its own samples: a DistributedSampler with num_replicas=world_size and rank=rank.",
    "other-batch": "Divide what one step takes by world_size: gradient_accumulation_steps, or else the batch size of "
    "each rank.",
    "not-synchronised": "Compute the loss with what DistributedDataParallel returned, not with the model inside it; "
    "hand a Trainer the bare model, which it wraps itself under torchrun.",
    "synchronised-twice": "Wrap the model once, and use no_sync() for all micro-batches of a step but the last.",
    "summed-gradients": "Divide the gradients by world_size after the all_reduce, or use ReduceOp.AVG; "
    "DistributedDataParallel does it by itself.",
    "batch-norm": "Call torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before the model is wrapped.",
    "mean-of-means": "Sum the loss on each rank, all_reduce the count, and divide by the count over all ranks "
    "(times world_size, where DistributedDataParallel averages).",
    "same-epochs": "Call sampler.set_epoch(epoch) at the start of each epoch.",
    "all-ranks-save": "Write on rank 0 alone: `if rank == 0:`; others wait at a barrier where they read the file.",
    "no-training": "Name the script that trains, and give it the arguments that it needs after `--`.",
    "failed": "Run it with torchrun on this machine's CPU to see the whole traceback.",
    "hang": "Let every rank make the same collective calls in the same order: a forward pass of the wrapped model, "
    "an all_reduce or a barrier inside `if rank == 0:` waits for ever; evaluate the bare model there, or on all ranks.",
    "other-collectives": "Let every rank make the same collective calls in the same order; none below a test of the "
    "rank.",
    "left-processes": "End the processes that the script starts before it ends.",
    "missing-samples": "Let the ranks' shares of each step be the notebook's samples of that step; look for drop_last, "
    "and for batches that are left out.",
    "repeated-samples": "A DistributedSampler repeats samples until all ranks have as many: let the last batch be "
    "uneven, or drop what was repeated.",
    "other-shuffle": "Draw one order on all ranks, with the notebook's seed, and let each rank take its part of each "
    "batch, if the loss curve is to be the notebook's.",
    "other-files": "Write the files that the notebook writes, under the same names, on rank 0.",
    "replicas-differ": "Start all ranks from the same parameters, as DistributedDataParallel does, and change them "
    "with the same gradients alone.",
    "other-losses": "Compare what the notebook and the script compute for the loss in this step.",
    "other-figures": "Combine what the ranks have computed before it is printed: all_reduce sums and counts, or let "
    "rank 0 evaluate all rows.",
    "other-parameters": "Compare optimizer, learning rate and schedule with the notebook's.",
    "plain-differs": "Let the script do in one process what the notebook does: world_size is 1 there.",
    "printed-twice": "Print on rank 0 alone.",
}
"""A sentence for each fault."""
