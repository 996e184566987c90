"""``cd.onnx.export``: models run by onnxruntime give what the modules give."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from onnx_models import Call, Pair, tensors

import coredispatch as cd
from coredispatch.onnx import OnnxExporterError, UnsupportedOperatorError

pytestmark = pytest.mark.once

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
nn, F = cd.nn, cd.nn.functional


def agrees(net: nn.Module, x: Any, *others: Any, axes: Any = None, **options: Any) -> Any:
    """The model gives what the module gives, for the example and for the other inputs."""
    names = {"input_names": ["x"], "dynamic_axes": None if axes is None else {"x": axes}}
    made = cd.onnx.export(net, (x,), **names, **options)
    onnx.checker.check_model(made.model_proto, full_check=True)
    for given in (x, *others):
        for got, wanted in zip(made(given), tensors(net(given)), strict=True):
            cd.testing.assert_close(got, wanted.detach(), rtol=1e-3, atol=1e-4)
    return made


def kinds(made: Any) -> list[str]:
    return [node.op_type for node in made.model_proto.graph.node]


# ---- networks ------------------------------------------------------------------------------------


def test_the_demo_network() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(400, 10),
        nn.LogSoftmax(-1),
    ).eval()  # fmt: skip
    images = (cd.randn(n, 1, 28, 28) for n in (2, 5, 1))
    made = agrees(net, *images, axes={0: "batch"})
    assert {"Conv", "BatchNormalization", "MaxPool", "Gemm", "LogSoftmax"} <= set(kinds(made))
    sizes = made.model_proto.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in sizes] == ["batch", 1, 28, 28]


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.down = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = self.norms[0](self.first(x)).relu_()
        return F.relu(self.norms[1](self.second(y)) + self.down(x), inplace=True)


def test_a_resnet_with_open_sizes() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ).eval()  # fmt: skip
    images = (cd.randn(2, 3, 64, 64), cd.randn(1, 3, 96, 64))
    agrees(net, *images, axes={0: "batch", 2: "height", 3: "width"})


class Gpt(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2, words: int = 50) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, ids: Any) -> Any:
        b, t = ids.shape
        x = self.words(ids) + self.places(cd.arange(t, device=ids.device))
        split = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in split)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, -1))
        return (x + self.mlp(self.norms[1](x))) @ self.words.weight.t()


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_a_gpt_block_for_every_batch_and_length(opset: int) -> None:
    ids = (cd.randint(0, 50, (b, t)) for b, t in ((2, 5), (3, 9), (1, 7)))
    made = agrees(Gpt().eval(), *ids, axes={0: "batch", 1: "time"}, opset_version=opset)
    assert made.model_proto.opset_import[0].version == opset


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(kind: Any, bidirectional: bool) -> None:
    net = kind(4, 6, 2, bidirectional=bidirectional, batch_first=True).eval()
    made = agrees(net, cd.randn(2, 5, 4), cd.randn(3, 8, 4), axes={0: "batch", 1: "time"})
    assert kinds(made).count(kind.__name__) == 2


def test_a_transformer_encoder() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    agrees(net, cd.randn(2, 5, 16), cd.randn(3, 8, 16), axes={0: "batch", 1: "time"})


# ---- families of operators -----------------------------------------------------------------------

_ROWS = [[0], [1], [2]]
PROGRAMS: dict[str, Any] = {
    "subscripts": lambda x: (
        x[0], x[:, 1:3], x[..., -1], x[:, None, ::2], x[1:, 0], x[-1, -1], x[:, [0, 2]],
        x[cd.tensor([0, 1]), cd.tensor([2, 0])], x.narrow(1, 1, 2), x.select(0, -1),
    ),
    "reductions": lambda x: (
        x.sum(), x.mean(1), x.var(0), x.std(), x.norm(), x.amax(1, keepdim=True), x.argmax(1),
        x.prod(0), x.logsumexp(1), (x > 0).any(1), (x > 0).all(), x.max(1), x.min(), x.argmin(),
        x.cumsum(1), x.topk(2), x.sort(1, descending=True), x.sum((0, 1), keepdim=True),
    ),
    "functions": lambda x: (
        x.abs().sqrt(), x.log1p(), x.exp(), x.clamp(-1, 1), x.clamp(min=0.3), x.erf(), x.floor(),
        x.round(), x.sign(), x.rsqrt(), x.reciprocal(), x.sin(), x.tanh(), x.log().isnan(),
    ),
    "activations": lambda x: (
        F.silu(x), F.elu(x), F.leaky_relu(x), F.softplus(x), F.hardswish(x), F.relu6(x), F.mish(x),
        F.selu(x), F.hardsigmoid(x), F.hardtanh(x), F.gelu(x), F.celu(x), F.softsign(x), F.glu(x),
    ),
    "arithmetic": lambda x: (
        x + 1, 1 - x, x * x, x / 3, x // 0.5, x % 0.7, x**2, 2**x, -x, x.maximum(0.2 - x),
        cd.add(x, x, alpha=2), x.long() // 2, (x * 9).int() % 4, cd.remainder(-x, 0.3), x.fmod(0.3),
    ),
    "comparisons": lambda x: (
        x > 0.5, x == x, x != 0, (x > 0.2) & (x < 1), ~(x > 0.5), cd.where(x > 0.5, x, -x),
        x.masked_fill(x > 0.5, 0.5), (x > 0.5).float(), (x * 9).long() & 3, x.isfinite(),
    ),
    "shapes": lambda x: (
        x.t(), x.reshape(-1), x.view(4, -1), x.flatten(), x.unsqueeze(-1), x[None].squeeze(0),
        x.expand(2, 3, 4), x.repeat(2, 1), cd.cat([x, x], 1), cd.stack([x, x], 1), x.flip(1),
        *x.chunk(2, 1), *x.split([1, 3], 1), *x.unbind(0), x.roll(1, 0), F.pad(x, (1, 2)),
        x.tril(), x.triu(1), x.movedim(0, 1), x.diagonal(), x.permute(1, 0),
    ),
    "indices": lambda x: (
        x.index_select(1, cd.tensor([0, 2])), x.gather(1, cd.tensor(_ROWS)),
        x.scatter(1, cd.tensor(_ROWS), 9.0), F.one_hot(x.argmax(1), 4),
        F.embedding(cd.tensor([1, 2]), x),
    ),
    "factories": lambda x: (
        x.new_zeros(2), cd.zeros_like(x), cd.full((2, 2), 1.5), cd.arange(5), cd.eye(3),
        cd.ones_like(x) * x, cd.linspace(0, 1, 4),
    ),
    "layers": lambda x: (
        F.layer_norm(x, (4,)), F.softmax(x, 0), F.log_softmax(x, -1), F.normalize(x),
        F.rms_norm(x, (4,)), F.group_norm(x, 2), x @ x.t(), cd.einsum("ij,kj->ik", x, x),
        cd.addmm(x @ x.t(), x, x.t(), alpha=2.0), F.cross_entropy(x, x.argmax(1)),
        F.mse_loss(x, x * 2), F.interpolate(x[None, None], scale_factor=2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_families_of_operators(name: str) -> None:
    agrees(Call(PROGRAMS[name]), cd.rand(3, 4) + 0.1)


LAYERS: dict[str, Any] = {
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding="same", dilation=2), (2, 3, 10)),
    "conv2d of one image": (lambda: nn.Conv2d(3, 4, 3, stride=2), (3, 8, 8)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3, groups=2), (1, 2, 5, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), (2, 3, 5, 5)),
    "average": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (1, 2, 8, 8)),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d((2, 4)), (1, 2, 8, 8)),
    "adaptive uneven": (lambda: nn.AdaptiveAvgPool1d(3), (1, 2, 8)),
    "max with ceil": (lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 8, 8)),
    "instance norm": (lambda: nn.InstanceNorm2d(2, affine=True), (2, 2, 5, 5)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "prelu": (lambda: nn.PReLU(3), (2, 3, 4, 4)),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), (1, 4, 3, 3)),
    "bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 4, 4)),
    "linear of many dimensions": (lambda: nn.Linear(4, 3), (2, 3, 4)),
    "half precision": (lambda: nn.Linear(4, 3).half(), None),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    make, shape = LAYERS[name]
    x = cd.randn(2, 4).half() if shape is None else cd.randn(*shape)
    agrees(make().eval(), x)


# ---- what a user says ----------------------------------------------------------------------------


def test_names_of_inputs_and_outputs(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: Any, b: Any = None, *, scale: Any) -> Any:
            return {"sum": a + b * scale, "same": a}

    made = cd.onnx.export(
        Two(),
        (cd.ones(2), cd.ones(2)),
        tmp_path / "two.onnx",
        kwargs={"scale": cd.tensor(2.0)},
        input_names=["left", "right"],
        output_names=["sum", "copy"],
    )
    graph = onnx.load(tmp_path / "two.onnx").graph
    assert [i.name for i in graph.input] == ["left", "right", "scale"]
    assert [o.name for o in graph.output] == ["sum", "copy"]
    assert made(cd.ones(2), cd.ones(2), scale=cd.tensor(3.0))[0].tolist() == [4.0, 4.0]


def test_files_and_weights(tmp_path: Path) -> None:
    net = nn.Linear(4, 2)
    file = io.BytesIO()
    cd.onnx.export(net, cd.ones(1, 4), file)
    assert [t.name for t in onnx.load_from_string(file.getvalue()).graph.initializer] == [
        "weight",
        "bias",
    ]
    cd.onnx.export(net, cd.ones(1, 4), tmp_path / "a.onnx", external_data=True)
    assert (tmp_path / "a.onnx.data").stat().st_size > 0
    cd.onnx.export(net, cd.ones(1, 4), tmp_path / "b.onnx", keep_initializers_as_inputs=True)
    assert len(onnx.load(tmp_path / "b.onnx").graph.input) == 3
    cd.onnx.export(net, cd.ones(1, 4), tmp_path / "c.onnx", export_params=False, verify=True)
    assert not onnx.load(tmp_path / "c.onnx").graph.initializer


def test_dynamic_shapes_with_names_and_dims() -> None:
    net = nn.Linear(4, 2)
    for shapes in (({0: "rows"},), ({0: cd.export.Dim("rows")},)):
        made = cd.onnx.export(net, (cd.ones(3, 4),), dynamic_shapes=shapes)
        graph = made.model_proto.graph
        for value in (graph.input[0], graph.output[0]):
            assert value.type.tensor_type.shape.dim[0].dim_param == "rows"
        assert made(cd.ones(9, 4))[0].shape == (9, 2)


def test_floats_of_open_sizes_are_computed_by_the_model() -> None:
    image, other = cd.randn(1, 1, 4, 5), cd.randn(1, 1, 6, 3)
    agrees(nn.Upsample(scale_factor=1.5, mode="bilinear"), image, other, axes={2: "h", 3: "w"})
    net = Call(lambda x: x * x.shape[0] ** 0.5 + 1 / x.shape[0] + round(x.shape[0] * 0.3))
    agrees(net, cd.ones(5), cd.ones(8), axes={0: "n"})


def test_an_axis_that_the_program_fixes_is_told() -> None:
    with pytest.warns(UserWarning, match="stays 4"):
        cd.onnx.export(
            Call(lambda x: x.reshape(2, 2)), cd.ones(4), input_names=["x"], dynamic_axes={"x": [0]}
        )


def test_an_exported_program_is_taken() -> None:
    program = cd.export.export(nn.Linear(4, 2), (cd.ones(3, 4),))
    assert cd.onnx.export(program)(cd.ones(3, 4))[0].shape == (3, 2)


def test_an_operator_without_translation_is_named_and_may_be_given_one() -> None:
    net = Call(lambda x: cd.linalg.svd(x).S)
    with pytest.raises(UnsupportedOperatorError, match=r"(?s)'linalg_svd'.*custom_translation"):
        cd.onnx.export(net, cd.ones(2, 2))

    def doubled(builder: Any, x: Any) -> Any:
        return builder.op("Add", x, x)

    made = cd.onnx.export(
        Call(lambda x: x.exp()), cd.ones(2), custom_translation_table={cd.exp: doubled}
    )
    assert made(cd.ones(2))[0].tolist() == [2.0, 2.0]


def test_a_translation_that_needs_a_number_for_an_open_size_is_refused_with_the_line() -> None:
    def wide(builder: Any, x: Any, size: Any, *rest: Any) -> Any:
        return builder.op("Expand", builder.cast(0, x.dtype), builder.sizes([int(size[0])]))

    def program(x: Any) -> Any:
        return x.expand(x.shape[0], 2)

    with pytest.raises(UnsupportedOperatorError, match=r"(?s)'expand'.*test_onnx.py.*open sizes"):
        cd.onnx.export(
            Call(program),
            cd.ones(3, 1),
            input_names=["x"],
            dynamic_axes={"x": {0: "n"}},
            custom_translation_table={cd.ops.expand: wide},
        )


def test_random_numbers_that_nobody_uses_are_left_out() -> None:
    made = cd.onnx.export(
        Call(lambda x: x * (x + cd.rand_like(x)).shape[0]), (cd.ones(2),), verify=True
    )
    assert made(cd.ones(2))[0].tolist() == [2.0, 2.0]


def test_an_argument_that_is_none() -> None:
    net = Pair(lambda x, k: x * 2 if k is None else x + k)
    made = cd.onnx.export(net, (cd.ones(2), None), verify=True)
    assert made(cd.ones(2), None)[0].tolist() == [2.0, 2.0]


def test_training_mode_is_told_and_refused_by_name() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with (
        pytest.warns(UserWarning, match="training mode"),
        pytest.raises(UnsupportedOperatorError, match="model.eval"),
    ):
        cd.onnx.export(net, cd.ones(2, 4))


def test_what_cannot_be_asked() -> None:
    net = nn.Linear(4, 2)
    with pytest.raises(ValueError, match="18 to"):
        cd.onnx.export(net, cd.ones(1, 4), opset_version=9)
    with pytest.raises(NotImplementedError, match="dynamo"):
        cd.onnx.export(net, cd.ones(1, 4), dynamo=False)
    with pytest.raises(OnnxExporterError, match="module"):
        cd.onnx.export(cd.ones(1), cd.ones(1, 4))
    with pytest.raises(TypeError, match="unexpected"):
        cd.onnx.export(net, cd.ones(1, 4), opset=20)
    assert not cd.onnx.is_in_onnx_export()


class ByLength(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1 if x.shape[0] > 3 else x - 1


def test_a_model_for_some_of_the_open_sizes_is_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"asks for batch in VR\[4, int_oo\]"):
        cd.onnx.export(
            ByLength(), (cd.ones(4, 2),), input_names=["x"], dynamic_axes={"x": {0: "batch"}}
        )
    with pytest.warns(UserWarning, match="dynamic_axes names 'y', which is no input or output"):
        cd.onnx.export(
            nn.Linear(2, 2),
            (cd.ones(4, 2),),
            input_names=["x"],
            output_names=["out"],
            dynamic_axes={"x": {0: "batch"}, "out": {0: "batch"}, "y": [0]},
        )


def test_an_example_of_one_image_leaves_the_batch_open() -> None:
    """The size of a named axis is no constant, even where the example's broadcasts."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 2),
    ).eval()  # fmt: skip
    one, three = cd.randn(1, 3, 8, 8), cd.randn(3, 3, 8, 8)
    agrees(net, one, three, axes={0: "batch"})
    agrees(net, one, three, axes=[0])
    for shapes in ({"input": {0: "batch"}}, ({0: cd.export.Dim("batch")},)):
        made = cd.onnx.export(net, (one,), dynamic_shapes=shapes)
        cd.testing.assert_close(made(three)[0], net(three).detach(), rtol=1e-3, atol=1e-4)


def test_names_stay_with_their_sizes() -> None:
    """Also after a size that stays closed."""
    shapes = {"x": {0: cd.export.Dim.AUTO, 1: "height"}}
    made = cd.onnx.export(Call(lambda x: x * 2), (cd.ones(1, 5),), dynamic_shapes=shapes)
    sizes = made.model_proto.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in sizes] == [1, "height"]


def test_an_axis_of_one_that_the_program_squeezes_is_told() -> None:
    net = Call(lambda x: x.squeeze(0) + 1)
    with pytest.warns(UserWarning, match="stay those of the example"):
        cd.onnx.export(net, (cd.ones(1, 3),), input_names=["x"], dynamic_axes={"x": {0: "batch"}})


class Rows(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x @ y


def open_program() -> Any:
    rows, columns = cd.Dim("rows"), cd.Dim("columns")
    return cd.export.export(
        Rows(), (cd.ones(3, 4), cd.ones(4, 5)), dynamic_shapes=({0: rows}, {1: columns})
    )


def named_sizes(made: Any) -> list[list[Any]]:
    graph = made.model_proto.graph
    shapes = [value.type.tensor_type.shape.dim for value in (*graph.input, *graph.output)]
    return [[d.dim_param or d.dim_value for d in shape] for shape in shapes]


def test_dynamic_axes_name_the_open_sizes_of_an_exported_program() -> None:
    made = cd.onnx.export(open_program())
    assert named_sizes(made) == [["rows", 4], [4, "columns"], ["rows", "columns"]]
    axes = {"left": {0: "batch"}, "y": [-1], "out": {0: "batch"}}
    made = cd.onnx.export(
        open_program(), input_names=["left"], output_names=["out"], dynamic_axes=axes
    )
    assert named_sizes(made) == [["batch", 4], [4, "y_dim_-1"], ["batch", "y_dim_-1"]]
    (found,) = made(cd.ones(2, 4), cd.ones(4, 7))
    assert found.equal(cd.full((2, 7), 4.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic_axes": {"x": {1: "width"}}}, "dimension 1 of 'x' open, and .* the size 4 only"),
        ({"dynamic_axes": {"x": {2: "width"}}}, "dimension 2 of 'x', which has 2"),
        ({"dynamic_axes": {"x": {0: "a", -2: "b"}}}, "names one size 'a' and 'b'"),
        ({"dynamic_axes": {"x": {0: "columns"}}}, "the size rows 'columns', which is another"),
        ({"dynamic_shapes": {"x": {0: "a"}}}, "sizes of a program that is exported are settled"),
    ],
)
def test_axes_that_an_exported_program_does_not_have(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cd.onnx.export(open_program(), **options)


def test_names_of_axes_that_are_no_inputs_are_told() -> None:
    with pytest.warns(UserWarning, match="names 'z', which is no input"):
        cd.onnx.export(open_program(), dynamic_axes={"z": {0: "a"}})


@cd.jit.script
def doubled(x, y):  # type: ignore[no-untyped-def]
    while bool(x.sum() < y.sum()):
        x = x * 2
    return x


def test_compiled_functions() -> None:
    made = cd.onnx.export(doubled, (cd.ones(3), cd.ones(3)), dynamic_axes={"x": [0], "y": {0: "m"}})
    assert kinds(made).count("Loop") == 1
    (found,) = made(cd.ones(2), cd.full((5,), 7.0))
    assert found.equal(cd.full((2,), 32.0))


def test_the_default_opset_is_that_of_pytorch() -> None:
    made = cd.onnx.export(nn.ReLU(), cd.ones(2))
    (opset,) = made.model_proto.opset_import
    assert opset.version == 20
    torch = pytest.importorskip("torch")
    assert opset.version == torch.onnx._constants.ONNX_DEFAULT_OPSET
