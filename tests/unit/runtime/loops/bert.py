# same: bert
from transformers import BertConfig, BertForTokenClassification
model = BertForTokenClassification(BertConfig(vocab_size=20, hidden_size=8, intermediate_size=16,
    num_hidden_layers=1, num_attention_heads=2, num_labels=3, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0))
model = ddp.parallelize(model)
ids, labels = torch.randint(0, 20, (14, 6)), torch.randint(0, 3, (14, 6))
labels[::2, 3:] = -100
train(model, batches(ids, labels), lambda i, l: model(input_ids=i, labels=l).loss)
end(model)
