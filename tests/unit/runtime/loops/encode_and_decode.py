# same: methods are called, and not the model
class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 3), nn.Linear(3, 8)
    def encode(self, x):
        return torch.tanh(self.enc(x))
    def decode(self, z):
        return self.dec(z)
ae = AE()
ddp.parallelize(ae)
opt = torch.optim.Adam(ae.parameters(), lr=1e-2)
x = torch.randn(120, 8)
for i in range(0, 120, 10):
    rows = x[i : i + 10]
    z = ae.encode(rows)
    loss = F.mse_loss(ae.decode(z), rows) + 0.01 * z.pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(ae)
