"""Facts about the machine and the software."""

from __future__ import annotations

import datetime as dt
import platform

from tfdiag.compat import host, keras, tensorflow
from tfdiag.model.measurements import Device, Environment
from tfdiag.version import __version__

__all__ = ["read_environment"]


def read_environment(model: object) -> Environment:
    """Read what the job runs on."""
    intra, inter = tensorflow.thread_settings()
    return Environment(
        tfdiag=__version__,
        python=platform.python_version(),
        # Not `platform.platform()`: a kernel's release names the machine more than it explains a step.
        platform=f"{platform.system()} {platform.machine()}",
        tensorflow=tensorflow.version(),
        keras=keras.version(model),
        cores=host.cores(),
        memory_bytes=host.memory_bytes(),
        devices=tuple(Device(*device) for device in tensorflow.device_list()),
        cpu_quota=host.cpu_quota(),
        intra_op_threads=intra,
        inter_op_threads=inter,
        date=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    )
