# %%
import torch, random, numpy as np
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

# %%
ids = torch.randint(1, 24, (40, 10))
rows = [{"input_ids": x, "labels": int(x[0] + x[1]) % 3} for x in ids]
class Experiment:
    def __init__(self, config):
        self.model = BertForSequenceClassification(config)
        self.args = TrainingArguments("out", per_device_train_batch_size=4, num_train_epochs=1, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, seed=0)
        self.trainer = Trainer(model=self.model, args=self.args, train_dataset=rows[:30], eval_dataset=rows[30:])

    def run(self):
        result = self.trainer.train()
        print(f"loss {result.training_loss:.4f}")
        print(round(self.trainer.evaluate()["eval_loss"], 4))
        self.trainer.save_model("final")
# %%
e = Experiment(BertConfig(vocab_size=24, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3, max_position_embeddings=32))
e.run()
