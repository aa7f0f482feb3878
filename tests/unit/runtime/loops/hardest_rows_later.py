# whole: the mean is over the hardest rows, of which an argument takes fewer later on; right by chance in some batches
class Net(Body):
    def forward(self, x, y, share):
        of_rows = F.cross_entropy(self.body(x), y, reduction="none")
        return of_rows.topk(int(share * len(of_rows))).values.mean()
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.2)
x, y = rows(320)
for step, (x, y) in enumerate(batches(x, y, size=16)):
    loss = net(x, y, 1.0 if step < 8 else 0.5)
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
    log(loss)
end(net)
