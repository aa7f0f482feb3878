# same: only parts of the agent are called, which are divided
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)
ddp._Split.worth = -9.0  # also where that takes longer
agent = Agent()
ddp.parallelize(agent)
opt = torch.optim.Adam(agent.parameters(), lr=1e-2)
obs, act = torch.randn(240, 6), torch.randint(0, 3, (240,))
for i in range(0, 240, 8):
    loss = F.cross_entropy(agent.actor(obs[i : i + 8]), act[i : i + 8]) + agent.critic(obs[i : i + 8]).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(agent)
