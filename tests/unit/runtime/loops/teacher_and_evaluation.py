# same: a teacher, and an evaluation in each epoch
ddp._Split.worth = 0.0
x, y = rows(96)
student, teacher = ddp.parallelize(mlp()), mlp()
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for epoch in range(4):
    student.train()
    for a, b in batches(x[:64], y[:64], size=8):
        with torch.no_grad():
            wanted = teacher(a)
        loss = F.mse_loss(student(a), wanted) + F.cross_entropy(student(a), b)
        opt.zero_grad(); loss.backward(); opt.step()
        losses.append(loss.item())
    student.eval()
    with torch.inference_mode():
        found = torch.cat([student(a * 1.0) for a in x[64:].split(9)])  # five rows are left over
        log(F.cross_entropy(found, y[64:]), (found.argmax(1) == y[64:]).float().mean())
end(student, teacher)
