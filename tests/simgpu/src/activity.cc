#include "activity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace simgpu {
namespace {

Bin& bin_at(DeviceActivity& device, int64_t number) {
  Bin& bin = device.bins[number % kBins];
  int64_t old = bin.number.load();
  // Whoever turns the ring over clears the bin; a neighbour's few nanoseconds may get lost then, which NVML's
  // whole percents do not show.
  if (old != number && bin.number.compare_exchange_strong(old, number)) {
    bin.busy_ns = 0, bin.memory_ns = 0;
    for (auto& bytes : bin.bytes) bytes = 0;
  }
  return bin;
}

// Calls f(bin, share) for every bin that the interval touches.
template <class F>
void spread(DeviceActivity& device, int64_t t0, int64_t t1, F f) {
  double length = std::max<int64_t>(1, t1 - t0);
  int64_t first = std::max(t0 / kBinNs, t1 / kBinNs - kBins + 1);
  for (int64_t n = first; n <= t1 / kBinNs; n++) {
    int64_t part = std::min(t1, (n + 1) * kBinNs) - std::max(t0, n * kBinNs);
    f(bin_at(device, n), std::max<int64_t>(part, t0 == t1) / length);
  }
}

}  // namespace

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

Activity* shared_activity() {
  static Activity* mapped = [] {
    const char* path = getenv("SIMGPU_STATE");
    int fd = path && *path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    // A new file is zeros, and zeros are a valid state: no header to write, no race to lose.
    if (fd >= 0 && ftruncate(fd, sizeof(Activity))) close(fd), fd = -1;
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* p = mmap(nullptr, sizeof(Activity), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return static_cast<Activity*>(p);
  }();
  return mapped;
}

bool alive(const ProcessActivity& process) {
  int32_t pid = process.pid;
  return pid && (kill(pid, 0) == 0 || errno == EPERM);
}

ProcessActivity& own_activity() {
  static ProcessActivity& own = []() -> ProcessActivity& {
    Activity* all = shared_activity();
    for (auto& process : all->processes) {
      int32_t old = process.pid;
      if ((old == 0 || !alive(process)) && process.pid.compare_exchange_strong(old, getpid())) {
        memset(static_cast<void*>(process.devices), 0, sizeof process.devices);  // what a dead process left
        return process;
      }
    }
    static ProcessActivity unseen;  // more processes than slots: the rest work, but NVML does not see them
    return unseen;
  }();
  return own;
}

void add_kernel(DeviceActivity& device, int64_t t0, int64_t t1, int64_t memory_ns) {
  device.running_since = 0;
  device.busy_ns += t1 - t0, device.memory_ns += memory_ns;
  spread(device, t0, t1, [&](Bin& bin, double share) {
    bin.busy_ns += (int64_t)(share * (t1 - t0)), bin.memory_ns += (int64_t)(share * memory_ns);
  });
}

void add_copy(DeviceActivity& device, Flow flow, int64_t t0, int64_t t1, int64_t bytes) {
  device.bytes[flow] += bytes;
  spread(device, t0, t1, [&](Bin& bin, double share) { bin.bytes[flow] += (int64_t)(share * bytes); });
}

Recent recent(int device, int64_t window, const ProcessActivity* only) {
  Recent sum;
  int64_t now = now_ns(), last = now / kBinNs, first = std::max((now - window) / kBinNs, last - kBins + 1);
  for (auto& process : shared_activity()->processes) {
    if ((only && only != &process) || !alive(process)) continue;
    DeviceActivity& d = process.devices[device];
    sum.used_bytes += d.used_bytes;
    int64_t since = d.running_since;
    if (since) sum.busy_ns += now - std::max(since, now - window);
    for (int64_t n = first; n <= last; n++) {
      Bin& bin = d.bins[n % kBins];
      if (bin.number != n) continue;
      sum.busy_ns += std::min<int64_t>(bin.busy_ns, kBinNs), sum.memory_ns += bin.memory_ns;
      for (int f = 0; f < kFlows; f++) sum.bytes[f] += bin.bytes[f];
    }
  }
  sum.busy_ns = std::min(sum.busy_ns, window), sum.memory_ns = std::min(sum.memory_ns, window);
  return sum;
}

Recent since_start(int device) {
  Recent sum;
  for (auto& process : shared_activity()->processes) {
    if (!alive(process)) continue;
    DeviceActivity& d = process.devices[device];
    int64_t since = d.running_since;
    sum.used_bytes += d.used_bytes, sum.memory_ns += d.memory_ns;
    sum.busy_ns += d.busy_ns + (since ? now_ns() - since : 0);
    for (int f = 0; f < kFlows; f++) sum.bytes[f] += d.bytes[f];
  }
  return sum;
}

}  // namespace simgpu
