// Device memory and page-locked host memory.
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>

#include "runtime.h"

namespace simgpu {
namespace {

// A device pointer lies in the lower half of an arena that is never readable; the memory behind it is at the same
// offset in the upper half. So a host thread that follows a device pointer crashes, as it would with a GPU: a kernel
// that TensorFlow runs on the host by mistake is found at once instead of being right by accident.
constexpr uint64_t kHalf = 1ull << 38;

char* arena() {
  static char* base = [] {
    void* p = mmap(nullptr, 2 * kHalf, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
  }();
  return base;
}

std::atomic<int64_t>& used_bytes(const SP_Device* device) {
  return own_activity().devices[physical_device(device->ordinal)].used_bytes;
}

// Which GPU a piece of the arena belongs to, by its offset.
std::mutex g_owners_mutex;
std::map<uint64_t, int>& owners() {
  static auto& map = *new std::map<uint64_t, int>;
  return map;
}

int64_t total_bytes() { return (int64_t)(config().mem_mb * 1048576); }

// Addresses are never used again: there are 256 GB of them, and a stale pointer shows itself.
void allocate(const SP_Device* device, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  static std::atomic<uint64_t> next{0};
  auto& used = used_bytes(device);
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = nullptr;
  memory->size = 0;
  if (!arena() || used + (int64_t)size > total_bytes()) return;
  uint64_t span = (size + 8191) & ~4095ull, at = next.fetch_add(span);
  if (at + span > kHalf) return;
  char* p = arena() + at;
  char* behind = p + kHalf;
  if (mprotect(behind, span, PROT_READ | PROT_WRITE)) return;
  used += size;
  {
    std::lock_guard<std::mutex> lock(g_owners_mutex);
    owners()[at] = device->ordinal;
  }
  memory->opaque = config().guard ? p : behind;
  memory->size = size;
}

void deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  if (memory->opaque) {
    madvise(backing(memory->opaque), memory->size, MADV_DONTNEED);
    used_bytes(device) -= memory->size;
  }
  memory->opaque = nullptr;
  memory->size = 0;
}

// Host memory that TensorFlow asked for as page-locked, by address: how copies are told apart.
std::mutex g_pinned_mutex;
std::map<uintptr_t, uint64_t>& pinned() {
  static auto& blocks = *new std::map<uintptr_t, uint64_t>;
  return blocks;
}

void* host_allocate(const SP_Device*, uint64_t size) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, size)) return nullptr;
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  pinned()[(uintptr_t)p] = size;
  return p;
}

void host_deallocate(const SP_Device*, void* p) {
  {
    std::lock_guard<std::mutex> lock(g_pinned_mutex);
    pinned().erase((uintptr_t)p);
  }
  free(p);
}

TF_Bool allocator_stats(const SP_Device*, SP_AllocatorStats*) { return false; }

TF_Bool memory_usage(const SP_Device* device, int64_t* free_bytes, int64_t* total) {
  *total = total_bytes();
  *free_bytes = *total - used_bytes(device);
  return true;
}

}  // namespace

void* backing(const void* p) {
  char *q = static_cast<char*>(const_cast<void*>(p)), *base = arena();
  return q >= base && q < base + kHalf ? q + kHalf : q;
}

bool on_device(const void* p) {
  const char *q = static_cast<const char*>(p), *base = arena();
  return q >= base && q < base + 2 * kHalf;
}

int device_of(const void* p) {
  std::lock_guard<std::mutex> lock(g_owners_mutex);
  auto it = owners().upper_bound(((char*)p - arena()) & (kHalf - 1));
  return it == owners().begin() ? -1 : std::prev(it)->second;
}

bool is_pinned(const void* p) {
  std::lock_guard<std::mutex> lock(g_pinned_mutex);
  auto it = pinned().upper_bound((uintptr_t)p);
  if (it == pinned().begin()) return false;
  --it;
  return (uintptr_t)p < it->first + it->second;
}

void fill_memory_functions(SP_StreamExecutor* x) {
  x->allocate = allocate;
  x->deallocate = deallocate;
  x->host_memory_allocate = host_allocate;
  x->host_memory_deallocate = host_deallocate;
  x->unified_memory_allocate = [](const SP_Device*, uint64_t) -> void* { return nullptr; };
  x->unified_memory_deallocate = [](const SP_Device*, void*) {};
  x->get_allocator_stats = allocator_stats;
  x->device_memory_usage = memory_usage;
}

}  // namespace simgpu
