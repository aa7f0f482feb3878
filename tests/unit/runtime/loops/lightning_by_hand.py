# same: training_step calls the model, configure_optimizers makes the optimizer
class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(5, 3)
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, number):
        x, y = batch
        return F.cross_entropy(self(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
module = Module()
ddp.parallelize(module)
opt = module.configure_optimizers()
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for number in range(10):
    rows = slice(number * 6, number * 6 + 6)
    loss = module.training_step((x[rows], y[rows]), number)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(module)
