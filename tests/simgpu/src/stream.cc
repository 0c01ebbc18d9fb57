#include "stream.h"

#include <atomic>
#include <memory>
#include <vector>

#include "runtime.h"

SP_Stream_st::SP_Stream_st(int device, int id) : device(device), id(id), thread_([this] { run(); }) {}

SP_Stream_st::~SP_Stream_st() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    quit_ = true;
    work_.notify_one();
  }
  thread_.join();
}

void SP_Stream_st::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return quit_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds goes before it counts as done
    lock.lock();
    finished_++;
    done_.notify_all();
  }
}

uint64_t SP_Stream_st::push(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(work));
  work_.notify_one();
  return ++queued_;
}

void SP_Stream_st::wait_for(uint64_t n) {
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return finished_ >= n; });
}

uint64_t SP_Stream_st::pending() {
  std::lock_guard<std::mutex> lock(mutex_);
  return finished_ < queued_ ? queued_ : 0;
}

// An event outlives its handle: TensorFlow destroys events that streams have yet to reach.
struct EventState {
  std::mutex mutex;
  std::condition_variable reached_more;
  uint64_t recorded = 0, reached = 0;
};
struct SP_Event_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};
struct SP_Timer_st {
  std::atomic<int64_t> t0{0}, t1{0};
};

namespace simgpu {
namespace {

std::mutex g_mutex;
std::vector<SP_Stream> g_streams;

void create_stream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  std::lock_guard<std::mutex> lock(g_mutex);
  // CUDA's first streams carry small numbers, too: traces number TensorFlow's from 13 on.
  *stream = new SP_Stream_st(device->ordinal, 13 + (int)g_streams.size());
  g_streams.push_back(*stream);
  succeed(status);
}

void destroy_stream(const SP_Device*, SP_Stream stream) {
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    for (auto& s : g_streams)
      if (s == stream) s = nullptr;
  }
  delete stream;
}

void stream_dependency(const SP_Device*, SP_Stream dependent, SP_Stream other, TF_Status* status) {
  uint64_t n = other->pending();
  if (n && dependent != other) dependent->push([other, n] { other->wait_for(n); });
  succeed(status);
}

void stream_status(const SP_Device*, SP_Stream, TF_Status* status) { succeed(status); }

void create_event(const SP_Device*, SP_Event* event, TF_Status* status) {
  *event = new SP_Event_st;
  succeed(status);
}

void destroy_event(const SP_Device*, SP_Event event) { delete event; }

SE_EventStatus event_status(const SP_Device*, SP_Event event) {
  std::lock_guard<std::mutex> lock(event->state->mutex);
  return event->state->reached >= event->state->recorded ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}

void record_event(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  auto state = event->state;
  uint64_t n;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    n = ++state->recorded;
  }
  stream->push([state, n] {
    std::lock_guard<std::mutex> lock(state->mutex);
    if (n > state->reached) state->reached = n;
    state->reached_more.notify_all();
  });
  succeed(status);
}

uint64_t recorded(EventState& state) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.recorded;
}

void await(EventState& state, uint64_t n) {
  std::unique_lock<std::mutex> lock(state.mutex);
  state.reached_more.wait(lock, [&] { return state.reached >= n; });
}

void wait_for_event(const SP_Device*, SP_Stream stream, SP_Event event, TF_Status* status) {
  auto state = event->state;
  uint64_t n = recorded(*state);
  stream->push([state, n] { await(*state, n); });
  succeed(status);
}

void block_host_for_event(const SP_Device*, SP_Event event, TF_Status* status) {
  auto state = event->state;
  await(*state, recorded(*state));
  succeed(status);
}

void block_host_until_done(const SP_Device*, SP_Stream stream, TF_Status* status) {
  stream->drain();
  succeed(status);
}

void synchronize_all(const SP_Device*, TF_Status* status) {
  drain_all_streams();
  succeed(status);
}

TF_Bool host_callback(const SP_Device*, SP_Stream stream, SE_StatusCallbackFn callback, void* argument) {
  stream->push([callback, argument] {
    TF_Status* status = TF_NewStatus();
    callback(argument, status);
    TF_DeleteStatus(status);
  });
  return true;
}

void create_timer(const SP_Device*, SP_Timer* timer, TF_Status* status) {
  *timer = new SP_Timer_st;
  succeed(status);
}

void destroy_timer(const SP_Device*, SP_Timer timer) { delete timer; }

void start_timer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  stream->push([timer] { timer->t0 = now_ns(); });
  succeed(status);
}

void stop_timer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  stream->push([timer] { timer->t1 = now_ns(); });
  succeed(status);
}

uint64_t timer_ns(SP_Timer timer) { return timer->t1 - timer->t0; }

}  // namespace

void drain_all_streams() {
  std::vector<SP_Stream> all;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    all = g_streams;
  }
  for (auto stream : all)
    if (stream) stream->drain();
}

void fill_stream_functions(SP_StreamExecutor* x) {
  x->create_stream = create_stream;
  x->destroy_stream = destroy_stream;
  x->create_stream_dependency = stream_dependency;
  x->get_stream_status = stream_status;
  x->create_event = create_event;
  x->destroy_event = destroy_event;
  x->get_event_status = event_status;
  x->record_event = record_event;
  x->wait_for_event = wait_for_event;
  x->create_timer = create_timer;
  x->destroy_timer = destroy_timer;
  x->start_timer = start_timer;
  x->stop_timer = stop_timer;
  x->block_host_for_event = block_host_for_event;
  x->block_host_until_done = block_host_until_done;
  x->synchronize_all_activity = synchronize_all;
  x->host_callback = host_callback;
}

void fill_timer_functions(SP_TimerFns* functions) {
  functions->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  functions->nanoseconds = timer_ns;
}

}  // namespace simgpu
