"""Name the kind of training that a notebook does, in one word, for tables."""

from __future__ import annotations

from nb2ddp.analysis.facts import Facts

# By a word in the name of the trainer's class; the first that matches.
_BY_TRAINER = {"GRPO": "grpo", "RLOO": "grpo", "DPO": "dpo", "ORPO": "orpo", "KTO": "kto", "CPO": "cpo"}
_BY_TRAINER |= {"Reward": "reward", "SentenceTransformer": "embeddings", "Seq2Seq": "seq2seq"}


def task_of(facts: Facts) -> str:
    """Return the task of the last trainer; "none" where nothing is trained.

    Others: grpo, dpo, orpo, kto, cpo, reward, embeddings, seq2seq, vision, chat, sft, trainer, accelerate,
    lightning, loop.
    """
    names = [facts.trainer_class(facts.trained(call)) for call in facts.train_calls]
    if not any(names):
        if any(facts.kind(call) == "accelerator" for call in facts.live_calls):
            return "accelerate"
        if facts.lightning_fits:
            return "lightning"
        return "loop" if facts.last_collective is not None else "none"
    last = next(name for name in reversed(names) if name)
    for word, task in _BY_TRAINER.items():
        if word in last:
            return task
    called = {facts.qualified(call.func) for call in facts.live_calls}
    if any(word in name for name in called for word in ("FastVisionModel", "VisionDataCollator")):
        return "vision"
    if any(name.endswith("train_on_responses_only") for name in called):
        return "chat"
    return "sft" if "SFT" in last or "Unsloth" in last else "trainer"
