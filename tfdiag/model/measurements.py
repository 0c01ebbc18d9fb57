"""What `collect` brings home from a run: facts and raw series, before any judgement.

Times are seconds. Series are tuples, one entry a call of the train function, so that a saved report can be
analysed again without TensorFlow. `nan` in a series means "not seen for this call".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tfdiag.model.compilation import Compilation
from tfdiag.model.compute import Compute
from tfdiag.model.device import DeviceTrace
from tfdiag.model.devices import StepOnDevices
from tfdiag.model.estimates import DeviceEstimates
from tfdiag.model.gpu import GpuTelemetry
from tfdiag.model.host import HostTelemetry
from tfdiag.model.host_work import HostWork
from tfdiag.model.layers import ModelFacts
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Maybe, Missing
from tfdiag.model.scaling import Scaling
from tfdiag.model.trials import Trials

__all__ = [
    "LOOP",
    "BatchTensor",
    "BoundaryEvent",
    "CallbackTime",
    "Device",
    "Environment",
    "HostSample",
    "InputAlone",
    "Job",
    "Live",
    "Measurements",
    "Overhead",
    "Replay",
    "Traced",
    "ValidationRun",
]

LOOP = "fit"
"""In times of callbacks: the loop itself, which is none."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device that TensorFlow lists."""

    name: str
    kind: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the software that the job ran on."""

    tfdiag: str
    python: str
    platform: str
    tensorflow: str
    keras: str
    cores: int
    """Cores that this process may run on."""
    memory_bytes: int
    devices: tuple[Device, ...] = ()
    cpu_quota: Maybe = Missing("no container quota is set")
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    date: str = ""
    """When the measurement began: UTC, ISO 8601."""


@dataclass(frozen=True, slots=True)
class BatchTensor:
    """A part of a batch, as the input hands it over."""

    name: str
    dtype: str
    bytes: int
    whole: bool = False
    """Whole numbers only, as far as was looked."""
    low: Maybe = Missing("not looked at")
    high: Maybe = Missing("not looked at")


@dataclass(frozen=True, slots=True)
class Job:
    """What is being trained, on what, and how."""

    loop: Literal["keras", "tf_keras", "custom", "unknown"]
    model: str
    """Name and class of the model."""
    input: str
    """What kind of input it is: `tf.data.Dataset`, `PyDataset`, `generator`, `arrays` …"""
    parameters: Maybe = Missing("not counted")
    batch_size: Maybe = Missing("no batch was seen")
    batch_bytes: Maybe = Missing("no batch was seen")
    tensors: tuple[BatchTensor, ...] = ()
    """What a batch consists of; empty where there is no device that it would have to be copied to."""
    steps_per_execution: int = 1
    steps_per_epoch: Maybe = Missing("the length of an epoch is not known")
    epochs: int = 1
    """As the caller's fit was told; 0 where it was not."""
    run_eagerly: bool = False
    eager_everywhere: bool = False
    """By `tf.config.run_functions_eagerly(True)`."""
    jit_compile: bool = False
    dtype_policy: str = ""
    strategy: str = ""
    """Name of the `tf.distribute` strategy, empty for the default one."""
    replicas: int = 1
    validation_steps: Maybe = Missing("there is no validation")
    validation_pass: Maybe = Missing("there is no validation")
    """Steps of one pass over the validation data."""
    validation_freq: int = 1
    """Validation runs after every so many epochs."""
    callbacks: tuple[str, ...] = ()
    one_shot: bool = False
    """The input can be iterated only once."""
    batches_used: int | None = None
    """Batches taken from a one-shot input; they can't be put back."""
    notes: tuple[str, ...] = ()
    """What a reader must know about how the job was run."""


@dataclass(frozen=True, slots=True)
class CallbackTime:
    """Time in one method of one callback, in one block of calls.

    What it did there is told apart where `HostWork.watched` says so, else these are 0. Of the loop itself
    (`LOOP`) there are `logs` (values of a batch that Keras fetches for callbacks), `step` (what a step of the
    caller's own does so), and `metric result` and `metric reset` at the ends of epochs.
    """

    callback: str
    method: str
    first_call: int
    """Index of the block's first call."""
    calls: int
    """How many calls of the train function the block has."""
    count: int
    """How often the method ran."""
    total_s: float
    syncs: int = 0
    """Values of tensors that Python asked for."""
    sync_s: float = 0.0
    """Time until it had them."""
    saves: int = 0
    """Models, weights and checkpoints written."""
    save_s: float = 0.0
    summaries: int = 0
    summary_s: float = 0.0
    written_bytes: int = 0
    """What saving wrote to files; 0 where the platform does not count the bytes of a thread."""


@dataclass(frozen=True, slots=True)
class BoundaryEvent:
    """Something that happened between calls of the train function."""

    kind: Literal[
        "train_begin",
        "epoch_begin",
        "epoch_end",
        "epoch_done",
        "test_begin",
        "test_end",
        "train_end",
    ]
    at_s: float
    """On the same clock as the calls."""
    call: int
    """How many calls had been made by then."""


@dataclass(frozen=True, slots=True)
class ValidationRun:
    """One pass of validation inside training."""

    begin_s: float
    end_s: float
    calls: int
    in_calls_s: float
    """Time inside the test function."""
    complete: bool
    """False when the pass was cut short to keep within the budget."""
    steady_call_s: Maybe = Missing("fewer than three calls")
    wait_s: Maybe = Missing("the waits of validation were not read")
    """What a call waits for its input."""


@dataclass(frozen=True, slots=True)
class Live:
    """The job as it is, seen from inside its own loop.

    One entry a call of the train function; a call makes `steps_per_execution` steps.
    """

    start_s: tuple[float, ...]
    duration_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    """Wait for input inside the call; `nan` where the runtime did not tell."""
    traced: tuple[int, ...] = ()
    """Indices of the calls in which the step function was traced."""
    trace_s: tuple[float, ...] = ()
    """What tracing took in each of those, `nan` where it was not timed; empty where none was."""
    compiled: tuple[int, ...] = ()
    """Indices of the calls in which XLA compiled, without a trace."""
    compile_s: tuple[float, ...] = ()
    """How much longer each of those took than the step without compiling."""
    held: tuple[int, ...] = ()
    """Indices of the calls after which the recorder itself held up the loop, to look at what it has."""
    steps_per_call: int = 1
    wait_missing: str = ""
    """Why waits are not known, empty where they are."""
    callbacks: tuple[CallbackTime, ...] = ()
    events: tuple[BoundaryEvent, ...] = ()
    validations: tuple[ValidationRun, ...] = ()
    first_call_index: int = 0
    """Calls before this one were dropped to bound memory."""
    cut: str = ""
    """Why the run ended before it had enough steps, empty where it had."""
    nan_loss: bool = False
    arrival_s: tuple[float, ...] = ()
    """How long after a call's start its batch arrived, `nan` where that is not known; empty where nothing
    was stamped."""


_EAGER_OPS = 8
"""In a call. Around a graph there are some: the next batch, a value that is read."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Some calls under TensorFlow's profiler, which slows them down a little."""

    busy_s: float
    """Time in which the step's own ops ran, in all of the calls together."""
    call_s: tuple[float, ...]
    eager_ops: int = 0
    """Ops that Python had executed one by one, in all of the calls together; a whole graph counts as one."""

    @property
    def eager(self) -> bool:
        """Say whether the step is one of many such ops, and not of a few around a graph."""
        return self.eager_ops >= _EAGER_OPS * max(1, len(self.call_s))


@dataclass(frozen=True, slots=True)
class Replay:
    """One batch, kept on the device, through the same train function again and again."""

    call_s: tuple[float, ...]
    cpu_s: float
    """Processor time of the process during all calls."""
    first_call_s: float
    empty_call_s: tuple[float, ...] = ()
    """The same call with a step that does nothing: what dispatch costs."""
    paced_call_s: tuple[float, ...] = ()
    """The same calls at the pace of the job: what lies between them lets caches and threads cool down."""
    pace_s: float = 0.0
    """How long the job itself leaves between two steps' work."""
    graph_call_s: tuple[float, ...] = ()
    """The step compiled to a graph, where the job runs it eagerly."""
    graph_missing: str = ""
    steps_per_call: int = 1
    traced: Traced | Missing = Missing("no call was traced")
    arrival_s: tuple[float, ...] = ()
    """How long after a call's start its batch arrived when there was nothing to wait for, at the pace of
    the job; empty where nothing was stamped."""


@dataclass(frozen=True, slots=True)
class InputAlone:
    """The input without the model."""

    batch_s: tuple[float, ...]
    """Time for each batch in the steady state."""
    cpu_s: float
    """Processor time of the process during these batches."""
    first_batch_s: float
    """Time to the first batch: creating the iterator and filling buffers."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """The host at one moment of the live run."""

    at_s: float
    process_cpu_s: float
    system_cpu_s: float
    rss_bytes: int
    read_bytes: Maybe = Missing("the platform does not tell")
    write_bytes: Maybe = Missing("the platform does not tell")
    runnable: Maybe = Missing("the platform does not tell")
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Overhead:
    """What the diagnosis itself cost."""

    total_s: float
    phases_s: dict[str, float] = field(default_factory=dict)
    per_step_s: Maybe = Missing("not measured")
    """What the instrument adds to a step."""
    budget_s: Maybe = Missing("no budget: the caller's own training was measured")


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything that was measured, stage by stage; what was not is `Missing` with the reason."""

    environment: Environment
    job: Job
    live: Live | Missing
    replay: Replay | Missing
    input_alone: InputAlone | Missing
    pipeline: Pipeline | Missing
    overhead: Overhead
    host: tuple[HostSample, ...] = ()
    device: DeviceTrace | Missing = Missing("the device was not traced")
    gpu: GpuTelemetry | Missing = Missing("GPU telemetry is not read yet")
    placement: Placement | Missing = Missing("op placement is not read yet")
    trials: Trials = Trials(missing="suggestions are tried by diagnose only")
    machine: HostTelemetry | Missing = Missing("the host was not watched that closely")
    estimates: DeviceEstimates | Missing = Missing("nothing had to stand in for a trace")
    compute: Compute | Missing = Missing("the operations of the step are not counted yet")
    scaling: Scaling | Missing = Missing("the step was not run at several batch sizes yet")
    step_devices: StepOnDevices | Missing = Missing("the step was not run on other devices")
    model: ModelFacts | Missing = Missing("the model was not looked at")
    host_work: HostWork | Missing = Missing("callbacks were not looked at")
    compilation: Compilation | Missing = Missing("traces were not watched")
