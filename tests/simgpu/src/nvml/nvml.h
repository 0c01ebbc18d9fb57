// NVML's C interface, as far as monitors use it: types and return codes of nvml.h, under our own names.
//
// A test compares the sizes of the structures with those that pynvml declares.
#pragma once
#include <stdint.h>

#include <string>

#include "../activity.h"

namespace simgpu {

enum Return {
  kOk = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kVersionMismatch = 18,
  kVersionOfArgument = 25,
};

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Bar1 {
  unsigned long long total, free, used;
};
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
struct ProcessSample {
  unsigned pid;
  unsigned long long time;
  unsigned sm, memory, encoder, decoder;
};
struct ProcessUtilization {
  unsigned long long time;
  unsigned pid, sm, memory, encoder, decoder, jpeg, flow;
};
struct ProcessesUtilization {
  unsigned version, count;
  unsigned long long last_seen;
  ProcessUtilization* samples;
};
union Value {
  double d;
  unsigned u;
  unsigned long ul;
  unsigned long long ull;
  long long sll;
  int si;
  unsigned short us;
};
enum ValueType { kDouble, kUnsigned, kUnsignedLong, kUnsignedLongLong };
struct Sample {
  unsigned long long time;
  Value value;
};
struct FieldValue {
  unsigned field, scope;
  long long time, latency_us;
  unsigned type, result;
  Value value;
};
struct EccCounts {
  unsigned long long l1, l2, memory, registers;
};
struct ViolationTime {
  unsigned long long reference, violation;
};
struct Attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, flows, gpu_slices, compute_slices;
  unsigned long long memory_mb;
};
struct TemperatureV1 {
  unsigned version, sensor;
  int temperature;
};
struct DriverBranch {
  unsigned version;
  char branch[80];
};
struct GpmMetric {
  unsigned id, result;
  double value;
  const char *short_name, *long_name, *unit;
};
struct GpmMetricsGet {
  unsigned version, count;
  struct GpmSample *first, *second;
  GpmMetric metrics[1];  // as many as `count` says
};
struct GpmSupport {
  unsigned version, supported;
};

// A GPU, or a MIG slice of one: what an nvmlDevice_t points to.
struct Gpu {
  int index;  // in the machine; NVML does not care for CUDA_VISIBLE_DEVICES
  int slice;  // -1: the whole GPU
};
Gpu* gpu(int index, int slice = -1);
int slices();  // MIG slices of each GPU; 0: MIG is off

// A reading that the environment may set: SIMGPU_NVML_<name>_<index of the GPU>, or SIMGPU_NVML_<name> for all.
double reading(const Gpu&, const char* name, double otherwise);
std::string text_reading(const Gpu*, const char* name, const std::string& otherwise);

// NVML's own looking back: the last sixth of a second.
constexpr int64_t kSamplePeriod = 1000000000 / 6;

// A process on a GPU: one that runs here, or one that SIMGPU_NVML_PROCESSES makes up ("pid:MB:percent[:gpu],...").
struct Process {
  unsigned pid;
  int64_t used_bytes;
  double busy, memory;  // shares of the sample period
};
int processes(const Gpu&, Process* list, int room);

// What the GPU does now, all processes together.
struct Load {
  double busy = 0, memory = 0;  // shares of the sample period
  int64_t used_bytes = 0, reserved_bytes = 0, total_bytes = 0;
};
Load load(const Gpu&);

// Every function starts with this: it counts the call, takes its time, and fails where a fault is due.
struct Enter {
  const char* function;
  Return operator()() const;
  Return operator()(const Gpu* device) const;
};

#define NVML_API extern "C" __attribute__((visibility("default"))) simgpu::Return
#define ENTER(...)                                                 \
  do {                                                             \
    simgpu::Return failed_ = simgpu::Enter{__func__}(__VA_ARGS__); \
    if (failed_) return failed_;                                   \
  } while (0)

// Hands out an array the way NVML does: too little room says how much is needed.
template <class T>
Return hand_out(const T* items, unsigned n, unsigned* room, T* to) {
  bool fits = to && *room >= n;
  *room = n;
  if (n && !fits) return kInsufficientSize;
  for (unsigned i = 0; i < n; i++) to[i] = items[i];
  return kOk;
}

inline Return hand_out(const std::string& text, char* to, unsigned room) {
  if (text.size() >= room) return kInsufficientSize;
  to[text.copy(to, room)] = 0;
  return kOk;
}

}  // namespace simgpu
