// A stream: a queue of work and the thread that does it, one after the other.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

struct SP_Stream_st {
  const int device, id;

  SP_Stream_st(int device, int id);
  ~SP_Stream_st();
  uint64_t push(std::function<void()> work);  // returns how much has been queued so far
  void wait_for(uint64_t n);                  // until the first n pieces of work are done
  uint64_t pending();                         // what wait_for must be given to wait for all, 0 where nothing is left
  void drain() { wait_for(pending()); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<std::function<void()>> queue_;
  uint64_t queued_ = 0, finished_ = 0;
  bool quit_ = false;
  std::thread thread_;
};
