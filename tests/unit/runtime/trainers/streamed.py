# same: rows are streamed, and end within a step
from datasets import IterableDataset
rows = lm_rows(70)
def gen():
    for r in rows: yield r
go(Trainer(llama(), args(max_steps=12), train_dataset=IterableDataset.from_generator(gen), data_collator=pad))
