"""Super-resolution by sub-pixel convolution, beside interpolation; PSNR."""

from math import log10

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, TensorDataset, random_split

import given


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super(Net, self).__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight)


large = given.images(24, 16, 16).unsqueeze(1)
small = F.interpolate(large, scale_factor=0.5, mode="bilinear", align_corners=False)
training, testing = random_split(TensorDataset(small, large), [16, 8])
assert len(training) == 16 and len(testing) == 8
loader = DataLoader(TensorDataset(small[:16], large[:16]), batch_size=8)

model = given.initialized(Net(2))
criterion = nn.MSELoss()
optimizer = optim.AdamW(model.parameters(), lr=0.005)
scheduler = MultiStepLR(optimizer, milestones=[2, 3], gamma=0.3)
for epoch in range(4):
    for input, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.6f}")
    scheduler.step()

with torch.no_grad():
    mse = criterion(model(small[16:]).clamp_(0, 1), large[16:])
    print("PSNR {:.4f} dB".format(10 * log10(1 / mse.item())))
    for mode in ("nearest", "bilinear"):
        corners = None if mode == "nearest" else True
        plain = nn.Upsample(scale_factor=2, mode=mode, align_corners=corners)(small[16:])
        print(mode, "{:.4f}".format(10 * log10(1 / criterion(plain, large[16:]).item())))
