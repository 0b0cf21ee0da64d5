#include "machine/local_sum_internal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <random>
#include <system_error>
#include <utility>

namespace ql::machine {
namespace {

// Numbers: half a megabyte, so that the slots of some processes stay in a cache that cores share.
constexpr std::int64_t kSlot = 1 << 17;

// What a process tells the others of each chunk.
constexpr int kWritten = 0, kSummed = 1;

// Looks at an event before the thread sleeps.
constexpr int kLooks = 100;
// At most, to see that this object ends.
constexpr timespec kSleep = {0, 100'000'000};

// Thrown where waiting for the others has been broken off.
struct Ending {};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Which memory it is, and whom the numbers of processes in it belong to.
struct Identity {
  std::uint64_t token = 0, process_namespace = 0;
};

std::uint64_t process_namespace() {
  struct stat status = {};
  ::stat("/proc/self/ns/pid", &status);
  return status.st_ino;
}

std::uint64_t random_token() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

// The number of the last chunk that a process has written or summed, and the process's own number.
// Each has a line of the cache.
struct alignas(64) LocalSum::Event {
  std::atomic<std::uint32_t> chunk{0};
  std::atomic<pid_t> process{0};
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "other processes see no locks");
};

// The memory: its identity, in the place of one more event, the events, the slots.
LocalSum::LocalSum(int rank, int size, const std::string& where)
    : rank_(rank), size_(size), where_(where) {
  const auto processes = static_cast<std::size_t>(size);
  bytes_ = (1 + 2 * processes) * sizeof(Event) + 2 * processes * kSlot * sizeof(float);
  try {
    if (where.empty()) {
      make();
    } else {
      open();
    }
    event(rank, kWritten).process = ::getpid();
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    release();
    throw;
  }
}

LocalSum::~LocalSum() {
  ending_ = true;
  { const std::lock_guard<std::mutex> lock(mutex_); }
  changed_.notify_all();
  thread_.join();
  release();
}

void LocalSum::release() noexcept {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LocalSum::make() {
  descriptor_ = ::memfd_create("ql-local-sum", MFD_CLOEXEC);
  if (descriptor_ < 0) fail("memfd_create");
  // Memory that is not there must not be noticed by a signal in the middle of a sum.
  if (const int problem = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
      problem != 0) {
    errno = problem;
    fail("posix_fallocate");
  }
  map(descriptor_);
  const std::uint64_t token = random_token();
  const Identity identity{token, process_namespace()};
  std::memcpy(memory_, &identity, sizeof identity);
  where_ = fmt::format("/proc/{}/fd/{} {}", ::getpid(), descriptor_, token);
}

void LocalSum::open() {
  const std::size_t blank = where_.find(' ');
  const int descriptor = ::open(where_.substr(0, blank).c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail("open");
  try {
    map(descriptor);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
  // On another machine the same name may be another file, and in another container the numbers of
  // processes are others.
  Identity identity;
  std::memcpy(&identity, memory_, sizeof identity);
  if (std::to_string(identity.token) != where_.substr(blank + 1) ||
      identity.process_namespace != process_namespace()) {
    errno = ENOENT;
    fail("token");
  }
}

void LocalSum::map(int descriptor) {
  if (::lseek(descriptor, 0, SEEK_END) != static_cast<off_t>(bytes_)) {
    errno = EINVAL;
    fail("lseek");
  }
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) fail("mmap");
  memory_ = static_cast<char*>(memory);
}

// Zeros of new memory are events of no chunk.
LocalSum::Event& LocalSum::event(int rank, int kind) const {
  return reinterpret_cast<Event*>(memory_)[1 + 2 * rank + kind];
}

// The slot of this chunk: a process may be one chunk ahead of another one, not two, as it waits for
// what the others have summed.
float* LocalSum::slot(int rank) const {
  char* slots = memory_ + (1 + 2 * static_cast<std::size_t>(size_)) * sizeof(Event);
  return reinterpret_cast<float*>(slots) + (2 * rank + static_cast<int>(chunk_ % 2)) * kSlot;
}

std::future<void> LocalSum::start(const at::Tensor& tensor) {
  Task task{tensor, {}};
  std::future<void> done = task.done.get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return done;
}

std::optional<int> LocalSum::find_ended() const {
  for (int other = 0; other < size_; ++other) {
    const pid_t process = event(other, kWritten).process;
    if (process != 0 && ::kill(process, 0) != 0 && errno == ESRCH) return other;
  }
  return std::nullopt;
}

void LocalSum::run() {
  try {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (ending_) return;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      sum(task.tensor.data_ptr<float>(), task.tensor.numel());
      task.done.set_value();
    }
  } catch (const Ending&) {
    // Nobody waits for the result any more.
  }
}

void LocalSum::sum(float* values, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kSlot) {
    sum_chunk(values + begin, std::min(kSlot, count - begin));
  }
}

void LocalSum::sum_chunk(float* values, std::int64_t count) {
  ++chunk_;
  const auto begin = [&](int rank) { return count * rank / size_; };
  const auto bytes = [&](int rank) {
    return static_cast<std::size_t>(begin(rank + 1) - begin(rank)) * sizeof(float);
  };
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) {
      std::memcpy(slot(rank_) + begin(other), values + begin(other), bytes(other));
    }
  }
  tell(kWritten);
  // In the order of ranks, whichever process it is that adds them up.
  float* sum = slot(rank_) + begin(rank_);
  const std::int64_t own_count = begin(rank_ + 1) - begin(rank_);
  for (int rank = 0; rank < size_; ++rank) {
    const float* addends = values + begin(rank_);
    if (rank != rank_) {
      wait_for(rank, kWritten);
      addends = slot(rank) + begin(rank_);
    }
    if (rank == 0) {
      std::memcpy(sum, addends, bytes(rank_));
      continue;
    }
    for (std::int64_t i = 0; i < own_count; ++i) sum[i] += addends[i];
  }
  tell(kSummed);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) wait_for(rank, kSummed);
    std::memcpy(values + begin(rank), slot(rank) + begin(rank), bytes(rank));
  }
}

void LocalSum::tell(int kind) const {
  Event& own = event(rank_, kind);
  own.chunk.store(chunk_, std::memory_order_release);
  ::syscall(SYS_futex, &own.chunk, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void LocalSum::wait_for(int rank, int kind) const {
  const Event& other = event(rank, kind);
  for (int looks = 0;; ++looks) {
    const std::uint32_t seen = other.chunk.load(std::memory_order_acquire);
    // Numbers begin anew after 2^32 chunks.
    if (static_cast<std::int32_t>(seen - chunk_) >= 0) return;
    if (ending_) throw Ending();
    if (looks >= kLooks) ::syscall(SYS_futex, &other.chunk, FUTEX_WAIT, seen, &kSleep, nullptr, 0);
  }
}

}  // namespace ql::machine
