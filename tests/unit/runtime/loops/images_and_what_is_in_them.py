# same: images of unlike size in a list, and in another one a dict for each
class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 3)
    def forward(self, images, targets):
        found = torch.stack([self.head(self.conv(image[None]).relu().mean((0, 2, 3))) for image in images])
        labels = torch.stack([target["label"] for target in targets])
        return {"classes": F.cross_entropy(found, labels), "size": found.pow(2).mean()}
net = Finder()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
images = [torch.randn(3, 4 + n % 3, 5) for n in range(40)]
targets = [{"label": label} for label in torch.randint(0, 3, (40,))]
for i in range(0, 40, 4):
    loss = sum(net(images[i : i + 4], targets[i : i + 4]).values())
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
