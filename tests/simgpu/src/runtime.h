// The device as its kernels see it, and what the parts of the runtime share.
#pragma once
#include <stdint.h>

#include <functional>
#include <string>

#include "activity.h"
#include "config.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "truth.h"

namespace simgpu {

// Launches `body` on a stream as a kernel: charges the launch cost to the calling thread, then, on the stream's
// thread, runs `body` and holds the stream until the modelled duration has passed.
void launch(SP_Stream stream, const char* kernel, const std::string& node, const char* op, double flops, double bytes,
            std::function<void()> body);

void* backing(const void* p);      // the memory behind a device pointer; other pointers as they are
bool on_device(const void* p);     // is it device memory, behind the guard or not?
int physical_device(int ordinal);  // the machine's number of a GPU that this process calls `ordinal`
void spin_ns(int64_t ns);          // keeps the calling thread busy
void hold_until(int64_t t);        // returns at time t; sleeps most of the way where that is long
bool is_pinned(const void* p);     // page-locked host memory?
int device_of(const void* p);      // the GPU that a device pointer belongs to
void drain_all_streams();          // returns when all queued work is done

// From tensorflow_cxx.cc: what only TensorFlow's C++ side knows.
int64_t thread_id();       // as the host tracer numbers threads
std::string annotation();  // the calling thread's profiler annotation
void annotations(bool on);

// The tables of functions that TensorFlow asks for, filled in by the file that implements them.
void fill_memory_functions(SP_StreamExecutor*);
void fill_stream_functions(SP_StreamExecutor*);
void fill_copy_functions(SP_StreamExecutor*);
void fill_timer_functions(SP_TimerFns*);

inline void succeed(TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

}  // namespace simgpu
