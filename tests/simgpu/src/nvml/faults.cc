// Faults on demand, and the life of the library. The knobs are described in the README.
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "nvml.h"

namespace simgpu {
namespace {

struct Rule {
  std::string pattern;  // of function names, as a shell matches files
  Return result;
};

struct Faults {
  Return at_init = kOk;
  std::vector<Rule> rules;
  int lost_device = -1;  // -1: all
  double lost_after_calls = -1, lost_after_s = -1, delay_us = 0;
};

std::mutex g_mutex;
Faults g_faults;
int g_users = 0;  // nvmlInit calls that no nvmlShutdown has matched
std::atomic<int64_t> g_calls{0}, g_start_ns{0};

const char* variable(const char* name) {
  const char* text = getenv(name);
  return text && *text ? text : nullptr;
}
double number(const char* name, double otherwise) {
  const char* text = variable(name);
  return text ? atof(text) : otherwise;
}

Faults read_faults() {
  Faults f;
  f.at_init = (Return)(int)number("SIMGPU_NVML_INIT", 0);
  f.lost_device = (int)number("SIMGPU_NVML_LOST_DEVICE", -1);
  f.lost_after_calls = number("SIMGPU_NVML_LOST_AFTER_CALLS", -1);
  f.lost_after_s = number("SIMGPU_NVML_LOST_AFTER_S", -1);
  f.delay_us = number("SIMGPU_NVML_DELAY_US", 0);
  std::string rest = variable("SIMGPU_NVML_FAIL") ? variable("SIMGPU_NVML_FAIL") : "";  // "pattern=code,pattern=code"
  while (!rest.empty()) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string rule = rest.substr(0, comma);
    rest = comma < rest.size() ? rest.substr(comma + 1) : "";
    size_t equals = rule.find('=');
    if (equals == std::string::npos) continue;
    f.rules.push_back({rule.substr(0, equals), (Return)atoi(rule.c_str() + equals + 1)});
  }
  return f;
}

Return rule_for(const char* function) {
  for (auto& rule : g_faults.rules)
    if (fnmatch(rule.pattern.c_str(), function, 0) == 0) return rule.result;
  return kOk;
}

bool is_lost(const Gpu& device) {
  const Faults& f = g_faults;
  if (f.lost_device >= 0 && f.lost_device != device.index) return false;
  bool by_calls = f.lost_after_calls >= 0 && g_calls > f.lost_after_calls;
  bool by_time = f.lost_after_s >= 0 && now_ns() - g_start_ns >= f.lost_after_s * 1e9;
  return by_calls || by_time;
}

Return initialise() {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_faults = read_faults();
  if (g_faults.at_init) return g_faults.at_init;
  if (!g_start_ns) g_start_ns = now_ns();
  g_users++;
  return kOk;
}

}  // namespace

Return Enter::operator()() const {
  if (g_faults.delay_us > 0) {
    timespec t = {0, (long)(g_faults.delay_us * 1000)};
    nanosleep(&t, nullptr);
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!g_users) return kUninitialized;
  g_calls++;
  return rule_for(function);
}

Return Enter::operator()(const Gpu* device) const {
  Return result = (*this)();
  if (result) return result;
  bool known = false;
  for (int i = 0; i < config().count; i++)
    for (int s = -1; s < slices(); s++) known = known || device == gpu(i, s);
  if (!known) return kInvalidArgument;
  std::lock_guard<std::mutex> lock(g_mutex);
  return is_lost(*device) ? kGpuIsLost : kOk;
}

}  // namespace simgpu

using namespace simgpu;

NVML_API nvmlInit() { return initialise(); }
NVML_API nvmlInit_v2() { return initialise(); }
NVML_API nvmlInitWithFlags(unsigned) { return initialise(); }

NVML_API nvmlShutdown() {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!g_users) return kUninitialized;
  g_users--;
  return kOk;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(Return result) {
  switch (result) {
    case kOk:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNoPermission:
      return "Insufficient Permissions";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kFunctionNotFound:
      return "Function Not Found";
    case kGpuIsLost:
      return "GPU is lost";
    case kVersionMismatch:
      return "Driver/library version mismatch";
    case kVersionOfArgument:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}
