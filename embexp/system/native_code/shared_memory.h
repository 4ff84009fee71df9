// Memory that the workers of one machine share, and in which they exchange messages.
//
// The memory is a file without a name, made by worker 0 and inherited by the others. Each worker has two boxes, which it
// fills in turn. It begins its turn n + 2 when it has read all of n + 1, so the others have then read its box of turn n.

#ifndef EMBEXP_SHARED_MEMORY_H_
#define EMBEXP_SHARED_MEMORY_H_

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace embexp {

constexpr int64_t kHead = 1 << 20;  // bytes before the boxes, as in `shared_memory.py`
constexpr int kSpins = 500;
constexpr long kWakesAfter = 50'000'000;  // nanoseconds, after which a waiting worker looks whether the run has ended

struct alignas(64) Line {
  std::atomic<uint32_t> value;  // of the first line, whether a worker was lost; of others, the turn that was written
  int64_t kinds[2], sizes[2];   // of what is in the boxes
};

class Memory {
 public:
  static absl::Status Of(int file, int worker, int workers, Memory** found) {
    static std::mutex mutex;
    static std::map<int, Memory*> known;
    std::lock_guard<std::mutex> lock(mutex);
    Memory*& each = known[file];
    if (each == nullptr) {
      struct stat status;
      if (fstat(file, &status) != 0) return absl::InternalError("the shared memory is not open");
      void* base = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
      if (base == MAP_FAILED) return absl::InternalError("the shared memory can't be mapped");
      each = new Memory(static_cast<char*>(base), (status.st_size - kHead) / (2 * workers), worker, workers);
    }
    *found = each;
    return absl::OkStatus();
  }

  // Writes a message into this worker's box, and reads those of all. `kind` and `size` must be alike for all.
  template <typename Write, typename Read>
  absl::Status Turn(int64_t kind, int64_t size, int64_t bytes, const Write& write, const Read& read) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > room_) return absl::ResourceExhaustedError(absl::StrCat("a message of ", bytes, " bytes is too long"));
    const uint32_t turn = ++turn_;
    Line& own = line(worker_);
    write(Box(worker_, turn));
    own.kinds[turn & 1] = kind;
    own.sizes[turn & 1] = size;
    own.value.store(turn, std::memory_order_release);
    syscall(SYS_futex, &own.value, FUTEX_WAKE, workers_, nullptr, nullptr, 0);
    for (int w = 0; w < workers_; ++w) {
      if (w == worker_) continue;
      if (!Awaited(line(w).value, turn)) return absl::UnavailableError("another worker was lost");
      if (line(w).kinds[turn & 1] != kind || line(w).sizes[turn & 1] != size)
        return absl::InternalError(absl::StrCat("worker ", w, " exchanges something else"));
    }
    std::vector<const char*> boxes(workers_);
    for (int w = 0; w < workers_; ++w) boxes[w] = Box(w, turn);
    return read(boxes);
  }

 private:
  Memory(char* base, int64_t room, int worker, int workers)
      : base_(base), room_(room), worker_(worker), workers_(workers) {}
  Line& line(int worker) const { return reinterpret_cast<Line*>(base_)[1 + worker]; }
  char* Box(int worker, uint32_t turn) const { return base_ + kHead + (2 * worker + (turn & 1)) * room_; }

  // Whether a worker comes to a turn; not if one was lost.
  bool Awaited(std::atomic<uint32_t>& value, uint32_t turn) const {
    const auto comes = [&](uint32_t now) { return static_cast<int32_t>(now - turn) >= 0; };
    for (int spin = 0; spin < kSpins; ++spin) {
      if (comes(value.load(std::memory_order_acquire))) return true;
    }
    while (true) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (comes(now)) return true;
      if (reinterpret_cast<Line*>(base_)->value.load(std::memory_order_relaxed) != 0) return false;
      const timespec wait{0, kWakesAfter};
      syscall(SYS_futex, &value, FUTEX_WAIT, now, &wait, nullptr, 0);
    }
  }

  char* const base_;
  const int64_t room_;
  const int worker_, workers_;
  uint32_t turn_ = 0;
  std::mutex mutex_;
};

}  // namespace embexp

#endif  // EMBEXP_SHARED_MEMORY_H_
