#include "truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <map>
#include <mutex>

#include "activity.h"
#include "runtime.h"

namespace simgpu {
namespace {

std::mutex g_mutex;
Counters g_counters;
std::map<std::string, std::pair<int64_t, int64_t>> g_by_op;  // number, ns
std::vector<Event> g_recorded;
std::atomic<bool> g_recording{false};
std::atomic<uint64_t> g_correlation{1};

// The log that SIMGPU_LOG names. Writing happens on the stream's thread, between two kernels, so lines are collected
// and written in blocks; a process that crashes loses the last block at most.
class Log {
  FILE* file_ = nullptr;
  int64_t flushed_ = 0;

 public:
  Log() {
    const char* path = getenv("SIMGPU_LOG");
    if (path && *path) file_ = fopen(path, "w");
    if (!file_) return;
    setvbuf(file_, nullptr, _IOFBF, 1 << 18);
    fputs("kind,device,stream,name,op,api0,api1,t0,t1,bytes,correlation,tid,pinned,async,overrun,peer\n", file_);
    fflush(file_);
  }
  void write(const Event& e) {
    static const char* kinds[kKinds] = {"kernel", "h2d", "d2h", "d2d", "memset"};
    if (!file_) return;
    fprintf(file_, "%s,%d,%d,%s,\"%s\",%ld,%ld,%ld,%ld,%lu,%lu,%ld,%d,%d,%d,%d\n", kinds[e.kind], e.device, e.stream,
            e.name.c_str(), e.op.c_str(), e.api0, e.api1, e.t0, e.t1, e.bytes, e.correlation, e.tid, e.pinned, e.async,
            e.overrun, e.peer);
    if (e.t1 - flushed_ > 200000000) flush(e.t1);
  }
  void mark(const char* name, int64_t now) {
    if (file_)
      fprintf(file_, "mark,0,-1,\"%s\",,%ld,%ld,%ld,%ld,0,0,0,0,0,0,0\n", name, now, now, now, now), flush(now);
  }
  void flush(int64_t now) {
    if (file_) fflush(file_);
    flushed_ = now;
  }
};

// Never destroyed: streams may still run when static objects go. Open files are flushed at exit anyway.
Log& log() {
  static Log& l = *new Log;
  return l;
}

void count(const Event& e) {
  Counters& c = g_counters;
  int64_t ns = e.t1 - e.t0;
  switch (e.kind) {
    case kKernel:
      c.kernels++, c.kernel_ns += ns;
      break;
    case kH2D:
      c.h2d++, c.h2d_bytes += e.bytes, c.copy_ns += ns, c.pageable_h2d += !e.pinned;
      break;
    case kD2H:
      c.d2h++, c.d2h_bytes += e.bytes, c.copy_ns += ns;
      break;
    case kD2D:
      c.d2d++, c.d2d_bytes += e.bytes;
      break;
    default:
      c.memsets++;
  }
  c.overruns += e.overrun;
  auto& sum = g_by_op[e.name];
  sum.first++, sum.second += ns;
}

void tell_nvml(const Event& e) {
  DeviceActivity& d = own_activity().devices[physical_device(e.device)];
  if (e.kind == kKernel) add_kernel(d, e.t0, e.t1, std::min<int64_t>(e.t1 - e.t0, e.bytes / config().mem_gbps));
  if (e.kind == kH2D) add_copy(d, kToDevice, e.t0, e.t1, e.bytes);
  if (e.kind == kD2H) add_copy(d, kFromDevice, e.t0, e.t1, e.bytes);
  if (e.kind == kD2D && e.peer != e.device) {
    add_copy(d, kBetween, e.t0, e.t1, e.bytes);
    add_copy(own_activity().devices[physical_device(e.peer)], kBetween, e.t0, e.t1, e.bytes);
  }
}

}  // namespace

uint64_t next_correlation() { return g_correlation++; }

void record(Event e) {
  tell_nvml(e);
  std::lock_guard<std::mutex> lock(g_mutex);
  count(e);
  log().write(e);
  if (g_recording) g_recorded.push_back(std::move(e));
}

void start_recording() {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_recorded.clear();
  g_recording = true;
  annotations(true);
}

std::vector<Event> stop_recording() {
  std::vector<Event> events;
  std::lock_guard<std::mutex> lock(g_mutex);
  g_recording = false;
  annotations(false);
  events.swap(g_recorded);
  return events;
}

std::string annotate() { return g_recording ? annotation() : std::string(); }

}  // namespace simgpu

// For tests, through ctypes.
extern "C" {
__attribute__((visibility("default"))) void simgpu_counters(simgpu::Counters* out, int reset) {
  std::lock_guard<std::mutex> lock(simgpu::g_mutex);
  *out = simgpu::g_counters;
  if (reset) simgpu::g_counters = {}, simgpu::g_by_op.clear();
}

// Lines "kernel number ns". Returns the length; call again with a larger buffer where that is not less than `size`.
__attribute__((visibility("default"))) int simgpu_by_op(char* buffer, int size) {
  std::lock_guard<std::mutex> lock(simgpu::g_mutex);
  std::string text;
  for (auto& [name, sum] : simgpu::g_by_op)
    text += name + " " + std::to_string(sum.first) + " " + std::to_string(sum.second) + "\n";
  snprintf(buffer, size, "%s", text.c_str());
  return (int)text.size();
}

// A named moment in the log: where a scenario's warm-up ends, where a step starts.
__attribute__((visibility("default"))) void simgpu_mark(const char* name) {
  std::lock_guard<std::mutex> lock(simgpu::g_mutex);
  simgpu::log().mark(name, simgpu::now_ns());
}

__attribute__((visibility("default"))) void simgpu_flush() {
  std::lock_guard<std::mutex> lock(simgpu::g_mutex);
  simgpu::log().flush(simgpu::now_ns());
}
}
