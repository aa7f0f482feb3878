# same or said: the weight of a term over the batch is 0 in the first steps
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 4), nn.Linear(4, 8)
    def forward(self, x, beta):
        z = self.enc(x)
        spread = z.var(0).clamp_min(1e-4)  # over the batch
        return F.mse_loss(self.dec(z), x) + beta * (spread - spread.log()).sum()
vae = VAE()
ddp.parallelize(vae)
opt = torch.optim.Adam(vae.parameters(), lr=1e-2)
data = torch.randn(160, 8)
for step in range(60):
    beta = max(0.0, (step - 20) / 40)
    loss = vae(data[step % 10 * 16 : step % 10 * 16 + 16], beta)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(vae)
