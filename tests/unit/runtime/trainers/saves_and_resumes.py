# same: checkpoints have one process's files; a second Trainer resumes from one
t = Trainer(llama(), args(save_strategy="steps", save_steps=2), train_dataset=lm_rows(64), data_collator=pad)
go(t)
import glob
kept["files"] = sorted(os.path.relpath(f, "o") for f in glob.glob("o/**", recursive=True) if os.path.isfile(f))
t = Trainer(llama(), args(save_strategy="no"), train_dataset=lm_rows(64), data_collator=pad)
go(t, resume_from_checkpoint="o/checkpoint-4")
