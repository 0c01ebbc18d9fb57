// Work that the device does: kernels, copies and fills, each for as long as a GPU would take.
#include <string.h>
#include <time.h>

#include <algorithm>

#include "runtime.h"
#include "stream.h"

namespace simgpu {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int64_t own_thread() {
  static thread_local int64_t id = thread_id();
  return id;
}

Event begin(Kind kind, int device, SP_Stream stream, const char* name, uint64_t bytes) {
  Event e;
  e.kind = kind, e.device = e.peer = device, e.stream = stream ? stream->id : -1, e.name = name, e.note = annotate();
  e.api0 = now_ns(), e.bytes = bytes, e.correlation = next_correlation(), e.tid = own_thread();
  e.async = stream != nullptr;
  return e;
}

// Runs `body` as the device's work of `ns`, now, on the calling thread.
template <class F>
void perform(Event e, double ns, F body) {
  e.t0 = now_ns();
  auto& running = own_activity().devices[physical_device(e.device)].running_since;
  if (e.kind == kKernel) running = e.t0;
  body();
  int64_t end = e.t0 + (int64_t)ns;
  e.overrun = now_ns() > end;
  if (config().wait) hold_until(end);
  e.t1 = now_ns();
  if (!e.async) e.api1 = e.t1;
  record(std::move(e));
}

template <class F>
void enqueue(Event e, SP_Stream stream, double host_ns, double ns, F body) {
  spin_ns((int64_t)(config().launch_us * 1e3 + host_ns));
  e.api1 = now_ns();
  stream->push([e = std::move(e), ns, body = std::move(body)]() mutable { perform(std::move(e), ns, body); });
}

double copy_ns(Kind kind, uint64_t size, bool pinned) {
  const Config& c = config();
  if (kind == kD2D) return c.kernel_us * 1e3 + size / c.d2d_gbps;
  double gbps = kind == kH2D ? c.h2d_gbps : c.d2h_gbps;
  if (!pinned) gbps = std::min(gbps, c.pageable_gbps);
  return c.copy_us * 1e3 + size / gbps;
}

void copy(Kind kind, int device, SP_Stream stream, void* to, const void* from, uint64_t size) {
  static const char* names[] = {"", "MemcpyH2D", "MemcpyD2H", "MemcpyD2D"};
  const void* host = kind == kH2D ? from : kind == kD2H ? to : nullptr;
  Event e = begin(kind, device, stream, names[kind], size);
  e.pinned = host && is_pinned(host);
  e.peer = kind == kD2D ? device_of(to) : device;
  double ns = copy_ns(kind, size, e.pinned);
  to = backing(to), from = backing(from);
  auto body = [to, from, size] { memcpy(to, from, size); };
  if (!stream) return perform(std::move(e), ns, body);
  // An "asynchronous" copy from pageable memory holds its caller while the driver stages the bytes in page-locked
  // memory: it is why pageable copies hide behind nothing.
  double staging = kind == kH2D && !e.pinned ? size / config().stage_gbps : 0;
  enqueue(std::move(e), stream, staging, ns, body);
}

void fill(SP_Stream stream, uint64_t size, std::function<void()> body) {
  Event e = begin(kMemset, stream->device, stream, "Memset", size);
  enqueue(std::move(e), stream, 0, config().kernel_us * 1e3 + size / config().mem_gbps, std::move(body));
}

void copy_to_host(const SP_Device* d, SP_Stream s, void* host, const SP_DeviceMemoryBase* memory, uint64_t n,
                  TF_Status* status) {
  copy(kD2H, d->ordinal, s, host, memory->opaque, n);
  succeed(status);
}

void copy_to_device(const SP_Device* d, SP_Stream s, SP_DeviceMemoryBase* memory, const void* host, uint64_t n,
                    TF_Status* status) {
  copy(kH2D, d->ordinal, s, memory->opaque, host, n);
  succeed(status);
}

void copy_on_device(const SP_Device* d, SP_Stream s, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                    uint64_t n, TF_Status* status) {
  copy(kD2D, d->ordinal, s, to->opaque, from->opaque, n);
  succeed(status);
}

void zero(const SP_Device*, SP_Stream s, SP_DeviceMemoryBase* memory, uint64_t n, TF_Status* status) {
  void* p = backing(memory->opaque);
  fill(s, n, [=] { memset(p, 0, n); });
  succeed(status);
}

void set_bytes(const SP_Device*, SP_Stream s, SP_DeviceMemoryBase* memory, uint8_t value, uint64_t n,
               TF_Status* status) {
  void* p = backing(memory->opaque);
  fill(s, n, [=] { memset(p, value, n); });
  succeed(status);
}

void set_words(const SP_Device*, SP_Stream s, SP_DeviceMemoryBase* memory, uint32_t value, uint64_t n,
               TF_Status* status) {
  auto* p = static_cast<uint32_t*>(backing(memory->opaque));
  fill(s, n, [=] { std::fill_n(p, n / 4, value); });
  succeed(status);
}

}  // namespace

void hold_until(int64_t t) {
  constexpr int64_t kTooShort = 120000, kMargin = 80000;  // what a sleep may overshoot on a busy machine
  for (int64_t left; (left = t - now_ns()) > 0;) {
    if (left <= kTooShort) {
      pause();
    } else {
      timespec time = {(left - kMargin) / 1000000000, (left - kMargin) % 1000000000};
      nanosleep(&time, nullptr);
    }
  }
}

void spin_ns(int64_t ns) {
  for (int64_t end = now_ns() + ns; now_ns() < end;) pause();
}

void launch(SP_Stream stream, const char* kernel, const std::string& node, const char* op, double flops, double bytes,
            std::function<void()> body) {
  const Config& c = config();
  Event e = begin(kKernel, stream->device, stream, kernel, (uint64_t)bytes);
  e.op = node + ":" + op;
  double ns = std::max({c.kernel_us * 1e3, flops / c.gflops, bytes / c.mem_gbps});
  // Small results steer control flow and initialisation: those are always computed.
  bool skip = !c.compute && bytes > 4096;
  enqueue(std::move(e), stream, 0, ns, skip ? std::function<void()>([] {}) : std::move(body));
}

void fill_copy_functions(SP_StreamExecutor* x) {
  x->memcpy_dtoh = copy_to_host;
  x->memcpy_htod = copy_to_device;
  x->memcpy_dtod = copy_on_device;
  x->sync_memcpy_dtoh = [](const SP_Device* d, void* host, const SP_DeviceMemoryBase* m, uint64_t n, TF_Status* s) {
    copy_to_host(d, nullptr, host, m, n, s);
  };
  x->sync_memcpy_htod = [](const SP_Device* d, SP_DeviceMemoryBase* m, const void* host, uint64_t n, TF_Status* s) {
    copy_to_device(d, nullptr, m, host, n, s);
  };
  x->sync_memcpy_dtod = [](const SP_Device* d, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from, uint64_t n,
                           TF_Status* s) { copy_on_device(d, nullptr, to, from, n, s); };
  x->mem_zero = zero;
  x->memset = set_bytes;
  x->memset32 = set_words;
}

}  // namespace simgpu
