// What the GPUs did lately, in memory shared between processes: the device library writes, NVML reads.
//
// As on a real machine the reader may be another process, and one that never loaded TensorFlow. The memory is the file
// that SIMGPU_STATE names; without one NVML sees idle GPUs.
#pragma once
#include <stdint.h>

#include <atomic>

#include "config.h"

namespace simgpu {

constexpr int kMaxProcesses = 16;
constexpr int kBins = 128;                // a ring of ...
constexpr int64_t kBinNs = 10 * 1000000;  // ... 10 ms each: NVML looks back a second at most

enum Flow { kToDevice, kFromDevice, kBetween, kFlows };  // H2D, D2H, copies to another GPU

struct Bin {
  std::atomic<int64_t> number;  // time / kBinNs that the bin stands for now
  std::atomic<int64_t> busy_ns, memory_ns, bytes[kFlows];
};

// One GPU as used by one process. Totals since the process started, and the last second in detail.
struct DeviceActivity {
  std::atomic<int64_t> used_bytes;
  std::atomic<int64_t> running_since;  // start of the kernel that is running now, or 0
  std::atomic<int64_t> busy_ns, memory_ns, bytes[kFlows];
  Bin bins[kBins];
};

struct ProcessActivity {
  std::atomic<int32_t> pid;
  DeviceActivity devices[kMaxDevices];
};

struct Activity {
  ProcessActivity processes[kMaxProcesses];
};

Activity* shared_activity();      // maps the file; private memory where there is none
ProcessActivity& own_activity();  // this process's slot, taken on first use
int64_t now_ns();                 // CLOCK_REALTIME, the profiler's time base

void add_kernel(DeviceActivity&, int64_t t0, int64_t t1, int64_t memory_ns);
void add_copy(DeviceActivity&, Flow, int64_t t0, int64_t t1, int64_t bytes);

// Sums over the last `window` ns; `process` selects one, null all living ones.
struct Recent {
  int64_t busy_ns = 0, memory_ns = 0, bytes[kFlows] = {}, used_bytes = 0;
};
Recent recent(int device, int64_t window, const ProcessActivity* process = nullptr);
Recent since_start(int device);
bool alive(const ProcessActivity&);

}  // namespace simgpu
