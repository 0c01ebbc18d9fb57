"""Update the rows of a table that a batch looked up, and leave the others alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfdiag.analyse.analysis import Analysis
from tfdiag.model.changes import Change
from tfdiag.model.layers import EmbeddingTable, OptimizerFacts
from tfdiag.model.quantity import Maybe
from tfdiag.model.report import Suggestion
from tfdiag.remedies.gain import gain_without

__all__ = ["suggest"]

_LAZY = """\
+ class LazyAdam(keras.optimizers.Adam):
+     def update_step(self, gradient, variable, learning_rate):
+         if not isinstance(gradient, tf.IndexedSlices):
+             return super().update_step(gradient, variable, learning_rate)
+         rows, at = tf.unique(gradient.indices)
+         g = tf.math.unsorted_segment_sum(gradient.values, at, tf.size(rows))
+         squares = tf.math.unsorted_segment_sum(tf.square(gradient.values), at, tf.size(rows))
+         index = self._get_variable_index(variable)
+         m, v = self._momentums[index].value, self._velocities[index].value
+         m_rows = self.beta_1 * tf.gather(m, rows) + (1 - self.beta_1) * g
+         v_rows = self.beta_2 * tf.gather(v, rows) + (1 - self.beta_2) * squares
+         step = tf.cast(self.iterations + 1, g.dtype)
+         rate = tf.cast(learning_rate, g.dtype)
+         rate *= tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
+         m.scatter_update(tf.IndexedSlices(m_rows, rows))
+         v.scatter_update(tf.IndexedSlices(v_rows, rows))
+         change = rate * m_rows / (tf.sqrt(v_rows) + self.epsilon)
+         variable.scatter_sub(tf.IndexedSlices(change, rows))
- model.compile(keras.optimizers.Adam(rate), …)
+ model.compile(LazyAdam(rate), …)"""


def suggest(
    analysis: Analysis,
    check: str,
    table: EmbeddingTable,
    optimizers: Sequence[OptimizerFacts],
    seconds: float,
    used: float,
) -> Iterator[Suggestion]:
    """Suggest what leaves unused rows alone; where a setting goes over all rows, its removal."""
    predicted = gain_without(
        analysis,
        (1 - used) * seconds,
        at_least=0.6,
        at_most=1.15,
        source="the step less the time in ops over the whole table",
    )
    if table.regularized:
        yield _plain_table(check, table, predicted)
    optimizer = optimizers[0] if optimizers else OptimizerFacts("optimizer", "the optimizer")
    settings = [each for each in optimizer.settings if not each.startswith("momentum")]
    first = f"Without {', '.join(settings)}, which goes over all rows as well: use" if settings else "Use"
    if optimizer.cls in ("Adam", "AdamW", "Nadam", "Adamax", "RMSprop", "Lion"):
        yield Suggestion(
            id=f"{check}/{table.layer}-lazy",
            check=check,
            text=f"{first} an Adam that updates the rows of {table.layer} that a batch looked up.",
            code=_LAZY,
            predicted=predicted,
            risk="Averages of rows that are not looked up stand still instead of fading, so results differ "
            "a little, mostly for rare ids. XLA can't compile tf.unique: keep jit_compile off on a GPU.",
            reason="not tried: only the caller can change the optimizer's class",
        )
    if optimizer.cls != "SGD" or optimizer.settings:
        yield Suggestion(
            id=f"{check}/{table.layer}-sgd",
            check=check,
            text=f"{first} SGD without momentum: it updates the rows of {table.layer} that were looked up.",
            code="- model.compile(optimizer, …)\n+ model.compile(keras.optimizers.SGD(rate), …)",
            predicted=predicted,
            risk="Another optimizer converges differently, and needs another learning rate.",
            changes=(Change("optimizer", "SGD"),),
        )


def _plain_table(check: str, table: EmbeddingTable, predicted: Maybe) -> Suggestion:
    return Suggestion(
        id=f"{check}/{table.layer}-regularizer",
        check=check,
        text=f"Take the regularizer or constraint off {table.layer}: it reads all rows in each step.",
        code=(
            f"- keras.layers.Embedding({table.rows}, {table.dim}, embeddings_regularizer=…)\n"
            f"+ keras.layers.Embedding({table.rows}, {table.dim})"
        ),
        predicted=predicted,
        risk="The table is no longer regularized; the optimizer must update single rows as well.",
        reason="not tried: only the caller can change the model",
    )
