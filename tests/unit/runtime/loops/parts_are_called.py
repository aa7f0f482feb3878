# said: only parts of the agent are called
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)
agent = Agent()
ddp.parallelize(agent)
opt = torch.optim.Adam(agent.parameters(), lr=1e-2)
obs, act = torch.randn(64, 6), torch.randint(0, 3, (64,))
for i in range(0, 64, 8):
    loss = F.cross_entropy(agent.actor(obs[i : i + 8]), act[i : i + 8]) + agent.critic(obs[i : i + 8]).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(agent)
