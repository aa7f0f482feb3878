# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
# PPO: rollouts, minibatch epochs, KL stop, value and policy in one net, entropy
class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Linear(4, 16); self.pi = nn.Linear(16, 3); self.v = nn.Linear(16, 1)
    def forward(self, s):
        h = torch.tanh(self.b(s))
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)
ac = AC(); opt = torch.optim.Adam(ac.parameters(), 3e-3, eps=1e-5)
state = torch.randn(24, 4)
for it in range(2):
    with torch.no_grad():
        d, v = ac(state); a = d.sample(); old = d.log_prob(a)
        ret = (a == state.argmax(1) % 3).float() + 0.9 * v.roll(-1)
        adv = ret - v
    for ep in range(3):
        kls = []
        for mb in torch.randperm(24).split(6):
            d, v = ac(state[mb])
            lp = d.log_prob(a[mb]); ratio = (lp - old[mb]).exp()
            A = (adv[mb] - adv[mb].mean()) / (adv[mb].std() + 1e-8)
            pg = -torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()
            loss = pg + 0.5 * F.mse_loss(v, ret[mb]) - 0.01 * d.entropy().mean()
            opt.zero_grad(); loss.backward()
            nn.utils.clip_grad_norm_(ac.parameters(), 0.5); opt.step()
            kls.append((old[mb] - lp).mean().item())
        if sum(kls) / len(kls) > 0.01:
            print("early", it, ep); break
    print(f"{loss.item():.5f} {sum(kls)/len(kls):.6f}")
