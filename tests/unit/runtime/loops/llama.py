# same: llama
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2))
model = ddp.parallelize(model)
ids = torch.randint(0, 20, (14, 6))
labels = ids.clone()
for row in range(14):
    labels[row, : row % 5] = -100
mask = torch.ones_like(ids)
train(model, batches(ids, mask, labels),
    lambda i, m, l: model(input_ids=i, attention_mask=m, labels=l).loss)
end(model)
