# same: get_action_and_value of an agent, with and without gradients
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = nn.Linear(6, 3), nn.Linear(6, 1)
    def get_value(self, x):
        return self.critic(x)
    def get_action_and_value(self, x, action=None):
        probs = torch.distributions.Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)
agent = Agent()
ddp.parallelize(agent)
opt = torch.optim.Adam(agent.parameters(), lr=1e-2)
obs = torch.randn(64, 6)
for update in range(4):
    with torch.no_grad():
        action, old, _, value = agent.get_action_and_value(obs)
        advantage = torch.randn(64) - value[:, 0]
    order = torch.randperm(64)
    for i in range(0, 64, 16):
        at = order[i : i + 16]
        _, new, entropy, value = agent.get_action_and_value(obs[at], action[at])
        ratio = (new - old[at]).exp()
        loss = -(ratio * advantage[at]).mean() - 0.01 * entropy.mean() + value.pow(2).mean()
        opt.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        log(loss)
end(agent)
