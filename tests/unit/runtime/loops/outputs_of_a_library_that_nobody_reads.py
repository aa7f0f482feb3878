# same: the loss alone is read in training, logits in the evaluation
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16))
ddp.parallelize(model)
ids = torch.randint(0, 20, (18, 7), generator=torch.Generator().manual_seed(4))
labels = ids.clone()
labels[::3, 4:] = -100
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(2):
    model.train()
    for part, target in batches(ids, labels):
        outputs = ddp.only_outputs(model, "loss")(input_ids=part, labels=target)
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(outputs.loss.item())
        assert [*outputs][:2] == ["loss", "logits"]
    model.eval()
    with torch.no_grad():
        for part, target in batches(ids, labels):
            outputs = model(input_ids=part, labels=target, use_cache=False)
            log(outputs.loss, outputs.logits.argmax(-1).float().mean(), outputs[1].square().mean())
end(model)
