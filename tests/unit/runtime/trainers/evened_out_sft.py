# same: TRL's SFT with its own figures, padded and free of padding
import warnings; warnings.simplefilter("ignore")
from datasets import Dataset
from transformers import PreTrainedTokenizerFast
from tokenizers import Tokenizer, models
import trl.trainer.utils
from trl import SFTConfig, SFTTrainer
class LogProbs:  # TRL's own is a kernel for GPUs
    @staticmethod
    def apply(hidden, weight, bias, labels, *rest):
        logits = hidden @ weight.t(); of = logits.log_softmax(-1)
        return of.gather(-1, labels[:, None])[:, 0], -(of.exp() * of).sum(-1).detach(), None, None, logits.argmax(-1) == labels
trl.trainer.utils._ChunkedLogProbFunction = LogProbs
words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({f"w{n}": n for n in range(50)}, unk_token="w3")), pad_token="w0", eos_token="w2", unk_token="w3")
rows = [{"input_ids": row["input_ids"], "labels": [-100] * 3 + row["labels"][3:]} for row in lm_rows(64, 8, 120)]
figures = {}
for free in (False, True):
    t = SFTTrainer(llama(), args=args(SFTConfig, bf16=False, padding_free=free, max_length=None, max_steps=5, per_device_train_batch_size=3), train_dataset=Dataset.from_list(rows), processing_class=words)
    ddp.init_process_group()
    ddp_model = ddp.wrap_trainer(t)
    t.train()
    ddp.check_replicas(ddp_model)
    figures[free] = [{k: v for k, v in e.items() if k in ("loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens")} for e in t.state.log_history]
kept.update({str(free): of for free, of in figures.items()})
done(t)
