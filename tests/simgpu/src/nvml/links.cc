// PCIe and NVLink.
#include <string.h>

#include <algorithm>

#include "nvml.h"

using namespace simgpu;

namespace {
constexpr unsigned kMaxLinks = 36;

unsigned links(const Gpu& d) { return (unsigned)reading(d, "NVLINKS", config().count > 1 ? 4 : 0); }

Return check_link(const Gpu& d, unsigned link) {
  if (link >= kMaxLinks) return kInvalidArgument;
  return links(d) ? kOk : kNotSupported;
}
unsigned generation(const Gpu& d, bool most) {
  unsigned max = (unsigned)reading(d, "PCIE_MAX_GEN", 4);
  return most ? max : (unsigned)reading(d, "PCIE_GEN", max);
}
unsigned width(const Gpu& d, bool most) {
  unsigned max = (unsigned)reading(d, "PCIE_MAX_WIDTH", 16);
  return most ? max : (unsigned)reading(d, "PCIE_WIDTH", max);
}
}  // namespace

NVML_API nvmlDeviceGetCurrPcieLinkGeneration(Gpu* d, unsigned* gen) {
  ENTER(d);
  return *gen = generation(*d, false), kOk;
}
NVML_API nvmlDeviceGetMaxPcieLinkGeneration(Gpu* d, unsigned* gen) {
  ENTER(d);
  return *gen = generation(*d, true), kOk;
}
NVML_API nvmlDeviceGetGpuMaxPcieLinkGeneration(Gpu* d, unsigned* gen) {
  ENTER(d);
  return *gen = generation(*d, true), kOk;
}
NVML_API nvmlDeviceGetCurrPcieLinkWidth(Gpu* d, unsigned* lanes) {
  ENTER(d);
  return *lanes = width(*d, false), kOk;
}
NVML_API nvmlDeviceGetMaxPcieLinkWidth(Gpu* d, unsigned* lanes) {
  ENTER(d);
  return *lanes = width(*d, true), kOk;
}
NVML_API nvmlDeviceGetPcieSpeed(Gpu* d, unsigned* mbps) {
  ENTER(d);
  return *mbps = 1000u << generation(*d, false), kOk;
}
// KB/s over the last 20 ms, which is all that NVML looks at.
NVML_API nvmlDeviceGetPcieThroughput(Gpu* d, unsigned received, unsigned* kbps) {
  ENTER(d);
  if (received > 1) return kInvalidArgument;
  constexpr int64_t window = 20 * 1000000;
  int64_t bytes = recent(d->index, window).bytes[received ? kToDevice : kFromDevice];
  return *kbps = (unsigned)(bytes * 1e9 / window / 1024), kOk;
}
NVML_API nvmlDeviceGetPcieReplayCounter(Gpu* d, unsigned* count) {
  ENTER(d);
  return *count = (unsigned)reading(*d, "PCIE_REPLAYS", 0), kOk;
}

NVML_API nvmlDeviceGetNvLinkState(Gpu* d, unsigned link, unsigned* active) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  return *active = link < links(*d), kOk;
}
NVML_API nvmlDeviceGetNvLinkVersion(Gpu* d, unsigned link, unsigned* version) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  return *version = 3, kOk;
}
NVML_API nvmlDeviceGetNvLinkCapability(Gpu* d, unsigned link, unsigned capability, unsigned* has) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  return *has = capability == 0 || capability == 2, kOk;  // peer access and atomics
}
NVML_API nvmlDeviceGetNvLinkErrorCounter(Gpu* d, unsigned link, unsigned, unsigned long long* count) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  return *count = (unsigned long long)reading(*d, "NVLINK_ERRORS", 0), kOk;
}
NVML_API nvmlDeviceGetNvLinkUtilizationCounter(Gpu* d, unsigned link, unsigned, unsigned long long* received,
                                               unsigned long long* sent) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  bool active = link < links(*d);
  return *received = *sent = active ? since_start(d->index).bytes[kBetween] / links(*d) : 0, kOk;
}
NVML_API nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu* d, unsigned link, PciInfo* pci) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  int other = (d->index + 1) % config().count;  // a ring
  memset(pci, 0, sizeof *pci);
  pci->bus = other + 1;
  hand_out(pci_bus_id(other), pci->legacy, sizeof pci->legacy);
  return hand_out(pci_bus_id(other, true), pci->bus_id, sizeof pci->bus_id);
}
NVML_API nvmlDeviceGetNvLinkRemoteDeviceType(Gpu* d, unsigned link, unsigned* type) {
  ENTER(d);
  Return bad = check_link(*d, link);
  if (bad) return bad;
  return *type = 0, kOk;  // a GPU
}
