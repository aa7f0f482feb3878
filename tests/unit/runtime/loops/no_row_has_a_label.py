# same: no row has a label
from transformers import LlamaConfig, LlamaForCausalLM
model = ddp.parallelize(LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16,
    num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)))
ids = torch.randint(0, 20, (20, 6))
labels = ids.clone()
for row in range(20):
    labels[row, : 1 + row % 4] = -100
labels[12:16] = -100
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for ids, labels in batches(ids, labels):
    loss = model(ids, labels=labels).loss
    if torch.isnan(loss):
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
end(model)
