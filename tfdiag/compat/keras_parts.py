"""The door to the parts of a Keras or tf_keras model: layers, optimizers, metrics, and what a layer is given.

Private names and where they were seen, with what happens when they are gone:

- `Layer._flatten_layers(include_self=, recursive=)` (Keras 3.3 to 3.15, tf_keras 2.16 to 2.21): only layers
  in the model's own list are known.
- `Model._compile_metrics`, `._loss_tracker` and `._compile_loss` (Keras 3.3 to 3.15), `.compiled_metrics`
  (tf_keras 2.16 to 2.21): metrics that were compiled can't be told from others.
- `Optimizer.update_step(gradient, variable[, learning_rate])`, looked up on the optimizer for each variable
  (Keras 3.3 to 3.15, tf_keras 2.16 to 2.21): the step can't be traced with a plainer update, and what the
  update of a table costs is known from a trace alone.
- `tf.__internal__.FuncGraph` (TensorFlow 2.21): a layer's results can't be stood in for, and what a loop in
  it costs is known from a trace alone.
- `Functional.input_spec` can be set (Keras 3.3 to 3.15, tf_keras 2.16 to 2.21): a model with a fixed length
  can't be called with another, and how its step depends on the length is `Missing`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tfdiag.compat.keras import flavour
from tfdiag.compat.tensorflow import tensorflow

__all__ = [
    "any_length", "class_names", "compiled_losses", "compiled_metrics", "layers_named", "layers_within",
    "optimizers_of", "own_train_function", "updating_used_rows", "watched_calls", "with_ready_results",
    "without_metrics",
]  # fmt: skip

_OPTIMIZERS = ("BaseOptimizer", "Optimizer", "OptimizerV2", "_BaseOptimizer")
_ABSENT = object()
_TINY = 1e-20


def class_names(thing: Any) -> tuple[str, ...]:
    """Give the names of a thing's class and of those it derives from, its own first."""
    return tuple(cls.__name__ for cls in type(thing).__mro__)


def layers_within(layer: Any) -> tuple[Any, ...]:
    """List the layers that a layer or a model holds directly."""
    walk = getattr(layer, "_flatten_layers", None)
    try:
        if walk is not None:
            return tuple(walk(include_self=False, recursive=False))
        return tuple(layer.layers)
    except (AttributeError, TypeError, ValueError):
        return tuple(getattr(layer, "layers", None) or ())


def layers_named(model: Any, names: Collection[str]) -> dict[str, Any]:
    """Find layers by their names, at any depth; a name that two of them have stands for neither."""
    found: dict[str, list[Any]] = {}
    for layer in _with_inner(model):
        found.setdefault(str(getattr(layer, "name", "")), []).append(layer)
    return {name: found[name][0] for name in names if len(found.get(name, ())) == 1}


def _with_inner(model: Any) -> Iterator[Any]:
    """Go over a model and all layers in it, each of them once."""
    seen, waiting = {id(model)}, [model]
    while waiting:
        layer = waiting.pop()
        yield layer
        inner = {id(each): each for each in layers_within(layer) if id(each) not in seen}
        seen.update(inner)
        waiting.extend(inner.values())


def optimizers_of(model: Any) -> tuple[Any, ...]:
    """List the optimizers that a model holds: that of `compile`, and those of its own train step."""
    held = [getattr(model, "optimizer", None), *vars(model).values()]
    found: dict[int, Any] = {}
    for thing in held:
        if thing is not None and not set(_OPTIMIZERS).isdisjoint(class_names(thing)):
            found[id(thing)] = thing
    return tuple(found.values())


def compiled_metrics(model: Any) -> tuple[Any, ...]:
    """List the metrics that a step updates, beside those that only keep the loss."""
    losses = {id(getattr(model, "_loss_tracker", None))}
    losses.update(id(each) for each in getattr(getattr(model, "_compile_loss", None), "metrics", None) or ())
    losses.update(id(each) for each in getattr(getattr(model, "compiled_loss", None), "metrics", None) or ())
    found: dict[int, Any] = {}
    for metric in getattr(model, "metrics", None) or ():
        inner = getattr(metric, "metrics", None) if "CompileMetrics" in class_names(metric) else None
        for each in (metric,) if inner is None else inner:
            if id(each) not in losses:
                found[id(each)] = each
    return tuple(found.values())


def compiled_losses(model: Any) -> tuple[Any, ...]:
    """List what was given to `compile` as losses: names, functions, objects."""
    given = getattr(model, "loss", None)
    return tuple(each for each in tensorflow().nest.flatten(given) if each is not None)


def own_train_function(model: Any) -> Any:
    """Build a train function of the model beside the one that it has."""
    kept = getattr(model, "train_function", None)
    model.train_function = None
    try:
        built = model.make_train_function()
        return built if built is not None else model.train_function
    finally:
        model.train_function = kept


@contextlib.contextmanager
def _methods(changes: list[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """Give objects other methods for a while; past what their classes do when an attribute is set."""
    before = [(vars(thing), name, vars(thing).get(name, _ABSENT)) for thing, name, _ in changes]
    try:
        for thing, name, method in changes:
            vars(thing)[name] = method
        yield
    finally:
        for attributes, name, value in before:
            if value is _ABSENT:
                attributes.pop(name, None)
            else:
                attributes[name] = value


def without_metrics(metrics: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
    """Make metrics do nothing: a step that is traced meanwhile has none of their ops."""
    tf = tensorflow()

    def update(*_: Any, **__: Any) -> None:
        return None

    def result() -> Any:
        return tf.constant(0.0)

    changes: list[tuple[Any, str, Callable[..., Any]]] = []
    for metric in metrics:
        changes += [(metric, "update_state", update), (metric, "result", result)]
    return _methods(changes)


def updating_used_rows(
    optimizers: tuple[Any, ...], shapes: frozenset[tuple[int, ...]]
) -> contextlib.AbstractContextManager[None]:
    """Let only the rows that were looked up be updated: in a step that is traced meanwhile, of these tables.

    They are updated in the plainest way, and the optimizer's own slots for them are left alone.
    """
    tf = tensorflow()

    def plainly(optimizer: Any) -> Callable[..., Any]:
        own = optimizer.update_step

        def update(gradient: Any, variable: Any, *rate: Any) -> Any:
            if not isinstance(gradient, tf.IndexedSlices) or tuple(variable.shape) not in shapes:
                return own(gradient, variable, *rate)
            values = tf.cast(gradient.values, variable.dtype)
            values *= tf.cast(rate[0] if rate else optimizer.learning_rate, variable.dtype)
            return variable.scatter_sub(tf.IndexedSlices(values, gradient.indices))

        return update

    able = []
    for each in optimizers:
        while each is not None:
            able += [each] if callable(getattr(each, "update_step", None)) else []
            each = getattr(each, "inner_optimizer", None)  # noqa: PLW2901  # what scales a loss holds another
    return _methods([(each, "update_step", plainly(each)) for each in able])


def watched_calls(
    layers: list[Any], see: Callable[[Any, Any], None]
) -> contextlib.AbstractContextManager[None]:
    """Tell `see` what each of these layers is given while the context lasts."""

    def watching(layer: Any) -> Callable[..., Any]:
        call = layer.call

        def watched(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else next(iter(kwargs.values()), None)
            see(layer, given)
            return call(*args, **kwargs)

        return watched

    return _methods([(layer, "call", watching(layer)) for layer in layers])


def with_ready_results(layer: Any) -> contextlib.AbstractContextManager[None]:
    """Let a layer give results that cost nothing: a step that is traced meanwhile has none of its ops.

    They have the shape of the layer's own, and are made of what it is given, so that nothing behind it
    becomes a constant. All that is before it, and its weights, get a gradient: one so small that it trains
    nothing, for a gradient that is none of the loss may go anywhere.
    """
    tf = tensorflow()
    own = layer.call

    def like(tensor: Any, upstream: Any) -> Any:
        return tf.fill(tf.shape(tensor), _first(upstream, tensor.dtype) * tf.cast(_TINY, tensor.dtype))

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [each for each in tf.nest.flatten((args, kwargs)) if tf.is_tensor(each)]
        with tf.__internal__.FuncGraph("shapes_only").as_default():
            results = own(*args, **kwargs)
        weights = [tf.convert_to_tensor(weight) for weight in layer.trainable_weights]
        flat = tf.nest.flatten(results)
        shapes = [_shape(each, given) for each in flat]

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def ready(*tensors: Any) -> Any:
            def gradient(*upstream: Any) -> list[Any]:
                return [like(each, upstream[0]) if each.dtype.is_floating else None for each in tensors]

            made = zip(shapes, flat, strict=True)
            return [tf.fill(shape, _first(tensors[0], each.dtype)) for shape, each in made], gradient

        return tf.nest.pack_sequence_as(results, tf.nest.flatten(ready(*given, *weights)))

    # AutoGraph would write a temporary file to convert what needs no conversion.
    return _methods([(layer, "call", tf.autograph.experimental.do_not_convert(call))])


def _shape(result: Any, given: list[Any]) -> list[Any]:
    """Give the shape of a result: of the batch only the rows may be unknown."""
    tf = tensorflow()
    if not isinstance(result, tf.Tensor) or not result.dtype.is_floating:
        raise ValueError("only results in floats can be stood in for")
    rows, *rest = result.shape.as_list() or [1]
    if not given or None in rest:
        raise ValueError("the shape of the layer's result is not known")
    if not result.shape.rank:
        return []
    return [tf.shape(given[0])[0] if rows is None else rows, *rest]


def _first(tensor: Any, dtype: Any) -> Any:
    tf = tensorflow()
    return tf.cast(tf.reshape(tensor, [-1])[0], dtype)


@contextlib.contextmanager
def any_length(model: Any) -> Iterator[None]:
    """Let a model take inputs of another length than it was made for, as far as its layers can."""
    models = [each for each in _with_inner(model) if "Functional" in class_names(each) and flavour(each)]
    before = [(vars(each), vars(each).get("_manual_input_spec", _ABSENT)) for each in models]
    try:
        for attributes, _ in before:
            attributes["_manual_input_spec"] = None
        yield
    finally:
        for attributes, value in before:
            if value is _ABSENT:
                attributes.pop("_manual_input_spec", None)
            else:
                attributes["_manual_input_spec"] = value
