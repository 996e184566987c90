"""Train a LeNet on real handwritten digits, then run the trained network in 8-bit integers.

    make demo
    make demo ARGS="--amp --plot out.png"
    python examples/digits.py --backend flat --epochs 2

The data are the 1,797 digits of 8 x 8 pixels that scikit-learn carries (Alpaydin and Kaynak,
1998, from 43 writers). One in five is held out, the same ones in every run. Everything below
uses public names only; which array library computes is decided by ``--device``.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import coredispatch as cd
from coredispatch import nn
from coredispatch.utils.data import DataLoader, TensorDataset

CALIBRATION_BATCHES = 8
LAYERS = ("autocast", "autograd")  # transparent where a kernel was reached all the same


@dataclass
class Result:
    """What a run found out: accuracies in [0, 1] on the held-out digits, one loss per step."""

    accuracy: float
    int8_accuracy: float | None
    losses: list[float]
    truth: np.ndarray
    predicted: np.ndarray


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,437 digits to train on and 360 held out: images (N, 1, 8, 8) in [0, 1], labels (N,)."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    parts = train_test_split(
        images, labels.astype(np.int64), test_size=360, stratify=labels, random_state=0
    )
    x_train, x_test, y_train, y_test = (cd.from_numpy(np.ascontiguousarray(p)) for p in parts)
    return TensorDataset(x_train, y_train), TensorDataset(x_test, y_test)


def lenet() -> nn.Sequential:
    """Two convolutions and two linear layers, after LeCun et al. (1998), for 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 2 * 2, 128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 10),
    )


class Trainer:
    """A model, its optimizer and the device they are on."""

    def __init__(self, model: Any, device: Any, *, lr: float, amp: bool) -> None:
        self.model = model.to(device)
        self.device = device
        self.optimizer = cd.optim.Adam(model.parameters(), lr=lr)
        self.amp = amp
        # Small gradients vanish in float16 unless the loss is scaled; bfloat16 has the range.
        half = amp and cd.get_autocast_dtype(device.type) == cd.float16
        self.scaler = cd.amp.GradScaler(device.type, enabled=half)

    def forward(self, images: Any) -> Any:
        """Scores (N, 10) of the images, in mixed precision where that was asked for."""
        with cd.autocast(self.device.type, enabled=self.amp):
            return self.model(images.to(self.device))

    def step(self, images: Any, labels: Any) -> float:
        """One step of gradient descent; the loss before it."""
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.forward(images), labels.to(self.device))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return float(loss.item())

    def train(self, data: TensorDataset, epochs: int, batch_size: int) -> list[float]:
        """Go through the data ``epochs`` times; the loss of every step.

        A terminal gets a progress bar, a file or a pipe one line per epoch, both on stderr.
        """
        loader = DataLoader(data, batch_size=batch_size, shuffle=True)
        total = epochs * len(loader)
        # A step size that falls to zero: the last epochs settle instead of jumping about.
        schedule = cd.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, total)
        losses: list[float] = []
        self.model.train()
        with tqdm(total=total, desc="training", unit="step", disable=None) as bar:
            for epoch in range(epochs):
                for images, labels in loader:
                    losses.append(self.step(images, labels))
                    schedule.step()
                    bar.update()
                recent = sum(losses[-len(loader) :]) / len(loader)
                bar.set_postfix(epoch=epoch + 1, loss=f"{recent:.4f}")
                if bar.disable:
                    print(f"epoch {epoch + 1:2} of {epochs}: loss {recent:.4f}", file=sys.stderr)
        return losses

    def predict(self, data: TensorDataset) -> np.ndarray:
        """The most probable digit for every image."""
        self.model.eval()
        return predictions(self.forward, data)


def predictions(scores: Callable[[Any], Any], data: TensorDataset) -> np.ndarray:
    """The column of the highest score for every image, by a function from images to scores."""
    with cd.no_grad():
        batches = [scores(images).argmax(1).cpu().numpy() for images, _ in DataLoader(data, 256)]
    return np.concatenate(batches)


def in_int8(model: Any, data: TensorDataset) -> Any:
    """The trained network in 8-bit integers, on the CPU; None without plugins/quant."""
    try:
        from coredispatch_quant import quantize_model
    except ImportError:
        return None
    calibration = [images for images, _ in DataLoader(data, 64)][:CALIBRATION_BATCHES]
    return quantize_model(copy.deepcopy(model).to("cpu"), calibration)


def short(where: str) -> str:
    """File and line without the folders; the name alone of a function that is not in Python."""
    return where.rpartition("/")[2].removesuffix(":0")


def served_by(seen: Iterable[cd.Observation]) -> str:
    """A table of the kernels that ran: for which operator and keys, how often, whose."""
    count: Counter[tuple[str, ...]] = Counter()
    for o in seen:
        if o.kind == "kernel":
            keys = "+".join(key for key in o.keys if key not in LAYERS)
            count[o.plugin, o.op, keys, o.where] += 1
    lines = [f"{'plugin':12} {'op':26} {'keys':14} {'calls':>5}  kernel"]
    for (plugin, op, keys, where), calls in sorted(count.items()):
        lines.append(f"{plugin:12} {op:26} {keys:14} {calls:>5}  {short(where)}")
    return "\n".join(lines)


def plot(path: str, result: Result) -> None:
    """Save the loss of every step and the confusion matrix as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    smooth = np.convolve(result.losses, np.ones(20) / 20, "valid")
    left.plot(result.losses, color="0.8", linewidth=0.7, label="each step")
    left.plot(np.arange(len(smooth)) + 19, smooth, color="C0", label="mean of 20 steps")
    left.set(xlabel="step", ylabel="cross entropy", yscale="log", title="training loss")
    left.legend()
    confusion = np.zeros((10, 10), dtype=int)
    np.add.at(confusion, (result.truth, result.predicted), 1)
    right.imshow(confusion, cmap="Blues")
    for i, j in np.argwhere(confusion):
        shade = "white" if confusion[i, j] > confusion.max() / 2 else "black"
        right.text(j, i, confusion[i, j], ha="center", va="center", color=shade)
    right.set(xlabel="predicted", ylabel="digit", xticks=range(10), yticks=range(10))
    right.set_title(f"held-out digits, {result.accuracy:.1%} right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Train a LeNet on 1,797 handwritten digits.",
        epilog="`coredispatch info` lists the backends that are installed.",
    )
    parser.add_argument("--device", help="where to compute: cpu (default), cuda, cuda:1, ...")
    parser.add_argument("--backend", help="the same by the name of a backend's key")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    parser.add_argument("--epochs", type=int, default=12, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=48, help="default: %(default)s")
    parser.add_argument(
        "--lr", type=float, default=3e-3, help="step size of Adam at the start (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order (0)")
    parser.add_argument("--plot", metavar="OUT.png", help="save loss curve and confusion matrix")
    options = parser.parse_args(argv)
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, not {options.epochs}")
    if options.batch_size < 2:  # batch normalization needs two values of each channel
        parser.error(f"--batch-size must be at least 2, not {options.batch_size}")
    if not 0 < options.lr < float("inf"):
        parser.error(f"--lr must be positive, not {options.lr}")
    if options.plot:
        if importlib.util.find_spec("matplotlib") is None:
            parser.error("--plot needs matplotlib: pip install matplotlib")
        if not Path(options.plot).absolute().parent.is_dir():
            parser.error(f"--plot: there is no folder {Path(options.plot).parent}")
    try:
        options.device = cd.device(options.device or options.backend or "cpu")
        if options.backend and options.backend != options.device.type:
            parser.error(f"--backend {options.backend} contradicts --device {options.device}")
        cd.zeros(1, device=options.device).item()  # is it really there, and can it compute?
    except cd.CoreDispatchError as error:
        parser.error(str(error))
    return options


def main(argv: list[str] | None = None) -> Result:
    """Train, measure, quantize, measure again, and tell who computed it."""
    options = arguments(argv)
    start = time.perf_counter()
    cd.manual_seed(options.seed)
    train, test = digits()
    truth = test.tensors[1].numpy()
    trainer = Trainer(lenet(), options.device, lr=options.lr, amp=options.amp)
    losses = trainer.train(train, options.epochs, options.batch_size)
    predicted = trainer.predict(test)
    accuracy, int8_accuracy = float((predicted == truth).mean()), None
    precision = "mixed precision" if options.amp else "float32"
    print(f"\nheld-out digits, {precision} on {options.device}: {accuracy:.2%}")
    quantized = in_int8(trainer.model, train)
    if quantized is None:
        print("held-out digits, int8: not measured (pip install coredispatch-quant)")
    else:
        int8_accuracy = float((predictions(quantized, test) == truth).mean())
        print(f"held-out digits, int8 on cpu: {int8_accuracy:.2%}")
    print(f"{time.perf_counter() - start:.1f} s in all")
    images, labels = (part[: options.batch_size] for part in train.tensors)
    with cd.observe() as seen:
        trainer.model.train()
        trainer.step(images, labels)
        if quantized is not None:
            quantized(images)
    print("\nWho served one training step" + (" and one int8 batch:" if quantized else ":"))
    print(served_by(seen))
    result = Result(accuracy, int8_accuracy, losses, truth, predicted)
    if options.plot:
        plot(options.plot, result)
        print(f"\nloss curve and confusion matrix: {options.plot}")
    return result


if __name__ == "__main__":
    main()
