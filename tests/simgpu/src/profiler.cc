// The profiler plug-in: hands what was recorded to tf.profiler in the form that CUPTI's tracer gives it.
#include <string.h>

#include <algorithm>
#include <map>
#include <vector>

#include "runtime.h"
#include "tensorflow/c/experimental/pluggable_profiler/pluggable_profiler.h"
#include "xplane_writer.h"

namespace simgpu {
namespace {

typedef std::vector<const Event*> Events;

std::string g_xspace;

// "Stream #13(Compute,MemcpyH2D)": what readers tell compute and copy streams apart by.
std::string line_name(int stream, const Events& events) {
  static const char* words[kKinds] = {"Compute", "MemcpyH2D", "MemcpyD2H", "MemcpyD2D", "Memset"};
  bool used[kKinds] = {};
  for (auto e : events) used[e->kind] = true;
  std::string what;
  for (int k = 0; k < kKinds; k++)
    if (used[k]) what += (what.empty() ? "" : ",") + std::string(words[k]);
  return "Stream #" + std::to_string(stream) + "(" + what + ")";
}

void write_details(XPlaneWriter& plane, const Event& e) {
  std::string size = " size:" + std::to_string(e.bytes);
  if (e.kind == kKernel) {
    plane.estat_ref("tf_op", e.op);
    plane.estat("kernel_details", "regs:32 static_shared:0 dynamic_shared:0 grid:64,1,1 block:256,1,1 occ_pct:100");
  } else if (e.kind == kMemset) {
    plane.estat("memset_details", "kind:device" + size + " async:1");
  } else {
    std::string host = e.pinned ? "pinned" : "pageable";
    std::string from = e.kind == kH2D ? host : "device", to = e.kind == kD2H ? host : "device";
    plane.estat("memcpy_details", "kind_src:" + from + " kind_dst:" + to + size + " dest:" + std::to_string(e.peer) +
                                      " async:" + (e.async ? "1" : "0"));
  }
}

void write_device(XPlaneWriter& plane, const Events& events, int64_t base) {
  plane.stat("device_vendor", "Nvidia");  // XProf takes its GPU defaults from this
  plane.stat("clock_rate", (uint64_t)1410000);
  plane.stat("core_count", (uint64_t)108);
  plane.stat("memory_bandwidth", (uint64_t)(config().mem_gbps * 1e9));
  plane.stat("memory_size", (uint64_t)(config().mem_mb * 1048576));
  plane.stat("compute_cap_major", (uint64_t)8);
  plane.stat("compute_cap_minor", (uint64_t)0);
  std::map<int, Events> streams;
  for (auto e : events) streams[e->stream].push_back(e);
  for (auto& [id, of_stream] : streams) {
    plane.line(id, line_name(id, of_stream), base);
    for (auto e : of_stream) {
      plane.event(e->name, e->t0 - base, e->t1 - e->t0);
      plane.estat("correlation_id", e->correlation);
      plane.estat("context_id", "$$1");
      if (!e->note.empty()) plane.estat("annotation", e->note);
      write_details(plane, *e);
    }
  }
}

// The host's side of the launches, by thread.
void write_launches(XPlaneWriter& plane, const std::vector<Event>& events, int64_t base) {
  std::map<int64_t, Events> threads;
  for (auto& e : events) threads[e.tid].push_back(&e);
  for (auto& [thread, calls] : threads) {
    plane.line(thread, "simgpu/" + std::to_string(thread), base);
    for (auto e : calls) {
      plane.event(e->name, e->api0 - base, e->api1 - e->api0);
      plane.estat("correlation_id", e->correlation);
      plane.estat("context_id", "$$1");
    }
  }
}

std::string xspace_of(const std::vector<Event>& events) {
  int64_t base = events.empty() ? now_ns() : INT64_MAX;
  for (auto& e : events) base = std::min({base, e.api0, e.t0});
  XSpaceWriter space;
  for (int d = 0; d < (int)visible_devices().size(); d++) {
    Events of_device;
    for (auto& e : events)
      if (e.device == d) of_device.push_back(&e);
    XPlaneWriter plane("/device:GPU:" + std::to_string(d), d);
    write_device(plane, of_device, base);
    space.add(plane);
  }
  XPlaneWriter host("/host:CUPTI", 1000);
  write_launches(host, events, base);
  space.add(host);
  return space.str();
}

void start(const TP_Profiler*, TF_Status* status) {
  g_xspace.clear();
  start_recording();
  succeed(status);
}

void stop(const TP_Profiler*, TF_Status* status) {
  drain_all_streams();  // as CUPTI does: activity is flushed before it is read
  g_xspace = xspace_of(stop_recording());
  succeed(status);
}

// Called twice: for the size, then for the bytes.
void collect(const TP_Profiler*, uint8_t* buffer, size_t* size, TF_Status* status) {
  if (!buffer) {
    *size = g_xspace.size();
  } else {
    memcpy(buffer, g_xspace.data(), std::min(*size, g_xspace.size()));
    g_xspace.clear();
  }
  succeed(status);
}

}  // namespace
}  // namespace simgpu

extern "C" __attribute__((visibility("default"))) void TF_InitProfiler(TF_ProfilerRegistrationParams* params,
                                                                       TF_Status* status) {
  params->struct_size = TF_PROFILER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->profiler->struct_size = TP_PROFILER_STRUCT_SIZE;
  params->profiler->device_type = "GPU";
  params->profiler_fns->struct_size = TP_PROFILER_FNS_STRUCT_SIZE;
  params->profiler_fns->start = simgpu::start;
  params->profiler_fns->stop = simgpu::stop;
  params->profiler_fns->collect_data_xspace = simgpu::collect;
  params->destroy_profiler = [](TP_Profiler*) {};
  params->destroy_profiler_fns = [](TP_ProfilerFns*) {};
  simgpu::succeed(status);
}
