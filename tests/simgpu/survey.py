"""Train many small Keras models on the simulated GPU and list the ops that fall back to the CPU.

    python -m simgpu.survey [word ...]        (from the folder tests)

Words select the jobs whose name contains one of them. For each job the ops of the optimised train step that were placed
on the CPU are listed, without those that live there on a real GPU, too (`ON_THE_CPU_ANYWAY`). What is left is either a
kernel to write or an entry in `KNOWN`, with the reason.
"""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Ops that have no GPU kernel in TensorFlow either, or that only exist to talk to the CPU.
ON_THE_CPU_ANYWAY = frozenset(
    {
        "_Arg",
        "_HostRecv",
        "_HostSend",
        "_Recv",
        "_Retval",
        "_Send",
        "AnonymousIteratorV3",
        "Assert",
        "Const",
        "Enter",
        "Exit",
        "Identity",
        "IteratorGetNext",
        "IteratorGetNextAsOptional",
        "LoopCond",
        "MakeIterator",
        "Merge",
        "NextIteration",
        "NoOp",
        "OptionalFromValue",
        "OptionalGetValue",
        "OptionalHasValue",
        "Switch",
        "_DeviceArg",
    }
)

#: What falls back here and would not on a real GPU, and why that is left so.
KNOWN = {
    "AssignVariableOp": "Adafactor keeps an int32 variable, which TensorFlow places on the CPU",
    "VarHandleOp": "the same variable",
    "VarIsInitializedOp": "the same variable",
}


def dense(keras: Any, layers: Any) -> Any:
    """A stack of dense layers, one for each activation."""
    names = [
        "relu",
        "relu6",
        "elu",
        "selu",
        "gelu",
        "tanh",
        "sigmoid",
        "softplus",
        "softsign",
        "swish",
        "hard_sigmoid",
        "hard_swish",
        "leaky_relu",
        "mish",
        "exponential",
        "log_softmax",
        "softmax",
        "celu",
        "hard_tanh",
        "hard_shrink",
        "soft_shrink",
        "squareplus",
        "tanh_shrink",
        "log_sigmoid",
        "sparse_plus",
        "silu",
        "linear",
        "sparse_sigmoid",
    ]
    x = inputs = keras.Input((8,))
    for name in names:
        x = layers.Dense(8, name=f"dense_{name}")(x)
        x = layers.Activation(name, name=name)(x)
    x = layers.Dense(8, kernel_regularizer="l1l2", kernel_constraint="max_norm")(x)
    x = layers.PReLU()(x)
    x = layers.LeakyReLU()(x)
    x = layers.ReLU(max_value=3.0, negative_slope=0.1, threshold=0.1)(x)
    x = layers.EinsumDense("ab,bc->ac", output_shape=8, bias_axes="c")(x)
    return keras.Model(inputs, layers.Dense(4)(x)), (8,), "int", None


def _image(keras: Any, layers: Any, build: Callable[[Any], Any], shape: tuple[int, ...] = (12, 12, 3)) -> Any:
    inputs = keras.Input(shape)
    x = build(inputs)
    if len(x.shape) > 2:
        x = layers.Flatten()(x)
    return keras.Model(inputs, layers.Dense(4)(x)), shape, "int", None


def conv2d(keras: Any, layers: Any) -> Any:
    """Convolutions over images: plain, strided, dilated, transposed, depthwise, separable."""

    def build(x: Any) -> Any:
        x = layers.Conv2D(8, 3, activation="relu", padding="same")(x)
        x = layers.Conv2D(8, 3, strides=2, padding="same")(x)
        x = layers.Conv2D(8, 3, dilation_rate=2, padding="same")(x)
        x = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(x)
        x = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(x)
        x = layers.DepthwiseConv2D(3, padding="same", strides=2)(x)
        x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=2)(x)
        return layers.SeparableConv2D(8, 3, padding="same", activation="relu")(x)

    return _image(keras, layers, build)


def conv1d(keras: Any, layers: Any) -> Any:
    """Convolutions over sequences."""

    def build(x: Any) -> Any:
        x = layers.Conv1D(8, 3, padding="causal", activation="relu")(x)
        x = layers.Conv1D(8, 3, dilation_rate=2, padding="same")(x)
        x = layers.Conv1DTranspose(8, 3, strides=2, padding="same")(x)
        x = layers.DepthwiseConv1D(3, padding="same")(x)
        x = layers.SeparableConv1D(8, 3, padding="same")(x)
        x = layers.MaxPooling1D()(x)
        x = layers.AveragePooling1D(2)(x)
        x = layers.ZeroPadding1D(2)(x)
        x = layers.Cropping1D(1)(x)
        x = layers.UpSampling1D(2)(x)
        return layers.GlobalAveragePooling1D()(x)

    return _image(keras, layers, build, (16, 4))


def conv3d(keras: Any, layers: Any) -> Any:
    """Convolutions and pooling over volumes."""

    def build(x: Any) -> Any:
        x = layers.Conv3D(4, 3, padding="same", activation="relu")(x)
        x = layers.Conv3DTranspose(4, 3, padding="same")(x)
        x = layers.MaxPooling3D()(x)
        x = layers.UpSampling3D()(x)
        x = layers.AveragePooling3D(2)(x)
        x = layers.ZeroPadding3D()(x)
        x = layers.Cropping3D()(x)
        x = layers.BatchNormalization()(x)
        return layers.GlobalMaxPooling3D()(x)

    return _image(keras, layers, build, (8, 8, 8, 2))


def pooling(keras: Any, layers: Any) -> Any:
    """Pooling, padding, cropping and upsampling of images."""

    def build(x: Any) -> Any:
        x = layers.ZeroPadding2D(2)(x)
        x = layers.MaxPooling2D(2)(x)
        x = layers.UpSampling2D(2)(x)
        x = layers.UpSampling2D(2, interpolation="bilinear")(x)
        x = layers.AveragePooling2D(3, strides=2, padding="same")(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = layers.Cropping2D(1)(x)
        a = layers.Flatten()(layers.AdaptiveAveragePooling2D(2)(x))
        a = layers.Concatenate()([a, layers.Flatten()(layers.AdaptiveMaxPooling2D(2)(x))])
        return layers.Concatenate()([layers.GlobalAveragePooling2D()(x), layers.GlobalMaxPooling2D()(x), a])

    return _image(keras, layers, build)


def normalisation(keras: Any, layers: Any) -> Any:
    """Every normalisation layer."""

    def build(x: Any) -> Any:
        x = layers.Conv2D(8, 3)(x)
        x = layers.BatchNormalization()(x)
        x = layers.LayerNormalization()(x)
        x = layers.GroupNormalization(2)(x)
        x = layers.UnitNormalization()(x)
        x = layers.RMSNormalization()(x)
        x = layers.SpectralNormalization(layers.Conv2D(4, 1))(x)
        x = layers.Flatten()(x)
        x = layers.Dense(16)(x)
        return layers.LayerNormalization()(x)

    return _image(keras, layers, build)


def dropout(keras: Any, layers: Any) -> Any:
    """Every layer that draws random numbers."""

    def build(x: Any) -> Any:
        x = layers.GaussianNoise(0.1)(x)
        x = layers.Conv2D(4, 3)(x)
        x = layers.SpatialDropout2D(0.2)(x)
        x = layers.Flatten()(x)
        x = layers.Dropout(0.2)(x)
        x = layers.GaussianDropout(0.2)(x)
        return layers.AlphaDropout(0.2)(x)

    return _image(keras, layers, build)


def augmentation(keras: Any, layers: Any) -> Any:
    """Image preprocessing inside the model."""

    def build(x: Any) -> Any:
        x = layers.Rescaling(1 / 255.0)(x)
        x = layers.RandomFlip()(x)
        x = layers.RandomRotation(0.1)(x)
        x = layers.RandomZoom(0.1)(x)
        x = layers.RandomTranslation(0.1, 0.1)(x)
        x = layers.RandomContrast(0.1)(x)
        x = layers.RandomBrightness(0.1, value_range=(0, 1))(x)
        x = layers.RandomCrop(10, 10)(x)
        x = layers.Resizing(12, 12)(x)
        x = layers.CenterCrop(8, 8)(x)
        return layers.Normalization(mean=0.5, variance=0.1)(x)

    return _image(keras, layers, build)


def _tokens(keras: Any, layers: Any, build: Callable[[Any], Any]) -> Any:
    inputs = keras.Input((12,), dtype="int32")
    x = build(inputs)
    if len(x.shape) > 2:
        x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(4)(x)), (12,), "int", 20


def embedding(keras: Any, layers: Any) -> Any:
    """Embeddings, masks and pooling over tokens."""

    def build(x: Any) -> Any:
        y = layers.Embedding(20, 8, mask_zero=True)(x)
        z = layers.CategoryEncoding(20, output_mode="multi_hot")(x)
        w = layers.Flatten()(layers.Discretization([1.0, 2.0, 5.0], output_mode="one_hot")(x))
        y = layers.GlobalMaxPooling1D()(y)
        return layers.Concatenate()([y, z, w])

    return _tokens(keras, layers, build)


def attention(keras: Any, layers: Any) -> Any:
    """A transformer block and the other attention layers."""

    def build(x: Any) -> Any:
        x = layers.Embedding(20, 8)(x)
        x = layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x, use_causal_mask=True)
        x = layers.LayerNormalization()(x)
        x = layers.GroupQueryAttention(4, 4, 2)(x, x)
        x = layers.Attention(use_scale=True, dropout=0.1)([x, x])
        x = layers.AdditiveAttention()([x, x])
        return layers.Dense(8, activation="gelu")(x)

    return _tokens(keras, layers, build)


def recurrent(keras: Any, layers: Any) -> Any:
    """Recurrent layers without CuDNN, which the simulated GPU lacks."""

    def build(x: Any) -> Any:
        x = layers.Embedding(20, 8)(x)
        x = layers.LSTM(8, return_sequences=True, use_cudnn=False)(x)
        x = layers.GRU(8, return_sequences=True, use_cudnn=False, reset_after=True)(x)
        x = layers.Bidirectional(layers.SimpleRNN(8, return_sequences=True))(x)
        x = layers.TimeDistributed(layers.Dense(8))(x)
        x = layers.Reshape((12, 1, 8, 1))(x)
        x = layers.ConvLSTM1D(2, 3, padding="same")(layers.Reshape((12, 8, 1))(x))
        return layers.Flatten()(x)

    return _tokens(keras, layers, build)


def recurrent_masked(keras: Any, layers: Any) -> Any:
    """A recurrent layer behind a mask, and an unrolled one."""

    def build(x: Any) -> Any:
        x = layers.Embedding(20, 8, mask_zero=True)(x)
        x = layers.LSTM(8, return_sequences=True, use_cudnn=False)(x)
        return layers.GRU(8, use_cudnn=False, unroll=True)(x)

    return _tokens(keras, layers, build)


def merging(keras: Any, layers: Any) -> Any:
    """Layers that merge, reshape, permute and repeat."""

    def build(x: Any) -> Any:
        x = layers.Flatten()(x)
        a, b = layers.Dense(8)(x), layers.Dense(8)(x)
        x = layers.Concatenate()(
            [
                layers.Add()([a, b]),
                layers.Subtract()([a, b]),
                layers.Multiply()([a, b]),
                layers.Average()([a, b]),
                layers.Maximum()([a, b]),
                layers.Minimum()([a, b]),
                layers.Dot(axes=1, normalize=True)([a, b]),
            ]
        )
        x = layers.RepeatVector(3)(x)
        x = layers.Permute((2, 1))(x)
        return layers.Masking()(x)

    return _image(keras, layers, build)


def _regression(keras: Any, layers: Any) -> Any:
    inputs = keras.Input((8,))
    x = layers.Dense(16, activation="relu")(inputs)
    return keras.Model(inputs, layers.Dense(4, activation="softmax")(x)), (8,), "float", None


OPTIMIZERS = [
    "SGD",
    "Momentum",
    "Nesterov",
    "RMSprop",
    "Adam",
    "Amsgrad",
    "AdamW",
    "Adadelta",
    "Adagrad",
    "Adamax",
    "Nadam",
    "Ftrl",
    "Lion",
    "Adafactor",
    "Lamb",
    "Clipnorm",
    "GlobalClipnorm",
    "Clipvalue",
    "Ema",
    "Accumulate",
    "Schedule",
    "Muon",
]


def optimizer(keras: Any, name: str) -> Any:
    """The optimizer of that name, or the variant that it stands for."""
    o = keras.optimizers
    variants = {
        "Momentum": lambda: o.SGD(momentum=0.9),
        "Nesterov": lambda: o.SGD(momentum=0.9, nesterov=True),
        "RMSprop": lambda: o.RMSprop(momentum=0.9, centered=True),
        "Amsgrad": lambda: o.Adam(amsgrad=True),
        "Clipnorm": lambda: o.Adam(clipnorm=1.0),
        "GlobalClipnorm": lambda: o.Adam(global_clipnorm=1.0),
        "Clipvalue": lambda: o.Adam(clipvalue=1.0),
        "Ema": lambda: o.Adam(use_ema=True, ema_overwrite_frequency=2),
        "Accumulate": lambda: o.Adam(gradient_accumulation_steps=2),
        "Schedule": lambda: o.Adam(o.schedules.CosineDecay(1e-3, 100, warmup_steps=3, warmup_target=1e-2)),
        "Muon": o.Muon,
    }
    return variants[name]() if name in variants else getattr(o, name)()


LOSSES = [
    "mse",
    "mae",
    "mape",
    "msle",
    "huber",
    "log_cosh",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "kl_divergence",
    "poisson",
    "hinge",
    "squared_hinge",
    "categorical_hinge",
    "cosine_similarity",
    "dice",
    "tversky",
]


def metrics(keras: Any) -> list[Any]:
    """One of every metric that a softmax over four classes can carry."""
    m = keras.metrics
    return [
        "accuracy",
        m.AUC(multi_label=True, num_labels=4),
        m.Precision(),
        m.Recall(),
        m.F1Score(),
        m.TopKCategoricalAccuracy(2),
        m.CategoricalCrossentropy(),
        m.MeanSquaredError(),
        m.RootMeanSquaredError(),
        m.MeanAbsoluteError(),
        m.CosineSimilarity(),
        m.R2Score(),
        m.KLDivergence(),
        m.OneHotMeanIoU(4),
        m.PrecisionAtRecall(0.5),
        m.TruePositives(),
        m.BinaryAccuracy(),
    ]


ARCHITECTURES = (
    dense,
    conv2d,
    conv1d,
    conv3d,
    pooling,
    normalisation,
    dropout,
    augmentation,
    embedding,
    attention,
    recurrent,
    recurrent_masked,
    merging,
)


def jobs() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Name and builder of every job; a builder returns a compiled model, its input shape, label kind and vocabulary."""
    for policy in ("float32", "mixed_float16", "mixed_bfloat16"):
        for build in ARCHITECTURES:

            def job(keras: Any, build: Any = build, policy: str = policy) -> Any:
                keras.config.set_dtype_policy(policy)
                try:
                    model, shape, label, words = build(keras, keras.layers)
                finally:
                    keras.config.set_dtype_policy("float32")
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
                return model, shape, label, words

            yield f"{build.__name__}/{policy}", job
    for name in OPTIMIZERS:

        def job(keras: Any, name: str = name) -> Any:
            model, *rest = _regression(keras, keras.layers)
            model.compile(optimizer(keras, name), "mse", jit_compile=False)
            return model, *rest

        yield f"optimizer/{name}", job
    for name in LOSSES:

        def job(keras: Any, name: str = name) -> Any:
            model, *rest = _regression(keras, keras.layers)
            model.compile("sgd", name, jit_compile=False)
            return model, *rest

        yield f"loss/{name}", job

    def with_metrics(keras: Any) -> Any:
        model, *rest = _regression(keras, keras.layers)
        model.compile("sgd", "mse", metrics=metrics(keras), jit_compile=False)
        return model, *rest

    yield "metrics", with_metrics


def placed_on_cpu(job: Callable[[Any], Any], batch: int = 8) -> tuple[dict[str, list[str]], float]:
    """Train two steps of a job: the CPU's ops with the names of their nodes, and the last loss."""
    import keras
    import numpy as np
    from tensorflow.python.eager import context

    keras.utils.set_random_seed(0)
    model, shape, label, words = job(keras)
    rng = np.random.default_rng(0)
    x = (
        rng.integers(1, words, (batch, *shape)).astype("int32")
        if words
        else rng.random((batch, *shape), "float32")
    )
    y = rng.integers(0, 4, batch) if label == "int" else np.eye(4, dtype="float32")[rng.integers(0, 4, batch)]
    context.context().enable_run_metadata()
    logs = model.fit(x, y, batch_size=batch // 2, epochs=1, verbose=0).history
    metadata = context.context().export_run_metadata()
    context.context().disable_run_metadata()
    found: dict[str, list[str]] = collections.defaultdict(list)
    for function in metadata.function_graphs:
        for graph in function.partition_graphs:
            for node in graph.node:
                if "CPU" in node.device and node.op not in ON_THE_CPU_ANYWAY and "Dataset" not in node.op:
                    found[node.op].append(node.name)
    return dict(found), float(logs["loss"][-1])


def run(words: list[str]) -> Iterator[tuple[str, dict[str, list[str]], float]]:
    """Run the jobs whose name contains one of the words, or all."""
    for name, job in jobs():
        if not words or any(word in name for word in words):
            yield name, *placed_on_cpu(job)


def main(words: list[str]) -> int:
    """Print what fell back, job by job, then in sum."""
    from .build import build
    from .harness import Simgpu

    if (
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in os.environ
    ):  # TensorFlow reads it at import: start again with it
        with tempfile.TemporaryDirectory() as folder:
            environment = Simgpu(build(), Path(folder)).environment(Path(folder), knobs={"wait": 0})
            return subprocess.run(
                [sys.executable, "-m", "simgpu.survey", *words], env=environment, check=False
            ).returncode
    total: collections.Counter[str] = collections.Counter()
    for name, found, loss in run(words):
        print(f"{name}: loss {loss:.4f}", flush=True)
        for op, nodes in sorted(found.items()):
            print(f"    {op} x{len(nodes)}: {nodes[0]}  {KNOWN.get(op, 'NOT KNOWN')}", flush=True)
        total.update(found.keys())
    print("\nops on the CPU, by jobs:", ", ".join(f"{op} ({n})" for op, n in total.most_common()) or "none")
    return int(bool(set(total) - set(KNOWN)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
