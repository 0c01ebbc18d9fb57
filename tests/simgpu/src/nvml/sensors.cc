// Readings of one GPU: use, memory, clocks, power, heat, errors.
#include <string.h>

#include <algorithm>

#include "nvml.h"

using namespace simgpu;

namespace {

enum Clock { kGraphics, kSm, kMem, kVideo, kClocks };
constexpr unsigned long long kReasonIdle = 1;

unsigned long long reasons(const Gpu& d) {
  auto set = (unsigned long long)reading(d, "THROTTLE", 0);
  return set ? set : load(d).busy > 0 ? 0 : kReasonIdle;
}
unsigned max_clock(const Gpu& d, unsigned clock) {
  return clock == kMem ? (unsigned)reading(d, "MAX_MEM_MHZ", 1215) : (unsigned)reading(d, "MAX_SM_MHZ", 1410);
}
// Full speed while something runs, less when throttled, and a crawl when idle.
unsigned clock_now(const Gpu& d, unsigned clock) {
  unsigned most = max_clock(d, clock);
  if (clock == kMem) return (unsigned)reading(d, "MEM_MHZ", most);
  unsigned long long why = reasons(d);
  return (unsigned)reading(d, "SM_MHZ", why == kReasonIdle ? 210 : why ? most * 6 / 10 : most);
}
double power_limit(const Gpu& d) { return reading(d, "POWER_LIMIT_W", 400); }
double power(const Gpu& d) {
  double idle = power_limit(d) * 0.15;
  return reading(d, "POWER_W", idle + load(d).busy * (power_limit(d) * 0.85 - idle));
}
int temperature(const Gpu& d) { return (int)reading(d, "TEMPERATURE_C", 36 + 36 * load(d).busy); }
unsigned long long energy_mj(const Gpu& d) {
  double idle = power_limit(d) * 0.15, seconds = now_ns() % 1000000000000000 / 1e9;
  return (unsigned long long)(1e3 * (idle * seconds + power_limit(d) * 0.7 * since_start(d.index).busy_ns / 1e9));
}
bool mig_hides(const Gpu&) { return slices() > 0; }  // with MIG on, the GPU as a whole has no utilisation

}  // namespace

// ---- use and memory -----------------------------------------------------------------------------------------------

NVML_API nvmlDeviceGetUtilizationRates(Gpu* d, Utilization* u) {
  ENTER(d);
  if (mig_hides(*d)) return kNotSupported;
  Load l = load(*d);
  return *u = {(unsigned)(100 * l.busy + 0.5), (unsigned)(100 * l.memory + 0.5)}, kOk;
}
NVML_API nvmlDeviceGetEncoderUtilization(Gpu* d, unsigned* percent, unsigned* period_us) {
  ENTER(d);
  return *percent = 0, *period_us = kSamplePeriod / 1000, kOk;
}
NVML_API nvmlDeviceGetDecoderUtilization(Gpu* d, unsigned* percent, unsigned* period_us) {
  ENTER(d);
  return *percent = 0, *period_us = kSamplePeriod / 1000, kOk;
}
NVML_API nvmlDeviceGetMemoryInfo(Gpu* d, Memory* m) {
  ENTER(d);
  Load l = load(*d);
  m->total = l.total_bytes;
  m->used = std::min(l.total_bytes, l.used_bytes + l.reserved_bytes);
  return m->free = m->total - m->used, kOk;
}
NVML_API nvmlDeviceGetMemoryInfo_v2(Gpu* d, MemoryV2* m) {
  ENTER(d);
  if (m->version != (2u << 24 | sizeof *m)) return kVersionOfArgument;
  Load l = load(*d);
  m->total = l.total_bytes, m->reserved = l.reserved_bytes;
  m->used = std::min(l.total_bytes - l.reserved_bytes, l.used_bytes);
  return m->free = m->total - m->reserved - m->used, kOk;
}
NVML_API nvmlDeviceGetBAR1MemoryInfo(Gpu* d, Bar1* m) {
  ENTER(d);
  m->total = 1ull << 36, m->used = 4 << 20;
  return m->free = m->total - m->used, kOk;
}

// The ring of recent samples: utilisation, power and clocks, newest last. One a sample period.
NVML_API nvmlDeviceGetSamples(Gpu* d, unsigned what, unsigned long long last_seen_us, unsigned* type, unsigned* count,
                              Sample* to) {
  ENTER(d);
  double value;
  if (what == 0)
    value = power(*d) * 1000;
  else if (what == 1)
    value = 100 * load(*d).busy;
  else if (what == 2)
    value = 100 * load(*d).memory;
  else if (what == 5)
    value = clock_now(*d, kSm);
  else if (what == 6)
    value = clock_now(*d, kMem);
  else
    return kNotSupported;
  if (what <= 2 && what > 0 && mig_hides(*d)) return kNotSupported;
  *type = kUnsigned;
  unsigned long long now = now_ns() / 1000;
  if (now <= last_seen_us) return kNotFound;
  Sample sample = {now, {}};
  sample.value.u = (unsigned)value;
  if (!to) return *count = 1, kOk;
  return hand_out(&sample, 1, count, to);
}

// ---- clocks, power, heat ------------------------------------------------------------------------------------------

NVML_API nvmlDeviceGetClockInfo(Gpu* d, unsigned clock, unsigned* mhz) {
  ENTER(d);
  if (clock >= kClocks) return kInvalidArgument;
  return *mhz = clock_now(*d, clock), kOk;
}
NVML_API nvmlDeviceGetMaxClockInfo(Gpu* d, unsigned clock, unsigned* mhz) {
  ENTER(d);
  if (clock >= kClocks) return kInvalidArgument;
  return *mhz = max_clock(*d, clock), kOk;
}
NVML_API nvmlDeviceGetClock(Gpu* d, unsigned clock, unsigned which, unsigned* mhz) {
  ENTER(d);
  if (clock >= kClocks) return kInvalidArgument;
  return *mhz = which == 0 ? clock_now(*d, clock) : max_clock(*d, clock), kOk;
}
NVML_API nvmlDeviceGetApplicationsClock(Gpu* d, unsigned clock, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(d, clock, mhz);
}
NVML_API nvmlDeviceGetDefaultApplicationsClock(Gpu* d, unsigned clock, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(d, clock, mhz);
}
NVML_API nvmlDeviceGetMaxCustomerBoostClock(Gpu* d, unsigned clock, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(d, clock, mhz);
}
NVML_API nvmlDeviceGetSupportedMemoryClocks(Gpu* d, unsigned* count, unsigned* mhz) {
  ENTER(d);
  unsigned clocks[] = {max_clock(*d, kMem)};
  return hand_out(clocks, 1, count, mhz);
}
NVML_API nvmlDeviceGetSupportedGraphicsClocks(Gpu* d, unsigned, unsigned* count, unsigned* mhz) {
  ENTER(d);
  unsigned clocks[] = {max_clock(*d, kSm), max_clock(*d, kSm) / 2, 210};
  return hand_out(clocks, 3, count, mhz);
}
NVML_API nvmlDeviceGetCurrentClocksThrottleReasons(Gpu* d, unsigned long long* why) {
  ENTER(d);
  return *why = reasons(*d), kOk;
}
NVML_API nvmlDeviceGetCurrentClocksEventReasons(Gpu* d, unsigned long long* why) {
  ENTER(d);
  return *why = reasons(*d), kOk;
}
NVML_API nvmlDeviceGetSupportedClocksThrottleReasons(Gpu* d, unsigned long long* which) {
  ENTER(d);
  return *which = 0x1ff, kOk;
}
NVML_API nvmlDeviceGetSupportedClocksEventReasons(Gpu* d, unsigned long long* which) {
  ENTER(d);
  return *which = 0x1ff, kOk;
}
NVML_API nvmlDeviceGetPerformanceState(Gpu* d, unsigned* state) {
  ENTER(d);
  return *state = load(*d).busy > 0 ? 0 : 8, kOk;
}
NVML_API nvmlDeviceGetPowerState(Gpu* d, unsigned* state) { return nvmlDeviceGetPerformanceState(d, state); }
NVML_API nvmlDeviceGetViolationStatus(Gpu* d, unsigned, ViolationTime* time) {
  ENTER(d);
  time->reference = now_ns() / 1000;
  return time->violation = (unsigned long long)reading(*d, "VIOLATION_NS", 0), kOk;
}

NVML_API nvmlDeviceGetPowerUsage(Gpu* d, unsigned* mw) {
  ENTER(d);
  return *mw = (unsigned)(1000 * power(*d)), kOk;
}
NVML_API nvmlDeviceGetPowerManagementMode(Gpu* d, unsigned* mode) {
  ENTER(d);
  return *mode = 1, kOk;
}
NVML_API nvmlDeviceGetPowerManagementLimit(Gpu* d, unsigned* mw) {
  ENTER(d);
  return *mw = (unsigned)(1000 * power_limit(*d)), kOk;
}
NVML_API nvmlDeviceGetEnforcedPowerLimit(Gpu* d, unsigned* mw) { return nvmlDeviceGetPowerManagementLimit(d, mw); }
NVML_API nvmlDeviceGetPowerManagementDefaultLimit(Gpu* d, unsigned* mw) {
  ENTER(d);
  return *mw = (unsigned)reading(*d, "DEFAULT_POWER_LIMIT_W", 400) * 1000, kOk;
}
NVML_API nvmlDeviceGetPowerManagementLimitConstraints(Gpu* d, unsigned* least, unsigned* most) {
  ENTER(d);
  return *least = 100000, *most = (unsigned)reading(*d, "DEFAULT_POWER_LIMIT_W", 400) * 1000, kOk;
}
NVML_API nvmlDeviceGetPowerSource(Gpu* d, unsigned* source) {
  ENTER(d);
  return *source = 0, kOk;
}
NVML_API nvmlDeviceGetTotalEnergyConsumption(Gpu* d, unsigned long long* mj) {
  ENTER(d);
  return *mj = energy_mj(*d), kOk;
}

NVML_API nvmlDeviceGetTemperature(Gpu* d, unsigned sensor, unsigned* celsius) {
  ENTER(d);
  if (sensor != 0) return kInvalidArgument;
  return *celsius = (unsigned)temperature(*d), kOk;
}
NVML_API nvmlDeviceGetTemperatureV(Gpu* d, TemperatureV1* t) {
  ENTER(d);
  if (t->sensor != 0) return kInvalidArgument;
  return t->temperature = temperature(*d), kOk;
}
NVML_API nvmlDeviceGetTemperatureThreshold(Gpu* d, unsigned which, unsigned* celsius) {
  ENTER(d);
  return *celsius = which == 0 ? 95 : which == 1 ? 90 : 85, kOk;  // shut down, slow down, the rest
}
// Data centre cards have no fan of their own.
NVML_API nvmlDeviceGetFanSpeed(Gpu* d, unsigned* percent) {
  ENTER(d);
  double fan = reading(*d, "FAN_PERCENT", -1);
  if (fan < 0) return kNotSupported;
  return *percent = (unsigned)fan, kOk;
}
NVML_API nvmlDeviceGetNumFans(Gpu* d, unsigned* fans) {
  ENTER(d);
  return *fans = reading(*d, "FAN_PERCENT", -1) < 0 ? 0 : 1, kOk;
}

// ---- errors -------------------------------------------------------------------------------------------------------

NVML_API nvmlDeviceGetEccMode(Gpu* d, unsigned* current, unsigned* pending) {
  ENTER(d);
  return *current = *pending = (unsigned)reading(*d, "ECC", 1), kOk;
}
NVML_API nvmlDeviceGetTotalEccErrors(Gpu* d, unsigned type, unsigned, unsigned long long* count) {
  ENTER(d);
  if (!reading(*d, "ECC", 1)) return kNotSupported;
  return *count = (unsigned long long)reading(*d, type ? "ECC_UNCORRECTED" : "ECC_CORRECTED", 0), kOk;
}
NVML_API nvmlDeviceGetMemoryErrorCounter(Gpu* d, unsigned type, unsigned kind, unsigned, unsigned long long* count) {
  return nvmlDeviceGetTotalEccErrors(d, type, kind, count);
}
NVML_API nvmlDeviceGetDetailedEccErrors(Gpu* d, unsigned type, unsigned kind, EccCounts* counts) {
  memset(counts, 0, sizeof *counts);
  return nvmlDeviceGetTotalEccErrors(d, type, kind, &counts->memory);
}
NVML_API nvmlDeviceGetRetiredPages(Gpu* d, unsigned, unsigned* count, unsigned long long*) {
  ENTER(d);
  return *count = 0, kOk;
}
NVML_API nvmlDeviceGetRetiredPagesPendingStatus(Gpu* d, unsigned* pending) {
  ENTER(d);
  return *pending = 0, kOk;
}
NVML_API nvmlDeviceGetRemappedRows(Gpu* d, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                                   unsigned* failed) {
  ENTER(d);
  return *corrected = *uncorrected = *pending = *failed = 0, kOk;
}

// ---- fields: readings by number -----------------------------------------------------------------------------------

NVML_API nvmlDeviceGetFieldValues(Gpu* d, int count, FieldValue* values) {
  ENTER(d);
  Recent totals = since_start(d->index);
  int64_t links = (int64_t)reading(*d, "NVLINKS", config().count > 1 ? 4 : 0);
  for (int i = 0; i < count; i++) {
    FieldValue& v = values[i];
    v.time = now_ns() / 1000, v.latency_us = 1, v.result = kOk, v.type = kUnsignedLongLong;
    switch (v.field) {
      case 82:  // memory temperature
        v.type = kUnsigned, v.value.u = temperature(*d) + 6;
        break;
      case 83:  // energy
        v.value.ull = energy_mj(*d);
        break;
      case 90:  // speed of one link, in MB/s
        v.type = kUnsigned, v.value.u = links ? 25781 : 0;
        break;
      case 91:  // NVLinks
        v.type = kUnsigned, v.value.u = (unsigned)links;
        break;
      case 94:  // PCIe replays
        v.type = kUnsigned, v.value.u = (unsigned)reading(*d, "PCIE_REPLAYS", 0);
        break;
      case 138:  // NVLink payload, in KiB: sent and received; a copy between GPUs counts for both
      case 139:
      case 140:
      case 141:
        v.value.ull = totals.bytes[kBetween] / 1024;
        if (!links) v.result = kNotSupported;
        break;
      case 185:  // power: average and now
      case 186:
        v.type = kUnsigned, v.value.u = (unsigned)(1000 * power(*d));
        break;
      case 197:  // PCIe, bytes sent
        v.value.ull = totals.bytes[kFromDevice];
        break;
      case 198:  // ... and received
        v.value.ull = totals.bytes[kToDevice];
        break;
      default:
        v.result = kNotSupported;
    }
  }
  return kOk;
}
