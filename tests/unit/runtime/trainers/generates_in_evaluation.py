# same: predict_with_generate
from transformers import T5Config, T5ForConditionalGeneration, DataCollatorForSeq2Seq
torch.manual_seed(1)
m = T5ForConditionalGeneration(T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0))
def rows(n): return [{"input_ids": torch.randint(1, 50, (6,), generator=g).tolist(), "attention_mask": [1]*6, "labels": torch.randint(1, 50, (5,), generator=g).tolist()} for _ in range(n)]
def col(r): return {k: torch.tensor([x[k] for x in r]) for k in r[0]}
t = Seq2SeqTrainer(m, args(Seq2SeqTrainingArguments, predict_with_generate=True, eval_strategy="steps", eval_steps=3, generation_max_length=8), train_dataset=rows(64), eval_dataset=rows(11), data_collator=col, compute_metrics=lambda p: {"sum": float(np.where(p.predictions < 0, 0, p.predictions).sum()), "n": len(p.predictions)})
go(t)
