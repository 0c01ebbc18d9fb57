"""A job under `tf.distribute`: two logical CPU devices, made before TensorFlow starts."""

from __future__ import annotations

import json

import pytest

from tests.integration.processes import succeeds

TWO_DEVICES = """
import json, warnings
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

from tests.integration import jobs
from tests.integration.expectations import diagnose, is_sound, share
from tests.traces_left import leaves_no_trace

with strategy.scope():
    model = jobs.tiny_model()
{dataset}
with leaves_no_trace(model, dataset=dataset):
    report = diagnose(model, dataset, budget=10.0, steps=60)
is_sound(report, batch_size=jobs.BATCH)
model.fit(jobs.batches(3), verbose=0)
print(json.dumps({{
    "verdict": report.verdict.code,
    "wait": share(report, "input_wait"),
    "strategy": report.measurements.job.strategy,
    "replicas": report.measurements.job.replicas,
    "iterations": int(model.optimizer.iterations.numpy()),
}}))
"""

DATASETS = {
    "plain": "dataset = jobs.slow(jobs.batches(None), 0.02)",
    "distributed": (
        "dataset = strategy.experimental_distribute_dataset(jobs.slow(jobs.batches(None), 0.02))"
    ),
}


@pytest.mark.parametrize("name", DATASETS)
def test_mirrored_model(name: str) -> None:
    """A mirrored model is measured and every replica's variables are put back."""
    printed = succeeds(TWO_DEVICES.format(dataset=DATASETS[name]))

    told = json.loads(printed.splitlines()[-1])
    assert told["verdict"] == "input-bound"
    assert told["wait"] > 0.4
    assert told["strategy"] == "MirroredStrategy"
    assert told["replicas"] == 2
    assert told["iterations"] == 3
