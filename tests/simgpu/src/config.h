// The knobs: what the simulated machine is like. Read once, from the environment.
#pragma once
#include <stdint.h>

#include <string>
#include <vector>

namespace simgpu {

constexpr int kMaxDevices = 8;

struct Config {
  int count;             // GPUs in the machine; a process sees those that CUDA_VISIBLE_DEVICES names
  double mem_mb;         // memory of one GPU
  double h2d_gbps;       // copy bandwidth from page-locked host memory, GB/s
  double d2h_gbps;       // ... and back
  double pageable_gbps;  // upper limit of both when the host side is not page-locked
  double d2d_gbps;       // copies within and between GPUs
  double stage_gbps;     // rate at which a pageable H2D call copies to the staging buffer, on the calling thread
  double copy_us;        // latency of one copy across the bus
  double launch_us;      // host time of launching a kernel or a copy
  double kernel_us;      // the shortest kernel
  double gflops;         // arithmetic rate
  double tensor_cores;   // how many times that is products of short floats whose sizes are multiples of 8
  double mem_gbps;       // bandwidth of the GPU's own memory
  bool compute;          // false: results of kernels over 4 KB are garbage, their times are not
  bool wait;             // false: a stream does not wait for the modelled time
  bool guard;            // true: a host thread that reads a device pointer crashes, as it would with a GPU
};

const Config& config();

// The GPUs that this process sees, by their number in the machine, in the order in which it numbers them: what
// CUDA_VISIBLE_DEVICES says by number or UUID. As in CUDA, an entry that names no GPU ends the list.
std::vector<int> visible_devices();

// What the same GPU is called everywhere: in TensorFlow's device description, in traces and in NVML.
std::string uuid_of(int device);
std::string pci_bus_id(int device, bool long_domain = false);
const char* device_name();

}  // namespace simgpu
