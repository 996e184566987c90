"""REINFORCE and an actor with a critic on a cart in a corridor, with Categorical."""

from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

import given

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])
draws = np.random.RandomState(1)


class Corridor:
    def reset(self):
        self.position, self.steps = 0.1, 0
        return np.array([self.position, 1.0], dtype=np.float32)

    def step(self, action):
        self.position += 0.1 if action == 1 else -0.1
        self.steps += 1
        done = abs(self.position) > 0.55 or self.steps >= 12
        reward = 1.0 if self.position > 0.5 else -0.05
        return np.array([self.position, 1.0], dtype=np.float32), reward, done


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(2, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


model = given.initialized(Policy())
optimizer = optim.Adam(model.parameters(), lr=3e-2)
eps = np.finfo(np.float32).eps.item()


def select_action(state):
    probs, state_value = model(torch.from_numpy(state).float())
    m = Categorical(probs)
    m.sample()
    # The same uniform number decides under every library.
    action = (probs.cumsum(-1) < draws.uniform()).sum().clamp(max=1)
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
    return action.item(), m.entropy()


def finish_episode(entropy):
    R, returns = 0, deque()
    for r in model.rewards[::-1]:
        R = r + 0.95 * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    policy_losses, value_losses = [], []
    for (log_prob, value), R in zip(model.saved_actions, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum() - 0.01 * entropy
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


env, running_reward = Corridor(), 0.0
for i_episode in range(12):
    state, ep_reward, entropy, done = env.reset(), 0, 0, False
    while not done:
        action, bits = select_action(state)
        state, reward, done = env.step(action)
        model.rewards.append(reward)
        ep_reward += reward
        entropy = entropy + bits
    running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
    print(f"Episode {i_episode} loss {finish_episode(entropy):.6f} average {running_reward:.6f}")
