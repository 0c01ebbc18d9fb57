// The ground truth: what the simulated GPU really did, for tests to compare with what tfdiag says it did.
#pragma once
#include <stdint.h>

#include <string>
#include <vector>

namespace simgpu {

enum Kind { kKernel, kH2D, kD2H, kD2D, kMemset, kKinds };

struct Event {
  Kind kind = kKernel;
  int device = 0;              // as this process numbers it
  int peer = 0;                // of a copy between GPUs: the one that receives
  int stream = -1;             // -1: a synchronous copy, on no stream
  std::string name;            // of the kernel or copy
  std::string op;              // "node:Type" of the TensorFlow op, where there is one
  std::string note;            // the profiler's annotation at the time of the call
  int64_t api0 = 0, api1 = 0;  // the host's call ...
  int64_t t0 = 0, t1 = 0;      // ... and the device's work; ns since the epoch
  uint64_t bytes = 0;          // copied, or read and written by a kernel
  uint64_t correlation = 0;    // joins the two in a trace
  int64_t tid = 0;             // the calling thread, as TensorFlow's host tracer numbers it
  bool pinned = false, async = true;
  bool overrun = false;  // the host took longer to do it than the GPU would have
};

// Layout read through ctypes: see child.py.
struct Counters {
  int64_t kernels, h2d, d2h, d2d, memsets, h2d_bytes, d2h_bytes, d2d_bytes, kernel_ns, copy_ns, overruns, pageable_h2d;
};

uint64_t next_correlation();
void record(Event e);

void start_recording();               // for the profiler
std::vector<Event> stop_recording();  // what was recorded since
std::string annotate();               // the current annotation, while recording

}  // namespace simgpu
