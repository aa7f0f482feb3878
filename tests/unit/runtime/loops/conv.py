# same: conv
model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
model = ddp.parallelize(model)
images = torch.randn(22, 1, 6, 6)
train(model, batches(images, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
