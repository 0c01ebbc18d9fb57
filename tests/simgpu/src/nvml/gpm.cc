// GPU performance monitoring: metrics between two samples, on Hopper and later (here: with SIMGPU_NVML_GPM=1).
#include <math.h>

#include <algorithm>

#include "nvml.h"

namespace simgpu {
struct GpmSample {
  int64_t time = 0;
  int device = -1;
  Recent totals;
};
}  // namespace simgpu

using namespace simgpu;

namespace {

struct Metric {
  unsigned id;
  const char *name, *unit;
  double (*value)(const GpmSample& a, const GpmSample& b, double ns);
};

double busy(const GpmSample& a, const GpmSample& b, double ns) {
  return std::min(100., 100 * (b.totals.busy_ns - a.totals.busy_ns) / ns);
}
template <Flow F>
double mib_per_s(const GpmSample& a, const GpmSample& b, double ns) {
  return (b.totals.bytes[F] - a.totals.bytes[F]) / 1048576. / (ns / 1e9);
}

const Metric kMetrics[] = {
    {1, "GRAPHICS_UTIL", "%", busy},
    {2, "SM_UTIL", "%", busy},
    {3, "SM_OCCUPANCY", "%", [](auto& a, auto& b, double ns) { return 0.5 * busy(a, b, ns); }},
    {5, "ANY_TENSOR_UTIL", "%", [](auto&, auto&, double) { return 0.; }},  // the simulated GPU has no tensor cores
    {10, "DRAM_BW_UTIL", "%",
     [](auto& a, auto& b, double ns) { return std::min(100., 100 * (b.totals.memory_ns - a.totals.memory_ns) / ns); }},
    {12, "FP32_UTIL", "%", [](auto& a, auto& b, double ns) { return 0.5 * busy(a, b, ns); }},
    {20, "PCIE_TX_PER_SEC", "MiB/s", mib_per_s<kFromDevice>},
    {21, "PCIE_RX_PER_SEC", "MiB/s", mib_per_s<kToDevice>},
    {60, "NVLINK_TOTAL_RX_PER_SEC", "MiB/s", mib_per_s<kBetween>},
    {61, "NVLINK_TOTAL_TX_PER_SEC", "MiB/s", mib_per_s<kBetween>},
};

}  // namespace

NVML_API nvmlGpmQueryDeviceSupport(Gpu* d, GpmSupport* support) {
  ENTER(d);
  if (support->version != 1) return kVersionOfArgument;
  return support->supported = reading(*d, "GPM", 0) != 0, kOk;
}
NVML_API nvmlGpmSampleAlloc(GpmSample** sample) {
  ENTER();
  return *sample = new GpmSample, kOk;
}
NVML_API nvmlGpmSampleFree(GpmSample* sample) {
  ENTER();
  return delete sample, kOk;
}
NVML_API nvmlGpmSampleGet(Gpu* d, GpmSample* sample) {
  ENTER(d);
  if (!reading(*d, "GPM", 0)) return kNotSupported;
  sample->time = now_ns(), sample->device = d->index, sample->totals = since_start(d->index);
  return kOk;
}
NVML_API nvmlGpmMigSampleGet(Gpu* d, unsigned, GpmSample* sample) { return nvmlGpmSampleGet(d, sample); }

NVML_API nvmlGpmMetricsGet(GpmMetricsGet* get) {
  ENTER();
  const GpmSample *a = get->first, *b = get->second;
  if (!a || !b || a->device < 0 || a->device != b->device || b->time <= a->time) return kInvalidArgument;
  for (unsigned i = 0; i < get->count; i++) {
    GpmMetric& m = get->metrics[i];
    m.result = kNotSupported, m.value = NAN;
    for (auto& known : kMetrics) {
      if (known.id != m.id) continue;
      m.short_name = m.long_name = known.name, m.unit = known.unit;
      m.value = known.value(*a, *b, (double)(b->time - a->time)), m.result = kOk;
    }
  }
  return kOk;
}
