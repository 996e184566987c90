"""A siamese network whose BatchNorm is followed by operations in place."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import given


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 12, 3, bias=False)
        self.bn2 = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12 * 5 * 5, 16, bias=False)
        self.bn3 = nn.BatchNorm1d(16, affine=False)

    def forward_once(self, x):
        x = F.max_pool2d(F.relu_(self.bn1(self.conv1(x))), 2)
        x = self.bn2(self.conv2(x))
        x.clamp_(min=0).mul_(1.5)
        x = self.fc(x.flatten(1))
        x = self.bn3(x)
        x += 0.1
        x /= 2
        return F.normalize(x, dim=1)

    def forward(self, a, b):
        return self.forward_once(a), self.forward_once(b)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        distance = F.pairwise_distance(a, b, keepdim=True)
        return torch.mean(
            same * distance.pow(2) + (1 - same) * torch.clamp(self.margin - distance, min=0.0).pow(2)
        )


net = given.initialized(Net())
criterion, cosine = ContrastiveLoss(), nn.CosineEmbeddingLoss(margin=0.2)
triplet = nn.TripletMarginLoss(margin=0.5)
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.02)
images = given.images(48, 16, 16).unsqueeze_(1)
same = given.integers(2, 48, 1).float()

for step in range(6):
    pick = torch.arange(step * 8, step * 8 + 8)
    a, b = net(images[pick], images.flip(0)[pick])
    y = same[pick]
    loss = criterion(a, b, y) + cosine(a, b, y.squeeze(1) * 2 - 1) + triplet(a, b, a.roll(1, 0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step %d loss %.6f grad %.6f" % (step, loss.item(), net.conv1.weight.grad.abs().sum()))
print("%.6f %.6f" % (net.bn1.running_mean.sum(), net.bn3.running_var.mean()))
