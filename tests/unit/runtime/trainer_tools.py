"""What the programs in trainers/ share: tiny models, rows, arguments; a script begins with it."""

TOOLS = """
import json, os, sys, torch, random, numpy as np
from torch import nn
from transformers import (Trainer, TrainingArguments, TrainerCallback, EarlyStoppingCallback, LlamaConfig, LlamaForCausalLM, BertConfig,
    BertForSequenceClassification, BertForTokenClassification, DataCollatorForLanguageModeling, BertForMaskedLM, DataCollatorWithPadding, Seq2SeqTrainer, Seq2SeqTrainingArguments)
torch.manual_seed(0)
def bert(kind=BertForSequenceClassification, labels=3, drop=0.0, **more):
    torch.manual_seed(1)
    return kind(BertConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_labels=labels, hidden_dropout_prob=drop, attention_probs_dropout_prob=drop, **more))
def llama(dtype=torch.float32):
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0)).to(dtype)
g = torch.Generator().manual_seed(5)
def lm_rows(n, lo=3, hi=12):
    out = []
    for _ in range(n):
        k = int(torch.randint(lo, hi, (1,), generator=g)); ids = torch.randint(1, 50, (k,), generator=g).tolist()
        out.append({"input_ids": ids, "labels": ids, "attention_mask": [1]*k})
    return out
def cls_rows(n, tokens=False):
    out = []
    for _ in range(n):
        k = 8; ids = torch.randint(1, 50, (k,), generator=g)
        out.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": (ids % 3) if tokens else int(ids.sum() % 3)})
    return out
def pad(rows):
    k = max(len(r["input_ids"]) for r in rows)
    return {"input_ids": torch.tensor([list(r["input_ids"]) + [0]*(k-len(r["input_ids"])) for r in rows]),
            "attention_mask": torch.tensor([[1]*len(r["input_ids"]) + [0]*(k-len(r["input_ids"])) for r in rows]),
            "labels": torch.tensor([list(r["labels"]) + [-100]*(k-len(r["input_ids"])) for r in rows])}
def args(cls=TrainingArguments, **o):
    return cls(**{**dict(output_dir="o", per_device_train_batch_size=2, gradient_accumulation_steps=4, per_device_eval_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True,
        logging_steps=1, max_steps=6, learning_rate=1e-2, seed=3, save_strategy="no"), **o})
kept = {}
def go(t, **k):
    ddp.init_process_group()
    ddp_model = ddp.wrap_trainer(t)
    r = t.train(**k)
    ddp.check_replicas(ddp_model)
    done(t, r)
def done(t, r=None):
    note(log=[{k: v for k, v in e.items() if isinstance(v, (int, float)) and "runtime" not in k and "per_second" not in k and "preparation" not in k} for e in t.state.log_history],
        params=[] if t.model is None else [p.detach().float() for p in t.model.parameters()], kept=kept, metrics={k: v for k, v in (r.metrics if r else {}).items() if "loss" in k})
"""
