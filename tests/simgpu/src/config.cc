#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace simgpu {
namespace {

// A knob that is no number must not silently become 0: a GPU without bandwidth explains nothing.
double knob(const char* name, double otherwise) {
  const char* text = getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  double value = strtod(text, &end);
  if (*end || value < 0) {
    fprintf(stderr, "simgpu: %s=%s is not a number of 0 or more\n", name, text);
    exit(2);
  }
  return value;
}

}  // namespace

const Config& config() {
  static const Config c = [] {
    Config k;
    k.count = std::min(kMaxDevices, (int)knob("SIMGPU_COUNT", 1));
    k.mem_mb = knob("SIMGPU_MEM_MB", 4096);
    k.h2d_gbps = knob("SIMGPU_H2D_GBPS", 12);
    k.d2h_gbps = knob("SIMGPU_D2H_GBPS", 12);
    k.pageable_gbps = knob("SIMGPU_PAGEABLE_GBPS", 6);
    k.d2d_gbps = knob("SIMGPU_D2D_GBPS", 300);
    k.stage_gbps = knob("SIMGPU_STAGE_GBPS", 4);
    k.copy_us = knob("SIMGPU_COPY_US", 8);
    k.launch_us = knob("SIMGPU_LAUNCH_US", 4);
    k.kernel_us = knob("SIMGPU_KERNEL_US", 3);
    k.gflops = knob("SIMGPU_GFLOPS", 10000);
    k.tensor_cores = knob("SIMGPU_TENSOR_CORES", 1);
    k.mem_gbps = knob("SIMGPU_MEM_GBPS", 500);
    k.compute = knob("SIMGPU_COMPUTE", 1) != 0;
    k.wait = knob("SIMGPU_WAIT", 1) != 0;
    k.guard = knob("SIMGPU_GUARD", 1) != 0;
    return k;
  }();
  return c;
}

std::vector<int> visible_devices() {
  std::vector<int> all, seen;
  for (int i = 0; i < config().count; i++) all.push_back(i);
  const char* text = getenv("CUDA_VISIBLE_DEVICES");
  if (!text) return all;
  std::string rest = text;
  while (!rest.empty()) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string entry = rest.substr(0, comma);
    rest = comma < rest.size() ? rest.substr(comma + 1) : "";
    entry.erase(std::remove(entry.begin(), entry.end(), ' '), entry.end());
    int found = -1;
    for (int d : all) {
      bool by_uuid = entry.size() > 4 && uuid_of(d).compare(0, entry.size(), entry) == 0;  // a prefix will do
      if (by_uuid || entry == std::to_string(d)) found = d;
    }
    if (found < 0 || std::count(seen.begin(), seen.end(), found)) break;
    seen.push_back(found);
  }
  return seen;
}

std::string uuid_of(int device) {
  char text[64];
  snprintf(text, sizeof text, "GPU-51a6%04x-0000-4000-8000-%012d", device, device);
  return text;
}

std::string pci_bus_id(int device, bool long_domain) {
  char text[32];
  snprintf(text, sizeof text, long_domain ? "00000000:%02X:00.0" : "0000:%02x:00.0", device + 1);
  return text;
}

const char* device_name() {
  const char* name = getenv("SIMGPU_NAME");
  return name && *name ? name : "Simulated GPU";
}

}  // namespace simgpu
